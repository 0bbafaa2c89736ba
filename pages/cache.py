"""Cache and decoding: what a decoder stores of each token, what that saves, and how much memory it takes."""

from dashboard.views.cache.page import page

page()
