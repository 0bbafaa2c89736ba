"""Two readings of one text or two, head beside head, and which part of one run brings the other's answer back."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from core.interpret.map_transform import (
    Aligned,
    HeadChange,
    token_transform,
    transform_trace,
)
from core.interpret.patching import (
    Direction,
    LayerKey,
    PatchSource,
    Question,
    TextPair,
    ask,
    estimate_heads,
    pair_of,
    patch_source,
)
from core.interpret.trace import Kind, layer_names
from core.pretrained import ModelInputs, Pretrained, Reading, reject_if
from core.pretrained.answers import Answer, output_name, top_candidates
from core.pretrained.attention_recorder import numbers_by_layer

MAX_CELLS = 512 * 512 * 2  # of a pair of maps that is still drawn cell by cell
OFFERED = 10  # outputs among which an answer is chosen


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two sides: its name, a note on it, and its reading."""

    name: str
    note: str
    reading: Reading


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both sides, their aligned traces, and every head with its partner, the largest difference first.

    `merged`: pieces were merged into words. `in_place`: the partner is the head of the same position, else the nearest.
    """

    sides: tuple[Side, Side]
    pair: Aligned
    merged: bool
    in_place: bool

    @property
    def kind(self) -> Kind:
        return self.pair.first.map(0).kind

    @cached_property
    def heads(self) -> list[HeadChange]:
        return self.pair.in_place() if self.in_place else self.pair.nearest()


def kinds(first: Side, second: Side) -> list[Kind]:
    """The kinds of attention that both have; where they share none, the first of the first one."""
    one, other = first.reading.trace.kinds, second.reading.trace.kinds
    order: tuple[Kind, ...] = ("cross", "self", "causal")
    return [kind for kind in order if kind in one and kind in other] or list(one[:1])


def align_sides(sides: tuple[Side, Side], kind: Kind) -> tuple[Aligned, bool]:
    """Both traces of a kind aligned, and whether pieces were merged into words (two models share only words).

    PretrainedError when the texts are too long.
    """
    first, second = sides
    second_kind = kind if kind in second.reading.trace.kinds else second.reading.trace.kinds[0]
    one, two = first.reading.trace.of(kind), second.reading.trace.of(second_kind)
    merged = first.name == "Model A" and one.map(0).keys != two.map(0).keys
    if merged:
        one, two = (
            transform_trace(trace, token_transform(trace, *side.reading.lines(of), words=True))
            for trace, side, of in ((one, first, kind), (two, second, second_kind))
        )
    pair = Aligned.of(one, two)
    reject_if(
        len(pair.rows) * len(pair.columns) > MAX_CELLS,
        f"Side by side these texts have {len(pair.rows):,} × {len(pair.columns):,} "
        "cells; at most 512 × 1,024 are drawn. Use shorter texts.",
    )
    return pair, merged


def maps_of(pair: Aligned, head: HeadChange) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Of both sides, the head's weights and where it may attend, each (T, S) on the aligned tokens."""
    return pair.on_grid(0, head.layer, head.head), pair.on_grid(1, *head.to)


def most_different_cell(pair: Aligned, head: HeadChange) -> tuple[int, int] | None:
    """The cell of two shared tokens in which the two maps of a head are furthest apart; None where they share none."""
    (first, _), (second, _) = maps_of(pair, head)
    rows, columns = (
        [index for index, both in enumerate(line) if None not in both]
        for line in (pair.rows, pair.columns)
    )
    if not rows or not columns:
        return None
    shared = np.abs(second - first)[np.ix_(rows, columns)]
    row, column = np.unravel_index(shared.argmax(), shared.shape)
    return rows[int(row)], columns[int(column)]


@dataclass(frozen=True, eq=False)
class Patching:
    """Two texts that are patched without their model, which a cached result would keep in memory; `at` attaches it.

    `names`: L0, L1 …, the model's own numbers, with the kind where there are several. `estimates`: the effect of each
    head (H,) of a layer, to first order.
    """

    source: PatchSource
    names: dict[LayerKey, str]
    estimates: dict[LayerKey, np.ndarray]

    def at(self, model: Pretrained) -> PatchSource:
        """The source with its model, from which layers are patched."""
        return _with_model(self.source, model)


def patch_texts(
    model: Pretrained,
    clean: ModelInputs,
    corrupted: ModelInputs,
    answers: tuple[int | None, int | None],
    direction: Direction,
) -> Patching:
    """Prepare to patch one text's run into the other's; PretrainedError for texts that cannot be compared."""
    source = patch_source(pair_of(model, clean, corrupted, *answers), direction)
    numbers = numbers_by_layer(model.model, source.calls.values())
    names = layer_names({key: numbers[key] for key in source.calls})
    return Patching(_with_model(source, None), names, estimate_heads(source))


def _with_model(source: PatchSource, model: Pretrained | None) -> PatchSource:
    clean, corrupted = (
        replace(one, pretrained=cast(Pretrained, model))
        for one in (source.pair.clean, source.pair.corrupted)
    )
    base = clean if source.base is source.pair.clean else corrupted
    return replace(source, pair=TextPair(clean, corrupted), base=base)


def likely_outputs(model: Pretrained, inputs: ModelInputs) -> tuple[Answer, tuple[str, ...]]:
    """The answer to a text, and the names of its most likely outputs."""
    answer = ask(model, Question(inputs)).answer
    return answer, tuple(
        output_name(model, answer, one.id) for one in top_candidates(model, answer, OFFERED)
    )
