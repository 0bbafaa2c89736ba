"""The tree of candidates as a picture that can be scrolled, read by arrow keys and picked from."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.components.lib import draw


def tree_view(svg: str, fact: str, *, follow: bool, key: str, on_pick: Callable[[], None]) -> None:
    """Draw an SVG whose groups have data-place, data-step and data-rank; `st.session_state[key].pick` is what was
    pressed, `fact` what a screen reader hears first; with `follow` the picked group is scrolled to."""
    draw("tree_view", "tv", {"svg": svg, "fact": fact, "follow": follow}, key=key, on_pick_change=on_pick)
