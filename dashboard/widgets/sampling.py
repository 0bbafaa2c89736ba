"""The controls of a search for tokens that Decode and Generate share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.decoding import Strategy
from dashboard.widgets.params import BOUND

STRATEGIES: dict[str, Strategy] = {"Greedy": "greedy", "Beam": "beam", "Sampling": "sampling"}  # by label
TEMPERATURES = (0.1, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0, 3.0)


def sampling_settings(cells: Sequence[Any], key: Callable[[str], str]) -> dict[str, Any]:
    """Temperature, top-k and top-p, one in each cell; `key` gives the page's own widget keys."""
    return {"temperature": cells[0].select_slider("Temperature", TEMPERATURES, 1.0, key=key("temperature"), **BOUND,
                                                  help="below 1 sharpens, above 1 flattens"),
            "top_k": cells[1].number_input("Top-k", 0, 1000, 0, key=key("top_k"), **BOUND,
                                           help="draw from the k likeliest tokens; 0 for all"),
            "top_p": cells[2].slider("Top-p", 0.05, 1.0, 1.0, 0.05, key=key("top_p"), **BOUND,
                                     help="draw from the fewest tokens that together have this probability")}
