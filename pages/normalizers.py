"""Normalizers: the same scores through every rule that turns scores into weights."""

from dashboard.views.normalizers import sections
from dashboard.widgets.panels import next_page

sections.opening()
sections.explore()
sections.sources()
next_page("normalizers")
