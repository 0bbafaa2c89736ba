"""Inside one weight: the query and the key that meet in one cell, up to the weight and what it carries."""

from dashboard.views.inside_weight.page import page

page()
