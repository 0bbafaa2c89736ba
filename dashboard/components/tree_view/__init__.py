"""The tree of candidates as a picture that can be scrolled, read by arrow keys and picked from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dashboard.components.lib import draw
from dashboard.draw.drawings import HEAD
from dashboard.draw.palette import Theme
from dashboard.draw.pictures import DrawnPicture
from dashboard.runtime.page_pictures import add


def tree_view(
    picture: Callable[[Theme], str],
    rows: Callable[[], Sequence[tuple[Any, ...]]],
    fact: str,
    *,
    theme: Theme,
    follow: bool,
    key: str,
    on_pick: Callable[[], None],
) -> None:
    """Draw an SVG whose groups have data-place, data-step and data-rank; `st.session_state[key].pick` is what was
    pressed, `fact` what a screen reader hears first; with `follow` the picked group is scrolled to. `rows` gives
    the candidates by search_tree.HEAD."""
    add(key, lambda: DrawnPicture("Tree of candidates", HEAD, tuple(rows()), picture("light")))
    draw(
        "tree_view",
        "tv",
        {"svg": picture(theme), "fact": fact, "follow": follow},
        key=key,
        on_pick_change=on_pick,
    )
