"""Train and watch: train a small model in a worker process, and see its attention form."""

from dashboard.views.train.page import page

page()
