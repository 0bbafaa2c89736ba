"""Generate: a pretrained model goes on with a text or answers one, and every new token shows where it looked."""

from dashboard.views.generate.page import page

page()
