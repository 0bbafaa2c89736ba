"""The page's controls: typed scores, their factor, the temperature, and the key that is picked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.attention import AXES, Choice, Entry, entry
from core.entries import Value
from dashboard.ui.presentation import room
from dashboard.views.normalizers import compute
from dashboard.views.normalizers.compute import Scores
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, param_widget, params_in_session

MAX_SCORES, LARGEST = 32, 1e4
FACTORS = [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
TEMPERATURES = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0]
NAMES = {item.key: item.name for item in AXES["normalizer"]}
BASELINE = "softmax"
CURVES = ("softmax", "sink", "sigmoid", "sparsemax")
MAX_CURVES = 4
MAX_PILLS = 12  # keys; with more their names fit neither in pills nor under the bars
MASKED = "x"
TEMPERATURE = "temperature"
IN_ROW = {
    ("sink", "start"): 1.0
}  # parameters that stand in the row of controls, and their start on this page


class ScoresError(ValueError):
    """Typed scores that cannot be read; the message names the first and what would fit."""


@dataclass(frozen=True)
class Controls:
    """The row of scores and its keys' names, and each normalizer with its parameters; `picked` is a key's index."""

    scores: Scores
    names: tuple[str, ...]
    own: bool
    factor: float
    temperature: float
    choices: tuple[Choice, ...]
    picked: int

    @property
    def scaled(self) -> Scores:
        """The scores as they go into the normalizers."""
        return tuple(None if score is None else score * self.factor for score in self.scores)


key = "normalizers:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def draw_controls() -> Controls | None:
    """Draw the controls and read them; None, with the error on the page, when the scores cannot be read."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input(
            "Scores of one query",
            write(compute.example()[2]),
            key=key("scores"),
            **BOUND,
            help=f"Type numbers with commas between them, and {MASKED} for a masked key.",
        )
    with grid:
        st.select_slider(
            "Scores times",
            FACTORS,
            1.0,
            key=key("spread"),
            **BOUND,
            help="Every score is multiplied by this number first.",
        )
        st.select_slider(
            "Temperature τ",
            TEMPERATURES,
            1.0,
            key=key("temperature"),
            **BOUND,
            help="Normalizers with a temperature divide the scores by it. A small temperature makes the "
            "largest weight larger.",
        )
        for (owner, name), start in IN_ROW.items():
            item = entry("normalizer", owner)
            param = next(param for param in item.params if param.key == name)
            param_widget(replace(param, default=start, name=f"{item.name} b"), key=key(item.key))
    try:
        controls = _controls()
    except ScoresError as error:
        st.error(plain(str(error)))
        return None
    return replace(controls, picked=_draw_keys(controls))


def read_controls() -> Controls | None:
    """Read the controls from the session, which also works before they are drawn; None for unreadable scores."""
    try:
        return _controls()
    except ScoresError:
        return None


def _controls() -> Controls:
    tokens, _, example = compute.example()
    scores = parse(get("scores", write(example)) or "")
    names = (
        tokens if len(scores) == len(tokens) else tuple(f"key {at}" for at in range(len(scores)))
    )
    temperature, name = get("temperature", 1.0), get("key")
    choices = tuple(_choice(item, temperature) for item in AXES["normalizer"])
    picked = names.index(name) if name in names else _largest(scores)
    return Controls(
        scores, names, scores != example, get("spread", 1.0), temperature, choices, picked
    )


def _choice(item: Entry, temperature: float) -> Choice:
    """The normalizer with the values of its own widgets and of those in the row."""
    row: dict[str, Value] = {
        name: get(owner, start) for (owner, name), start in IN_ROW.items() if owner == item.key
    }
    if any(param.key == TEMPERATURE for param in item.params):
        row[TEMPERATURE] = temperature
    return Choice.of(item.key, **(params_in_session(item, key=key("params")) | row))


def _largest(scores: Scores) -> int:
    """The index of the largest score."""
    return max(
        range(len(scores)), key=lambda at: -math.inf if (score := scores[at]) is None else score
    )


def _draw_keys(controls: Controls) -> int:
    """Draw the list of keys; returns the index of the picked one, by default that of the largest score."""
    default = _largest(controls.scores)
    quiet = {
        "key": key("key"),
        "format_func": plain,
        **BOUND,
        "help": "The key whose weight the equation and the curves show.",
    }
    if len(controls.names) <= MAX_PILLS:
        name = st.pills(
            "Key", controls.names, default=controls.names[default], required=True, **quiet
        )
    else:
        name = st.selectbox("Key", controls.names, default, width=room(260), **quiet)
    return controls.names.index(name) if name in controls.names else default


def parse(text: str) -> Scores:
    """Numbers separated by commas, x for a masked key; ScoresError names the first that is neither."""
    parts = [part.strip() for part in text.replace("−", "-").split(",")]
    if not parts[-1]:
        parts.pop()  # a comma at the end is a list that is still being typed
    if not parts:
        raise ScoresError(
            f"There is no score here. Type numbers with commas between them; {MASKED} masks a key."
        )
    if len(parts) > MAX_SCORES:
        raise ScoresError(f"There are {len(parts)} scores; this page draws at most {MAX_SCORES}.")
    return tuple(_parse_score(part, index) for index, part in enumerate(parts))


def _parse_score(part: str, index: int) -> float | None:
    if part.lower() == MASKED:
        return None
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        quoted = f"“{part[:20]}”" if part else "empty"
        raise ScoresError(
            f"Score {index}, {quoted}, is not a number from −{LARGEST:,.0f} to {LARGEST:,.0f}; "
            f"write numbers with commas between them, and {MASKED} for a masked key."
        )
    return value


def write(scores: Scores) -> str:
    return ", ".join(MASKED if score is None else f"{score:.2f}" for score in scores)
