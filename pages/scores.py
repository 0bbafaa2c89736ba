"""Scores: every way in which a query can meet a key, on the same queries and keys."""

from dashboard.views.scores import sections
from dashboard.widgets.panels import next_page

sections.opening()
sections.explore()
sections.costs()
sections.sources()
next_page("scores")
