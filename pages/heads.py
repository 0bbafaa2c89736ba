"""Heads: one or many at the same width, keys and values shared, and two maps subtracted."""

from dashboard.views.heads.page import page

page()
