"""The Transformer page: a model taken apart layer by layer, and what norms do to gradients with depth."""
