"""Linked small multiples: several maps of the same tokens side by side, one crosshair over all of them.

    pinned = multiples([Tile("Dot product", "softmax · Vaswani 2017", weights), Tile("ALiBi", "slope ¼", others, mask)],
                       tokens, key="page:maps", query=5, difference=(1, 0), fact="ALiBi looks nearer")

Weights are blue from 0 to 1; signed tiles are purple and green around 0. ``difference`` adds a signed map of one tile
minus another; ``difference_map`` draws that alone. The crosshair is shared with every attention view of the same
tokens. Hover and keys stay in the browser; a pin is returned.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.tokens import token_text
from dashboard.draw.attention_view import (
    EXACT_CELLS,
    READS,
    Pair,
    allowed_bits,
    packed,
    settle_pin,
    stores,
    take,
)
from dashboard.draw.components import draw
from dashboard.draw.formats import MINUS
from dashboard.draw.maps import PictureMap
from dashboard.draw.page_exports import add
from dashboard.draw.palette import MARKS
from dashboard.draw.pictures import MapsPicture

# Tiles as plain values and base64 bytes for the canvases.


MAX_TILES = 12
MAX_FRAME_CELLS = 500_000  # of all maps at all values of a control: 1 MB
MIN_NEGATIVE = -1e-6  # what rounding leaves below zero makes no map signed


@dataclass(frozen=True, eq=False)
class Tile:
    """One map: weights (T, S), mask (True = may attend) broadcastable to them, and a heading of two lines.

    ``marker`` is its index in the series, ``span`` its scale's ends if not 0 to 1; ``signed`` forces a signed scale.
    """

    name: str
    note: str
    weights: np.ndarray
    mask: np.ndarray | None = None
    marker: int | None = None
    span: tuple[float, float] | None = None
    signed: bool = False


@dataclass(frozen=True, eq=False)
class Frames:
    """The maps at each value of a native slider or list, which the browser draws before the server answers.

    ``control`` is the widget's key, ``at`` the index of its value now; ``tiles`` has, for each of its values in order,
    the tiles as they are drawn then. Those of a list have ``options``, the texts that it shows.
    """

    control: str
    at: int
    tiles: Sequence[Sequence[Tile]]
    options: Sequence[str] | None = None

    def payload(self, maps: Sequence[Tile]) -> dict[str, Any] | None:
        """What the browser needs; None where that is too much, or where a value has maps of another shape."""
        shapes = [tile.weights.shape for tile in maps]
        if not fits(len(self.tiles), maps) or any(
            [tile.weights.shape for tile in row] != shapes for row in self.tiles
        ):
            return None
        names = [[(tile.name, tile.note) for tile in row] for row in self.tiles]
        stacks = [
            np.stack([tile.weights for tile in column]) for column in zip(*self.tiles, strict=True)
        ]
        return {
            "control": self.control,
            "options": self.options and list(self.options),
            "at": self.at,
            "names": names,
            "values": [packed(one, False) for one in stacks],
        }


def fits(values: int, maps: Sequence[Tile]) -> bool:
    """Whether the browser can have such maps at so many values of a control."""
    return values * sum(tile.weights.size for tile in maps) <= MAX_FRAME_CELLS


def pack(maps: Sequence[Tile], difference: Pair | None, signed: bool) -> dict[str, Any]:
    """What the browser needs of the maps; ValueError when there are too many, or the difference names none of them.

    All have one scale but those with their own: 0 to 1 or to a larger maximum, and symmetric for signed numbers.
    """
    if len(maps) > MAX_TILES:
        raise ValueError(f"multiples draws at most {MAX_TILES} maps; got {len(maps)}")
    if difference is not None and not all(0 <= at < len(maps) for at in difference):
        raise ValueError(
            f"difference = {difference}; expected two of the maps, 0 to {len(maps) - 1}"
        )
    sizes = [
        np.abs(tile.weights[np.isfinite(tile.weights)]).max(initial=0.0)
        for tile in maps
        if tile.span is None
    ]
    end = float(max(sizes, default=1.0))
    end = (end or 1.0) if signed else end if end > 1.0005 else 1.0
    tiles = []
    for index, tile in enumerate(maps):
        values = np.asarray(tile.weights, dtype=np.float32)
        negative = signed or tile.signed or values.min(initial=0.0) < MIN_NEGATIVE
        low, high = tile.span or (-end if negative else 0.0, end)
        tiles.append(
            {
                "name": tile.name,
                "note": tile.note,
                "marker": index if tile.marker is None else int(tile.marker),
                "signed": bool(negative),
                "low": float(low),
                "high": float(high),
                "rows": values.shape[0],
                "cols": values.shape[1],
                "values": packed(values, values.size <= EXACT_CELLS),
                "mask": allowed_bits(tile.mask, (1, *values.shape), [0]),
            }
        )
    return {
        "tiles": tiles,
        "difference": difference and list(difference),
        "differenceEnd": difference and difference_span(*(maps[at] for at in difference)),
    }


def difference_span(first: Tile, second: Tile) -> float:
    """The end of a difference's symmetric scale: its largest cell, rounded up to one digit."""
    apart = np.abs(np.asarray(first.weights, dtype=np.float64) - second.weights)
    largest = float(apart[np.isfinite(apart)].max(initial=0.0))
    if largest < 1e-9:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(largest))
    return round(math.ceil(largest / unit - 1e-9) * unit, 12)


def telling_column(tile: Tile, query: int) -> int:
    return int(np.nan_to_num(np.float64(tile.weights[query]), nan=-np.inf).argmax())


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
    alone: bool = False,
    dimmed: Sequence[int] = (),
) -> Pair | None:
    """Draw one to twelve maps (T, S) of the same queries and keys (the queries when None); return the pinned cell.

    ``query`` is the row drawn in the accent while nothing is picked, ``column`` the key whose numbers stand under the
    maps (the largest of that row in the first map when None). ``pin`` is the page's value: it holds until a person
    pins another cell. ``difference`` = (a, b) adds the map of tile a minus tile b. ``noun`` is what a cell holds.
    ``fact`` is what a screen reader hears first, ``reads`` the words over the maps, ``height`` caps a map in pixels.
    ``absent`` says what a row is that may attend to nothing, where that means something else than being masked.
    ``legend=False`` leaves out the scale, where maps on the same scale are beside these.
    ``first`` is the map that a phone, which has room for one, shows first. ``frames`` are the maps at each value of a
    slider or list, drawn as it changes. ``alone`` draws the difference without the two maps.
    ``dimmed`` are keys whose columns are drawn faintly.
    Calls with the same ``link`` share one pin. ValueError when a map does not fit the tokens, or there is none.
    """
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
    if query is not None and column is None:
        column = telling_column(maps[0], query)
    own, shared = stores(key, link)
    pinned = settle_pin(shared, key, pin, (len(rows), len(columns)))
    data = pack(maps, difference, signed) | {
        "query": query,
        "column": column,
        "fact": fact,
        "reads": reads,
        "height": height,
        "noun": noun,
        "alone": alone,
        "dimmed": list(dimmed),
        "absent": absent,
        "legend": legend,
        "first": first,
        "frames": frames and frames.payload(maps),
        "marks": MARKS,
        "queries": rows,
        "keys": columns,
        "pin": pinned,
        "turn": own.get("turn", 0),
    }
    add(key, functools.partial(picture_of, maps, data, rows, columns))
    draw("multiples", "mu", data, key=key, on_pin_change=functools.partial(take, key, link, "pin"))
    return pinned


def difference_map(
    first: Tile,
    second: Tile,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    **options: Any,
) -> Pair | None:
    """Draw the first map minus the second alone, purple below 0 and green above; `options` are those of `multiples`.

    Its scale is ``difference_span(first, second)``, for a page that draws the legend itself (``legend=False``).
    The tiles of ``frames`` are such pairs.
    """
    return multiples((first, second), queries, keys, difference=(0, 1), alone=True, **options)


def picture_of(
    maps: Sequence[Tile], data: dict[str, Any], rows: list[str], columns: list[str]
) -> MapsPicture:
    named = [
        PictureMap(
            tile.name,
            tile.weights,
            tuple(rows),
            tuple(columns),
            tile.note,
            None if tile.mask is None else np.broadcast_to(tile.mask, (1, *tile.weights.shape))[0],
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
        named = [apart] if data["alone"] else [*named, apart]
    title = (
        ", ".join(item.name for item in named)
        if len(named) < 4
        else f"{named[0].name} and {len(named) - 1} more"
    )
    return MapsPicture(title, tuple(named), data["query"], data["reads"])
