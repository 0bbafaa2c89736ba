"""Scores: every way in which a query can meet a key, on the same queries and keys."""

from dashboard.views.scores.page import page

page()
