"""The picture of one query in six stages; presses are returned as `pick`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from core.attention import Steps
from dashboard.draw.attention_view import READS, encode, largest
from dashboard.draw.components import add, draw
from dashboard.draw.formats import number, plural, rounded
from dashboard.draw.pictures import MapsPicture, PictureMap

ONE = 5e-3  # how far from 1 a row's sum may be and still be written 1.00


@dataclass(frozen=True)
class Reading:
    """One query of one head, each step by name; arrays are (T, ·), T queries and S keys.

    Where a projection combines heads, all up to the mask is of one of them; `normalized` holds each one's weights.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    query: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    raw: np.ndarray
    scale: float
    bias: np.ndarray | None
    before: np.ndarray  # raw · scale + bias, which a position may still adjust
    scores: np.ndarray
    allowed: np.ndarray
    normalized: tuple[np.ndarray, ...]
    weights: np.ndarray
    out: np.ndarray
    position_values: np.ndarray | None

    @property
    def name(self) -> str:
        return self.queries[self.query]

    @property
    def sees(self) -> int:
        return int(self.allowed[self.query].sum())

    @property
    def best(self) -> int:
        """The visible key with most weight; the query's own position where it sees none."""
        if not self.sees:
            return min(self.query, len(self.keys) - 1)
        return int(np.where(self.allowed[self.query], self.weights[self.query], -np.inf).argmax())

    @property
    def sum(self) -> float:
        return float(self.weights[self.query].sum())

    @property
    def sums_to_one(self) -> bool:
        return abs(self.sum - 1) < ONE

    @property
    def signed(self) -> bool:
        return bool((self.weights < 0).any())

    @property
    def adjusted(self) -> bool:
        """Whether the position changed the scores other than by a bias."""
        return self.before is not self.scores

    @property
    def reweighed(self) -> bool:
        """Whether the mask multiplied what the normalizer gave."""
        return len(self.normalized) == 1 and self.normalized[0] is not self.weights

    @property
    def folded(self) -> bool:
        return len(self.normalized) > 1


def read(
    steps: Steps,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
    query: int,
    head: int,
    *,
    half: int = 0,
    adjusts: bool = False,
) -> Reading:
    """One head and query of Steps, batch item 0, with the scores that only the exact kernel keeps.

    `half` is which of the combined heads is read; `adjusts` whether a position does more than add a bias.
    """
    raw, weights = steps.raw, steps.weights
    if raw is None or weights is None or steps.scores is None:
        raise ValueError("these Steps hold no scores; let the exact kernel make them")
    each = raw.shape[1] // weights.shape[1]  # score heads that are combined into one of weights
    met = head * each + half

    def one(tensor: Tensor, at: int = met) -> np.ndarray:
        return tensor.detach()[0, at].double().numpy()

    def expand(tensor: Tensor) -> np.ndarray:
        return tensor.detach().expand(raw.shape)[0, met].numpy()

    scale = float(expand(steps.scale)[0, 0] if isinstance(steps.scale, Tensor) else steps.scale)
    bias = None if steps.bias is None else expand(steps.bias).astype(float)
    scores, final = one(steps.scores), one(weights, head)
    normalized: tuple[np.ndarray, ...] = (final,)
    if steps.normalized is not None:
        normalized = tuple(one(steps.normalized, head * each + n) for n in range(each))
    return Reading(
        queries,
        keys,
        query,
        one(steps.q),
        one(steps.k),
        one(steps.v, head),
        one(raw),
        scale,
        bias,
        one(raw) * scale + (0.0 if bias is None else bias) if adjusts else scores,
        scores,
        np.ones(raw.shape[-2:], bool) if steps.mask is None else expand(steps.mask),
        normalized,
        final,
        one(steps.out, head),
        None if steps.position_values is None else one(steps.position_values, head),
    )


# A Reading as a plain dict for the browser: levels as bytes in base64, numbers as text.


MAP_CELLS = 46  # rows and columns of a small map: at least two pixels each
LIST_KEYS = 12  # lines under the maps
DIMS = 12  # numbers of a vector side by side, on a wide screen


def payload(
    reading: Reading,
    words: Sequence[tuple[str, str, str, str]],
    stage: int,
    focus: int,
    whys: dict[int, str],
    fact: list[list[str]],
    caption: str,
    projection: dict | None = None,
) -> dict:
    """Everything that is drawn: maps of at most 46 × 46, 12 keys, 12 dimensions.

    `words` are the title of each stage, its name on a phone, its rule, and the head of its column.
    `projection` is what step 1 draws alone, where it is a matrix times x.
    """
    vectors, scores, most = tops(reading)
    i, count, dims = reading.query, len(reading.keys), reading.q.shape[1]
    rows, columns = window(len(reading.queries), i), window(count, i)
    listed = shown_keys(reading, focus)
    seen, allowed = columns.stop - columns.start, reading.allowed[rows, columns]
    keys = f"{seen} of {count}" if seen < count else plural(count, "key")
    scaled, total = reading.scores[rows, columns], number(reading.sum)
    # What the weights as they are written add up to
    weights = np.nan_to_num(reading.weights[i, listed])
    shown = sum(map(rounded, map(float, weights)))
    against = "every key" if count > 1 else "the only key"
    if len(listed) < count and reading.sees:
        share = max(0.0, 1 - float(weights.sum()))
        against = (
            f"the {len(listed)} of {count} keys with most weight; the others share {number(share)}"
        )
        shown += rounded(share)
    elif len(listed) < count:
        against = f"{len(listed)} of {count} keys, the nearest"
    # Weights are blue from 0, or signed where any is below zero; up to 1 unless one is larger.
    ends = [f"−{plain(most)}", "0", plain(most)] if reading.signed else ["0", "", plain(most)]
    return {
        "stage": stage,
        "picked": i,
        "band": i - rows.start,
        "first": rows.start,
        "query": reading.name,
        "rows": list(reading.queries[rows.start : rows.stop]),
        "stages": [
            {"title": title, "short": short, "rule": rule} for title, short, rule, _ in words
        ],
        "heads": [head for *_, head in words],
        "maps": [
            small_map(reading.q[rows, :MAP_CELLS], vectors, note=plural(dims, "dim")),
            small_map(reading.raw[rows, columns], scores, note=keys),
            small_map(scaled, scores),
            small_map(scaled, scores, allowed),
            small_map(
                reading.weights[rows, columns],
                most,
                allowed,
                scale="signed" if reading.signed else "weight",
            ),
            small_map(reading.out[rows, :MAP_CELLS], vectors),
        ],
        "weights": {
            "signed": reading.signed,
            "ends": ends,
            "words": f"weights {ends[0]} … {ends[2]}",
        },
        "sizes": [dims, reading.out.shape[1]],
        "q": vector(reading.q[i], vectors),
        "out": vector(reading.out[i], vectors),
        "keys": [
            key_line(reading, j, focus, whys.get(j, ""), (vectors, scores, most)) for j in listed
        ],
        "against": against,
        "sum": total if number(shown) == total else f"≈ {total}",
        "legend": f"signed: vectors ±{plain(vectors)}, scores ±{plain(scores)}",
        "fact": "".join(text for text, _ in fact),
        "parts": fact,
        "caption": caption,
        "projection": projection if stage == 1 else None,
    }


def tops(reading: Reading) -> tuple[float, float, float]:
    return (
        top_of(reading.q, reading.k, reading.v, reading.out),
        top_of(reading.raw, reading.scores),
        max(1.0, top_of(reading.weights)),
    )


def vector(values: np.ndarray, top: float) -> list[dict]:
    return [cell(value, top) for value in values[:DIMS]]


def cell(value: float, top: float) -> dict:
    level = float(np.clip(value / top, -1, 1)) if math.isfinite(value) else 0.0
    return {"text": number(value), "level": round(level, 3)}


def key_line(
    reading: Reading, j: int, focus: int, why: str, ends: tuple[float, float, float]
) -> dict:
    """A key with all its steps, in numbers and levels, which end at the `ends` that `tops` returns."""
    i, (vectors, scores, most) = reading.query, ends
    weight, allowed = float(reading.weights[i, j]), bool(reading.allowed[i, j])
    scored = cell(reading.scores[i, j], scores)
    value = reading.v[j] if allowed else np.nan_to_num(reading.v[j])
    return {
        "index": j,
        "label": reading.keys[j],
        "best": bool(reading.sees and j == reading.best),
        "focus": j == focus,
        "k": vector(reading.k[j], vectors),
        "v": vector(reading.v[j], vectors),
        "raw": cell(reading.raw[i, j], scores),
        "scores": scored,
        "bias": None if reading.bias is None else number(float(reading.bias[i, j])),
        "masked": scored if allowed else None,
        "why": why,
        "weight": {
            "value": weight / most if math.isfinite(weight) else 0.0,
            "text": number(weight) if allowed else "0",
        },
        "wv": vector(weight * value, vectors),
    }


def small_map(
    values: np.ndarray,
    top: float,
    allowed: np.ndarray | None = None,
    note: str = "",
    scale: str = "signed",
) -> dict:
    """Levels 0 … 254, around 127 for a signed scale and from 0 for weights, and 255 where masked."""
    finite = np.clip(np.nan_to_num(values, posinf=0.0, neginf=0.0) / top, -1, 1)
    levels = np.rint(((finite + 1) / 2 if scale == "signed" else finite) * 254).astype(np.uint8)
    if allowed is not None:
        levels[~allowed] = 255
    return {
        "scale": scale,
        "rows": levels.shape[0],
        "columns": levels.shape[1],
        "data": encode(levels),
        "note": note,
    }


def window(length: int, at: int, most: int = MAP_CELLS) -> slice:
    """The stretch of at most so many places that holds `at`, as near its middle as the ends allow."""
    start = max(0, min(at - most // 2, length - most))
    return slice(start, min(length, start + most))


def shown_keys(reading: Reading, focus: int) -> list[int]:
    """The keys listed, in order: all of them, or the 12 with most weight, the nearest first among equals."""
    count = len(reading.keys)
    if count <= LIST_KEYS:
        return list(range(count))
    weights = np.nan_to_num(reading.weights[reading.query])
    order = sorted(range(count), key=lambda j: (j != focus, -weights[j], abs(j - reading.query)))
    return sorted(order[:LIST_KEYS])


def top_of(*arrays: np.ndarray) -> float:
    """The end of a signed scale: the largest size among the arrays, rounded up to a plain number."""
    most = max(map(largest, arrays), default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(
        step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= most * (1 - 1e-9)
    )


def plain(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}"


# Step 1 as a plain dict for the browser: x, the three matrices, and the queries, keys and values of the words.


SHOWN = 8  # numbers of x, and so rows of a matrix, at most
PARTS = (
    ("query", "q", "what this word looks for"),
    ("key", "k", "what this word is found by"),
    ("value", "v", "what this word passes on"),
)


def projection_payload(reading: Reading, x: np.ndarray, w: Sequence[np.ndarray]) -> dict:
    """x (T, C) and w, three matrices (C, D), with the rows that they make; at most 12 words and 8 numbers of x."""
    words = window(len(reading.queries), reading.query, LIST_KEYS)
    rows = (reading.q, reading.k, reading.v)
    top = top_of(x, *w, *rows)

    def cells(values: np.ndarray) -> list[dict]:
        return [cell(value, top) for value in values[:LIST_KEYS]]

    return {
        "rows": list(reading.queries[words]),
        "first": words.start,
        "picked": reading.query - words.start,
        "x": cells(x[reading.query, :SHOWN]),
        "size": x.shape[1],
        "dims": reading.q.shape[1],
        "legend": f"−{plain(top)} … {plain(top)}",
        "parts": [
            {
                "name": name,
                "sign": sign,
                "meaning": meaning,
                "w": [cells(row) for row in matrix[:SHOWN]],
                "rows": [cells(row) for row in made[words]],
            }
            for (name, sign, meaning), matrix, made in zip(PARTS, w, rows, strict=True)
        ],
    }


def step_view(
    picture: dict[str, Any], reading: Reading, *, key: str, on_pick: Callable[[], None]
) -> None:
    """Draw a payload of a reading; `sent(key, "pick")` holds what was pressed: {query}, {key} or {stage}."""
    add(key, partial(picture_of, reading, [stage["title"] for stage in picture["stages"]]))
    draw("step_view", "step-view", picture, key=key, on_pick_change=on_pick)


def picture_of(reading: Reading, titles: Sequence[str]) -> MapsPicture:
    vectors, (_, scores, most) = top_of(reading.q, reading.out), tops(reading)
    dims, widths = (tuple(map(str, range(one.shape[1]))) for one in (reading.q, reading.out))
    stages = (
        (reading.q, dims, vectors, "query", None),
        (reading.raw, reading.keys, scores, "score", None),
        (reading.scores, reading.keys, scores, "score", None),
        (reading.scores, reading.keys, scores, "score", reading.allowed),
        (reading.weights, reading.keys, most, "weight", reading.allowed),
        (reading.out, widths, vectors, "output", None),
    )
    maps = tuple(
        PictureMap(
            title,
            values,
            reading.queries,
            columns,
            mask=mask,
            low=-end if noun != "weight" or reading.signed else 0.0,
            high=end,
            signed=noun != "weight" or reading.signed,
            noun=noun,
            across="dimension" if noun in ("query", "output") else "",
        )
        for title, (values, columns, end, noun, mask) in zip(titles, stages, strict=True)
    )
    about = {"text": " ".join(reading.queries)}
    return MapsPicture("Attention step by step", maps, reading.query, READS["self"], about=about)
