"""What the browser components share: how a component is mounted, its modules joined, its palette and its styles.

    draw("mask_board", "mb", data, key="masks:board", on_cells_change=take)

Each component is a folder beside this one with an entry module ``main.js`` and a ``style.css``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from dashboard.charts.palette import for_browser
from dashboard.charts.tokens import spoken
from dashboard.components.lib.bundle import bundle
from dashboard.runtime.page_pictures import add_drawn

COMPONENTS = Path(__file__).parents[1]
HEARD = ("fact", "label")  # what a screen reader says of a component


def draw(name: str, root: str, data: dict[str, Any], *, key: str, width: int | Literal["stretch"] = "stretch",
         height: int | Literal["content"] = "content", exported: bool = True, **callbacks: Callable[[], None]) -> None:
    """Mount component ``name`` in an element of class ``root`` with its data and, under "palette", the palette.

    Where it is ``exported``, its data is held for the HTML file of the page.
    """
    data = {**data, **{field: spoken(data[field]) for field in HEARD if field in data}}
    if exported:
        add_drawn(key, name, root, data)
    _component(name, root)(key=key, data=data | {"palette": for_browser()}, width=width, height=height, **callbacks)


@functools.cache
def _component(name: str, root: str) -> Any:
    html = f'<div class="view {root}"></div>\n'
    return st.components.v2.component(f"attention_lab.{name}", html=html, css=css_of(name),
                                      js=bundle(COMPONENTS / name / "main.js"))


def css_of(name: str) -> str:
    """The styles of a component, after the shared ones."""
    return "\n".join((folder / "style.css").read_text("utf-8") for folder in (COMPONENTS / "lib", COMPONENTS / name))
