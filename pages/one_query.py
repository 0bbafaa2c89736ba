"""One query, step by step: a sentence or three matrices through the six stages of the formula."""

from dashboard.views.one_query.page import page

page()
