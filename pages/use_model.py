"""Use a model: fill a mask, classify, compare sentences, go on, translate, read a picture, beside the attention."""

from dashboard.views.use_model.page import page

page()
