"""Positions: how order enters attention, one encoding and one idea at a time."""

from dashboard.views.positions.page import page

page()
