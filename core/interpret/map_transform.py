"""Attention maps changed and compared: pieces merged into words, tokens hidden, two lines of tokens aligned. Pure numpy.

A `MapTransform` lists which tokens of the source map make up each shown row and column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from core.interpret.trace import AttentionMap, AttentionTrace, Weights, head_name
from core.pretrained.base import Line

Groups = tuple[tuple[int, ...], ...]

SINK = 0.3  # Gu et al. 2024, "When attention sink emerges": a token that gets more than this is one


@dataclass(frozen=True)
class MapTransform:
    """The rows and columns of the image, each a group of the source map's tokens; a token in no group is hidden."""

    rows: Groups
    columns: Groups

    @classmethod
    def plain(cls, rows: int, columns: int) -> MapTransform:
        """The identity: every token is a group of its own."""
        return cls(single_tokens(rows), single_tokens(columns))

    def changes(self, item: AttentionMap) -> bool:
        """Whether it changes the map."""
        return self != MapTransform.plain(len(item.queries), len(item.keys))

    def shown_cell(self, source: tuple[int, int]) -> tuple[int, int] | None:
        """The shown cell that contains a source (query, key); None where it is hidden."""
        rows, columns = (
            [index for index, group in enumerate(groups) if token in group]
            for groups, token in zip((self.rows, self.columns), source, strict=True)
        )
        return (rows[0], columns[0]) if rows and columns else None

    def source_cell(self, cell: tuple[int, int]) -> tuple[int, int]:
        """The first source query and key of a shown cell."""
        return self.rows[cell[0]][0], self.columns[cell[1]][0]


def single_tokens(count: int) -> Groups:
    return tuple((index,) for index in range(count))


def group_by_word(words: Sequence[int | None]) -> Groups:
    """Groups of neighbouring pieces of one word; a token of no word (None) is a group of its own."""
    groups: list[tuple[int, ...]] = []
    for index, word in enumerate(words):
        if groups and word is not None and words[index - 1] == word:
            groups[-1] = (*groups[-1], index)
        else:
            groups.append((index,))
    return tuple(groups)


def hide_tokens(groups: Groups, hidden: Iterable[bool]) -> Groups:
    """The groups without the hidden tokens; empty groups are left out."""
    dropped = {index for index, hide in enumerate(hidden) if hide}
    remaining = (tuple(index for index in group if index not in dropped) for group in groups)
    return tuple(group for group in remaining if group)


def sort_groups(groups: Groups, values: Sequence[float] | np.ndarray) -> Groups:
    """The groups sorted by value, largest first; the sort is stable."""
    return tuple(
        groups[index] for index in np.argsort(-np.asarray(values, dtype=float), kind="stable")
    )


def received_weight(item: AttentionMap) -> Float[np.ndarray, "H S"]:
    """The mean weight of each key over the queries that may attend to it; 0 where there are none."""
    if item.mask is None:
        return item.weights.mean(1, dtype=np.float32)
    return (item.weights.sum(1) / np.maximum(item.visible.sum(1), 1)).astype(np.float32)


def find_sinks(trace: AttentionTrace) -> Bool[np.ndarray, " S"]:
    """Which keys receive a mean weight above 0.3, averaged over all heads: attention sinks.

    After Gu et al. 2024, who define it for one head. All maps must have the same keys.
    """
    return np.asarray(np.concatenate([received_weight(item) for item in trace.maps]).mean(0) > SINK)


def transform_map(item: AttentionMap, transform: MapTransform) -> AttentionMap:
    """Apply a transform: sum the weights over the keys of a group, average them over its queries.

    Where keys are hidden, each row is rescaled to its former sum; a row with all its weight on hidden keys becomes 0.
    The mask allows a cell where it allows any of its source cells.
    """
    if not transform.changes(item):
        return item
    sizes = np.array([len(group) for group in transform.rows], dtype=np.float32)[:, None]
    weights = _merged(_merged(item.weights, transform.columns, -1), transform.rows, -2) / sizes
    if sum(map(len, transform.columns)) < len(item.keys):  # some keys are hidden
        before = _merged(item.weights.sum(-1, keepdims=True), transform.rows, -2) / sizes
        after = weights.sum(-1, keepdims=True)
        weights = weights * np.divide(before, after, np.zeros_like(after), where=after > 0)
    mask = item.mask
    if mask is not None:
        mask = np.broadcast_to(mask, (*mask.shape[:-2], *item.weights.shape[1:]))
        for groups, axis in ((transform.columns, -1), (transform.rows, -2)):
            mask = _merged(mask, groups, axis, np.logical_or)
    queries, keys = (  # the pieces of a group as one word
        tuple(
            tokens[first] + "".join(tokens[index].removeprefix("##") for index in rest)
            for first, *rest in groups
        )
        for tokens, groups in ((item.queries, transform.rows), (item.keys, transform.columns))
    )
    weights = np.asarray(weights, dtype=np.float32)
    return replace(item, weights=weights, queries=queries, keys=keys, mask=mask)


def transform_trace(trace: AttentionTrace, transform: MapTransform) -> AttentionTrace:
    """Apply a transform to every map of the trace."""
    return AttentionTrace(
        tuple(transform_map(item, transform) for item in trace.maps), trace.source
    )


def _merged(values: np.ndarray, groups: Groups, axis: int, reduce: np.ufunc = np.add) -> np.ndarray:
    order = [index for group in groups for index in group]
    if order != list(range(values.shape[axis])):
        values = np.take(values, order, axis=axis)
    if len(order) == len(groups):
        return values
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    return np.asarray(reduce.reduceat(values, starts, axis=axis))


Sentences = Literal["all", "ab", "ba", "aa", "bb"]


def token_transform(
    trace: AttentionTrace,
    rows: Line,
    columns: Line,
    *,
    words: bool = False,
    special: bool = False,
    sinks: bool = False,
    sentences: Sentences = "all",
) -> MapTransform:
    """The map transform of a trace of one kind; the identity where no row or no column would be left.

    `words` merges the pieces of a word; `special` and `sinks` hide those tokens. `sentences` are the query's and the
    key's: "ab" is from sentence A to B.
    """
    shown: list[Groups] = []
    for place, line in enumerate((rows, columns)):
        groups = group_by_word(line.word) if words else single_tokens(len(line))
        if special or sentences != "all":
            groups = hide_tokens(groups, line.special)
        if sentences != "all":
            own = "ab".index(sentences[place])
            groups = hide_tokens(groups, (segment != own for segment in line.segment))
        shown.append(groups)
    down, across = shown
    if sinks:
        across = hide_tokens(across, find_sinks(trace)) or across
    return (
        MapTransform(down, across)
        if down and across
        else MapTransform.plain(len(rows), len(columns))
    )


NOTHING = "–"
MAX_ROWS = 64  # on which every head is compared with every other
# The corresponding positions of two lines, in their order; None where there is no counterpart
Pairs = tuple[tuple[int | None, int | None], ...]


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
    return (np.maximum(first.sum(-1), second.sum(-1)) - np.minimum(first, second).sum(-1)).mean(1)


def changes(first: AttentionTrace, second: AttentionTrace) -> list[HeadChange]:
    """The changes of all heads, the largest first; ValueError for traces of other tokens or another shape."""
    shapes = [[item.weights.shape for item in trace.maps] for trace in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"maps of {shapes[0][:1]}… and {shapes[1][:1]}… cannot be compared cell by cell; align their "
            "tokens, and take models with the same numbers of layers and heads."
        )
    return Aligned.of(first, second).in_place()


def align(first: Sequence[str], second: Sequence[str]) -> Pairs:
    """Pair the tokens of two lines by their longest common stretches (Ratcliff & Obershelp 1988).

    A span that replaces another is paired with it from the beginning.
    """
    left, right = ([token.casefold() for token in line] for line in (first, second))
    pairs: list[tuple[int | None, int | None]] = []
    for tag, a, a_end, b, b_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag in ("equal", "replace"):
            count = min(a_end - a, b_end - b)
            pairs += [(a + i, b + i) for i in range(count)]
            a, b = a + count, b + count
        pairs += [(i, None) for i in range(a, a_end)]
        pairs += [(None, j) for j in range(b, b_end)]
    return tuple(pairs)


def names(first: Sequence[str], second: Sequence[str], pairs: Pairs) -> list[str]:
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
    rows: Pairs
    columns: Pairs

    @classmethod
    def of(cls, first: AttentionTrace, second: AttentionTrace) -> Aligned:
        """ValueError when a trace has no map."""
        if not first.maps or not second.maps:
            raise ValueError("there is no map to compare; take a type of attention that both have.")
        one, other = first.map(0), second.map(0)
        return cls(first, second, align(one.queries, other.queries), align(one.keys, other.keys))

    @cached_property
    def queries(self) -> list[str]:
        return names(self.first.map(0).queries, self.second.map(0).queries, self.rows)

    @cached_property
    def keys(self) -> list[str]:
        return names(self.first.map(0).keys, self.second.map(0).keys, self.columns)

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
        rows, columns = ([pair[which] for pair in line] for line in (self.rows, self.columns))
        return place_on_grid(item.weights[head], rows, columns), place_on_grid(
            item.visible[head], rows, columns
        )

    def in_place(self) -> list[HeadChange]:
        """Every head against that of the same index, the largest change first; for models of one shape."""
        heads = []
        for layer, (one, other) in enumerate(zip(self.first.maps, self.second.maps, strict=True)):
            numbers = self.first.numbers[layer], self.second.numbers[layer]
            heads += [
                HeadChange(layer, head, float(apart), float(cells), (layer, head), *numbers)
                for head, (apart, cells) in enumerate(
                    zip(*self._apart(one.weights, other.weights), strict=True)
                )
            ]
        return sorted(heads, key=lambda item: -item.moved)

    def nearest(self) -> list[HeadChange]:
        """Every head against the most similar head of the other model, the most similar first.

        Of more than 64 common rows, 64 evenly spaced ones are compared.
        """
        heads = []
        for layer, one in enumerate(self.first.maps):
            for head, weights in enumerate(one.weights):
                moved, difference, to = min(
                    (float(apart), float(cells), (index, place))
                    for index, other in enumerate(self.second.maps)
                    for place, (apart, cells) in enumerate(
                        zip(*self._apart(weights[None], other.weights, MAX_ROWS), strict=True)
                    )
                )
                numbers = self.first.numbers[layer], self.second.numbers[to[0]]
                heads.append(HeadChange(layer, head, moved, difference, to, *numbers))
        return sorted(heads, key=lambda item: item.moved)

    def _apart(self, one: Float[np.ndarray, "A T1 S1"], other: Float[np.ndarray, "B T2 S2"], most: int | None = None
               ) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:  # fmt: skip
        """`moved` and mean |a − b| on the rows that both have."""
        (rows, other_rows), (columns, other_columns) = (
            np.array([pair for pair in line if None not in pair]).T
            for line in (self.rows, self.columns)
        )
        if most is not None and len(rows) > most:
            some = np.linspace(0, len(rows) - 1, most).round().astype(int)
            rows, other_rows = rows[some], other_rows[some]
        one, other = one[:, rows], other[:, other_rows]
        total = np.maximum(one.sum(-1), other.sum(-1))
        one, other = one[..., columns], other[..., other_columns]
        shared = np.minimum(one, other).sum(-1)
        return (total - shared).mean(1), np.abs(one - other).mean((1, 2))


def place_on_grid(
    values: np.ndarray, rows: Sequence[int | None], columns: Sequence[int | None]
) -> np.ndarray:
    """A map (T, S) on aligned positions, with zeros where a line has no token."""
    out = np.zeros((len(rows), len(columns)), values.dtype)
    at = np.array([(i, a) for i, a in enumerate(rows) if a is not None])
    to = np.array([(j, b) for j, b in enumerate(columns) if b is not None])
    out[at[:, :1], to[:, 0]] = values[at[:, 1:], to[:, 1]]
    return out
