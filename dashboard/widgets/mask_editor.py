"""The mask of a mechanism as widgets: one mask, or up to three joined by and or by or, each of them as it is or not."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AXES, Choice, entry
from core.masks import COMPOSITIONS
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.widgets.params import params_from

MOST_PARTS = 3
JOINS = {"one": "One mask", "and": "All of", "or": "Any of"}
NOTHING, KEPT = "-", "="  # no third part; a part made of masks itself, which stays as it came
KEEP: dict[str, Any] = {"persist_state": "session"}

Part = tuple[bool, Choice]  # whether it is negated, and what


def mask_parts(key: str, base: Choice) -> Choice:
    """Draw the widgets and return the mask they say."""
    join, parts = split(base)
    names = list(JOINS)
    chosen = st.selectbox("Mask", names, names.index(join), format_func=JOINS.get, key=f"{key}:mask:join", **KEEP)
    count = 1 if chosen == "one" else MOST_PARTS
    found = []
    for at in range(count):
        usual = parts[at] if at < len(parts) else (False, Choice(NOTHING if at > 1 else "none"))
        part = _part(f"{key}:mask:{at}", at, usual, optional=at > 1)
        if part is not None:
            found.append(Choice.of("not", part[1]) if part[0] else part[1])
    return found[0] if chosen == "one" else Choice.of(chosen, *found)


def adopt_mask(key: str, choice: Choice) -> dict[str, Any]:
    """What each widget's state must be for this mask."""
    join, parts = split(choice)
    values: dict[str, Any] = {f"{key}:mask:join": join}
    for at in range(MOST_PARTS):
        negated, part = parts[at] if at < len(parts) else (False, Choice(NOTHING if at > 1 else "none"))
        name = f"{key}:mask:{at}"
        values |= {name: KEPT if part.parts else part.key, f"{name}:not": negated}
        if not part.parts:
            values |= {f"{name}:{part.key}:{param}": value for param, value in part.params}
    return values


def split(choice: Choice) -> tuple[str, list[Part]]:
    """How a mask is joined, and its parts; one that the widgets cannot say is a part that stays as it came."""
    if choice.key in ("and", "or") and 2 <= len(choice.parts) <= MOST_PARTS:
        return choice.key, [_negated(part) for part in choice.parts]
    if choice.key in ("and", "or") and len(choice.parts) == 1:
        return split(choice.parts[0])
    return "one", [_negated(choice)]


def _negated(choice: Choice) -> Part:
    return (True, choice.parts[0]) if choice.key == "not" else (False, choice)


def _part(key: str, at: int, usual: Part, optional: bool) -> Part | None:
    negated, base = usual
    options = [NOTHING] * optional + [item.key for item in AXES["mask"] if item.key not in COMPOSITIONS]
    options += [KEPT] * bool(base.parts)
    first = options.index(KEPT if base.parts else base.key)
    chosen = st.selectbox(f"Mask {at + 1}", options, first, format_func=lambda name: _label(name, base), key=key,
                          label_visibility="collapsed", **KEEP)
    if chosen == NOTHING:
        return None
    part = base if chosen == KEPT else Choice.of(chosen, **params_from(entry("mask", chosen), base, key, KEEP))
    turned = st.toggle("Not", negated, key=f"{key}:not", help="Seen where this mask forbids it.", **KEEP)
    return turned, part


def _label(name: str, base: Choice) -> str:
    if name == NOTHING:
        return "and no third"
    return choice_text(base, "mask") if name == KEPT else entry("mask", name).name
