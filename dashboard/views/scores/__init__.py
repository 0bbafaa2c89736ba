"""Scores: the same queries and keys, met in every way."""
