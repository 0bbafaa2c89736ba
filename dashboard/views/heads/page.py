"""The page as one fragment: controls, the picture of an idea, and where it is from."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.attention import ConfigError, entry
from core.attention.projections import Differential, GroupedQuery, Latent, MultiHead
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.heads import shared, split, subtract
from dashboard.views.heads.controls import Asked, choose, key, settings, unknown
from dashboard.widgets.panels import entries_panel, next_page, plain, source_panel, title

PICTURES = {"split": split.picture, "shared": shared.picture, "subtract": subtract.picture}
ENTRIES = {"split": ("multi_head",), "shared": ("grouped_query", "multi_query", "latent"),
           "subtract": ("differential",)}
SOURCES = {"split": (MultiHead,), "shared": (GroupedQuery, Latent), "subtract": (Differential,)}


def page() -> None:
    """Draw the page from top to bottom."""
    for sentence in unknown():
        st.warning(sentence)
    explore()
    next_page("heads")


@st.fragment
def explore() -> None:
    """Title, controls, picture and sentence; a control reruns nothing else."""
    asked, below = render_before_widgets(key("ready"), settings, controls, show)
    if below is not None:
        below()
    if asked.tokens:
        source(asked)


def controls() -> Asked:
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Heads", "The same width as one head or many, with keys of their own, shared, or subtracted.")
        corner = st.container(width="content")
    return choose(corner)


def show(asked: Asked) -> Callable[[], None] | None:
    """The picture and its sentence; returns what draws all that stands below them, for which they need not wait."""
    if not asked.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    try:
        return PICTURES[asked.idea](asked)
    except ConfigError as error:
        st.error(plain(str(error)))
        return None


def source(asked: Asked) -> None:
    """On request: equation, meaning, paper, and the classes that just ran."""
    panel = st.expander("Equation, paper and the code that just ran", on_change="rerun", key=key("source"))
    if panel.open:
        with panel:
            entries_panel(entry("projection", name) for name in ENTRIES[asked.idea])
            for built in SOURCES[asked.idea]:
                source_panel(built)
