"""What stands above every page where a plug-in could not be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from core import plugins
from dashboard.widgets.panels import plain


@contextmanager
def plugin_problems() -> Iterator[None]:
    """Draw a page, and above it a warning for each plug-in that its import of core could not load."""
    if plugins.folder() is None:
        yield
        return
    place = st.container()
    try:
        yield
    finally:
        for problem in plugins.problems:
            place.warning(
                f"{plain(problem)} Correct it and start the dashboard again.",
                icon=":material/extension:",
            )
