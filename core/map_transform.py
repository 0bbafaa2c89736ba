"""Transforms of an attention map: merging word pieces, hiding tokens, reordering rows and columns. Pure numpy.

A `MapTransform` lists which tokens of the source map make up each shown row and column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from core.trace import AttentionMap, AttentionTrace

Groups = tuple[tuple[int, ...], ...]

SINK = 0.3  # Gu et al. 2024, "When attention sink emerges": a token that gets more than this is one
CONTINUES = "##"


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
        row, column = _group_of(self.rows, source[0]), _group_of(self.columns, source[1])
        return None if row is None or column is None else (row, column)

    def source_cell(self, cell: tuple[int, int]) -> tuple[int, int]:
        """The first source query and key of a shown cell."""
        return self.rows[cell[0]][0], self.columns[cell[1]][0]


def _group_of(groups: Groups, token: int) -> int | None:
    return next((index for index, group in enumerate(groups) if token in group), None)


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


def group_name(tokens: Sequence[str], group: tuple[int, ...]) -> str:
    """The text of a group: its pieces as one word."""
    first, *rest = (tokens[index] for index in group)
    return first + "".join(piece.removeprefix(CONTINUES) for piece in rest)


def received_weight(item: AttentionMap) -> Float[np.ndarray, "H S"]:
    """The mean weight of each key over the queries that may attend to it; 0 where there are none."""
    if item.mask is None:
        return item.weights.mean(1, dtype=np.float32)
    return (item.weights.sum(1) / np.maximum(item.visible.sum(1), 1)).astype(np.float32)


def find_sinks(trace: AttentionTrace) -> Bool[np.ndarray, " S"]:
    """Which keys receive a mean weight above 0.3, averaged over all heads: attention sinks.

    After Gu et al. 2024, who define it for one head. All maps must have the same keys.
    """
    heads = np.concatenate([received_weight(item) for item in trace.maps])
    return np.asarray(heads.mean(0) > SINK)


def transform_map(item: AttentionMap, transform: MapTransform) -> AttentionMap:
    """Apply a transform: sum the weights over the keys of a group, average them over its queries.

    Where keys are hidden, each row is rescaled to its former sum; a row with all its weight on hidden keys becomes 0.
    The mask allows a cell where it allows any of its source cells.
    """
    if not transform.changes(item):
        return item
    before = (
        _merged(item.weights.sum(-1, keepdims=True), transform.rows, -2)
        if _hides(item, transform)
        else None
    )
    weights = _merged(_merged(item.weights, transform.columns, -1), transform.rows, -2)
    weights /= np.array([len(group) for group in transform.rows], dtype=np.float32)[:, None]
    if before is not None:
        before = (
            before / np.array([len(group) for group in transform.rows], dtype=np.float32)[:, None]
        )
        after = weights.sum(-1, keepdims=True)
        weights = weights * np.where(after > 0, before / np.where(after > 0, after, 1), 0)
    mask = item.mask
    if mask is not None:
        mask = np.broadcast_to(mask, (*mask.shape[:-2], *item.weights.shape[1:]))
        mask = _merged(
            _merged(mask, transform.columns, -1, np.logical_or), transform.rows, -2, np.logical_or
        )
    names = [
        tuple(group_name(tokens, group) for group in groups)
        for tokens, groups in ((item.queries, transform.rows), (item.keys, transform.columns))
    ]
    return AttentionMap(
        item.kind,
        item.layer,
        np.asarray(weights, dtype=np.float32),
        names[0],
        names[1],
        mask,
        item.number,
    )


def transform_trace(trace: AttentionTrace, transform: MapTransform) -> AttentionTrace:
    """Apply a transform to every map of the trace."""
    return AttentionTrace(
        tuple(transform_map(item, transform) for item in trace.maps), trace.source
    )


def _hides(item: AttentionMap, transform: MapTransform) -> bool:
    return sum(map(len, transform.columns)) < len(item.keys)


def _merged(values: np.ndarray, groups: Groups, axis: int, reduce: np.ufunc = np.add) -> np.ndarray:
    """Reduce one axis group by group."""
    order = [index for group in groups for index in group]
    if order != list(range(values.shape[axis])):
        values = np.take(values, order, axis=axis)
    if len(order) == len(groups):
        return values.copy() if values.dtype != bool else values
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    return np.asarray(reduce.reduceat(values, starts, axis=axis))
