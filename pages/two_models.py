"""Two models, two texts: attention held against attention, head by head and token by token."""

from dashboard.views.two_models.page import page

page()
