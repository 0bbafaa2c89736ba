"""What the heads of a model do, measured over sentences: the page Head roles, and the marks on every grid of heads."""
