"""Questions: what learners ask about attention, answered with numbers computed on the page."""

from dashboard.views.questions.page import page

page()
