"""What the views of the page share: the fields of attention and head, and the figures in which a head is picked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from core.interpret.trace import Head, Kind
from dashboard.draw.attention_view import ViewState
from dashboard.draw.vega import Spec
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import KIND_HELP, KINDS
from dashboard.ui.presentation import draw_chart, pressed_point

KIND = "head_roles:kind"


def kind_field(kinds: Sequence[Kind], column: Any) -> Kind:
    return (
        kinds[0]
        if len(kinds) == 1
        else column.selectbox(
            "Attention", kinds, key=KIND, help=KIND_HELP, **BOUND, format_func=KINDS.__getitem__
        )
    )


def head_field(key: str, options: Mapping[str, Head], of: object, column: Any, order: str) -> Head:
    """The head that was picked for `of`, else the first of the options, whose order the help says."""
    if picked := st.session_state.pop(f"{key}:picked", None):
        st.session_state[key] = picked
    reset_choice(key, list(options), next(iter(options)), of)
    name = column.selectbox(
        "Head",
        list(options),
        key=key,
        **BOUND,
        help=f"Sorted by {order}. You can also click a head in a grid.",
    )
    return options[name]


def head_chart(spec: Spec, key: str, field: str, alt: str) -> None:
    """Draw a grid of heads; a press picks a head in the field."""

    def pick() -> None:
        if point := pressed_point(key, "head"):
            st.session_state[field] = point["name"]

    draw_chart(st, spec, key=key, width="content", alt=alt, selection_mode="head", on_select=pick)


def follow_view(view: ViewState, head: Head, field: str, name: Callable[[Head], str]) -> None:
    """Pick the head that was picked in a map, and rerun the page: a field is not set after it was drawn."""
    if (shown := (view.layer, view.head)) != head:
        st.session_state[f"{field}:picked"] = name(shown)
        st.rerun()


def reset_choice(key: str, options: list[str], default: str, of: object) -> None:
    """Set the default where the choice is no option or was made for something else."""
    before = st.session_state.get(f"{key}:of", of)
    st.session_state[f"{key}:of"] = of
    if before != of or st.session_state.get(key, default) not in options:
        st.session_state[key] = default
