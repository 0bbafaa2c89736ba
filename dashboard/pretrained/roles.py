"""The roles of a model's heads for its grid: measured once, after the first picture of the model stands."""

from __future__ import annotations

import streamlit as st

from core.pretrained import Given
from core.trace import Kind
from dashboard.head_roles.state import Found, roles_of
from dashboard.inside import ModelRef

KNOWN = "pretrained:measured"  # the models whose roles this session has waited for


def known_roles(ref: ModelRef, given: Given, kind: Kind) -> Found | None:
    """The roles, or None where measuring them would keep the picture waiting."""
    waited = (repr(ref), kind) in st.session_state.get(KNOWN, ())
    return roles_of(ref, given, kind) if waited or kind == "cross" else None


def measure_roles(ref: ModelRef, given: Given, kind: Kind) -> None:
    """Measure them, and draw the page again with its marks."""
    roles_of(ref, given, kind)
    st.session_state.setdefault(KNOWN, set()).add((repr(ref), kind))
    st.rerun()
