"""Model cards: published models layer by layer, with their sizes, caches and costs."""

from dashboard.views.cards.page import page

page()
