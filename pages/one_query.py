"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

from dashboard.views.one_query import sections
from dashboard.widgets.panels import next_page

sections.opening()
sections.bench()
sections.root_of_d()
next_page("one_query")
