"""Claims: classic statements about attention, each measured, with a verdict from the data."""

from dashboard.views.claims.page import page

page()
