"""The pictures of the page that is drawn: every drawing function adds its own, and Export offers them all.

    begin()                                          the page's title, on each run of the whole page
    add("masks:maps", lambda: MapsPicture(...))      a drawing function, also in a fragment that runs alone
    describe(model="GPT-2")                          a page or a widget: what all pictures of this page are of
    add_script(partial(script, controls))            the page: what it computes as Python

A picture is made when Export opens: a rerun, which draws for the screen, does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import streamlit as st

from dashboard.draw.formats import spoken
from dashboard.draw.pictures import Picture
from dashboard.draw.scripts import Script, join

Component: TypeAlias = tuple[
    str, str, Mapping[str, Any]
]  # its folder, the class of its root, and its data
PICTURES, ABOUT, DRAWN, SCRIPT = (
    "page_pictures",
    "page_pictures:about",
    "page_pictures:drawn",
    "page_pictures:script",
)
FACT = "page_pictures:fact"


def begin() -> None:
    """Forget the pictures of the run before."""
    begin_fragment()
    st.session_state[ABOUT] = {}


def begin_fragment() -> None:
    """Forget the pictures of the run before, in a fragment that draws all of the page's."""
    for name in (PICTURES, DRAWN, SCRIPT):
        st.session_state[name] = {}
    st.session_state.pop(FACT, None)


def add(key: str, make: Callable[[], Picture]) -> None:
    """Note how a picture is made; one of the same key, drawn again, takes its place."""
    st.session_state.setdefault(PICTURES, {})[key] = make


def describe(**about: str) -> None:
    """Note what the page's pictures are of, such as the model."""
    st.session_state.setdefault(ABOUT, {}).update(about)


def page_pictures() -> dict[str, Picture]:
    """The pictures of the page by key, in the order in which they were drawn."""
    return {key: make() for key, make in st.session_state.get(PICTURES, {}).items()}


def note_fact(text: str) -> None:
    """Note the page's measured sentence, as a screen reader says it; the one that is drawn last counts."""
    st.session_state[FACT] = spoken(text)


def page_fact() -> str:
    """The page's measured sentence; empty before one is drawn."""
    return str(st.session_state.get(FACT, ""))


def page_about() -> Mapping[str, str]:
    """What all pictures of the page are of."""
    return dict(st.session_state.get(ABOUT, {}))


def add_drawn(key: str, name: str, root: str, data: Mapping[str, Any]) -> None:
    """Note what a component of the browser was given, so that a file can draw it again."""
    st.session_state.setdefault(DRAWN, {})[key] = (name, root, data)


def drawn_components() -> dict[str, Component]:
    """The components of the page by key."""
    return dict(st.session_state.get(DRAWN, {}))


def add_script(make: Callable[[], Script], part: str = "") -> None:
    """Note how the page's script is made, from the controls and the result that are drawn.

    A page of several fragments, each of which runs alone, notes one for each part.
    """
    st.session_state.setdefault(SCRIPT, {})[part] = make


def page_script() -> Script | None:
    """What the page computes as Python; None for a page that computes nothing, or that could not."""
    makes = st.session_state.get(SCRIPT, {})
    return join(make() for make in makes.values()) if makes else None


def has_script() -> bool:
    """Whether the page noted what it computes as Python."""
    return bool(st.session_state.get(SCRIPT))
