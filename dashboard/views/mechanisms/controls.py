"""What is looked up: an axis, a choice on it with its parameters, and the configs with and without it."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.attention import AXES, AttentionConfig, ConfigError, Entry, entry
from core.attention.compatible import example, needs
from core.entries import Value
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, params_in_session, params_of

D_MODEL, HEADS = 16, 4
NAMES = {"projection": "Projections", "score": "Scores", "position": "Positions", "mask": "Masks",
         "normalizer": "Normalizers", "kernel": "Kernels"}
FIRST = {"projection": "grouped_query", "position": "alibi"}  # where the usual choice would change nothing


@dataclass(frozen=True)
class Looked:
    """A choice that is looked up, beside the usual attention; `config` is None where its parameters cannot be."""

    axis: str
    item: Entry
    beside: dict[str, str]
    usual: AttentionConfig
    config: AttentionConfig | None
    problem: str = ""


def key(name: str) -> str:
    return f"mechanisms:{name}"


def pick_axis() -> str:
    return st.segmented_control("Axis", list(AXES), default="position", required=True, format_func=NAMES.get,
                                key=key("axis"), label_visibility="collapsed", **BOUND) or "position"


def look_up(axis: str) -> Looked:
    """Draw the controls of an axis and read them."""
    names = {item.key: f"{item.name} · {item.year}" for item in AXES[axis]}
    keys = list(names)
    with st.grid(min_column_width=150, gap="small"):
        chosen = st.selectbox("Choice", keys, keys.index(start_of(axis)), format_func=names.get, key=key(axis), **BOUND)
        item = entry(axis, chosen)
        params = params_of(item, key=key(axis))
    return looked(axis, item, params)


def settings(axis: str) -> Looked:
    """What those controls say, from the session, before they are drawn."""
    item = entry(axis, st.session_state.get(key(axis), start_of(axis)))
    return looked(axis, item, params_in_session(item, key=key(axis)))


def start_of(axis: str) -> str:
    """The choice that an axis opens with."""
    keys = [item.key for item in AXES[axis]]
    return FIRST.get(axis) or next((k for k in keys if k not in ("none", "softmax", "exact")), keys[0])


def looked(axis: str, item: Entry, params: dict[str, Value]) -> Looked:
    """The usual config and the one with this choice, which brings what it needs beside it."""
    beside = needs(axis, item.key)
    others = {other: example(other, name) for other, name in beside.items()}
    usual = AttentionConfig(D_MODEL, HEADS)
    try:
        config = usual.with_(**others, **{axis: example(axis, item.key, **params)})
    except ConfigError as error:
        return Looked(axis, item, beside, usual, None, str(error))
    return Looked(axis, item, beside, usual, config)


def unknown() -> list[str]:
    """What a link asks for that is not in the lab, a sentence each."""
    found, asked = [], st.query_params
    if (axis := asked.get(key("axis"))) and axis not in NAMES.values() and key("axis") not in st.session_state:
        found.append(f"The link says axis = {plain(axis[:40])}; expected one of {', '.join(NAMES.values())}.")
    for axis, entries in AXES.items():
        wanted = asked.get(key(axis))
        names = [f"{item.name} · {item.year}" for item in entries]
        if wanted and wanted not in names and key(axis) not in st.session_state:
            found.append(f"The link says {axis} = {plain(wanted[:40])}, which is not in the list of {NAMES[axis]}.")
    return found
