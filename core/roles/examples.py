"""Where a head shows its role most clearly: one query, its key and the weight between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.pretrained.base import Reading
from core.roles.measure import FEWEST_KEYS, share_used
from core.roles.roles import Role
from core.roles.targets import Text
from core.trace import Kind


@dataclass(frozen=True)
class Example:
    """The reading, its row and key, and `value`: the weight on all that the role wants (Broad: the share used)."""

    reading: int
    query: int
    key: int
    value: float


def clearest(readings: Sequence[Reading], kind: Kind, role: Role, layer: int, head: int) -> Example | None:
    """The row of all readings in which a head is most as its role would have it; None where no row could be."""
    found = [example for place, reading in enumerate(readings)
             if (example := _in_one(place, reading, kind, role, layer, head))]
    return max(found, key=lambda one: one.value, default=None)


def _in_one(place: int, reading: Reading, kind: Kind, role: Role, layer: int, head: int) -> Example | None:
    item, text = reading.trace.of(kind).maps[layer], Text(reading.lines(kind)[0])
    weights = item.weights[head]
    seen = np.ones(weights.shape, dtype=bool) if item.mask is None else np.broadcast_to(
        item.mask, item.weights.shape)[head]
    wanted = seen if role.targets is None else role.targets(text) & seen
    rows = np.flatnonzero(wanted.any(-1) & text.ordinary & (seen.sum(-1) >= FEWEST_KEYS))
    if not len(rows):
        return None
    values = share_used(weights[rows], seen[rows].sum(-1)) if role.targets is None else (
        weights * wanted)[rows].sum(-1)
    row = int(rows[values.argmax()])
    return Example(place, row, int((weights * wanted)[row].argmax()), float(values.max()))
