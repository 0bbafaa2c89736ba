"""An AttentionTrace as plain values and base64 bytes for the canvas."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from core.tokens import token_text
from dashboard.components.attention_view.blocks import Blocks, Pool, edges, names

THUMB_PIXELS = 68  # 34 px on a screen of two device pixels each: finer than this is never seen
EXACT_CELLS = (
    65_536  # up to here every head of the layer travels as float32, so [ and ] need no rerun
)
FRAME_CELLS = 262_144  # more cells than this in all frames: one byte each
MASKED = 255  # the byte of a masked cell in a thumbnail; weights take 0 to 254

READS = dict.fromkeys(("self", "causal"), "query (row) attends to → key (column)") | {
    "cross": "output (row) attends to → input (column)",
    "sentences": "document (row) attends to → sentence (column)",
    "words": "sentence (row) attends to → word (column)",
}


def encode(array: np.ndarray) -> str:
    """An array's bytes as base64: Streamlit would send bytes in a dict as their repr."""
    return base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")


def pool(values: np.ndarray) -> np.ndarray:
    """Block means of (…, T, S) such that neither of the last two axes is longer than a thumbnail's."""
    for axis in (-2, -1):
        size = values.shape[axis]
        if size > THUMB_PIXELS:
            ends = edges(0, size, THUMB_PIXELS)
            widths = np.diff(ends).astype(np.float32)
            sums = np.add.reduceat(values, ends[:-1], axis=axis)
            values = sums / (widths[:, None] if axis == -2 else widths)
    return values


def span(values: np.ndarray, signed: bool) -> tuple[float, float]:
    """The colour scale's ends over some values: 0 to 1 for weights, symmetric for signed numbers."""
    if not signed:
        return 0.0, 1.0
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    return -(largest or 1.0), largest or 1.0


def to_bytes(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values in [low, high] as uint8 0 to 254 (255 means masked)."""
    scaled = (values - np.float32(low)) * np.float32(254.0 / (high - low))
    return np.clip(np.nan_to_num(scaled, posinf=254.0, neginf=0.0) + 0.5, 0, 254).astype(np.uint8)


# A pin or another head draws the page again, but pools no thumbnail again: these live as long as their trace.
_GRIDS: WeakKeyDictionary[Any, dict[bool, dict[str, Any]]] = WeakKeyDictionary()


def grid(trace: Any, signed: bool = False) -> dict[str, Any]:
    grids = _GRIDS.setdefault(trace, {})
    if signed not in grids:
        grids[signed] = thumbnails(trace.maps, signed)
    return grids[signed]


def thumbnails(maps: Sequence[Any], signed: bool = False) -> dict[str, Any]:
    """Every head of every layer as bytes of at most 68 × 68, on one shared scale."""
    pooled = [pool(np.asarray(item.weights, dtype=np.float32)) for item in maps]
    everything = np.concatenate([small.ravel() for small in pooled])
    is_pooled = everything.size < sum(item.weights.size for item in maps)
    low, high = span(everything, signed)
    if is_pooled and not signed:
        # A mean over blocks of cells is far below one, so a pooled grid shares the 99.5th percentile as full ink.
        high = max(float(np.quantile(everything, 0.995)), 1e-6)
    parts = []
    for small, item in zip(pooled, maps, strict=True):
        cells = to_bytes(small, low, high)
        if item.mask is not None:
            cells = np.where(_visible(item.mask, item.weights.shape), cells, np.uint8(MASKED))
        parts.append(cells)
    return {
        "shapes": [[int(size) for size in cells.shape] for cells in parts],
        "layers": list(range(len(maps))),
        "pooled": is_pooled,
        "low": float(low),
        "high": float(high),
        "bytes": encode(np.concatenate([cells.ravel() for cells in parts])),
    }


def _planes(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # One plane where all heads share the mask: a causal mask of twelve heads need not be sent twelve times.
    mask = np.asarray(mask, dtype=bool)
    shared = mask.ndim < 3 or mask.shape[0] == 1
    return np.broadcast_to(mask, (1, *shape[1:]) if shared else shape)


def _visible(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # A block of cells counts as masked only when all of it is.
    planes = _planes(mask, shape)
    for axis in (-2, -1):
        planes = np.logical_or.reduceat(
            planes, edges(0, planes.shape[axis], THUMB_PIXELS)[:-1], axis=axis
        )
    return planes


def packed(values: np.ndarray, exact: bool) -> dict[str, Any]:
    """Numbers as float32 where they are few, else as uint16 between their ends (steps of 1/65535 of the span)."""
    values = np.asarray(values, dtype=np.float32)
    values = np.where(np.isfinite(values), values, np.float32(0))
    if exact:
        return {"type": "f4", "low": 0.0, "step": 1.0, "bytes": encode(values.astype("<f4"))}
    low, high = min(float(values.min(initial=0)), 0.0), max(float(values.max(initial=0)), 1.0)
    step = (high - low) / 65_535
    return {
        "type": "u2",
        "low": low,
        "step": step,
        "bytes": encode(np.rint((values - low) / step).astype("<u2")),
    }


def allowed_bits(
    mask: np.ndarray | None, shape: tuple[int, ...], heads: Sequence[int]
) -> dict[str, Any] | None:
    """The unmasked cells, one bit a cell: one plane when all heads share it, else one each."""
    if mask is None or bool(np.all(mask)):
        return None
    planes = _planes(mask, shape)
    if len(planes) > 1:
        planes = planes[list(heads)]
    return {"planes": len(planes), "bytes": encode(np.packbits(planes.reshape(-1)))}


def one_map(
    attention: Any, head: int, blocks: Blocks | None = None, pool: Pool = "mean"
) -> dict[str, Any]:
    """The numbers of the drawn head, or of all heads of a small layer; with ``blocks`` those of the blocks."""
    weights = np.asarray(attention.weights)
    small = blocks is None and weights.size <= EXACT_CELLS
    heads = list(range(weights.shape[0])) if small else [int(head)]
    mask, ends = attention.mask, None
    values = weights if small else weights[heads]
    if blocks is not None:
        mask = None if mask is None else np.broadcast_to(mask, weights.shape)[heads]
        values, ends = blocks.weights(values, mask, pool), blocks.payload()
        mask = None if mask is None else blocks.pool_mask(mask)
    shape = (len(weights) if blocks is None else 1, *values.shape[1:])
    return {
        "heads": heads,
        "rows": int(values.shape[1]),
        "cols": int(values.shape[2]),
        "edges": ends,
        "values": packed(values, small or values.size <= EXACT_CELLS),
        "mask": allowed_bits(mask, shape, heads if blocks is None else [0]),
    }


def labels(attention: Any, blocks: Blocks | None) -> dict[str, list[str]]:
    """The names of the drawn rows and columns."""
    rows, columns = (
        [token_text(str(name)) for name in line] for line in (attention.queries, attention.keys)
    )
    if blocks is None:
        return {"queries": rows, "keys": columns}
    return {"queries": names(rows, blocks.rows), "keys": names(columns, blocks.columns)}


def frame_maps(frames: Sequence[tuple[int, np.ndarray]]) -> dict[str, Any]:
    """Maps over training steps, all (T, S), oldest first."""
    stack = np.stack([np.asarray(values, dtype=np.float32) for _, values in frames])
    return {
        "steps": [int(step) for step, _ in frames],
        "rows": int(stack.shape[1]),
        "cols": int(stack.shape[2]),
        "values": packed(stack, stack.size <= FRAME_CELLS),
    }


def role_list(roles: Mapping[tuple[int, int], int] | None) -> list[list[int]]:
    """Roles as [layer, head, category] rows: JSON has no tuple keys."""
    return [
        [int(layer), int(head), int(category)] for (layer, head), category in (roles or {}).items()
    ]
