"""Widgets of an entry's parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import AXES, Choice, ConfigError, Entry, Param, entry
from core.attention.formula import FormulaError
from core.entries import Value
from dashboard.runtime.link_values import BOUND
from dashboard.ui.panels import field_error

D_MODELS = [2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]


def keep_heads(
    d_model: str, heads: Callable[[int], str], fits: Callable[[int], Sequence[int]]
) -> dict[str, Any]:
    """The options of the d_model widget of key `d_model` by which its changes keep the heads that were chosen.

    Where these do not divide the new d_model, the largest number below them of `fits(d_model)` is shown until they do.
    `heads(d_model)` is the key of the heads' widget, whose value the page tells by `note_heads`.
    """

    def keep() -> None:
        state = st.session_state
        if (noted := state.get(f"{d_model}:heads")) is not None:
            width, chosen = state[d_model], noted[0]
            shown = max(
                (number for number in fits(width) if number <= chosen), default=fits(width)[0]
            )
            state[heads(width)], state[f"{d_model}:heads"] = shown, (chosen, width, shown)

    return {"on_change": keep}


def note_heads(d_model: str, width: int, heads: int) -> int:
    """Remember the heads that were chosen at a width, for the next change of d_model; returns them."""
    if st.session_state.get(f"{d_model}:heads", (0, 0, 0))[1:] != (width, heads):
        st.session_state[f"{d_model}:heads"] = heads, width, heads
    return heads


def params_of(item: Entry, *, key: str, exclude: tuple[str, ...] = ()) -> dict[str, Value]:
    """Draw a widget for each of the entry's parameters except `exclude`; returns their values."""
    return {
        param.key: param_widget(param, key=f"{key}:{item.key}:{param.key}")
        for param in item.params
        if param.key not in exclude
    }


def params_in_session(item: Entry, *, key: str) -> dict[str, Value]:
    """The values that those widgets will have, before they are drawn."""
    return {
        param.key: st.session_state.get(f"{key}:{item.key}:{param.key}", param.default)
        for param in item.params
    }


def params_from(item: Entry, base: Choice, key: str, keep: dict[str, Any]) -> dict[str, Value]:
    """The same, starting from another choice's values where it is of that entry."""
    values = dict(base.params) if base.key == item.key else {}
    return {
        param.key: param_widget(
            replace(param, default=values.get(param.key, param.default)),
            key=f"{key}:{item.key}:{param.key}",
            keep=keep,
        )
        for param in item.params
    }


def joinable(axis: str) -> list[Entry]:
    """The entries that a composed choice of the axis can join; of positions those that rotate or change scores."""
    return [
        item
        for item in AXES[axis]
        if not item.parts and (axis != "position" or item.enters in ("q, k", "scores"))
    ]


def parts_from(
    axis: str, item: Entry, base: Choice, key: str, keep: dict[str, Any]
) -> tuple[Choice, ...]:
    """Draw the parts of a composed choice, starting from those of another choice of that entry, else from its own."""
    start = base.parts if base.key == item.key and base.parts else item.parts
    return tuple(
        _part(axis, part, f"Part {n + 1}", part_key(key, item.key, n), keep)
        for n, part in enumerate(start)
    )


def parts_in_session(axis: str, item: Entry, *, key: str) -> tuple[Choice, ...]:
    """The parts that those widgets will have, before they are drawn, where they start from the entry's own."""
    names = [
        st.session_state.get(part_key(key, item.key, n), part.key)
        for n, part in enumerate(item.parts)
    ]
    return tuple(
        Choice.of(name, **params_in_session(entry(axis, name), key=part_key(key, item.key, n)))
        for n, name in enumerate(names)
    )


def part_key(key: str, name: str, number: int) -> str:
    return f"{key}:{name}:part{number}"


def _part(axis: str, base: Choice, label: str, key: str, keep: dict[str, Any]) -> Choice:
    names = [item.key for item in joinable(axis)]
    name = st.selectbox(
        label,
        names,
        names.index(base.key),
        key=key,
        format_func=lambda name: entry(axis, name).name,
        help="One of the choices that act together",
        **keep,
    )
    return Choice.of(name, **params_from(entry(axis, name), base, key, keep))


def param_widget(param: Param, *, key: str, keep: dict[str, Any] = BOUND) -> Value:
    """The widget of one parameter; `keep` are the options that bind its value to the link and the session.

    A free text that cannot be read is returned as typed, with its error below; the config that takes it refuses it.
    """
    shared: dict[str, Any] = {"key": key, "help": param.help, **keep}
    if param.choices:
        first = param.choices.index(str(param.default))
        return st.selectbox(param.name, param.choices, first, format_func=param.label, **shared)
    if isinstance(param.default, bool):
        return st.toggle(param.name, param.default, **shared)
    if isinstance(param.default, str):
        typed = st.text_input(param.name, param.default, live=True, **shared) or ""
        show_unreadable(param, typed)
        return typed
    number: Any = type(param.default)
    low, high, step = (
        None if bound is None else number(bound) for bound in (param.low, param.high, param.step)
    )
    short = low is not None and high is not None and step is not None and high - low <= 100 * step
    if number is float and not short:
        shared["format"] = "%g"  # 10000, not 10000.00
    return (st.slider if short else st.number_input)(
        param.name, low, high, number(param.default), step, **shared
    )


def is_text(param: Param) -> bool:
    """Whether a parameter is typed freely."""
    return isinstance(param.default, str) and not param.choices


def unreadable(param: Param, typed: Value) -> ConfigError | None:
    """Why a typed text cannot be this parameter, or None."""
    try:
        param.check(typed, param.name)
    except ConfigError as error:
        return error
    return None


def show_unreadable(param: Param, typed: str) -> None:
    """Under a field: what is wrong with its text, pointing at the character where the error knows it."""
    error = unreadable(param, typed)
    if isinstance(error, FormulaError):
        st.code(error.pointed(), language=None, wrap_lines=False)
    if error is not None:
        field_error(error.why if isinstance(error, FormulaError) else error)
