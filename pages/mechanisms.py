"""All mechanisms: look up any choice of the six axes, see what it does to one sentence, and read all of its entry."""

from dashboard.views.mechanisms.page import page

page()
