"""The clearest example of a head's role: one query, its key and the weight between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.pretrained.base import Reading
from core.roles.roles import Role
from core.roles.scores import FEWEST_KEYS, share_used
from core.roles.targets import Text
from core.trace import Kind


@dataclass(frozen=True)
class Example:
    """The reading, its row, and `value`: the weight on all `expected` keys (Broad: the share of its keys used).

    `key` is the one of them with most weight, `uniform` what uniform attention would put on them all.
    """

    reading: int
    query: int
    key: int
    value: float
    expected: int
    uniform: float


NEARLY = 0.95  # of the clearest row: as clear to the eye


def clearest_example(readings: Sequence[Reading], kind: Kind, role: Role, layer: int, head: int) -> Example | None:
    """The row of all readings with the most weight on the role's targets; None where no row has targets.

    Among rows within 5 % of the best, the one with the longest words is taken.
    """
    candidates = [(example, letters) for index, reading in enumerate(readings)
             for example, letters in _rows(index, reading, kind, role, layer, head)]
    most = max((example.value for example, _ in candidates), default=0.0)
    near = [(letters, example) for example, letters in candidates if example.value >= NEARLY * most]
    return max(near, key=lambda one: one[0])[1] if near else None


def _rows(reading_index: int, reading: Reading, kind: Kind, role: Role, layer: int,
          head: int) -> list[tuple[Example, int]]:
    """Every row that has targets, with the number of letters of its query and key."""
    item, text = reading.trace.of(kind).maps[layer], Text(reading.lines(kind)[0])
    weights = item.weights[head]
    visible = np.ones(weights.shape, dtype=bool) if item.mask is None else np.broadcast_to(
        item.mask, item.weights.shape)[head]
    expected = visible if role.targets is None else role.targets(text) & visible
    rows = np.flatnonzero(expected.any(-1) & text.ordinary & (visible.sum(-1) >= FEWEST_KEYS))
    on_expected = (weights * expected)[rows]
    values = share_used(weights[rows], visible[rows].sum(-1)) if role.targets is None else on_expected.sum(-1)
    keys, many = on_expected.argmax(-1), expected[rows].sum(-1)
    every = zip(rows.tolist(), keys.tolist(), values.tolist(), many.tolist(), (many / visible[rows].sum(-1)).tolist(),
                strict=True)
    return [(Example(reading_index, row, *rest), _letters(text, row) + _letters(text, rest[0])) for row, *rest in every]


def _letters(text: Text, index: int) -> int:
    """How long a whole word is, up to where more letters say no more; 0 for a piece, a sign or a special token."""
    return min(len(text.words[index]), 8) if text.words[index] == text.pieces[index] else 0
