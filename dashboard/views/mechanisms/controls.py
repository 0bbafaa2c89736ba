"""The page's controls: an axis, a choice on it with its parameters, and the configs with and without it."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.attention import AXES, AttentionConfig, ConfigError, Entry, entry
from core.attention.config import example, needs
from core.entries import Value
from dashboard.views.mechanisms.compute import BASELINE
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, params_in_session, params_of

NAMES = {
    "projection": "Projections",
    "score": "Scores",
    "position": "Positions",
    "mask": "Masks",
    "normalizer": "Normalizers",
    "kernel": "Kernels",
}
FIRST = {
    "projection": "grouped_query",
    "position": "alibi",
}  # where the default choice would change nothing


@dataclass(frozen=True)
class Controls:
    """A choice and what it needs beside it; `config` is None where its parameters are refused, `problem` says why."""

    axis: str
    item: Entry
    beside: dict[str, str]
    config: AttentionConfig | None
    problem: str = ""


key = "mechanisms:{}".format  # a widget's key, which is also its name in the link


def draw_controls(axis: str) -> Controls:
    """Draw the controls of an axis and read them."""
    names = {item.key: f"{item.name} · {item.year}" for item in AXES[axis]}
    keys = list(names)
    with st.grid(min_column_width=210, gap="small"):
        name = st.selectbox(
            "Choice",
            keys,
            keys.index(first_choice(axis)),
            key=key(axis),
            **BOUND,
            format_func=names.__getitem__,
            help="Replaces this part of scaled dot-product attention; all other parts stay.",
        )
        item = entry(axis, name)
        params = params_of(item, key=key(axis))
    return controls_of(axis, item, params)


def read_controls(axis: str) -> Controls:
    """Read the controls of an axis from the session, which also works before they are drawn."""
    item = entry(axis, st.session_state.get(key(axis), first_choice(axis)))
    return controls_of(axis, item, params_in_session(item, key=key(axis)))


def first_choice(axis: str) -> str:
    """The choice that an axis opens with."""
    keys = [item.key for item in AXES[axis]]
    return FIRST.get(axis) or next(
        (k for k in keys if k not in ("none", "softmax", "exact")), keys[0]
    )


def controls_of(axis: str, item: Entry, params: dict[str, Value]) -> Controls:
    """The baseline with this choice and what it needs beside it."""
    beside = needs(axis, item.key)
    others = {other: example(other, name) for other, name in beside.items()}
    try:
        config = BASELINE.with_(**others, **{axis: example(axis, item.key, **params)})
    except ConfigError as error:
        return Controls(axis, item, beside, None, str(error))
    return Controls(axis, item, beside, config)


def link_errors() -> list[str]:
    """A sentence for each choice in the link that is not in the lab."""
    errors, params = [], st.query_params
    if (
        (axis := params.get(key("axis")))
        and axis not in NAMES.values()
        and key("axis") not in st.session_state
    ):
        errors.append(
            f"The link says axis = {plain(axis[:40])}; expected one of {', '.join(NAMES.values())}."
        )
    for axis, entries in AXES.items():
        value = params.get(key(axis))
        names = [f"{item.name} · {item.year}" for item in entries]
        if value and value not in names and key(axis) not in st.session_state:
            errors.append(
                f"The link says {axis} = {plain(value[:40])}, which is not in the list of {NAMES[axis]}."
            )
    return errors
