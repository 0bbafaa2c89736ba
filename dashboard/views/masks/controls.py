"""The page's controls: the sentence, the mask or two of them joined, their parameters, and the head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, Choice, entry
from core.attention.masks import COMPOSITIONS
from core.tokens import tokenize
from dashboard.draw import page_views
from dashboard.views.masks.compute import HEADS
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, is_text, param_widget, unreadable

SENTENCE = "The animal didn't cross the street because it was too tired ."
FIRST, SECOND = "causal", "causal"
MAX_TOKENS = 64  # as many as a drawing may have
MASKS = {item.key: item.name for item in AXES["mask"] if item.key not in COMPOSITIONS}
JOINS = {
    "alone": "alone",
    "not": "not",
    "and": "and",
    "or": "or",
    "and_not": "and not",
    "or_not": "or not",
}
TWO_MASKS = ("and", "or", "and_not", "or_not")
CUT = 12  # letters of a mask's name that one column has room for
TEXT_COLUMNS, PADDING = 3, 2  # cells of a typed parameter; keys that a padding mask hides at first


@dataclass(frozen=True)
class Controls:
    """The values of the controls; without tokens there is nothing to draw. `stale`: a typed text cannot be read."""

    tokens: tuple[str, ...]
    mask: Choice
    real: int | None
    head: int
    notes: tuple[str, ...]
    stale: bool


key = "masks:{}".format  # a widget's key, which is also its name in the link


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def draw_controls(below: DeltaGenerator) -> Controls:
    """Draw the controls and read them; what is typed or drawn stands in `below`, so that the maps do not move."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input(
            "Sentence", SENTENCE, key=key("tokens"), help="Each word becomes one token.", **BOUND
        )
    shown = MASKS.get(get("first", ""), st.query_params.get(key("first"), ""))
    with grid.cell(column_span=2 if len(shown) > CUT else 1):  # so that a long name is not cut
        first = _select(
            "first",
            "Mask",
            MASKS,
            FIRST,
            "Which keys each query may attend to",
            on_change=start_drawing,
        )
    with grid:
        join = _select(
            "join",
            "Combine",
            JOINS,
            "alone",
            "Use the mask alone, invert it, or join it with a second one",
        )
        st.selectbox(
            "Head", range(HEADS), key=key("head"), help="The head whose weights are drawn", **BOUND
        )
        second = (
            _select(
                "second", "Second mask", MASKS, SECOND, "The mask that is joined with the first"
            )
            if join in TWO_MASKS
            else None
        )
    _draw_params("first", first, grid, below)
    if second:
        _draw_params("second", second, grid, below, ", 2nd")
    if "padding" in (first, second):
        with grid:
            st.number_input(
                "Real tokens",
                0,
                512,
                max(0, len(_sentence()[0]) - PADDING),
                1,
                key=key("real"),
                help="Tokens after these are padding. With 0 every token is padding.",
                **BOUND,
            )
    return read_controls()


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    tokens, notes = _sentence()
    first, join = get("first") or FIRST, get("join") or "alone"
    second = (get("second") or SECOND) if join in TWO_MASKS else None
    parts = [_with_params("first", first)] + ([_with_params("second", second)] if second else [])
    real = int(get("real", max(0, len(tokens) - PADDING))) if "padding" in (first, second) else None
    return Controls(
        tokens,
        composed(join, *(mask for mask, _ in parts)),
        real,
        get("head") or 0,
        notes,
        any(stale for _, stale in parts),
    )


def composed(join: str, first: Choice, second: Choice | None = None) -> Choice:
    """One mask, its opposite, or two joined."""
    if join == "not":
        return Choice.of("not", first)
    if join == "alone" or second is None:
        return first
    operator, _, negated = join.partition("_")
    return Choice.of(operator, first, Choice.of("not", second) if negated else second)


def _select(
    name: str, label: str, names: dict[str, str], default: str, meaning: str, **more: Any
) -> str:
    keys = list(names)
    return (
        st.selectbox(
            label,
            keys,
            keys.index(default),
            format_func=names.__getitem__,
            key=key(name),
            help=meaning,
            **BOUND,
            **more,
        )
        or default
    )


def _draw_params(name: str, mask: str, grid: Any, below: DeltaGenerator, suffix: str = "") -> None:
    params = entry("mask", mask).params
    if any(map(is_text, params)):
        grid = below.grid(6, min_column_width=120)
    for param in params:
        # One cell each, so that an error is drawn under its field.
        with grid.cell(column_span=TEXT_COLUMNS if is_text(param) else 1):
            param_widget(
                replace(param, name=param.name + suffix), key=key(f"{name}:{mask}:{param.key}")
            )


def _with_params(name: str, mask: str) -> tuple[Choice, bool]:
    """The mask with the values of its widgets; where a text cannot be read, with the last that could, and True."""
    values, stale = {}, False
    for param in entry("mask", mask).params:
        widget = f"{name}:{mask}:{param.key}"
        value = get(widget, param.default)
        if is_text(param) and unreadable(param, value):
            value, stale = get(f"{widget}:read", param.default), True
        elif is_text(param):
            put(f"{widget}:read", value)
        values[param.key] = value
    return Choice.of(mask, **values), stale


def _sentence() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens, at most 64, and notes on what was cut."""
    cut = tokenize(get("tokens", SENTENCE) or "")
    notes = cut.notes
    if len(cut.tokens) > MAX_TOKENS:
        notes += (f"The text has {len(cut.tokens)} tokens; the first {MAX_TOKENS} are used.",)
    return cut.tokens[:MAX_TOKENS], notes


def apply_drawing() -> None:
    """Make the mask the board's drawing, after cells were pressed."""
    put("first", "drawn")
    put("join", "alone")
    put("first:drawn:drawing", page_views.drawing_text(key("board")))


def start_drawing() -> None:
    """Start the first drawing from the mask on the page, when a drawing is chosen in the list."""
    if get("first") == "drawn" and get("shown") and get("first:drawn:drawing") is None:
        put("first:drawn:drawing", get("shown"))


def link_errors() -> list[str]:
    """A sentence for each choice in the link that no list has; call it before the first widget takes its value."""
    errors = []
    for name, names in (("first", MASKS), ("join", JOINS), ("second", MASKS)):
        value = st.query_params.get(key(name))
        if value and value not in names.values() and key(name) not in st.session_state:
            errors.append(
                f"The link says {name} = {plain(value[:40])}; expected one of {', '.join(names.values())}."
            )
    return errors
