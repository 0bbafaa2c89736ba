"""One query through the formula: inputs → config → Steps → equation, picture and sentence."""
