"""Tiles as plain values and base64 bytes for the canvases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dashboard.components.attention_view.payload import EXACT_CELLS, allowed_bits, packed

Pair: TypeAlias = tuple[int, int]

MOST_TILES = 12
MOST_FRAME_CELLS = 500_000  # of all maps at all values of a control: 1 MB
LEAST_NEGATIVE = -1e-6  # what rounding leaves below zero makes no map signed


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
    return values * sum(tile.weights.size for tile in maps) <= MOST_FRAME_CELLS


def pack(maps: Sequence[Tile], difference: Pair | None, signed: bool) -> dict[str, Any]:
    """What the browser needs of the maps; ValueError when there are too many, or the difference names none of them."""
    if len(maps) > MOST_TILES:
        raise ValueError(f"multiples draws at most {MOST_TILES} maps; got {len(maps)}")
    if difference is not None and not all(0 <= at < len(maps) for at in difference):
        raise ValueError(
            f"difference = {difference}; expected two of the maps, 0 to {len(maps) - 1}"
        )
    together = _span(maps, signed)
    tiles = [_tile(tile, index, together, signed) for index, tile in enumerate(maps)]
    end = None if difference is None else difference_span(maps[difference[0]], maps[difference[1]])
    return {
        "tiles": tiles,
        "difference": None if difference is None else list(difference),
        "differenceEnd": end,
    }


def _tile(tile: Tile, index: int, together: tuple[float, float], signed: bool) -> dict[str, Any]:
    values = np.asarray(tile.weights, dtype=np.float32)
    negative = signed or tile.signed or values.min(initial=0.0) < LEAST_NEGATIVE
    low, high = tile.span or ((-together[1], together[1]) if negative else together)
    return {
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


def _span(maps: Sequence[Tile], signed: bool) -> tuple[float, float]:
    """One scale for all maps: 0 to 1 or to a larger maximum; symmetric for signed numbers."""
    sizes = [
        np.abs(tile.weights[np.isfinite(tile.weights)]).max(initial=0.0)
        for tile in maps
        if tile.span is None
    ]
    largest = float(max(sizes, default=1.0))
    if signed:
        return -(largest or 1.0), largest or 1.0
    return 0.0, largest if largest > 1.0005 else 1.0


def difference_span(first: Tile, second: Tile) -> float:
    """The end of a difference's symmetric scale: its largest cell, rounded up to one digit."""
    apart = np.abs(np.asarray(first.weights, dtype=np.float64) - second.weights)
    largest = float(apart[np.isfinite(apart)].max(initial=0.0))
    if largest < 1e-9:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(largest))
    return round(math.ceil(largest / unit - 1e-9) * unit, 12)


def telling_column(tile: Tile, query: int) -> int:
    """The key with the largest finite weight in a row."""
    row = np.nan_to_num(np.asarray(tile.weights[query], dtype=np.float64), nan=-np.inf)
    return int(row.argmax())
