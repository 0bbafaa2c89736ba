"""Positions: how order enters. An encoding adds to x, rotates q and k, or changes the scores (and what they bring)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor, nn

from core.attention.base import Position, ScoreBlock
from core.attention.positions import contextual, relative, rotary
from core.entries import Area, Axis, Choice, ConfigError, Cost, Entry, LayerConfig, find, refuse_if

# Several positions at once: rotations one after the other, biases added, then the changes of the scores.


class Joined(Position):
    """Every part acts where it acts alone, in the order of the parts."""

    def __init__(self, parts: Sequence[Position]) -> None:
        super().__init__()
        self.parts: Any = nn.ModuleList(parts)

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        return reduce(lambda rotated, part: part.rotate(rotated, offset, length), self.parts, x)

    def rotate_keys(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        return reduce(
            lambda rotated, part: part.rotate_keys(rotated, offset, length), self.parts, x
        )

    def tables(self, block: ScoreBlock) -> tuple[tuple[Tensor, ...], ...]:
        """Those of each part."""
        return tuple(part.tables(block) for part in self.parts)

    def bias(self, block: ScoreBlock) -> Tensor | None:
        tables = block.tables or ((),) * len(self.parts)
        return _sum(
            part.bias(replace(block, tables=own))
            for part, own in zip(self.parts, tables, strict=True)
        )

    def adjust(self, scores: Tensor, block: ScoreBlock) -> Tensor:
        return reduce(lambda adjusted, part: part.adjust(adjusted, block), self.parts, scores)

    def values(self, weights: Tensor, block: ScoreBlock) -> Tensor | None:
        return _sum(part.values(weights, block) for part in self.parts)


def _sum(terms: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of the terms that exist; None without any."""
    left = [term for term in terms if term is not None]
    return reduce(add, left) if left else None


def entries_of(choice: Choice) -> list[Entry]:
    """The entry of a position, or of each part of a joined one."""
    return [find(POSITIONS, "position", leaf.key) for leaf in choice.leaves()]


def enters(choice: Choice) -> frozenset[str]:
    """Where a position acts, with all that it joins: "x", "q, k", "scores"; nothing for none."""
    return frozenset(item.enters for item in entries_of(choice)) - {""}


def _refuse(config: LayerConfig) -> None:
    count = len(config.position.parts)
    refuse_if(
        count < 2,
        f"position = and joins two or more positions; got {count}; take two, or one alone.",
        axes=("position",),
    )
    for part in config.position.parts:
        refuse_if(
            part.parts,
            "position = and joins single positions; take the parts of the inner one instead of it.",
            axes=("position",),
        )
        refuse_if(
            "x" in enters(part),
            f"position = and joins what rotates queries and keys or changes scores, and position = {part.key} "
            "is added to x",
            axes=("position",),
            position="rope",
        )
        others = [other for other in config.position.parts if other is not part]
        doubled = "doubles" in find(POSITIONS, "position", part.key).traits
        for other in others if doubled else ():
            refuse_if(
                "q, k" in enters(other)
                or "reads q" in find(POSITIONS, "position", other.key).traits,
                f"position = and has the part {part.key}, which makes two numbers of each number of a query, and the "
                f"part {other.key}, which counts on as many as there were",
                axes=("position",),
                position="rope",
            )
        try:
            config.with_(position=part)
        except ConfigError as error:
            raise ConfigError(
                f"position = and has the part {part.key}. {error.why}",
                *error.words,
                axes=("position", *error.axes),
                **error.take,
            ) from None


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The parts that change scores, one after the other: their FLOPs and outputs, and the bytes of the largest."""
    costs = [
        find(POSITIONS, "position", part.key).cost(config.with_(position=part), area)
        for part in config.position.parts
        if "scores" in enters(part)
    ]
    output = sum(cost.output for cost in costs)
    return Cost(
        sum(cost.flops for cost in costs),
        max((cost.bytes for cost in costs), default=0.0) + output,
        output,
    )


# build(config) -> Position.
POSITIONS: Axis = Axis(
    *relative.ENTRIES,
    *rotary.ENTRIES,
    *contextual.ENTRIES,
    Entry(
        "and",
        "Two positions",
        build=lambda config: Joined(
            [
                find(POSITIONS, "position", part.key).build(config.with_(position=part))
                for part in config.position.parts
            ]
        ),
        latex=r"p_2 \circ p_1",
        meaning="Two positions together, such as RoPE and a typed formula: rotations, biases and changes of the scores in "
        "turn.",
        paper="",
        year=2024,
        url="",
        short="both",
        enters="scores",
        parts=(Choice("rope"), Choice("formula")),
        cost=_cost,
        tables=lambda config, area: sum(
            (
                find(POSITIONS, "position", part.key).tables(config.with_(position=part), area)
                for part in config.position.parts
            ),
            Cost(),
        ),
        refuse=_refuse,
    ),
    order="none sinusoidal learned shaw transformer_xl relative_logits t5 rope p_rope linear_rope ntk_rope yarn "
    "longrope llama3_rope grid_rope pope deberta alibi kerple fire cope forgetting wall path selective "
    "multi_token position_temperature formula and",
)
