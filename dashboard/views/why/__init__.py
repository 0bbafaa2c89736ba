"""Why attention: a sentence is squeezed into one vector, or stays readable through attention."""
