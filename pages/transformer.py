"""The Transformer: a model as a diagram that opens layer by layer, and what norms do to gradients with depth."""

from dashboard.views.transformer.page import page

page()
