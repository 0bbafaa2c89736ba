"""An axis's choice as widgets and in the session: its entry, its parameters, and the parts of a composed mask."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import streamlit as st

from core.attention import AXES, AttentionConfig, Choice, Param, entry
from core.entries import Value
from core.masks import COMPOSITIONS
from dashboard.views.one_query.session import DEFAULT, get, key, put, uses_matrices
from dashboard.widgets.mechanism_editor import refusal
from dashboard.widgets.params import KEEP, is_text, params_from, unreadable

PARTS = ("causal", "local")  # with which a composition starts
MAX_DEPTH = 2  # parts of parts are plain masks here; deeper ones come by a link alone

Fields = dict[str, Any]  # an AttentionConfig's, before they are known to go together


def read(axis: str, at: str = "") -> Choice:
    """The choice in the session at a path (the axis itself, or mask:0 for a part of a mask)."""
    at = at or axis
    item = entry(axis, get(at, default(axis, at)))
    params = {param.key: value_of(param, f"{at}:{item.key}:{param.key}") for param in item.params}
    return Choice.of(item.key, *(read(axis, f"{at}:{n}") for n in range(count(at, item.key))), **params)


def write(axis: str, choice: Choice, at: str = "") -> None:
    """Set the widgets of a choice; for a link or a callback, before they are drawn."""
    at = at or axis
    put(at, choice.key)
    for name, value in choice.params:
        put(f"{at}:{choice.key}:{name}", value)
    if choice.parts:
        put(f"{at}:parts", len(choice.parts))
    for n, part in enumerate(choice.parts):
        write(axis, part, f"{at}:{n}")


def default(axis: str, at: str) -> str:
    """The choice at a path where nothing was picked."""
    if at == axis:
        return getattr(AttentionConfig() if uses_matrices() else DEFAULT, axis).key
    return PARTS[min(int(at.rpartition(":")[2]), len(PARTS) - 1)]


def count(at: str, picked: str) -> int:
    """How many parts a mask has."""
    if picked not in COMPOSITIONS:
        return 0
    return 1 if picked == "not" else int(get(f"{at}:parts", len(PARTS)))


def value_of(param: Param, at: str) -> Value:
    """A parameter's value; for a text that cannot be read, the last one that could, so that the picture stays."""
    value = get(at, param.default)
    if not is_text(param):
        return value
    if unreadable(param, value) is None:
        put(f"{at}:read", value)
        return value
    return get(f"{at}:read", param.default)


def draw_select(axis: str, label: str, at: str = "", without: Collection[str] = (), help: str | None = None) -> str:
    """Draw the list of the axis's entries; returns the picked key."""
    at = at or axis
    hidden = {*without, *(COMPOSITIONS if at.count(":") >= MAX_DEPTH else ())}
    current, first = get(at), default(axis, at)
    options = [item.key for item in AXES[axis] if item.key not in hidden or item.key in (current, first)]
    return st.selectbox(label, options, options.index(first), format_func=lambda name: entry(axis, name).name,
                        key=key(at), help=help, **KEEP)


def draw_params(axis: str, at: str = "") -> None:
    """Draw the parameters of the choice at a path; of a composed mask, each part with its own."""
    at = at or axis
    name = get(at, default(axis, at))
    params_from(entry(axis, name), Choice(name), key(at), KEEP)
    for n in range(count(at, name)):
        path = f"{at}:{n}"
        draw_select(axis, f"{entry(axis, name).name}: part {path.removeprefix(f'{axis}:').replace(':', '.')}", path)
        draw_params(axis, path)


def nearest_fit(fields: Fields, error: str) -> list[tuple[str, Choice]]:
    """The choice with the nearest number of those that an error says to take (kv_heads = one of 1, 2)."""
    match = re.search(r"take (\w+) = (?:one of )?((?:\d+(?:, | or )?)+)", error)
    if match is None:
        return []
    name, numbers = match.group(1), [int(text) for text in re.findall(r"\d+", match.group(2))]
    for axis in AXES:
        choice: Choice = fields[axis]
        current = dict(choice.params).get(name)
        if isinstance(current, int):
            for number in sorted(numbers, key=lambda value: abs(value - current)):
                other = Choice.of(choice.key, *choice.parts, **{**dict(choice.params), name: number})
                if refusal({**fields, axis: other}) is None:
                    return [(axis, other)]
    return []


def has_text(choice: Choice, axis: str) -> bool:
    """Whether a choice has a parameter that is typed freely."""
    return any(is_text(param) for leaf in choice.leaves() for param in entry(axis, leaf.key).params)


def rule(axis: str, choice: Choice, **more: Any) -> str:
    """A choice's rule in plain signs, with its own numbers; a composed one by its parts."""
    if choice.parts:
        parts = [rule(axis, part, **more) for part in choice.parts]
        return f"not ({parts[0]})" if choice.key == "not" else {"and": ", ", "or": " or "}[choice.key].join(parts)
    item = entry(axis, choice.key)
    return (item.short or item.name).format(**dict(choice.params), **more)


def first_latex(axis: str, choice: Choice) -> str:
    """The first equation of an entry; a typed formula has its own."""
    item = entry(axis, choice.key)
    for param in item.params:
        if param.parse is not None and callable(latex := getattr(param.parse(str(choice[param.key])), "latex", None)):
            return str(latex())
    return item.latex.split(r",\quad")[0]
