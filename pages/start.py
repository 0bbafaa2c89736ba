"""Start here: attention in five sentences, two moving pictures, a dictionary, and the path through the lab."""

from dashboard.views.start.page import page

page()
