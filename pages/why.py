"""Why attention: the bottleneck as an experiment, measured before and repeated here on request."""

from dashboard.panels import next_page
from dashboard.why import sections

sections.explore()
sections.sources()
next_page("why")
