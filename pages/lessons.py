"""Lessons: pages with a text and questions round them, to work through, to make, and to hand in."""

from dashboard.views.lessons.page import page

page()
