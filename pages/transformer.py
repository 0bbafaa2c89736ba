"""The Transformer: a model as a diagram that opens layer by layer, and what norms do to gradients with depth."""

from dashboard.panels import next_page
from dashboard.transformer import sections

sections.explore()
sections.sources()
next_page("transformer")
