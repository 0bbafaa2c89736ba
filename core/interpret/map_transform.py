"""Attention maps changed and compared: pieces merged into words, tokens hidden, two lines of tokens aligned.

A `MapTransform` lists which tokens of the source map make up each shown row and column."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import groupby
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from core.interpret.trace import MAX_ROWS, AttentionMap, AttentionTrace, Kind
from core.pretrained import Line, Reading, reject_if, sink_line, with_sink
from core.tokens import join_pieces

Groups = tuple[tuple[int, ...], ...]

SINK = 0.3  # Gu et al. 2024, "When attention sink emerges": a token that gets more than this is one


@dataclass(frozen=True)
class MapTransform:
    """The rows and columns of the image, each a group of the source map's tokens; a token in no group is hidden."""

    rows: Groups
    columns: Groups

    @classmethod
    def plain(cls, rows: int, columns: int) -> "MapTransform":
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
    known = ((index, -1 - index if word is None else word) for index, word in enumerate(words))
    pieces = groupby(known, key=lambda piece: piece[1])
    return tuple(tuple(index for index, _ in group) for _, group in pieces)


def hide_tokens(groups: Groups, hidden: Iterable[bool]) -> Groups:
    """The groups without the hidden tokens; empty groups are left out."""
    dropped = list(hidden)
    remaining = (tuple(index for index in group if not dropped[index]) for group in groups)
    return tuple(filter(None, remaining))


def sort_groups(groups: Groups, values: Sequence[float] | np.ndarray) -> Groups:
    """The groups sorted by value, largest first; the sort is stable."""
    return tuple(
        groups[index] for index in np.argsort(-np.asarray(values, dtype=float), kind="stable")
    )


def received_weight(item: AttentionMap) -> Float[np.ndarray, "H S"]:
    """The mean share of each key over the queries that may attend to it; 0 where there are none."""
    return (item.shares.sum(1) / np.maximum(item.visible.sum(1), 1)).astype(np.float32)


def find_sinks(trace: AttentionTrace) -> Bool[np.ndarray, " S"]:
    """Which keys receive a mean weight above 0.3, averaged over all heads: attention sinks.

    After Gu et al. 2024, who define it for one head. All maps must have the same keys.
    """
    return np.asarray(np.concatenate([received_weight(item) for item in trace.maps]).mean(0) > SINK)


def transform_map(item: AttentionMap, transform: MapTransform) -> AttentionMap:
    """Apply a transform: sum the weights over the keys of a group, average them over its queries.

    Where keys are hidden, each row is rescaled to its former sum; a row with all its weight on hidden keys becomes 0. Rows
    of a layer without softmax, whose sums say nothing, are not rescaled.
    The mask allows a cell where it allows any of its source cells.
    """
    if not transform.changes(item):
        return item
    sizes = np.array([len(group) for group in transform.rows], dtype=np.float32)[:, None]
    weights = _merged(_merged(item.weights, transform.columns, -1), transform.rows, -2) / sizes
    if sum(map(len, transform.columns)) < len(item.keys) and not item.state:  # some are hidden
        before = _merged(item.weights.sum(-1, keepdims=True), transform.rows, -2) / sizes
        after = weights.sum(-1, keepdims=True)
        weights = weights * np.divide(before, after, np.zeros_like(after), where=after > 0)
    mask = item.mask
    if mask is not None:
        mask = np.broadcast_to(mask, (*mask.shape[:-2], *item.weights.shape[1:]))
        for groups, axis in ((transform.columns, -1), (transform.rows, -2)):
            mask = _merged(mask, groups, axis, np.logical_or)
    queries, keys = (  # the pieces of a group as one word
        tuple(join_pieces([tokens[index] for index in group]) for group in groups)
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
        if sentences != "all":
            own = "ab".index(sentences[place])
            groups = hide_tokens(groups, (segment != own for segment in line.segment))
        hides = special or sentences != "all"
        shown.append(hide_tokens(groups, line.special) if hides else groups)
    down, across = shown
    if sinks:
        across = hide_tokens(across, find_sinks(trace)) or across
    return (
        MapTransform(down, across)
        if down and across
        else MapTransform.plain(len(rows), len(columns))
    )


NOTHING = "–"
MAX_STEPS = 30_000_000  # of an alignment: about half a second
# The corresponding positions of two lines, in their order; None where there is no counterpart
Pairs = tuple[tuple[int | None, int | None], ...]


@dataclass(frozen=True)
class HeadChange:
    """The distance of a head of the first reading to a head of the second, `to`: of the same index, or the nearest.

    `moved` is the share of weight on other keys, 1 − Σ_j min(a_ij, b_ij), mean of the rows; `difference` mean |a − b|.
    `layer` is the index of the map in the trace, `number` the model's own number of it; `name` and `other` name both
    heads by these.
    """

    layer: int
    head: int
    moved: float
    difference: float
    to: tuple[int, int]
    number: int
    name: str
    other: str


def changes(first: AttentionTrace, second: AttentionTrace) -> list[HeadChange]:
    """The changes of all heads, the largest first; ValueError for traces of other tokens or another shape."""
    shapes = [[item.weights.shape for item in trace.maps] for trace in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"maps of {shapes[0][:1]}… and {shapes[1][:1]}… cannot be compared cell by cell; align their "
            "tokens, and take models with the same numbers of layers and heads."
        )
    return Aligned.of(first, second).changes(in_place=True)


def align(first: Sequence[str], second: Sequence[str]) -> Pairs:
    """Pair the tokens of two lines by their longest common stretches (Ratcliff & Obershelp 1988).

    A span that replaces another is paired with it from the beginning. In long lines of few different tokens those that
    make up more than 1 % begin no stretch: to compare each with each would take up to the cube of the length.
    """
    left, right = ([token.casefold() for token in line] for line in (first, second))
    counts, pairs = Counter(right), list[tuple[int | None, int | None]]()
    few = sum(counts[token] for token in left) * min(len(left), len(right)) > MAX_STEPS
    for tag, a, a_end, b, b_end in SequenceMatcher(None, left, right, autojunk=few).get_opcodes():
        if tag in ("equal", "replace"):
            count = min(a_end - a, b_end - b)
            pairs += [(a + i, b + i) for i in range(count)]
            a, b = a + count, b + count
        pairs += [(i, None) for i in range(a, a_end)]
        pairs += [(None, j) for j in range(b, b_end)]
    return tuple(pairs)


def names(first: Sequence[str], second: Sequence[str], pairs: Pairs) -> list[str]:
    """A name for each aligned position: the token, or both where they differ, as in "cat / dog"."""
    tokens = (
        [
            NOTHING if at is None else line[at]
            for line, at in zip((first, second), pair, strict=True)
        ]
        for pair in pairs
    )
    return [a if a.casefold() == b.casefold() else f"{a} / {b}" for a, b in tokens]


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two traces of one kind each, and the alignment of their rows and columns; heads are compared by their shares."""

    first: AttentionTrace
    second: AttentionTrace
    rows: Pairs
    columns: Pairs

    @classmethod
    def of(cls, first: AttentionTrace, second: AttentionTrace) -> "Aligned":
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

    def changes(self, in_place: bool) -> list[HeadChange]:
        """Every head against that of the same index, the largest change first; for models of one shape.

        Else against the most similar head of the other model, the most similar first. Of more than 64 common rows, 64
        evenly spaced ones are then compared.
        """
        heads, most = [], None if in_place else MAX_ROWS
        shares = [other.shares for other in self.second.maps]
        for layer, one in enumerate(self.first.maps):
            for head, weights in enumerate(one.shares):
                places = slice(head, head + 1) if in_place else slice(None)
                moved, difference, to = min(
                    (float(apart), float(cells), (index, place))
                    for index, other in enumerate(self.second.maps)
                    if index == layer or not in_place
                    for place, apart, cells in zip(
                        range(len(other.weights))[places],
                        *self._apart(weights[None], shares[index][places], most),
                        strict=True,
                    )
                )
                names = self.first.name((layer, head)), self.second.name(to)
                heads.append(
                    HeadChange(layer, head, moved, difference, to, one.layer_number, *names)
                )
        return sorted(heads, key=lambda item: item.moved, reverse=in_place)

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
        # On the keys of one text alone, and what is more on a shared one: 0 where nothing moves, and never below it
        outside, other_outside = (
            np.delete(weights, at, -1).sum(-1)
            for weights, at in ((one, columns), (other, other_columns))
        )
        one, other = one[..., columns], other[..., other_columns]
        shared = np.minimum(one, other)
        moved = np.maximum(
            (one - shared).sum(-1) + outside, (other - shared).sum(-1) + other_outside
        )
        return moved.mean(1), np.abs(one - other).mean((1, 2))


def place_on_grid(
    values: np.ndarray, rows: Sequence[int | None], columns: Sequence[int | None]
) -> np.ndarray:
    """A map (T, S) on aligned positions, with zeros where a line has no token."""
    padded = np.pad(values, ((0, 1), (0, 1)))  # whose last row and column have no token
    return padded[np.ix_(*([-1 if one is None else one for one in of] for of in (rows, columns)))]


# A reading's maps with tokens merged, hidden and sorted, and the head and row that are worth reading first.


Pair = tuple[int, int]
Order = Literal["text", "keys", "queries", "both"]


@dataclass(frozen=True, eq=False)
class TraceView:
    """The transformed trace of one kind, and the lines of its tokens before the transform."""

    trace: AttentionTrace
    transform: MapTransform
    rows: Line
    columns: Line

    @property
    def hides(self) -> bool:
        """Whether some keys are hidden, so that rows were divided by what is left."""
        return sum(map(len, self.transform.columns)) < len(self.columns)


def view_of(
    reading: Reading,
    kind: Kind,
    words: bool = False,
    special: bool = False,
    sinks: bool = False,
    sentences: Sentences = "all",
) -> TraceView:
    """The reading's maps of one kind, its tokens merged and hidden as `token_transform` does.

    A learned sink has a column of its own.
    """
    own = reading.trace.kinds == (kind,)
    trace, (rows, columns) = reading.trace if own else reading.trace.of(kind), reading.lines(kind)
    if reading.sinks:
        trace, columns = with_sink(trace), sink_line(columns)
    transform = token_transform(
        trace, rows, columns, words=words, special=special, sinks=sinks, sentences=sentences
    )
    if transform.changes(trace.maps[0]):
        trace = transform_trace(trace, transform)
    return TraceView(trace, transform, rows, columns)


def in_order(view: TraceView, layer: int, head: int, order: Order, pin: Pair | None) -> TraceView:
    """The same view with the map of the picked layer sorted; `pin` is the cell by whose row and column it is sorted."""
    if order == "text":
        return view
    item, maps = view.trace.map(layer), list(view.trace.maps)
    weights = item.weights[head]
    down, across = map(single_tokens, weights.shape)
    if order != "queries":
        across = sort_groups(across, weights[pin[0]] if pin else received_weight(item)[head])
    if order != "keys":
        down = sort_groups(down, weights[:, pin[1]] if pin else weights.max(-1))
    maps[layer] = transform_map(item, MapTransform(down, across))
    ranked = MapTransform(
        tuple(view.transform.rows[row] for (row,) in down),
        tuple(view.transform.columns[key] for (key,) in across),
    )
    return replace(view, trace=replace(view.trace, maps=tuple(maps)), transform=ranked)


def shown_pins(view: TraceView, own: Sequence[Pair]) -> list[Pair]:
    """Pins by own tokens as cells of the transformed map, without hidden ones."""
    return [cell for pin in own if (cell := view.transform.shown_cell(pin)) is not None]


def even(item: AttentionMap, row: int, head: int = 0) -> float:
    """The weight of each visible key if a row were uniform."""
    return 1 / max(1, int(item.visible[head, row].sum()))


# Two readings of one text or two, head beside head.


MAX_CELLS = 512 * 512 * 2  # of a pair of maps that is still drawn cell by cell


@dataclass(frozen=True, eq=False)
class Comparison:
    """The aligned traces of two readings, and every head with its partner, the largest difference first.

    `merged`: pieces were merged into words. `in_place`: the partner is the head of the same position, else the nearest.
    """

    pair: Aligned
    merged: bool
    in_place: bool

    @property
    def kind(self) -> Kind:
        return self.pair.first.map(0).kind

    @cached_property
    def heads(self) -> list[HeadChange]:
        return self.pair.changes(self.in_place)

    @cached_property
    def largest_changes(self) -> list[float]:
        """How far the two maps of each head are apart in the cell in which they differ most."""
        return [largest_change(self.pair, head)[0] for head in self.heads]


def kinds(first: Reading, second: Reading) -> list[Kind]:
    """The kinds of attention that both have; where they share none, the first of the first one."""
    one, other = first.trace.kinds, second.trace.kinds
    order: tuple[Kind, ...] = ("cross", "self", "causal")
    return [kind for kind in order if kind in one and kind in other] or list(one[:1])


def compare(
    first: Reading, second: Reading, kind: Kind, of_two_models: bool, in_place: bool
) -> Comparison:
    """The tokens of two readings aligned, and every head beside its partner in the other one.

    Pieces are merged into words where two models split them differently. The partner is the head of the same position
    (`in_place`), else the most similar one. PretrainedError when the texts are too long.
    """
    second_kind = kind if kind in second.trace.kinds else second.trace.kinds[0]
    one, two = first.trace.of(kind), second.trace.of(second_kind)
    merged = of_two_models and one.map(0).keys != two.map(0).keys
    if merged:
        one, two = (
            transform_trace(trace, token_transform(trace, *reading.lines(of), words=True))
            for trace, reading, of in ((one, first, kind), (two, second, second_kind))
        )
    pair = Aligned.of(one, two)
    reject_if(
        len(pair.rows) * len(pair.columns) > MAX_CELLS,
        f"Side by side these texts have {len(pair.rows):,} × {len(pair.columns):,} "
        "cells; at most 512 × 1,024 are drawn. Use shorter texts.",
    )
    return Comparison(pair, merged, in_place)


def maps_of(pair: Aligned, head: HeadChange) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Of both sides, the head's weights and where it may attend, each (T, S) on the aligned tokens."""
    return pair.on_grid(0, head.layer, head.head), pair.on_grid(1, *head.to)


def most_different_cell(pair: Aligned, head: HeadChange) -> tuple[int, int] | None:
    """The cell of two shared tokens in which the two maps of a head are furthest apart; None where they share none."""
    return largest_change(pair, head)[1]


def largest_change(pair: Aligned, head: HeadChange) -> tuple[float, tuple[int, int] | None]:
    """How far the two maps of a head are apart in the cell of two shared tokens in which they differ most, and that cell.

    0 and None where they share none.

    A row that may attend to one token alone, such as the first under a causal mask, has no weight to move.
    """
    (first, seen), (second, seen_too) = maps_of(pair, head)
    free = np.minimum(seen.sum(-1), seen_too.sum(-1)) > 1
    rows, columns = (
        [index for index, both in enumerate(line) if None not in both]
        for line in (pair.rows, pair.columns)
    )
    rows = [row for row in rows if free[row]]
    if not rows or not columns:
        return 0.0, None
    shared = np.abs(second - first)[np.ix_(rows, columns)]
    row, column = np.unravel_index(shared.argmax(), shared.shape)
    return float(shared.max()), (rows[int(row)], columns[int(column)])
