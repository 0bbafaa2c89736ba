"""Why attention: the bottleneck as an experiment, measured before and repeated here on request."""

from dashboard.views.why import sections
from dashboard.widgets.panels import next_page

sections.explore()
sections.sources()
next_page("why")
