"""Cost and speed: what each kernel takes as the text grows, measured here, and what some of them weigh instead."""

from dashboard.views.efficient import sections
from dashboard.views.efficient.weighed import weighed
from dashboard.widgets.panels import next_page

sections.explore()
weighed()
sections.sources()
next_page("efficient")
