"""Lessons: to work through, to make, and the codes that students hand in."""
