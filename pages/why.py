"""Why attention: the bottleneck as an experiment, measured before and repeated here on request."""

from dashboard.views.why import page
from dashboard.widgets.panels import next_page

page.explore()
page.sources()
next_page("why")
