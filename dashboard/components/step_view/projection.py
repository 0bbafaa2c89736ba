"""Step 1 as a plain dict for the browser: x, the three matrices, and the queries, keys and values of the words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dashboard.components.step_view.payload import LIST_KEYS, cell, plain, top_of
from dashboard.components.step_view.reading import Reading

SHOWN = 8  # numbers of x, and so rows of a matrix, at most
PARTS = (
    ("query", "q", "what this word looks for"),
    ("key", "k", "what this word is found by"),
    ("value", "v", "what this word passes on"),
)


def projection_payload(reading: Reading, x: np.ndarray, w: Sequence[np.ndarray]) -> dict:
    """x (T, C) and w, three matrices (C, D), with the rows that they make; at most 12 words and 8 numbers of x."""
    start = max(0, min(reading.query - LIST_KEYS // 2, len(reading.queries) - LIST_KEYS))
    words = slice(start, start + LIST_KEYS)
    rows = (reading.q, reading.k, reading.v)
    top = top_of(x, *w, *rows)

    def cells(values: np.ndarray) -> list[dict]:
        return [cell(value, top) for value in values[:LIST_KEYS]]

    return {
        "rows": list(reading.queries[words]),
        "first": start,
        "picked": reading.query - start,
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
