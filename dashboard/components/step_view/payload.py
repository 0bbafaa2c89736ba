"""A Reading as a plain dict for the browser: levels as bytes in base64, numbers as text."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass

import numpy as np

from dashboard.components.step_view.reading import Reading
from dashboard.draw import formats
from dashboard.draw.formats import number

MAP_CELLS = 46  # rows and columns of a small map: at least two pixels each
LIST_KEYS = 12  # lines under the maps
DIMS = 12  # numbers of a vector side by side, on a wide screen


@dataclass(frozen=True)
class StageTexts:
    """The title of a stage, its name on a phone, its rule, and the head of its column."""

    title: str
    short: str
    rule: str
    head: str


def payload(
    reading: Reading,
    words: tuple[StageTexts, ...],
    stage: int,
    focus: int,
    whys: dict[int, str],
    fact: list[list[str]],
    caption: str,
    projection: dict | None = None,
) -> dict:
    """Everything that is drawn: maps of at most 46 × 46, 12 keys, 12 dimensions.

    `projection` is what step 1 draws alone, where it is a matrix times x.
    """
    vectors = top_of(reading.q, reading.k, reading.v, reading.out)
    scores = top_of(reading.raw, reading.scores)
    most = max(1.0, top_of(reading.weights))
    rows, columns = (
        window(len(reading.queries), reading.query),
        window(len(reading.keys), reading.query),
    )
    listed = shown_keys(reading, focus)
    cells = CellFormat(vectors, scores)
    i = reading.query
    return {
        "stage": stage,
        "picked": i,
        "band": i - rows.start,
        "first": rows.start,
        "query": reading.name,
        "rows": list(reading.queries[rows.start : rows.stop]),
        "stages": [{"title": w.title, "short": w.short, "rule": w.rule} for w in words],
        "heads": [w.head for w in words],
        "maps": maps(reading, rows, columns, vectors, scores, most),
        "weights": weight_scale(reading, most),
        "q": cells.vector(reading.q[i]),
        "out": cells.vector(reading.out[i]),
        "keys": [key_line(reading, j, focus, cells, whys.get(j, ""), most) for j in listed],
        "against": against(reading, listed),
        "sum": number(float(reading.weights[i].sum())),
        "legend": f"signed: vectors ±{plain(vectors)}, scores ±{plain(scores)}",
        "fact": "".join(text for text, _ in fact),
        "parts": fact,
        "caption": caption,
        "projection": projection if stage == 1 else None,
    }


@dataclass(frozen=True)
class CellFormat:
    vectors: float
    scores: float

    def vector(self, values: np.ndarray) -> list[dict]:
        cells = [cell(value, self.vectors) for value in values[:DIMS]]
        return [
            {**each, "text": formats.cell(each["text"])} for each in cells
        ]  # side by side there is little room


def cell(value: float, top: float) -> dict:
    level = float(np.clip(value / top, -1, 1)) if math.isfinite(value) else 0.0
    return {"text": number(value), "level": round(level, 3)}


def weight_scale(reading: Reading, most: float) -> dict:
    """How weights are coloured: blue from 0, or signed where any is below zero; up to 1 unless one is larger."""
    end = plain(most)
    ends = [f"−{end}", "0", end] if reading.signed else ["0", "", end]
    return {"signed": reading.signed, "ends": ends, "words": f"weights {ends[0]} … {end}"}


def key_line(
    reading: Reading, j: int, focus: int, cells: CellFormat, why: str, most: float
) -> dict:
    i = reading.query
    weight, allowed = float(reading.weights[i, j]), bool(reading.allowed[i, j])
    scored = cell(reading.scores[i, j], cells.scores)
    value = reading.v[j] if allowed else np.nan_to_num(reading.v[j])
    return {
        "index": j,
        "label": reading.keys[j],
        "best": bool(reading.sees and j == reading.best),
        "focus": j == focus,
        "k": cells.vector(reading.k[j]),
        "raw": cell(reading.raw[i, j], cells.scores),
        "scores": scored,
        "bias": None if reading.bias is None else number(float(reading.bias[i, j])),
        "masked": scored if allowed else None,
        "why": why,
        "weight": {
            "value": weight / most if math.isfinite(weight) else 0.0,
            "text": number(weight) if allowed else "0",
        },
        "wv": cells.vector(weight * value),
    }


def maps(
    reading: Reading, rows: slice, columns: slice, vectors: float, scores: float, most: float
) -> list[dict]:
    """The six small maps: query, score, scaled, masked, weights, output."""
    allowed = reading.allowed[rows, columns]
    dims, keys = reading.q.shape[1], len(reading.keys)
    listed = columns.stop - columns.start
    keys_note = f"{listed} of {keys}" if listed < keys else f"{keys} keys" if keys > 1 else "1 key"
    return [
        small_map(
            reading.q[rows, :MAP_CELLS], vectors, note=f"{dims} dims" if dims > 1 else "1 dim"
        ),
        small_map(reading.raw[rows, columns], scores, note=keys_note),
        small_map(reading.scores[rows, columns], scores),
        small_map(reading.scores[rows, columns], scores, allowed),
        small_map(
            reading.weights[rows, columns],
            most,
            allowed,
            scale="signed" if reading.signed else "weight",
        ),
        small_map(reading.out[rows, :MAP_CELLS], vectors),
    ]


def small_map(
    values: np.ndarray,
    top: float,
    allowed: np.ndarray | None = None,
    note: str = "",
    scale: str = "signed",
) -> dict:
    """Levels 0 … 254, around 127 for a signed scale and from 0 for weights, and 255 where masked."""
    finite = np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0) / top, -1, 1)
    share = (finite + 1) / 2 if scale == "signed" else finite
    levels = np.rint(share * 254).astype(np.uint8)
    if allowed is not None:
        levels[~allowed] = 255
    return {
        "scale": scale,
        "rows": levels.shape[0],
        "columns": levels.shape[1],
        "data": base64.b64encode(levels.tobytes()).decode(),
        "note": note,
    }


def window(length: int, at: int) -> slice:
    """The stretch of at most 46 places that holds `at`, as near its middle as the ends allow."""
    start = max(0, min(at - MAP_CELLS // 2, length - MAP_CELLS))
    return slice(start, min(length, start + MAP_CELLS))


def shown_keys(reading: Reading, focus: int) -> list[int]:
    """The keys listed, in order: all of them, or the 12 with most weight, the nearest first among equals."""
    count = len(reading.keys)
    if count <= LIST_KEYS:
        return list(range(count))
    weights = np.nan_to_num(reading.weights[reading.query])
    order = sorted(range(count), key=lambda j: (j != focus, -weights[j], abs(j - reading.query)))
    return sorted(order[:LIST_KEYS])


def against(reading: Reading, listed: list[int]) -> str:
    count = len(reading.keys)
    if len(listed) == count:
        return "every key" if count > 1 else "the only key"
    share = 1 - float(np.nan_to_num(reading.weights[reading.query, listed]).sum())
    if not reading.sees:
        return f"{len(listed)} of {count} keys, the nearest"
    return f"the {len(listed)} of {count} keys with most weight; the others share {number(max(0.0, share))}"


def top_of(*arrays: np.ndarray) -> float:
    """The end of a signed scale: the largest size among the arrays, rounded up to a plain number."""
    largest = max((float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in arrays), default=0.0)
    if largest == 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(
        step * power
        for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
        if step * power >= largest * (1 - 1e-9)
    )


def plain(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}"
