"""The head that a user chose, with which every page starts until another model is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import streamlit as st

from core.interpret.trace import Head, Kind
from dashboard.ui.presentation import room
from dashboard.widgets.model_picker.models import ModelRef

KINDS: dict[Kind, str] = {
    "self": "Encoder",
    "causal": "Decoder",
    "cross": "Cross",
}  # as pages and links write them
KIND_HELP = (
    "Encoder: self-attention of the encoder. Decoder: causal self-attention of the decoder. Cross: the "
    "decoder's attention to the encoder."
)
HEAD = "inside:head"
T = TypeVar("T")


def choose_head(ref: ModelRef, kind: Kind, head: Head) -> None:
    """Store the user's choice, as (layer, head) among the maps of its kind; not a page's default."""
    st.session_state[HEAD] = ref, kind, head


def current_head(ref: ModelRef) -> tuple[Kind, Head] | None:
    """The kind of attention and the head that was chosen in this model, if any."""
    choice = st.session_state.get(HEAD)
    return choice[1:] if choice and choice[0] == ref else None


def current_head_of(ref: ModelRef, kind: Kind, shape: tuple[int, int]) -> Head | None:
    """The chosen head, if it is of this kind and within the (layers, heads) of `shape`."""
    choice = current_head(ref)
    if (
        choice is None
        or choice[0] != kind
        or not (choice[1][0] < shape[0] and choice[1][1] < shape[1])
    ):
        return None
    return choice[1]


def head_field(
    heads: Mapping[str, T],
    picked: T | None,
    choose: Callable[[T], None],
    key: str,
    *,
    order: str = "",
) -> None:
    """Draw a field that picks a head by its name, for those without a pointer; a press in a figure picks one, too.

    It shows `picked`, None where that is no head; `choose` takes another one before the page runs again.
    """
    name = st.session_state[key] = next(
        (name for name, head in heads.items() if head == picked), None
    )

    def changed() -> None:
        if (
            name := st.session_state[key]
        ) in heads:  # a browser may still name a head of the model before
            choose(heads[name])

    st.selectbox(
        "Head",
        list(heads),
        None if name is None else 0,
        key=key,
        width=room(140),
        on_change=changed,
        help=f"Layer and head, counted from 0{order}. A click in the figure picks one, too.",
    )
