"""The controls of the search: a strategy with its settings in one row, the rest in a popover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.decoding import SearchSettings
from core.pretrained import ModelInputs
from dashboard.widgets.model_picker import ModelChoice, ModelRef
from dashboard.widgets.params import BOUND
from dashboard.widgets.sampling import STRATEGIES, sampling_settings

MOST = 128  # new tokens at most
SHARES = {"Greedy": [1.0], "Beam": [1.0, 1.0, 1.8], "Sampling": [1.0, 1.0, 1.0, 0.8]}  # widths: settings, then More


def key(name: str) -> str:
    return f"generate:{name}"


@dataclass(frozen=True)
class Controls:
    """The model, its inputs, and the settings of the search."""

    ref: ModelRef
    inputs: ModelInputs
    settings: SearchSettings


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the settings of the search in a row."""
    return Controls(choice.ref, choice.inputs, _draw_settings())


def _draw_settings() -> SearchSettings:
    way, others = st.columns([1.3, 2.85], vertical_alignment="bottom")
    strategy = way.segmented_control("Strategy", list(STRATEGIES), default="Greedy", required=True, key=key("strategy"),
                                     **BOUND)
    *cells, rest = others.columns(SHARES[strategy], vertical_alignment="bottom")
    settings = _strategy_settings(strategy, cells)
    with rest.popover("More", icon=":material/tune:"):
        settings |= _more(strategy)
    return SearchSettings(STRATEGIES[strategy], **settings)


def _strategy_settings(strategy: str, cells: Sequence[Any]) -> dict[str, Any]:
    if strategy == "Beam":
        return {"width": cells[0].slider("Width", 1, 8, 4, key=key("width"), help="beginnings kept at each step",
                                         **BOUND),
                "length_penalty": cells[1].slider(
                    "Length penalty", 0.0, 2.0, 1.0, 0.1, key=key("penalty"), **BOUND,
                    help="an output is ranked by its log-probability / length^penalty: 0 favours the short, more the "
                         "long")}
    if strategy == "Greedy":
        return {}
    return sampling_settings(cells, key)


def _more(strategy: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "longest": st.slider("New tokens at most", 1, MOST, 20, key=key("longest"), **BOUND),
        "no_repeat": st.number_input("Say no n tokens twice", 0, 5, 0, key=key("no_repeat"), **BOUND,
                                     help="forbids to say the same n tokens in a row again, the prompt's too; 0 "
                                          "forbids nothing")}
    if strategy == "Sampling":
        settings["samples"] = st.slider("Samples", 1, 20, 5, key=key("samples"), **BOUND)
        settings["seed"] = st.number_input("Seed", 0, 10_000, 0, key=key("seed"), **BOUND)
    return settings
