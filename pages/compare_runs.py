"""Compare runs: two to four of them, over steps and over seconds, with their attention at the same step."""

from dashboard.views.compare_runs.page import page

page()
