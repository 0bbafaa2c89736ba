"""Glossary: the words of the field that the pages use."""

from dashboard.views.glossary.page import page

page()
