"""The pictures of the page that is drawn: every drawing function adds its own, and Export offers them all.

    begin()                                          the page's title, on each run of the whole page
    add("masks:maps", lambda: MapsPicture(...))      a drawing function, also in a fragment that runs alone
    describe(model="GPT-2")                          a page or a widget: what all pictures of this page are of
    add_script(partial(script, controls))            the page: what it computes as Python

A picture is made when Export opens: a rerun, which draws for the screen, does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import streamlit as st

from dashboard.draw.pictures import Picture
from dashboard.draw.scripts import Script, join

Component: TypeAlias = tuple[
    str, str, Mapping[str, Any]
]  # its folder, the class of its root, and its data


@dataclass
class PageNotes:
    """How the pictures of the page are made, in the order in which they were drawn, and what they are all of.

    `drawn` is what each component of the browser was given, so that a file can draw it again; `scripts` make what the
    page computes as Python, by its parts; `fact` is the page's measured sentence, the one that was drawn last.
    """

    about: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Callable[[], Picture]] = field(default_factory=dict)
    drawn: dict[str, Component] = field(default_factory=dict)
    scripts: dict[str, Callable[[], Script]] = field(default_factory=dict)
    fact: str = ""


def notes() -> PageNotes:
    """The notes of the page that is drawn."""
    page: PageNotes = st.session_state.setdefault("page_pictures", PageNotes())
    return page


def begin() -> None:
    """Forget the pictures of the run before."""
    st.session_state["page_pictures"] = PageNotes()


def begin_fragment() -> None:
    """Forget the pictures of the run before, in a fragment that draws all of the page's."""
    st.session_state["page_pictures"] = PageNotes(notes().about)


def add(key: str, make: Callable[[], Picture]) -> None:
    """Note how a picture is made; one of the same key, drawn again, takes its place."""
    notes().pictures[key] = make


def describe(**about: str) -> None:
    """Note what the page's pictures are of, such as the model."""
    notes().about.update(about)


def page_pictures() -> dict[str, Picture]:
    """The pictures of the page by key, in the order in which they were drawn."""
    return {key: make() for key, make in notes().pictures.items()}


def add_script(make: Callable[[], Script], part: str = "") -> None:
    """Note how the page's script is made, from the controls and the result that are drawn.

    A page of several fragments, each of which runs alone, notes one for each part.
    """
    notes().scripts[part] = make


def page_script() -> Script | None:
    """What the page computes as Python; None for a page that computes nothing, or that could not."""
    makes = notes().scripts.values()
    return join(make() for make in makes) if makes else None
