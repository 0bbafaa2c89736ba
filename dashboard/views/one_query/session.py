"""The page's session: keys, bounds and defaults, and each axis's choice with its parameters and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.attention import AttentionConfig, Choice, Param, entry, heads_that_divide
from core.attention.masks import COMPOSITIONS
from core.entries import Value
from core.tokens import SENTENCE
from dashboard.ui.links import read_start
from dashboard.ui.mechanism import is_text, unreadable

SEED = 1044  # in LAYER, a masked key has the highest score


@dataclass(frozen=True)
class Start:
    """What a link leaves out: the values with which the page opens."""

    words: str
    d_model: int
    heads: int
    stage: int
    position: Choice = Choice("none")  # noqa: RUF009
    mask: Choice = Choice("none")  # noqa: RUF009


LAYER = Start(
    SENTENCE, 16, 4, 5, Choice("alibi"), Choice("causal")
)  # of links that were made before SIMPLE
SIMPLE = Start("The animal slept", 4, 1, 1)
STARTS = {"simple": SIMPLE, "layer": LAYER}
STAGES = {
    1: "1 Project",
    2: "2 Score",
    3: "3 Scale + bias",
    4: "4 Mask",
    5: "5 Normalize",
    6: "6 Weigh values",
}
SOURCES = {
    "sentence": "Sentence",
    "matrices": "Matrices Q, K, V",
}  # the labels are in links, as the stages' are
NUMBERS = {"real": (0, 512), "seed": (0, 999_999)}
PARTS = ("causal", "local")  # with which a composed mask starts

key = "one:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def uses_matrices() -> bool:
    """Whether Q, K and V are typed, instead of a sentence."""
    return get("source") == "matrices"


def open_link() -> None:
    """Find out from which start the link counts; before the first widget."""
    read_start("one", "simple", "layer")


def start() -> Start:
    """The values that the link leaves out."""
    return STARTS[get("start", "simple")]


def default_heads(d_model: int) -> int:
    """The most heads up to the start's that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= start().heads)


def heads_of(d_model: int) -> int:
    """The picked number of heads, if it divides d_model."""
    heads = get("heads", start().heads)
    return heads if d_model % heads == 0 else default_heads(d_model)


def query_row(names: tuple[str, ...]) -> int:
    """The row of the picked query; the last word if it is not among the names."""
    picked = get("query")
    return names.index(picked) if picked in names else last_word(names)


def last_word(names: tuple[str, ...]) -> int:
    return max(
        (i for i, name in enumerate(names) if any(c.isalnum() for c in name)),
        default=len(names) - 1,
    )


def read_choice(axis: str, path: str = "") -> Choice:
    """The choice in the session at a path: the axis, or mask:0 for the first part of a mask."""
    path = path or axis
    item = entry(axis, get(path, default_choice(axis, path)))
    params = {
        param.key: _param_value(param, f"{path}:{item.key}:{param.key}") for param in item.params
    }
    parts = (read_choice(axis, f"{path}:{n}") for n in range(part_count(path, item.key)))
    return Choice.of(item.key, *parts, **params)


def write_choice(axis: str, choice: Choice, path: str = "") -> None:
    """Set the widgets of a choice; for a link or a callback, before they are drawn."""
    path = path or axis
    put(path, choice.key)
    for name, value in choice.params:
        put(f"{path}:{choice.key}:{name}", value)
    if choice.parts:
        put(f"{path}:parts", len(choice.parts))
    for n, part in enumerate(choice.parts):
        write_choice(axis, part, f"{path}:{n}")


def default_choice(axis: str, path: str) -> str:
    """The key of the choice at a path where none was picked."""
    if path == axis:
        opens = None if uses_matrices() else getattr(start(), axis, None)
        return (opens or getattr(AttentionConfig(), axis)).key
    parts = tuple(part.key for part in entry(axis, "and").parts) or PARTS
    return parts[min(int(path.rpartition(":")[2]), len(parts) - 1)]


def part_count(path: str, name: str) -> int:
    """The number of parts of a mask, or of joined positions."""
    if name not in COMPOSITIONS:
        return 0
    return 1 if name == "not" else int(get(f"{path}:parts", len(PARTS)))


def _param_value(param: Param, path: str) -> Value:
    """A parameter's value; for a text that cannot be read, the last that could, so that the picture stays."""
    value = get(path, param.default)
    if is_text(param):
        if unreadable(param, value):
            return get(f"{path}:read", param.default)
        put(f"{path}:read", value)
    return value
