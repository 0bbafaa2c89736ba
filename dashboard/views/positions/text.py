"""What the ideas of the page Positions share: the chart, and numbers for their sentences."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.charts.palette import Ink
from dashboard.widgets.panels import theme

ROUNDING = 1e-5  # of weights and scores in fp32
Equation = tuple[str, str]  # the symbols, and the live numbers


def ink() -> Ink:
    return Ink.of(theme())


def chart(spec: dict, key: str, alt: str) -> None:
    st.vega_lite_chart(spec, theme=None, key=f"positions:{key}", alt=alt, width="stretch")


def without_rounding(changed: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The changed map, equal to the one before wherever they differ by rounding alone, which no picture should show."""
    return np.where(np.abs(changed - before) < ROUNDING, before, changed)


def mean_by_distance(cells: np.ndarray, distance: int) -> float:
    """The mean over all cells whose key is that many positions after their query (before it when negative)."""
    return float(np.diagonal(cells, distance, -2, -1).mean())
