"""The controls of a search for tokens that Decode and Generate share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from core.decoding import Strategy
from dashboard.widgets.params import BOUND

STRATEGIES: dict[str, Strategy] = {"Greedy": "greedy", "Beam": "beam", "Sampling": "sampling"}  # by label
TEMPERATURES = (0.1, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0, 3.0)


def strategy_settings(strategy: str, cells: Sequence[Any], key: Callable[[str], str], *, max_width: int,
                      penalty: tuple[str, float, str]) -> dict[str, Any]:
    """A strategy's settings, one a cell; `penalty` is the label, default and help of the length penalty."""
    if strategy == "Greedy":
        return {}
    if strategy == "Sampling":
        return _sampling_settings(cells, key)
    label, default, meaning = penalty
    return {"width": cells[0].slider("Width", 1, max_width, 4, key=key("width"), help="beginnings kept at each step",
                                     **BOUND),
            "length_penalty": cells[1].slider(label, 0.0, 2.0, default, 0.1, key=key("penalty"), **BOUND,
                                              help=meaning)}


def sample_count(most: int, default: int, key: Callable[[str], str]) -> dict[str, Any]:
    """How many samples are drawn, and from which seed."""
    return {"samples": st.slider("Samples", 1, most, default, key=key("samples"), **BOUND),
            "seed": st.number_input("Seed", 0, 10_000, 0, key=key("seed"), **BOUND)}


def _sampling_settings(cells: Sequence[Any], key: Callable[[str], str]) -> dict[str, Any]:
    return {"temperature": cells[0].select_slider("Temperature", TEMPERATURES, 1.0, key=key("temperature"), **BOUND,
                                                  help="below 1 sharpens, above 1 flattens"),
            "top_k": cells[1].number_input("Top-k", 0, 1000, 0, key=key("top_k"), **BOUND,
                                           help="draw from the k likeliest tokens; 0 for all"),
            "top_p": cells[2].slider("Top-p", 0.05, 1.0, 1.0, 0.05, key=key("top_p"), **BOUND,
                                     help="draw from the fewest tokens that together have this probability")}
