"""Scores: the same queries and keys, scored by every rule."""
