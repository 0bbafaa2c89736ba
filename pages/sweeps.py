"""Sweeps: vary one setting, train each value from several seeds, and test the differences."""

from dashboard.views.sweeps.page import page

page()
