"""The shape of each series, which tells it apart without colours."""

from __future__ import annotations

from dashboard.draw.palette import CATEGORIES, Theme

# Paths in a box of 12 × 12, in the order of the series: ● ■ ▲ ◆ ▼ ✚ ⬟ ★
MARKS: tuple[str, ...] = (
    "M6 1a5 5 0 1 0 .001 0Z",
    "M1.5 1.5h9v9h-9Z",
    "M6 .5 11.8 11H.2Z",
    "M6 0 11.5 6 6 12 .5 6Z",
    "M6 11.5 .2 1h11.6Z",
    "M4 .5h4V4h3.5v4H8v3.5H4V8H.5V4H4Z",
    "M6 .3 11.7 4.5 9.5 11.2h-7L.3 4.5Z",
    "M6 0 7.5 4.2 12 4.4 8.5 7.2 9.7 11.6 6 9.1 2.3 11.6 3.5 7.2 0 4.4 4.5 4.2Z",
)


def mark_html(index: int, theme: Theme) -> str:
    """The marker of a series for st.html, which takes SVG out: a coloured box cut to the shape."""
    colour = CATEGORIES[theme][index % len(CATEGORIES[theme])]
    return (
        f'<span aria-hidden="true" style="display:inline-block;width:12px;height:12px;background:{colour};'
        f"clip-path:path('{MARKS[index % len(MARKS)]}')\"></span>"
    )
