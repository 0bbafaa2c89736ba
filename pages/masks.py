"""Masks: pick, compose, type or draw who may see whom, and watch the same scores become other weights."""

from dashboard.views.masks.page import page

page()
