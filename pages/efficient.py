"""Cost and speed: what each kernel takes as the text grows, measured here, and the weights that some imply."""

from dashboard.views.efficient.page import page

page()
