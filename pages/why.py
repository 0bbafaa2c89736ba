"""Why attention: the bottleneck of one vector, measured, and trained again on request."""

from dashboard.views.why.page import page

page()
