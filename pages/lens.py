"""When it decides: every layer read as if it were the last, and who wrote the answer."""

from dashboard.views.lens.page import page

page()
