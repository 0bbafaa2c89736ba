"""Linked small multiples: several maps of the same tokens side by side, one crosshair over all of them.

    pinned = multiples([Tile("Dot product", "softmax · Vaswani 2017", weights), Tile("ALiBi", "slope ¼", others, mask)],
                       tokens, key="page:maps", query=5, difference=(1, 0), fact="ALiBi looks nearer")

Weights are blue from 0 to 1; signed tiles are purple and green around 0. ``difference`` adds a signed map of one tile
minus another; ``difference_map`` draws that alone. The crosshair is shared with every attention view of the same
tokens. Hover and keys stay in the browser; a pin is returned.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.tokens import token_text
from dashboard.components.attention_view.payload import READS
from dashboard.components.attention_view.state import settle_pin, stores, take
from dashboard.components.lib import draw
from dashboard.components.multiples.marks import MARKS, mark_html
from dashboard.components.multiples.payload import (
    Frames,
    Pair,
    Tile,
    difference_span,
    fits,
    pack,
    telling_column,
)
from dashboard.draw.formats import MINUS
from dashboard.draw.maps import PictureMap
from dashboard.draw.pictures import MapsPicture
from dashboard.runtime.page_pictures import add

__all__ = [
    "MARKS",
    "MINUS",
    "Frames",
    "Tile",
    "difference_map",
    "difference_span",
    "fits",
    "mark_html",
    "multiples",
]


def multiples(
    maps: Sequence[Tile],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    key: str,
    query: int | None = None,
    column: int | None = None,
    pin: Pair | None = None,
    difference: Pair | None = None,
    signed: bool = False,
    noun: str = "weight",
    fact: str = "",
    reads: str = READS["self"],
    height: int | None = None,
    link: str | None = None,
    absent: str | None = None,
    legend: bool = True,
    first: int = 0,
    frames: Frames | None = None,
) -> Pair | None:
    """Draw one to twelve maps (T, S) of the same queries and keys (the queries when None); return the pinned cell.

    ``query`` is the row drawn in the accent while nothing is picked, ``column`` the key whose numbers stand under the
    maps (the largest of that row in the first map when None). ``pin`` is the page's value: it holds until a person
    pins another cell. ``difference`` = (a, b) adds the map of tile a minus tile b. ``noun`` is what a cell holds.
    ``fact`` is what a screen reader hears first, ``reads`` the words over the maps, ``height`` caps a map in pixels.
    ``absent`` says what a row is that may attend to nothing, where that means something else than being masked.
    ``legend=False`` leaves out the scale, where maps on the same scale are beside these.
    ``first`` is the map that a phone, which has room for one, shows first. ``frames`` are the maps at each value of a
    slider or list, drawn as it changes.
    Calls with the same ``link`` share one pin. ValueError when a map does not fit the tokens, or there is none.
    """
    options = {
        "query": query,
        "column": column,
        "fact": fact,
        "reads": reads,
        "height": height,
        "noun": noun,
        "absent": absent,
        "legend": legend,
        "first": first,
        "frames": frames and frames.payload(maps),
    }
    return _draw(maps, queries, keys, key, pin, link, pack(maps, difference, signed) | options)


def difference_map(
    first: Tile,
    second: Tile,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    key: str,
    query: int | None = None,
    column: int | None = None,
    pin: Pair | None = None,
    noun: str = "weight",
    fact: str = "",
    height: int | None = None,
    link: str | None = None,
    legend: bool = True,
    reads: str = READS["self"],
    absent: str | None = None,
    frames: Frames | None = None,
) -> Pair | None:
    """Draw the first map minus the second alone, purple below 0 and green above.

    Its scale is ``difference_span(first, second)``, for a page that draws the legend itself (``legend=False``).
    The tiles of ``frames`` are such pairs.
    """
    options = {
        "query": query,
        "column": column,
        "fact": fact,
        "reads": reads,
        "height": height,
        "noun": noun,
        "alone": True,
        "legend": legend,
        "absent": absent,
        "frames": frames and frames.payload((first, second)),
    }
    return _draw(
        (first, second),
        queries,
        keys,
        key,
        pin,
        link,
        pack((first, second), (0, 1), False) | options,
    )


def _draw(
    maps: Sequence[Tile],
    queries: Sequence[str],
    keys: Sequence[str] | None,
    key: str,
    pin: Pair | None,
    link: str | None,
    data: dict[str, Any],
) -> Pair | None:
    rows, columns = _names(maps, queries, keys)
    own, shared = stores(key, link)
    pinned = settle_pin(shared, key, pin, (len(rows), len(columns)))
    if data["query"] is not None and data["column"] is None:
        data["column"] = telling_column(maps[0], data["query"])
    add(key, functools.partial(picture_of, maps, data, rows, columns))
    data |= {
        "marks": MARKS,
        "queries": rows,
        "keys": columns,
        "pin": pinned,
        "turn": own.get("turn", 0),
    }
    draw("multiples", "mu", data, key=key, on_pin_change=functools.partial(take, key, link, "pin"))
    return pinned


def picture_of(
    maps: Sequence[Tile], data: dict[str, Any], rows: list[str], columns: list[str]
) -> MapsPicture:
    """The maps as they are drawn, with the difference after them, or alone where it is."""
    named = [
        PictureMap(
            tile.name,
            tile.weights,
            tuple(rows),
            tuple(columns),
            tile.note,
            _mask(tile),
            drawn["low"],
            drawn["high"],
            drawn["signed"],
            data["noun"],
        )
        for tile, drawn in zip(maps, data["tiles"], strict=True)
    ]
    if data["difference"] is not None:
        first, second = (maps[at] for at in data["difference"])
        end = data["differenceEnd"]
        apart = PictureMap(
            f"{first.name} {MINUS} {second.name}",
            np.asarray(first.weights) - second.weights,
            tuple(rows),
            tuple(columns),
            low=-end,
            high=end,
            signed=True,
            noun="difference",
        )
        named = [apart] if data.get("alone") else [*named, apart]
    title = (
        ", ".join(item.name for item in named)
        if len(named) < 4
        else f"{named[0].name} and {len(named) - 1} more"
    )
    return MapsPicture(title, tuple(named), data["query"], data["reads"])


def _mask(tile: Tile) -> np.ndarray | None:
    """Which cells (T, S) are allowed."""
    return None if tile.mask is None else np.broadcast_to(tile.mask, (1, *tile.weights.shape))[0]


def _names(
    maps: Sequence[Tile], queries: Sequence[str], keys: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    rows, columns = (
        [token_text(str(name)) for name in line]
        for line in (queries, queries if keys is None else keys)
    )
    if not maps:
        raise ValueError("multiples needs at least one map; got none")
    for tile in maps:
        if tile.weights.shape != (len(rows), len(columns)):
            raise ValueError(
                f"{tile.name} is {tile.weights.shape}; "
                f"expected ({len(rows)} queries, {len(columns)} keys)"
            )
    return rows, columns
