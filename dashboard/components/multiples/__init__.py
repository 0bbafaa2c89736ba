"""Linked small multiples: several maps of the same tokens side by side, one crosshair over all of them.

    from dashboard.multiples import Tile, multiples

    pinned = multiples([Tile("Dot product", "softmax · Vaswani 2017", weights), Tile("ALiBi", "slope ¼", others, mask)],
                       tokens, key="page:maps", query=5, difference=(1, 0), fact="ALiBi looks nearer")

Each tile has a name, a second line, weights (T, S), a mask (True = may attend) and a marker (its place in the series
when left out). Numbers are weights in blue ink from 0 to 1; a tile with a negative number, or all of them when
``signed``, are purple and green around 0. ``difference`` adds a signed map of one tile minus another;
``difference_map`` draws that alone, for a page that wants it elsewhere; both follow the same crosshair, as does every
attention view of the same tokens. Hover and keys stay in the browser; a pin comes back, and is returned.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.tokens import token_text
from dashboard.components.attention_view.payload import READS
from dashboard.components.attention_view.state import parse_message, settle
from dashboard.components.lib import draw
from dashboard.components.multiples.marks import MARKS, MINUS, mark_html
from dashboard.components.multiples.payload import Pair, Tile, difference_span, pack, telling_column

__all__ = ["MARKS", "MINUS", "Tile", "difference_map", "difference_span", "mark_html", "multiples"]

def multiples(
    maps: Sequence[Tile], queries: Sequence[str], keys: Sequence[str] | None = None, *, key: str,
    query: int | None = None, column: int | None = None, pin: Pair | None = None, difference: Pair | None = None,
    signed: bool = False, noun: str = "weight", fact: str = "", reads: str = READS["self"], height: int | None = None,
    link: str | None = None, absent: str | None = None,
) -> Pair | None:  # fmt: skip
    """Draw one to eight maps (T, S) of the same queries and keys (the queries when None); return the pinned cell.

    ``query`` is the row drawn in the accent while nothing is picked, ``column`` the key whose numbers stand under the
    maps (the largest of that row in the first map when None). ``pin`` is the page's wish: it holds until a person
    pins something else. ``difference`` = (a, b) adds the map of tile a minus tile b. ``noun`` is what a cell holds.
    ``fact`` is what a screen reader hears first, ``reads`` the words over the maps, ``height`` caps a map in pixels.
    ``absent`` says what a row is that may attend to nothing, where that means something else than being masked.
    Calls with the same ``link`` share one pin. ValueError when a map does not fit the tokens, or there is none.
    """
    options = {"query": query, "column": column, "fact": fact, "reads": reads, "height": height, "noun": noun,
             "absent": absent}  # fmt: skip
    return _draw(maps, queries, keys, key, pin, link, pack(maps, difference, signed) | options)


def difference_map(
    first: Tile, second: Tile, queries: Sequence[str], keys: Sequence[str] | None = None, *, key: str,
    query: int | None = None, column: int | None = None, pin: Pair | None = None, noun: str = "weight",
    fact: str = "", height: int | None = None, link: str | None = None, legend: bool = True, reads: str = READS["self"],
    absent: str | None = None,
) -> Pair | None:  # fmt: skip
    """Draw the first map minus the second alone, purple below 0 and green above.

    Its scale is ``difference_span(first, second)``, for a page that draws the legend itself (``legend=False``).
    """
    options = {"query": query, "column": column, "fact": fact, "reads": reads, "height": height, "noun": noun,
             "alone": True, "legend": legend, "absent": absent}  # fmt: skip
    return _draw((first, second), queries, keys, key, pin, link, pack((first, second), (0, 1), False) | options)


def _draw(
    maps: Sequence[Tile], queries: Sequence[str], keys: Sequence[str] | None, key: str, pin: Pair | None,
    link: str | None, data: dict[str, Any],
) -> Pair | None:  # fmt: skip
    rows, columns = _names(maps, queries, keys)
    own = st.session_state.setdefault(f"{key}:view", {})
    shared = st.session_state.setdefault(f"{link}:link", {}) if link else own
    pinned = settle(shared, key, "pin", None if pin is None else (int(pin[0]), int(pin[1])))
    if pinned is not None and not (0 <= pinned[0] < len(rows) and 0 <= pinned[1] < len(columns)):
        pinned = shared["pin"] = None  # a pin from a longer sentence points nowhere in a shorter one
    if data["query"] is not None and data["column"] is None:
        data["column"] = telling_column(maps[0], data["query"])
    data |= {"marks": MARKS, "queries": rows, "keys": columns, "pin": pinned, "turn": own.get("turn", 0)}
    draw("multiples", "mu", data, key=key, on_pin_change=functools.partial(_take, key, link))
    return pinned


def _names(maps: Sequence[Tile], queries: Sequence[str], keys: Sequence[str] | None) -> tuple[list[str], list[str]]:
    rows, columns = ([token_text(str(name)) for name in line] for line in (queries, queries if keys is None else keys))
    if not maps:
        raise ValueError("multiples needs at least one map; got none")
    for tile in maps:
        if tile.weights.shape != (len(rows), len(columns)):
            raise ValueError(f"{tile.name} is {tile.weights.shape}; "
                             f"expected ({len(rows)} queries, {len(columns)} keys)")
    return rows, columns


def _take(key: str, link: str | None) -> None:
    message = st.session_state[key].get("pin")
    own = st.session_state.setdefault(f"{key}:view", {})
    (st.session_state.setdefault(f"{link}:link", {}) if link else own)["pin"] = parse_message("pin", message)
    own["turn"] = int(dict(message or {}).get("turn", 0))
