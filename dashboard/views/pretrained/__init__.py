"""Inside a pretrained model: all its heads, one head, and what is said of them."""
