"""The page's keys, what its controls offer, and scores as a person types them."""

from __future__ import annotations

import math

import streamlit as st

from core.attention import AXES

SEED, DIMS = 126, 16
MOST_SCORES, LARGEST = 32, 1e4
SPREADS = [0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
TEMPERATURES = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0]
NAMES = {item.key: item.name for item in AXES["normalizer"]}
USUAL = "softmax"
CURVES = ("softmax", "sink", "sigmoid", "sparsemax")
MOST_CURVES = 4
MASKED = "x"
SHOWN = {("sink", "start"): 1.0}  # parameters that stand in the row itself, and where they start on this page

Scores = tuple[float | None, ...]  # None where the key is masked


class ScoresError(ValueError):
    """Typed scores that cannot be read; the message says which and what would fit."""


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"normalizers:{name}"


def get(name: str, default=None):
    return st.session_state.get(key(name), default)


def parse(text: str) -> Scores:
    """Numbers separated by commas, x for a masked key; ScoresError names the first that is neither."""
    parts = [part.strip() for part in text.replace("−", "-").split(",")]
    if parts and not parts[-1]:
        parts.pop()  # a comma at the end is a list that is still being typed
    if not parts:
        raise ScoresError(f"There is no score here. Type numbers with commas between them; {MASKED} masks a key.")
    if len(parts) > MOST_SCORES:
        raise ScoresError(f"There are {len(parts)} scores; this page draws at most {MOST_SCORES}.")
    return tuple(read(part, place) for place, part in enumerate(parts))


def read(part: str, place: int) -> float | None:
    if part.lower() == MASKED:
        return None
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        said = f"“{part[:20]}”" if part else "empty"
        raise ScoresError(f"Score {place}, {said}, is not a number from −{LARGEST:,.0f} to {LARGEST:,.0f}; "
                          f"write numbers with commas between them, and {MASKED} for a masked key.")
    return value


def write(scores: Scores) -> str:
    return ", ".join(MASKED if score is None else f"{score:.2f}" for score in scores)
