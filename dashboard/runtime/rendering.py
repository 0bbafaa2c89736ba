"""The picture before the controls: what the session says is drawn and sent first, and the controls follow.

The server sends every 10 ms, and each element takes the browser a millisecond or more to look at again; whatever
stands between a key and the picture is waited for. So the picture is drawn from the session, and the controls, which
stand over it, come after it; only where they must first be read (a link, the first run) do they come before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import streamlit as st

Controls = TypeVar("Asked")
Rendered = TypeVar("Drawn")
AHEAD = 0.02  # seconds: the server sends every 10 ms and the browser collects for 10 ms more; later is not waited for


def render_before_widgets(
    ready: str, settings: Callable[[], Controls], controls: Callable[[], Controls],
    show: Callable[[Controls], Rendered],
) -> tuple[Controls, Rendered]:
    """What the controls say, and what ``show`` returned for it; the controls stand over what it drew.

    ``settings`` reads the session as ``controls`` will, without drawing; ``ready`` is a key of the session, under
    which it stands whether that can be relied on. Where they differ (a control would not take what the session has),
    all is run again with the controls first.
    """
    top, view = st.container(), st.container()
    early = settings() if st.session_state.get(ready, False) else None
    if early is not None:
        with view:
            rendered = show(early)
        time.sleep(AHEAD)
    with top:
        values = controls()
    st.session_state[ready] = early in (None, values)
    if early not in (None, values):
        st.rerun()
    if early is None:
        with view:
            rendered = show(values)
    return values, rendered
