"""Render the figure before its widgets, from session_state, so that the browser gets it first.

Each element takes the browser a millisecond or more. So the figure is rendered from the session, and the widgets above
it after it; only where the widgets must be read first (a link, the first run) are they rendered first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.server.streamlit_internals import script_run

Controls = TypeVar("Controls")
Rendered = TypeVar("Rendered")


def reruns_alone() -> bool:
    """Whether a fragment runs alone: the browser still shows all that it drew in the run before."""
    context = script_run()
    return context is not None and bool(context.fragment_ids_this_run)


def render_before_widgets(
    ready: str,
    settings: Callable[[], Controls],
    controls: Callable[[], Controls],
    show: Callable[[Controls], Rendered],
    places: Sequence[DeltaGenerator] = (),
) -> tuple[Controls, Rendered]:
    """The values of the controls, and what ``show`` returned for them.

    The ``places`` are those of the controls and of the output, by default one above the other.

    ``settings`` reads the values from the session, without drawing; ``controls`` draws the widgets and returns theirs.
    The session keeps under the key ``ready`` whether the two agreed. Where they differ (a widget refused a value of
    the session), the page runs again with the controls first.
    """
    top, view = places or (st.container(), st.container())
    early = settings() if st.session_state.get(ready, False) else None
    if early is not None:
        with view:
            rendered = show(early)
    with top:
        values = controls()
    st.session_state[ready] = early in (None, values)
    if early not in (None, values):
        st.rerun()
    if early is None:
        with view:
            rendered = show(values)
    return values, rendered
