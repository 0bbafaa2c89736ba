"""Every head of a pretrained model on what the reader gives it: the grid, one head, and its measures."""

from dashboard.views.pretrained.page import page

page()
