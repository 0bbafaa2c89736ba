"""The Transformer page: a model layer by layer, and the effect of norms on gradients by depth."""
