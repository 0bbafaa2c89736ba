"""What the pictures of the page Positions share: the type of an equation, the chart, and a mean by distance."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.draw.palette import Ink
from dashboard.ui.presentation import draw_chart
from dashboard.views.positions.controls import key
from dashboard.widgets.panels import theme

Equation = tuple[str, str]  # the symbols, and the live numbers


def ink() -> Ink:
    return Ink.of(theme())


def chart(spec: dict, name: str, alt: str) -> None:
    draw_chart(st, spec, theme=None, key=key(name), alt=alt, width="stretch")


def mean_by_distance(cells: np.ndarray, distance: int) -> float:
    """The mean over all cells whose key is that many positions after their query (before it when negative)."""
    return float(np.diagonal(cells, distance, -2, -1).mean())
