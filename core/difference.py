"""Two readings held against each other: which tokens answer each other, how far each head moved, which heads are alike.

Every figure is on weights (T, S) whose rows and columns stand for the same tokens in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from jaxtyping import Float

from core.trace import AttentionMap, AttentionTrace

Weights = Float[np.ndarray, "H T S"]
NOTHING = "–"


@dataclass(frozen=True)
class Moved:
    """How far one head is apart in two readings.

    `moved` is the share of the weight that lies on other keys, 1 − Σ_j min(a_ij, b_ij), mean of the rows: 0 where the
    two are the same. `difference` is mean |a − b| over all cells.
    """

    layer: int
    head: int
    moved: float
    difference: float

    @property
    def name(self) -> str:
        return f"L{self.layer}·H{self.head}"


def moved(first: Weights, second: Weights) -> Float[np.ndarray, " H"]:
    """The share of each head's weight that lies elsewhere, for rows that sum to at most 1."""
    most = np.maximum(first.sum(-1), second.sum(-1))
    shared = np.minimum(first, second).sum(-1)
    return (most - shared).mean(-1)


def changes(first: AttentionTrace, second: AttentionTrace) -> list[Moved]:
    """Every head of two traces of one shape, the one that moved most first; ValueError when the shapes differ."""
    found = []
    for one, other in _side_by_side(first, second):
        apart, cells = moved(one.weights, other.weights), np.abs(one.weights - other.weights).mean((1, 2))
        found += [Moved(one.layer, head, float(apart[head]), float(cells[head])) for head in range(len(apart))]
    return sorted(found, key=lambda item: -item.moved)


def _side_by_side(first: AttentionTrace, second: AttentionTrace) -> list[tuple[AttentionMap, AttentionMap]]:
    shapes = [[item.weights.shape for item in trace.maps] for trace in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"maps of {shapes[0][:1]}… and {shapes[1][:1]}… cannot be held against each other cell by "
                         "cell; align their tokens, and take models of as many layers and heads.")
    return list(zip(first.maps, second.maps, strict=True))


def nearest(one: Float[np.ndarray, "T S"], trace: AttentionTrace) -> Moved:
    """The head of a trace that is most like one map of the same tokens."""
    found = []
    for item in trace.maps:
        copies = np.broadcast_to(one, item.weights.shape)
        apart, cells = moved(copies, item.weights), np.abs(copies - item.weights).mean((1, 2))
        found += [Moved(item.layer, head, float(apart[head]), float(cells[head])) for head in range(len(apart))]
    return min(found, key=lambda item: item.moved)


@dataclass(frozen=True)
class Alignment:
    """Which token of the first line answers which of the second: pairs of places, None where nothing does.

    `pairs` are in the order of both lines; a stretch of one that was replaced by a stretch of the other is paired from
    its beginning.
    """

    pairs: tuple[tuple[int | None, int | None], ...]

    @property
    def both(self) -> tuple[tuple[int, int], ...]:
        """The pairs in which both have a token."""
        return tuple((a, b) for a, b in self.pairs if a is not None and b is not None)


def align(first: Sequence[str], second: Sequence[str]) -> Alignment:
    """The tokens of two lines in one order, by the longest stretches that they share (Ratcliff & Obershelp 1988)."""
    left, right = ([token.casefold() for token in line] for line in (first, second))
    pairs: list[tuple[int | None, int | None]] = []
    for what, a, a_end, b, b_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if what in ("equal", "replace"):
            count = min(a_end - a, b_end - b)
            pairs += [(a + i, b + i) for i in range(count)]
            a, b = a + count, b + count
        pairs += [(i, None) for i in range(a, a_end)]
        pairs += [(None, j) for j in range(b, b_end)]
    return Alignment(tuple(pairs))


def names(first: Sequence[str], second: Sequence[str], pairs: Sequence[tuple[int | None, int | None]]) -> list[str]:
    """A name for each aligned place: the token, or both where they differ, as in "cat / dog"."""
    found = []
    for a, b in pairs:
        one, other = (NOTHING if a is None else first[a]), (NOTHING if b is None else second[b])
        found.append(one if one.casefold() == other.casefold() else f"{one} / {other}")
    return found


def spread(weights: Weights, rows: Sequence[int | None], columns: Sequence[int | None]) -> Weights:
    """The map on aligned places: where a line has no token there, its row and column are zero."""
    out = np.zeros((len(weights), len(rows), len(columns)), np.float32)
    at, from_row = zip(*[(i, a) for i, a in enumerate(rows) if a is not None], strict=True)
    to, from_column = zip(*[(j, b) for j, b in enumerate(columns) if b is not None], strict=True)
    out[:, np.array(at)[:, None], np.array(to)] = weights[:, np.array(from_row)[:, None], np.array(from_column)]
    return out
