"""The roles of a model's heads for its grid: measured once, after the first picture of the model stands."""

from __future__ import annotations

import streamlit as st

from core.pretrained import Given
from core.trace import Kind
from dashboard.runtime.role_scores import Found, at_hand, roles_of
from dashboard.widgets.model_picker import ModelRef

WAITING = 56  # pixels: about the height of the line that comes


def known_roles(ref: ModelRef, given: Given, kind: Kind) -> Found | None:
    """The roles, or None where measuring them would keep the picture waiting."""
    return roles_of(ref, given, kind) if at_hand(ref, given, kind) else None


def measure_roles(ref: ModelRef, given: Given, kind: Kind) -> None:
    """Measure them, and draw the page again with its marks."""
    roles_of(ref, given, kind)
    st.rerun()
