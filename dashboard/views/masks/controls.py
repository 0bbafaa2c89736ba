"""The page's one row of controls: the sentence, the mask or two of them joined, their parameters, and the head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.attention import Choice, Param, entry
from dashboard.runtime.tokens import tokenize
from dashboard.views.masks import session
from dashboard.views.masks.compute import HEADS
from dashboard.views.masks.session import key
from dashboard.widgets.params import BOUND, param_widget, unreadable

TEXT_COLUMNS = 3


@dataclass(frozen=True)
class Asked:
    """What the controls say; without tokens there is nothing to draw. `stale` where a typed text cannot be read."""

    tokens: tuple[str, ...]
    mask: Choice
    real: int | None
    head: int
    notes: tuple[str, ...]
    stale: bool


def controls() -> Asked:
    """Draw the controls and read them."""
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        st.text_input("Tokens", session.SENTENCE, key=key("tokens"), **BOUND)
    with grid:
        first = pick("first", "Mask", session.MASKS, session.FIRST, on_change=session.begin_drawing)
        join = pick("join", "Combine", session.JOINS, "alone")
        st.selectbox("Head", range(HEADS), key=key("head"), **BOUND)
        second = pick("second", "Second mask", session.MASKS, session.SECOND) if joins_two(join) else None
    draw_params("first", first, grid)
    if second:
        draw_params("second", second, grid, ", 2nd")
    if "padding" in (first, second):
        with grid:
            st.number_input("Real tokens", 0, 512, usual_real(len(sentence()[0])), 1, key=key("real"),
                            help="Keys from here on are padding; with 0 no key may be seen.", **BOUND)
    return settings()


def settings() -> Asked:
    """What the controls say, from the session: also before they are drawn."""
    tokens, notes = sentence()
    first, join = session.get("first") or session.FIRST, session.get("join") or "alone"
    second = (session.get("second") or session.SECOND) if joins_two(join) else None
    parts = [with_params("first", first)] + ([with_params("second", second)] if second else [])
    real = int(session.get("real", usual_real(len(tokens)))) if "padding" in (first, second) else None
    masks = [part for part, _ in parts]
    return Asked(tokens, session.composed(join, *masks), real, session.get("head") or 0, notes,
                 any(stale for _, stale in parts))


def joins_two(join: str) -> bool:
    return "and" in join or "or" in join


def draw_params(name: str, chosen: str, grid: Any, mark: str = "") -> None:
    for param in entry("mask", chosen).params:
        # One cell each, so that a refusal stands under its field.
        with grid.cell(column_span=TEXT_COLUMNS if is_text(param) else 1):
            param_widget(replace(param, name=param.name + mark), key=key(f"{name}:{chosen}:{param.key}"))


def is_text(param: Param) -> bool:
    return isinstance(param.default, str) and not param.choices


def with_params(name: str, chosen: str) -> tuple[Choice, bool]:
    """The mask with the values of its own widgets; where a text cannot be read, with the last that could, and True."""
    values, stale = {}, False
    for param in entry("mask", chosen).params:
        own = f"{name}:{chosen}:{param.key}"
        value = session.get(own, param.default)
        if is_text(param) and unreadable(param, value):
            value, stale = session.get(f"{own}:read", param.default), True
        elif is_text(param):
            session.put(f"{own}:read", value)
        values[param.key] = value
    return Choice.of(chosen, **values), stale


def pick(name: str, label: str, names: dict[str, str], default: str, **more) -> str:
    keys = list(names)
    chosen = st.selectbox(label, keys, keys.index(default), format_func=names.get, key=key(name), **BOUND, **more)
    return chosen or default


def sentence() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens, at most 64, and what was cut."""
    cut = tokenize(session.get("tokens", session.SENTENCE) or "")
    notes, most = cut.notes, session.MOST_TOKENS
    if len(cut.tokens) > most:
        notes += (f"The text has {len(cut.tokens)} tokens; the first {most} are used.",)
    return cut.tokens[:most], notes


def usual_real(tokens: int) -> int:
    return max(0, tokens - 2)
