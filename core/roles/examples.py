"""The clearest example of a head's role: one query, its key and the weight between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.interpret.trace import Kind
from core.pretrained.base import Reading
from core.roles.roles import Role
from core.roles.scores import FEWEST_KEYS, share_used
from core.roles.targets import Text


@dataclass(frozen=True)
class Example:
    """A row of a reading, and `value`: the weight on its `expected` target keys (Broad: the share of keys used).

    `key` is the target with most weight, `uniform` the weight of uniform attention on all of them.
    """

    reading: int
    query: int
    key: int
    value: float
    expected: int
    uniform: float


NEARLY = 0.95  # of the clearest row: as clear to the eye


def clearest_example(
    readings: Sequence[Reading], kind: Kind, role: Role, layer: int, head: int
) -> Example | None:
    """The row of all readings with the most weight on the role's targets; None where no row has targets.

    Among rows within 5 % of the best, the one with the longest words is taken.
    """
    candidates = [
        (example, letters)
        for index, reading in enumerate(readings)
        for example, letters in _rows(index, reading, kind, role, layer, head)
    ]
    most = max((example.value for example, _ in candidates), default=0.0)
    near = [(letters, example) for example, letters in candidates if example.value >= NEARLY * most]
    return max(near, key=lambda pair: pair[0])[1] if near else None


def _rows(
    reading_index: int, reading: Reading, kind: Kind, role: Role, layer: int, head: int
) -> list[tuple[Example, int]]:
    """Every row that has targets, with the letters of its query and key."""
    item, text = reading.trace.of(kind).maps[layer], Text(reading.lines(kind)[0])
    weights = item.weights[head]
    visible = item.visible[head]
    expected = visible if role.targets is None else role.targets(text) & visible
    rows = np.flatnonzero(expected.any(-1) & text.ordinary & (visible.sum(-1) >= FEWEST_KEYS))
    on_expected = (weights * expected)[rows]
    values = (
        share_used(weights[rows], visible[rows].sum(-1))
        if role.targets is None
        else on_expected.sum(-1)
    )
    keys, counts = on_expected.argmax(-1), expected[rows].sum(-1)
    columns = (rows, keys, values, counts, counts / visible[rows].sum(-1))
    return [
        (Example(reading_index, row, key, *rest), _letters(text, row) + _letters(text, key))
        for row, key, *rest in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _letters(text: Text, index: int) -> int:
    """The length of a whole word, at most 8; 0 for a piece, a sign or a special token."""
    return min(len(text.words[index]), 8) if text.words[index] == text.pieces[index] else 0
