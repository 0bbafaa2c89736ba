"""Normalizers: the same scores through every rule that turns scores into weights."""

from dashboard.views.normalizers.page import page

page()
