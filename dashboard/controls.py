"""From entries to widgets to a validated choice: a page asks for an axis and gets a Choice back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.attention import AXES, Choice, Entry, Param, entry, heads_that_divide


def pick_entry(axis: str, *, key: str, keys: Sequence[str] | None = None, default: str, label: str = "") -> Entry:
    """A selectbox over an axis's entries (those of `keys`, when given); bound to the URL under its own key."""
    options = [item.key for item in AXES[axis] if keys is None or item.key in keys]
    picked = st.selectbox(
        label or axis.capitalize(), options, index=options.index(default), key=key, bind="query-params",
        format_func=lambda name: entry(axis, name).name, help=entry(axis, default).meaning)
    return entry(axis, picked or default)


def param_widget(param: Param, *, key: str) -> Any:
    """The widget of one parameter: choices, a checkbox, or a number between its bounds."""
    if param.choices:
        return st.selectbox(param.name, param.choices, param.choices.index(str(param.default)), key=key,
                            help=param.meaning, bind="query-params")
    if isinstance(param.default, bool):
        return st.checkbox(param.name, param.default, key=key, help=param.meaning, bind="query-params")
    kind: Any = type(param.default)
    low, high, step = (None if bound is None else kind(bound) for bound in (param.low, param.high, param.step))
    return st.number_input(param.name, low, high, kind(param.default), step, key=key, help=param.meaning,
                           bind="query-params")


def params_of(item: Entry, *, key: str) -> Choice:
    """The entry's own parameters as widgets, and the choice that they make."""
    return Choice.of(item.key, **{p.key: param_widget(p, key=f"{key}_{item.key}_{p.key}") for p in item.params})


def heads_options(d_model: int, most: int = 64) -> list[int]:
    """The numbers of heads that a page offers for d_model: those that divide it, up to `most`."""
    return [heads for heads in heads_that_divide(d_model) if heads <= most]
