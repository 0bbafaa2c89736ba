"""The difference of two readings: corresponding tokens, how far each head moved, and the most similar heads.

All measures are on weights (T, S) whose rows and columns are the same tokens in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np
from jaxtyping import Float

from core.trace import AttentionTrace, head_name

Weights = Float[np.ndarray, "H T S"]
NOTHING = "–"
MOST_ROWS = 64  # on which every head is compared with every other


@dataclass(frozen=True)
class HeadChange:
    """The distance of a head of the first reading to a head of the second, `to`: of the same index, or the nearest.

    `moved` is the share of weight on other keys, 1 − Σ_j min(a_ij, b_ij), mean of the rows; `difference` mean |a − b|.
    `layer` is the index of the map in the trace, `number` and `to_number` the model's own numbers of both layers.
    """

    layer: int
    head: int
    moved: float
    difference: float
    to: tuple[int, int]
    number: int
    to_number: int

    @property
    def name(self) -> str:
        return head_name(self.number, self.head)

    @property
    def other(self) -> str:
        return head_name(self.to_number, self.to[1])


def weight_moved(first: Weights, second: Weights) -> Float[np.ndarray, " H"]:
    """The share of each head's weight that lies on other keys, for rows that sum to at most 1."""
    return (np.maximum(first.sum(-1), second.sum(-1)) - np.minimum(first, second).sum(-1)).mean(-1)


def changes(first: AttentionTrace, second: AttentionTrace) -> list[HeadChange]:
    """The changes of all heads, the largest first; ValueError for traces of other tokens or another shape."""
    shapes = [[item.weights.shape for item in trace.maps] for trace in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"maps of {shapes[0][:1]}… and {shapes[1][:1]}… cannot be compared cell by cell; align their "
            "tokens, and take models with the same numbers of layers and heads."
        )
    return Aligned.of(first, second).in_place()


@dataclass(frozen=True)
class Alignment:
    """The pairs of corresponding positions of two lines, in their order; None where there is no counterpart.

    A span that replaces another is paired with it from the beginning.
    """

    pairs: tuple[tuple[int | None, int | None], ...]

    @property
    def both(self) -> tuple[tuple[int, int], ...]:
        """The pairs in which both have a token."""
        return tuple((a, b) for a, b in self.pairs if a is not None and b is not None)


def align(first: Sequence[str], second: Sequence[str]) -> Alignment:
    """Align the tokens of two lines by their longest common stretches (Ratcliff & Obershelp 1988)."""
    left, right = ([token.casefold() for token in line] for line in (first, second))
    pairs: list[tuple[int | None, int | None]] = []
    for tag, a, a_end, b, b_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag in ("equal", "replace"):
            count = min(a_end - a, b_end - b)
            pairs += [(a + i, b + i) for i in range(count)]
            a, b = a + count, b + count
        pairs += [(i, None) for i in range(a, a_end)]
        pairs += [(None, j) for j in range(b, b_end)]
    return Alignment(tuple(pairs))


def names(
    first: Sequence[str], second: Sequence[str], pairs: Sequence[tuple[int | None, int | None]]
) -> list[str]:
    """A name for each aligned position: the token, or both where they differ, as in "cat / dog"."""
    labels = []
    for a, b in pairs:
        one, other = (NOTHING if a is None else first[a]), (NOTHING if b is None else second[b])
        labels.append(one if one.casefold() == other.casefold() else f"{one} / {other}")
    return labels


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two traces of one kind each, and the alignment of their rows and columns."""

    first: AttentionTrace
    second: AttentionTrace
    rows: Alignment
    columns: Alignment

    @classmethod
    def of(cls, first: AttentionTrace, second: AttentionTrace) -> Aligned:
        """ValueError when a trace has no map."""
        if not first.maps or not second.maps:
            raise ValueError("there is no map to compare; take a type of attention that both have.")
        one, other = first.map(0), second.map(0)
        return cls(first, second, align(one.queries, other.queries), align(one.keys, other.keys))

    @cached_property
    def queries(self) -> list[str]:
        return names(self.first.map(0).queries, self.second.map(0).queries, self.rows.pairs)

    @cached_property
    def keys(self) -> list[str]:
        return names(self.first.map(0).keys, self.second.map(0).keys, self.columns.pairs)

    @property
    def same_shape(self) -> bool:
        return [len(item.weights) for item in self.first.maps] == [
            len(item.weights) for item in self.second.maps
        ]

    def on_grid(self, which: int, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
        """The weights and the mask, both (T, S), of one head of the first (0) or second (1) trace on aligned positions.

        A position without a token in this line has no weight and no visible key.
        """
        item = (self.first, self.second)[which].map(layer)
        rows, columns = ([pair[which] for pair in line.pairs] for line in (self.rows, self.columns))
        return place_on_grid(item.weights[head], rows, columns), place_on_grid(
            item.visible[head], rows, columns
        )

    def in_place(self) -> list[HeadChange]:
        """Every head against that of the same index, the largest change first; for models of one shape."""
        heads = []
        for layer, (one, other) in enumerate(zip(self.first.maps, self.second.maps, strict=True)):
            apart, cells = self._apart(one.weights, other.weights)
            numbers = self.first.numbers[layer], self.second.numbers[layer]
            heads += [
                HeadChange(
                    layer, head, float(apart[head]), float(cells[head]), (layer, head), *numbers
                )
                for head in range(len(apart))
            ]
        return sorted(heads, key=lambda item: -item.moved)

    def nearest(self) -> list[HeadChange]:
        """Every head against the most similar head of the other model, the most similar first.

        Of more than 64 common rows, 64 evenly spaced ones are compared.
        """
        return sorted(
            (
                self._nearest(layer, head, one.weights[head])
                for layer, one in enumerate(self.first.maps)
                for head in range(len(one.weights))
            ),
            key=lambda item: item.moved,
        )

    def _nearest(self, layer: int, head: int, weights: Float[np.ndarray, "T S"]) -> HeadChange:
        heads = []
        number = self.first.numbers[layer]
        for layer_b, other in enumerate(self.second.maps):
            apart, cells = self._apart(weights[None], other.weights, MOST_ROWS)
            nearest = int(apart.argmin())
            heads.append(
                HeadChange(
                    layer,
                    head,
                    float(apart[nearest]),
                    float(cells[nearest]),
                    (layer_b, nearest),
                    number,
                    self.second.numbers[layer_b],
                )
            )
        return min(heads, key=lambda item: item.moved)

    def _apart(self, one: Float[np.ndarray, "A T1 S1"], other: Float[np.ndarray, "B T2 S2"], most: int | None = None
               ) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:  # fmt: skip
        """`moved` and mean |a − b| on the rows that both have."""
        (rows, other_rows), (columns, other_columns) = (
            np.array(line.both, int).reshape(-1, 2).T for line in (self.rows, self.columns)
        )
        if most is not None and len(rows) > most:
            some = np.linspace(0, len(rows) - 1, most).round().astype(int)
            rows, other_rows = rows[some], other_rows[some]
        if not len(rows):
            return np.ones(len(other)), np.ones(len(other))
        one, other = one[:, rows], other[:, other_rows]
        total = np.maximum(one.sum(-1), other.sum(-1))
        one, other = one[..., columns], other[..., other_columns]
        shared = np.minimum(one, other).sum(-1)
        cells = np.abs(one - other).mean((1, 2)) if len(columns) else np.ones(len(other))
        return (total - shared).mean(-1), cells


def place_on_grid(
    values: np.ndarray, rows: Sequence[int | None], columns: Sequence[int | None]
) -> np.ndarray:
    """A map (T, S) on aligned positions, with zeros where a line has no token."""
    out = np.zeros((len(rows), len(columns)), values.dtype)
    at = np.array([(i, a) for i, a in enumerate(rows) if a is not None], int).reshape(-1, 2)
    to = np.array([(j, b) for j, b in enumerate(columns) if b is not None], int).reshape(-1, 2)
    out[at[:, :1], to[:, 0]] = values[at[:, 1:], to[:, 1]]
    return out
