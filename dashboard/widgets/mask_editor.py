"""The mask of a mechanism as widgets: one mask, or up to three joined by and or by or, each negated or not."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AXES, Choice, entry
from core.masks import COMPOSITIONS
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.widgets.params import KEEP, params_from

MAX_PARTS = 3
JOINS = {"one": "One mask", "and": "All of", "or": "Any of"}
NONE, COMPOSED = "-", "="  # no third part; a part that is itself composed, which cannot be edited

Part = tuple[bool, Choice]  # whether it is negated, and what


def mask_parts(key: str, base: Choice) -> Choice:
    """Draw the widgets and return their mask."""
    join, parts = split(base)
    names = list(JOINS)
    operator = st.selectbox("Mask", names, names.index(join), format_func=JOINS.__getitem__,
                            key=f"{key}:mask:join", help="One mask, or two or three that are joined", **KEEP)
    masks = []
    for index in range(1 if operator == "one" else MAX_PARTS):
        part = _part(f"{key}:mask:{index}", index, _part_at(parts, index), optional=index > 1)
        if part is not None:
            masks.append(Choice.of("not", part[1]) if part[0] else part[1])
    return masks[0] if operator == "one" else Choice.of(operator, *masks)


def _part_at(parts: list[Part], index: int) -> Part:
    return parts[index] if index < len(parts) else (False, Choice(NONE if index > 1 else "none"))


def adopt_mask(key: str, choice: Choice) -> dict[str, Any]:
    """The widgets' state for this mask."""
    join, parts = split(choice)
    values: dict[str, Any] = {f"{key}:mask:join": join}
    for index in range(MAX_PARTS):
        negated, part = _part_at(parts, index)
        name = f"{key}:mask:{index}"
        values |= {name: COMPOSED if part.parts else part.key, f"{name}:not": negated}
        if not part.parts:
            values |= {f"{name}:{part.key}:{param}": value for param, value in part.params}
    return values


def split(choice: Choice) -> tuple[str, list[Part]]:
    """How a mask is joined, and its parts; one that the widgets cannot edit is a single part."""
    if choice.key in ("and", "or") and 2 <= len(choice.parts) <= MAX_PARTS:
        return choice.key, [_negated(part) for part in choice.parts]
    if choice.key in ("and", "or") and len(choice.parts) == 1:
        return split(choice.parts[0])
    return "one", [_negated(choice)]


def _negated(choice: Choice) -> Part:
    return (True, choice.parts[0]) if choice.key == "not" else (False, choice)


def _part(key: str, index: int, default: Part, optional: bool) -> Part | None:
    negated, base = default
    options = [NONE] * optional + [item.key for item in AXES["mask"] if item.key not in COMPOSITIONS]
    options += [COMPOSED] * bool(base.parts)
    first = options.index(COMPOSED if base.parts else base.key)
    name = st.selectbox(f"Mask {index + 1}", options, first, format_func=lambda name: _label(name, base), key=key,
                        label_visibility="collapsed", help="Which keys each query may attend to", **KEEP)
    if name == NONE:
        return None
    part = base if name == COMPOSED else Choice.of(name, **params_from(entry("mask", name), base, key, KEEP))
    negated = st.toggle("Not", negated, key=f"{key}:not", help="Invert this mask: allow what it forbids", **KEEP)
    return negated, part


def _label(name: str, base: Choice) -> str:
    if name == NONE:
        return "no third mask"
    return choice_text(base, "mask") if name == COMPOSED else entry("mask", name).name
