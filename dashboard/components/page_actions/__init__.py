"""The small buttons of a page's title row: present the page, export its pictures, copy its link, reset it."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.components.lib import draw

COPY_LINK = "Copy link"
WIDTH, WIDE, HEIGHT = (
    284,
    390,
    28,
)  # px, with that label and a longer one: nothing moves when the browser fills them


def page_actions(
    *,
    key: str,
    presenting: bool,
    theme: str,
    on_present: Callable[[], None],
    on_export: Callable[[], None],
    on_reset: Callable[[], None],
    cookie: str | None = None,
    label: str = COPY_LINK,
) -> None:
    """Draw "Present", "Export" and "Reset", which call back, and the button `label` that copies the link, which the
    browser does alone.

    A `cookie` (NAME=VALUE) is stored for a year, one without a value is deleted. The page runs again once the browser's
    theme is another than `theme`, which Python draws with.
    """
    draw(
        "page_actions",
        "pa",
        {"presenting": presenting, "theme": theme, "cookie": cookie, "label": label},
        key=key,
        width=WIDTH if label == COPY_LINK else WIDE,
        height=HEIGHT,
        exported=False,
        on_present_change=on_present,
        on_export_change=on_export,
        on_reset_change=on_reset,
        on_theme_change=lambda: None,
    )
