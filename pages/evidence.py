"""Evidence: beside the weights what a head writes, its gradient, rollout and flow, and what the answer loses."""

from dashboard.views.evidence.page import page

page()
