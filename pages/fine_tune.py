"""Fine-tune: train a pretrained model on a reader's rows, and compare its attention before and after."""

from dashboard.views.fine_tune.page import page

page()
