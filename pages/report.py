"""Report: views from any page, in order, as one HTML or PDF file."""

from dashboard.views.report.page import page

page()
