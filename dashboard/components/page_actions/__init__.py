"""The two small buttons of a page's title row: copy the page's link, and set the page back to its start."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.components.lib import draw

WIDTH, HEIGHT = 152, 28  # px, fixed, so that nothing moves when the browser fills them


def page_actions(*, key: str, on_reset: Callable[[], None]) -> None:
    """Draw "Copy link", which the browser does alone, and "Reset", which calls `on_reset`."""
    draw("page_actions", "pa", {}, key=key, width=WIDTH, height=HEIGHT, on_reset_change=on_reset)
