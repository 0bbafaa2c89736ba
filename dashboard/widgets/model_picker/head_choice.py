"""The head that a person picked: every page of Look inside goes on with it, until another model is chosen."""

from __future__ import annotations

import streamlit as st

from core.trace import Kind
from dashboard.widgets.model_picker.models import ModelRef

PICKED = "inside:head"
Head = tuple[int, int]


def choose_head(ref: ModelRef, kind: Kind, head: Head) -> None:
    """Remember what a person picked, as (layer, head) among the maps of its kind; not what a page began with."""
    st.session_state[PICKED] = ref, kind, head


def current_head(ref: ModelRef) -> tuple[Kind, Head] | None:
    """The kind of attention and the head that was picked in this model, if any."""
    was, kind, head = st.session_state.get(PICKED) or (None, None, None)
    return (kind, head) if was == ref else None


def current_head_of(ref: ModelRef, kind: Kind, shape: tuple[int, int]) -> Head | None:
    """The picked head where it is one of this kind and of the (layers, heads) that are there."""
    found = current_head(ref)
    if found is None or found[0] != kind or not (found[1][0] < shape[0] and found[1][1] < shape[1]):
        return None
    return found[1]
