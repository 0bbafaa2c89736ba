"""Decode: greedy, beam search and sampling on a trained model, with the tree of what it might have said."""

from dashboard.views.decode.page import page

page()
