"""The tree of candidates as a picture that can be scrolled, read by arrow keys and picked from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

HERE = Path(__file__).parent


@functools.cache
def _component() -> Any:
    css, script = ((HERE / f"tree.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return st.components.v2.component("attention_lab.tree", html='<div class="tv" tabindex="0"></div>\n', css=css,
                                      js=script)


def tree_view(svg: str, fact: str, *, follow: bool, key: str, on_pick: Callable[[], None]) -> None:
    """Draw an SVG whose groups have data-place, data-step and data-rank; `st.session_state[key].pick` is what was
    pressed, `fact` what a screen reader hears first; with `follow` the picked group is scrolled to."""
    _component()(data={"svg": svg, "fact": fact, "follow": follow}, key=key, on_pick_change=on_pick)
