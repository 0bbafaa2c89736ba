"""Heads over a corpus: every head of a model measured on hundreds of texts."""

from dashboard.views.corpus.page import page

page()
