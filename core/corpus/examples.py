"""Texts that show a head: where a measure is strongest, what is typical of it, and where its role fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from core.corpus.measures import Measure, measure_rows
from core.interpret.trace import Kind
from core.pretrained.base import Line, Reading
from core.roles.targets import Text

DECILES = tuple(round(0.1 * step, 1) for step in range(1, 10))

Values = Float[np.ndarray, " N"]


@dataclass(frozen=True, eq=False)
class MarkedRow:
    """One row of a head's map on one text: its weights, the key with most of them, and the keys that a role expects.

    `value` is the measure of this row alone; nan where the measure has no rows.
    """

    line: Line
    query: int
    key: int
    weights: Float[np.ndarray, " T"]
    expected: Bool[np.ndarray, " T"]
    value: float


def ranked(values: Values) -> Int[np.ndarray, " K"]:
    """The texts that show a measure, the one with the largest value first."""
    order = np.argsort(-values, kind="stable")
    valid: np.ndarray = order[~np.isnan(values[order])]
    return valid


def decile_texts(values: Values) -> list[tuple[float, int]]:
    """For each decile from 0.1 to 0.9 the text whose value is nearest to it; each text once."""
    valid = np.flatnonzero(~np.isnan(values))
    texts: dict[int, float] = {}
    for share in DECILES:
        if len(valid):
            nearest = valid[np.abs(values[valid] - np.quantile(values[valid], share)).argmin()]
            texts.setdefault(int(nearest), share)
    return [(share, text) for text, share in texts.items()]


def marked_row(reading: Reading, kind: Kind, measure: Measure, head: tuple[int, int],
               choose: Callable[[Values], int]) -> MarkedRow | None:  # fmt: skip
    """The row that `choose` takes from the measure of each row (nan where a row does not count); None without any."""
    item, line = reading.trace.of(kind).maps[head[0]], reading.lines(kind)[0]
    rows, expected = measure_rows(measure, item, Text(line))
    values = rows[head[1]]
    if np.isnan(values).all():
        return None
    query = choose(values)
    weights = item.weights[head[1], query]
    return MarkedRow(
        line, query, int(weights.argmax()), weights, expected[query], float(values[query])
    )


def largest(values: Values) -> int:
    return int(np.nanargmax(values))


def smallest(values: Values) -> int:
    return int(np.nanargmin(values))


def nearest_to(value: float) -> Callable[[Values], int]:
    """Choose the row nearest to a value, such as the mean of its text."""
    return lambda values: int(np.nanargmin(np.abs(values - value)))
