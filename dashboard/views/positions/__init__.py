"""Positions: one encoding at a time, seen as order, as a picture, by distance and under a shift."""
