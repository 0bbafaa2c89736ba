"""Present: the sidebar away and everything half as large again, for a room that reads from a projector."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.draw.components import HEIGHT, WIDTH
from dashboard.draw.formats import spoken
from dashboard.draw.page_pictures import add
from dashboard.draw.pictures import ChartPicture
from dashboard.draw.vega import PICKED, Spec, each_press_counts, enlarged, ordered
from dashboard.ui.links import link_value, one_of

PRESENT = "present"  # its name in the session and in the link
DRAWN = "presentation:drawn"  # the mode and the browser's theme in the last run of the whole app
SCALE, WIDE_SCALE = 1.5, 2  # of 1,280 px: 1,920 and, from WIDE on, 2,560
WIDE = 2400
# Streamlit measures in rem; the components and the HTML of our own in pixels. Vega reads the pointer in pixels of the
# screen, so that its figures are enlarged in their specs. The box of the buttons beside the title is fixed in pixels.
STYLE = f"""<style>
:root {{ --present: {SCALE}; font-size: calc(16px * var(--present)) !important; }}
@media (min-width: {WIDE}px) {{ :root {{ --present: {WIDE_SCALE}; }} }}
[data-testid=stSidebar], [data-testid=stExpandSidebarButton] {{ display: none !important; }}
[data-testid^=stBidiComponent], [data-testid=stHtml] {{ zoom: var(--present); }}
.stElementContainer[class*="-actions"] {{ flex: none; width: calc({WIDTH}px * var(--present)) !important;
  height: calc({HEIGHT}px * var(--present)) !important; }}
</style>"""


def presenting() -> bool:
    """Whether this session presents."""
    return bool(st.session_state.get(PRESENT))


def toggle() -> None:
    """Begin or end to present; for a callback."""
    st.session_state[PRESENT] = not presenting()


def is_new() -> bool:
    """Whether the mode or the theme changed after the app was drawn: a fragment that hears of it reruns alone."""
    return _look() != st.session_state.get(DRAWN, _look())


def _look() -> tuple[bool, str | None]:
    return presenting(), st.context.theme.type


def room(width: int) -> int:
    """A width in pixels for Streamlit, which holds the same words while the session presents, on any screen."""
    return width * WIDE_SCALE if presenting() else width


def apply() -> None:
    """Take the mode from the link, write it there, and draw its style; on each run of each page."""
    link_value(PRESENT, False, one_of([True, False]))
    st.session_state[DRAWN] = _look()
    if presenting():
        st.html(STYLE)


def pressed_point(key: str, name: str = PICKED) -> dict[str, Any] | None:
    """What a figure says of the cell or point that was pressed in it; None for a press beside all; for a callback."""
    points = st.session_state.get(key, {}).get("selection", {}).get(name)
    return points[0] if points else None


def draw_chart(
    place: Any,
    spec: Spec,
    data: Any = None,
    *,
    alt: str,
    drawn: tuple[Spec, Any] | None = None,
    **options: Any,
) -> Any:
    """Draw a Vega-Lite figure, enlarged while the session presents, and note it for Export by its `alt`.

    `drawn` is the same figure for the browser, with what changes in its data.
    """
    alt, spec = spoken(alt), ordered(spec)
    add(str(options.get("key") or alt), lambda: ChartPicture(alt.rstrip("."), spec, data))
    spec, data = (ordered(drawn[0]), drawn[1]) if drawn else (spec, data)
    if "selection_mode" in options:
        spec = each_press_counts(spec)
    return place.vega_lite_chart(
        data, enlarged(spec, SCALE) if presenting() else spec, alt=alt, **options
    )
