"""The page's keys, the masks it offers, and the Choice that its controls make."""

from __future__ import annotations

import numpy as np
import streamlit as st
import torch

from core.attention import AXES, Choice
from core.masks import COMPOSITIONS, Drawing
from dashboard.components import mask_board
from dashboard.widgets.panels import plain

SENTENCE = "The animal didn't cross the street because it was too tired ."
FIRST, SECOND = "causal_local", "causal"
MOST_TOKENS = 64  # as many as a drawing may have
MASKS = {item.key: item.name for item in AXES["mask"] if item.key not in COMPOSITIONS}
JOINS = {"alone": "alone", "not": "not", "and": "and", "or": "or", "and_not": "and not", "or_not": "or not"}


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"masks:{name}"


def get(name: str, default=None):
    return st.session_state.get(key(name), default)


def put(name: str, value) -> None:
    st.session_state[key(name)] = value


def composed(join: str, first: Choice, second: Choice | None = None) -> Choice:
    """The mask that the controls say: one, its opposite, or two joined."""
    if join == "not":
        return Choice.of("not", first)
    if join == "alone" or second is None:
        return first
    joined, _, turned = join.partition("_")
    return Choice.of(joined, first, Choice.of("not", second) if turned else second)


def take_drawing() -> None:
    """Cells were clicked on the board: from now on the mask is what is drawn there."""
    put("first", "drawn")
    put("join", "alone")
    put("first:drawn:drawing", mask_board.drawn(key("board")))


def begin_drawing() -> None:
    """Drawing was chosen in the list: a first one begins with the mask that was on the page, a later one is kept."""
    if get("first") == "drawn" and get("shown") and get("first:drawn:drawing") is None:
        put("first:drawn:drawing", get("shown"))


def shown(allowed: np.ndarray) -> None:
    """Remember the mask on the page, where a drawing would begin."""
    put("shown", Drawing.of(torch.from_numpy(allowed)).text())


def refusals() -> list[str]:
    """What a link asks for that is not in a list here, a sentence each; before the first widget takes its value."""
    found = []
    for name, names in (("first", MASKS), ("join", JOINS), ("second", MASKS)):
        asked = st.query_params.get(key(name))
        if asked and asked not in names.values() and key(name) not in st.session_state:
            found.append(f"The link says {name} = {plain(asked[:40])}; expected one of {', '.join(names.values())}.")
    return found
