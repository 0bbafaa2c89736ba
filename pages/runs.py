"""Runs: everything that was trained here, to find, name, fork, compare, take away and bring in."""

from dashboard.views.runs.page import page

page()
