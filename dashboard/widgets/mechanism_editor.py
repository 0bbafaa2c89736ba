"""An editor of any mechanism: presets and six axes as widgets, all made from the entries.

    config = mechanism("train:attention", AttentionConfig())

A new entry, and each parameter that it names, is in the editor at once. Choices that cannot go together are refused in
the entry's own words, beside the control and with a button that does what they say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, preset
from core.attention.masks import COMPOSITIONS
from core.entries import Entry
from dashboard.draw.formats import plain
from dashboard.runtime.link_values import KEEP
from dashboard.runtime.mechanism_codec import choice_text
from dashboard.ui.panels import details
from dashboard.widgets.params import is_text, params_from, part_key, parts_from, unreadable

MAX_PARTS = 3
JOINS = {"one": "One mask", "and": "All of", "or": "Any of"}
NONE, COMPOSED = "-", "="  # no third part; a part that is itself composed, which cannot be edited

Part = tuple[bool, Choice]  # whether it is negated, and what

AXIS_NAMES = {
    "projection": "Projection",
    "score": "Score",
    "position": "Position",
    "mask": "Mask",
    "normalizer": "Normalizer",
    "kernel": "Kernel",
}
AXIS_HELP = {
    "projection": "Where queries, keys and values come from.",
    "score": "How a query is compared with a key.",
    "position": "How the order of the tokens enters.",
    "normalizer": "How scores become weights.",
    "kernel": "How attention is computed: exactly, or by a cheaper approximation.",
}
OWN = "own"  # the preset of a mechanism that is no preset
MAX_REPAIRS = 3

Fields = dict[str, Any]  # an AttentionConfig's, before they are known to go together


def mechanism(
    key: str, start: AttentionConfig, *, axes: Collection[str] = tuple(AXES), presets: bool = True
) -> AttentionConfig | None:
    """Draw the editor; returns the mechanism, or None with the reason beside the control.

    It starts from `start`, and again when the page passes another one. Its sizes are those of
    `start`, and what is not drawn (`axes`) stays as there. The mechanism is kept for the session.
    """
    base = _begin(key, start)
    top = st.container() if presets else None
    fields: Fields = {
        name: getattr(base, name) for name in ("d_model", "num_heads", "dropout", *AXES)
    }
    grid = st.grid(min_column_width=210, gap="small")
    cells, broken = {}, False
    for axis in (name for name in AXES if name in axes):
        cells[axis] = grid.container()
        with cells[axis]:
            fields[axis] = (
                mask_parts(key, base.mask)
                if axis == "mask"
                else _axis(key, axis, getattr(base, axis))
            )
        broken |= _broken(axis, fields[axis])
    config = None if broken else _build(key, fields, cells)
    if top is not None:
        with top:
            # Draw the preset that the choices are, if any; choosing another sets all six axes
            picker = f"{key}:preset"
            st.session_state[picker] = preset_of(config) or OWN
            options = [OWN, *(item.key for item in PRESETS)]
            st.selectbox(
                "Preset",
                options,
                key=picker,
                on_change=_take_preset,
                args=(key,),
                help="A published mechanism. Choosing one sets all six axes.",
                format_func=lambda name: "Your own choices" if name == OWN else _preset_label(name),
            )
            if config is not None and (known := preset_of(config)):
                changed = preset(known).changed(config.d_model, config.num_heads)
                st.caption(plain(" ".join(changed) or preset(known).meaning))
            if error := st.session_state[f"{key}:mechanism"].pop("refused", None):
                st.error(plain(error))
    if config is not None:
        st.session_state[f"{key}:mechanism"]["now"] = config
        details(
            "What cannot be combined with these choices",
            partial(_explain, config, axes),
            f"{key}:clashes",
        )
    return config


def adopt(key: str, config: AttentionConfig) -> None:
    """Set every widget of an editor to a mechanism; for a callback, before the widgets are drawn."""
    st.session_state.setdefault(f"{key}:mechanism", {})["base"] = config
    values: dict[str, Any] = {}
    for axis in AXES:
        choice = getattr(config, axis)
        if axis == "mask":
            values |= adopt_mask(key, choice)
            continue
        values |= _state(f"{key}:{axis}", choice)
    st.session_state.update(values)


def _state(key: str, choice: Choice) -> dict[str, Any]:
    """The widgets' state for a choice, with all its parts."""
    values: dict[str, Any] = {key: choice.key}
    values |= {f"{key}:{choice.key}:{name}": value for name, value in choice.params}
    for n, part in enumerate(choice.parts):
        values |= _state(part_key(key, choice.key, n), part)
    return values


def repairs(fields: Fields, error: str) -> list[tuple[str, Choice]]:
    """Up to three choices that make the fields fit: those that the error names, else the plainest of another axis."""
    named = re.findall(r"(\w+) = (\w+)", error.partition("take ")[2])
    suggested = [(axis, Choice(name)) for axis, name in named if axis in AXES]
    plainest = [(axis, getattr(AttentionConfig(), axis)) for axis in reversed(AXES)]
    result: list[tuple[str, Choice]] = []
    for axis, choice in suggested or plainest:
        if (
            (axis, choice) not in result
            and choice != fields[axis]
            and refusal({**fields, axis: choice}) is None
        ):
            result.append((axis, choice))
    return result[:MAX_REPAIRS]


def refusal(fields: Fields) -> str | None:
    """Why these fields cannot go together, or None."""
    try:
        AttentionConfig(**fields)
    except ConfigError as error:
        return str(error)
    return None


def clashes(
    config: AttentionConfig, axes: Collection[str] = tuple(AXES)
) -> list[tuple[str, Entry, str]]:
    """Every choice that the others rule out: its axis, its entry and the reason."""
    fields: Fields = {
        name: getattr(config, name) for name in ("d_model", "num_heads", "dropout", *AXES)
    }
    pairs = [
        (axis, item, refusal({**fields, axis: Choice(item.key)}))
        for axis in AXES
        if axis in axes
        for item in AXES[axis]
        if item.key not in COMPOSITIONS
    ]
    return [(axis, item, error) for axis, item, error in pairs if error]


def _begin(key: str, start: AttentionConfig) -> AttentionConfig:
    """The mechanism from which the widgets start: the page's, or one that a button has set."""
    store = st.session_state.setdefault(f"{key}:mechanism", {})
    if store.get("start") != start:
        store["start"] = start
        if start != store.get("now"):  # else the page passed the edited mechanism itself
            adopt(key, start)
    return store["base"]


def _axis(key: str, axis: str, base: Choice) -> Choice:
    keys = [item.key for item in AXES[axis]]
    name = st.selectbox(
        AXIS_NAMES[axis],
        keys,
        keys.index(base.key),
        key=f"{key}:{axis}",
        **KEEP,
        help=AXIS_HELP.get(axis),
        format_func=lambda key: entry_label(entry(axis, key)),
    )
    item = entry(axis, name)
    return Choice.of(
        name,
        *parts_from(axis, item, base, f"{key}:{axis}", KEEP),
        **params_from(item, base, f"{key}:{axis}", KEEP),
    )


def entry_label(item: Entry) -> str:
    """An entry in a list: its name, and its paper's year."""
    return f"{item.name} · {item.year}" if item.paper else item.name


def _broken(axis: str, choice: Choice) -> bool:
    item = entry(axis, choice.key)
    own = any(
        unreadable(param, dict(choice.params)[param.key])
        for param in item.params
        if is_text(param) and param.key in dict(choice.params)
    )
    return own or any(_broken(axis, part) for part in choice.parts)


def _build(key: str, fields: Fields, cells: dict[str, DeltaGenerator]) -> AttentionConfig | None:
    """The config, or its error beside the first control that it names, with repairs."""
    error = refusal(fields)
    if error is None:
        return AttentionConfig(**fields)
    named = [axis for axis, _ in re.findall(r"(\w+) = (\w+)", error) if axis in cells]
    with cells[named[0]] if named else st.container():
        st.error(plain(error))
        for axis, choice in repairs(fields, error):
            st.button(
                f"Use {axis} = {choice_text(choice, axis)}",
                key=f"{key}:repair:{axis}:{choice.key}",
                on_click=adopt,
                args=(key, AttentionConfig(**{**fields, axis: choice})),
            )
    return None


def _explain(config: AttentionConfig, axes: Collection[str]) -> None:
    lines = [
        f"- **{AXIS_NAMES[axis]}: {item.name}.** {plain(error)}"
        for axis, item, error in clashes(config, axes)
    ]
    st.markdown("\n".join(lines) or "Every other choice can be combined with the rest.")


def _preset_label(name: str) -> str:
    item = preset(name)
    return item.name if str(item.year) in item.name else f"{item.name} · {item.year}"


def preset_of(config: AttentionConfig | None) -> str | None:
    """The preset of a mechanism at its own size, whatever its dropout, or None."""
    if config is None:
        return None
    return _presets_at(config.d_model, config.num_heads).get(
        replace(config, dropout=0.0) if config.dropout else config
    )


@lru_cache(maxsize=32)
def _presets_at(d_model: int, num_heads: int) -> dict[AttentionConfig, str]:
    """Every preset that exists at a size, by its mechanism; the first of equal ones."""
    presets: dict[AttentionConfig, str] = {}
    for item in PRESETS:
        try:
            presets.setdefault(item.config(d_model, num_heads), item.key)
        except ConfigError:
            continue  # this one cannot be had at that size
    return presets


def _take_preset(key: str) -> None:
    store, name = st.session_state[f"{key}:mechanism"], st.session_state[f"{key}:preset"]
    if name == OWN:
        return
    current = store.get("now", store["base"])
    try:
        adopt(key, preset(name).config(current.d_model, current.num_heads))
    except ConfigError as error:
        store["refused"] = str(error)


# The mask of a mechanism as widgets: one mask, or up to three joined by and or by or, each negated or not.


def mask_parts(key: str, base: Choice) -> Choice:
    """Draw the widgets and return their mask."""
    join, parts = split(base)
    names = list(JOINS)
    operator = st.selectbox(
        "Mask",
        names,
        names.index(join),
        format_func=JOINS.__getitem__,
        key=f"{key}:mask:join",
        help="One mask, or two or three that are joined",
        **KEEP,
    )
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
    options = [NONE] * optional + [
        item.key for item in AXES["mask"] if item.key not in COMPOSITIONS
    ]
    options += [COMPOSED] * bool(base.parts)
    first = options.index(COMPOSED if base.parts else base.key)
    name = st.selectbox(
        f"Mask {index + 1}",
        options,
        first,
        format_func=lambda name: _label(name, base),
        key=key,
        label_visibility="collapsed",
        help="Which keys each query may attend to",
        **KEEP,
    )
    if name == NONE:
        return None
    part = (
        base
        if name == COMPOSED
        else Choice.of(name, **params_from(entry("mask", name), base, key, KEEP))
    )
    negated = st.toggle(
        "Not", negated, key=f"{key}:not", help="Invert this mask: allow what it forbids", **KEEP
    )
    return negated, part


def _label(name: str, base: Choice) -> str:
    if name == NONE:
        return "no third mask"
    return choice_text(base, "mask") if name == COMPOSED else entry("mask", name).name
