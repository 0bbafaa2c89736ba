"""The Transformer: a model as a diagram that opens layer by layer, and what norms do to gradients with depth."""

from dashboard.views.transformer import sections
from dashboard.widgets.panels import next_page

sections.explore()
sections.sources()
next_page("transformer")
