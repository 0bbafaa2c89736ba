"""Side by side: two to six mechanisms on the same tokens, with one crosshair, their differences and their costs."""

from dashboard.views.compare.page import page

page()
