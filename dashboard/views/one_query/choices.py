"""An axis's choice as widgets and in the session: every entry, with its parameters, and masks made of masks."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import streamlit as st

from core.attention import AXES, AttentionConfig, Choice, Param, entry
from core.entries import Value
from core.masks import COMPOSITIONS
from dashboard.views.one_query.session import USUAL, get, given, key, put
from dashboard.widgets.mechanism_editor import refusal
from dashboard.widgets.params import params_from, unreadable

KEEP: dict[str, Any] = {"persist_state": "session"}
PARTS = ("causal", "local")  # what a composition starts from
DEEPEST = 2  # parts of parts are plain masks here; deeper ones come by a link alone

Fields = dict[str, Any]  # an AttentionConfig's, before they are known to go together


def read(axis: str, at: str = "") -> Choice:
    """The choice that stands in the session at a place (the axis itself, or mask:0 for a part of a mask)."""
    at = at or axis
    item = entry(axis, get(at, usual(axis, at)))
    params = {param.key: value_of(param, f"{at}:{item.key}:{param.key}") for param in item.params}
    return Choice.of(item.key, *(read(axis, f"{at}:{n}") for n in range(count(at, item.key))), **params)


def write(axis: str, choice: Choice, at: str = "") -> None:
    """Put a choice where its widgets will find it; for a link or a callback, before they are drawn."""
    at = at or axis
    put(at, choice.key)
    for name, value in choice.params:
        put(f"{at}:{choice.key}:{name}", value)
    if choice.parts:
        put(f"{at}:parts", len(choice.parts))
    for n, part in enumerate(choice.parts):
        write(axis, part, f"{at}:{n}")


def usual(axis: str, at: str) -> str:
    """What stands at a place where nothing was picked."""
    if at == axis:
        return getattr(AttentionConfig() if given() else USUAL, axis).key
    return PARTS[min(int(at.rpartition(":")[2]), len(PARTS) - 1)]


def count(at: str, picked: str) -> int:
    """How many parts a mask has."""
    if picked not in COMPOSITIONS:
        return 0
    return 1 if picked == "not" else int(get(f"{at}:parts", len(PARTS)))


def value_of(param: Param, at: str) -> Value:
    """A parameter as it stands; of a text that cannot be read, the last one that could, so that the picture stays."""
    value = get(at, param.default)
    if not isinstance(param.default, str) or param.choices:
        return value
    if unreadable(param, value) is None:
        put(f"{at}:read", value)
        return value
    return get(f"{at}:read", param.default)


def pick(axis: str, label: str, at: str = "", without: Collection[str] = (), help: str | None = None) -> str:
    """A list of the axis's entries; the chosen key."""
    at = at or axis
    hidden = {*without, *(COMPOSITIONS if at.count(":") >= DEEPEST else ())}
    now, first = get(at), usual(axis, at)
    options = [item.key for item in AXES[axis] if item.key not in hidden or item.key in (now, first)]
    return st.selectbox(label, options, options.index(first), format_func=lambda name: entry(axis, name).name,
                        key=key(at), help=help, **KEEP)


def details(axis: str, at: str = "") -> None:
    """The parameters of what is chosen at a place; of a mask made of masks, each part and its own."""
    at = at or axis
    chosen = get(at, usual(axis, at))
    params_from(entry(axis, chosen), Choice(chosen), key(at), KEEP)
    for n in range(count(at, chosen)):
        place = f"{at}:{n}"
        pick(axis, f"{entry(axis, chosen).name}: part {place.removeprefix(f'{axis}:').replace(':', '.')}", place)
        details(axis, place)


def mended(fields: Fields, said: str) -> list[tuple[str, Choice]]:
    """The choice with the nearest number that fits, of those that a refusal says to take (kv_heads = one of 1, 2)."""
    found = re.search(r"take (\w+) = (?:one of )?((?:\d+(?:, | or )?)+)", said)
    if found is None:
        return []
    name, numbers = found.group(1), [int(text) for text in re.findall(r"\d+", found.group(2))]
    for axis in AXES:
        choice: Choice = fields[axis]
        now = dict(choice.params).get(name)
        if isinstance(now, int):
            for number in sorted(numbers, key=lambda value: abs(value - now)):
                other = Choice.of(choice.key, *choice.parts, **{**dict(choice.params), name: number})
                if refusal({**fields, axis: other}) is None:
                    return [(axis, other)]
    return []


def typed(choice: Choice, axis: str) -> bool:
    """Whether anything in a choice is typed freely."""
    return any(isinstance(param.default, str) and not param.choices
               for leaf in choice.leaves() for param in entry(axis, leaf.key).params)


def short(axis: str, choice: Choice, **more: Any) -> str:
    """A choice's rule in plain signs, with its own numbers; a composed one by its parts."""
    if choice.parts:
        parts = [short(axis, part, **more) for part in choice.parts]
        return f"not ({parts[0]})" if choice.key == "not" else {"and": ", ", "or": " or "}[choice.key].join(parts)
    item = entry(axis, choice.key)
    return (item.short or item.name).format(**dict(choice.params), **more)


def part_of(axis: str, choice: Choice) -> str:
    """The first of the equations that an entry is written in; that of a typed formula is the formula's own."""
    item = entry(axis, choice.key)
    for param in item.params:
        if param.parse is not None and callable(write := getattr(param.parse(str(choice[param.key])), "latex", None)):
            return str(write())
    return item.latex.split(r",\quad")[0]
