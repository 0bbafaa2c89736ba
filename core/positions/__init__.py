"""Positions: how order enters. An encoding adds to x, rotates q and k, or changes the scores (and what they bring)."""

from core.entries import Area, Axis, Choice, ConfigError, Cost, Entry, LayerConfig, find
from core.positions.absolute import LEARNED, NONE, SINUSOIDAL
from core.positions.bias import ALIBI, T5_BUCKETS
from core.positions.compose import Joined
from core.positions.contextual import COPE, FORGETTING
from core.positions.functional import FIRE, KERPLE
from core.positions.grid_rotary import GRID_ROPE
from core.positions.multi_token import MULTI_TOKEN
from core.positions.paired_rotary import LONG_ROPE, P_ROPE
from core.positions.relative import DEBERTA, SHAW, TRANSFORMER_XL
from core.positions.rotary import ROPE, Position
from core.positions.scaled_rotary import LINEAR_ROPE, LLAMA3_ROPE, NTK_ROPE, YARN
from core.positions.selective import SELECTIVE
from core.positions.temperature import POSITION_TEMPERATURE
from core.positions.typed import FORMULA


def entries_of(choice: Choice) -> list[Entry]:
    """The entry of a position, or of each part of a joined one."""
    return [find(POSITIONS, "position", leaf.key) for leaf in choice.leaves()]


def enters(choice: Choice) -> frozenset[str]:
    """Where a position acts, with all that it joins: "x", "q, k", "scores"; nothing for none."""
    return frozenset(item.enters for item in entries_of(choice)) - {""}


def _build(config: LayerConfig) -> Position:
    return Joined(
        [
            find(POSITIONS, "position", part.key).build(config.with_(position=part))
            for part in config.position.parts
        ]
    )


def _refuse(config: LayerConfig) -> str | None:
    if len(config.position.parts) < 2:
        return f"position = and joins two or more positions; got {len(config.position.parts)}; take two, or one alone."
    for part in config.position.parts:
        if part.parts:
            return "position = and joins single positions; take the parts of the inner one instead of it."
        if "x" in enters(part):
            return (
                f"position = and joins what rotates queries and keys or changes scores, and position = {part.key} "
                "is added to x; take position = rope in its place."
            )
        try:
            config.with_(position=part)
        except ConfigError as error:
            return f"position = and has the part {part.key}. {error}"
    return None


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


def _tables_cost(config: LayerConfig, area: Area) -> Cost:
    return sum(
        (
            find(POSITIONS, "position", part.key).tables(config.with_(position=part), area)
            for part in config.position.parts
        ),
        Cost(),
    )


JOINED = Entry(
    "and",
    "Two positions",
    _build,
    r"p_2 \circ p_1",
    "Two positions together, such as RoPE and a typed formula: rotations, biases and changes of the scores in turn.",
    "",
    2024,
    "",
    short="both",
    enters="scores",
    parts=(Choice("rope"), Choice("formula")),
    cost=_cost,
    tables=_tables_cost,
    refuse=_refuse,
)

# build(config) -> Position. Traits: "longest" where a table ends at max_len; "adjusts" where scores are changed in a
# way that no bias can say; "values" where something is added to weights · v; "whole rows" where a cell depends on the
# other keys of its row; "other rows" where it depends on the rows of earlier queries; "reads x" where the tokens' own
# vectors decide; "reads length" where the angles of earlier tokens change as the text grows.
POSITIONS = Axis(
    NONE,
    SINUSOIDAL,
    LEARNED,
    SHAW,
    TRANSFORMER_XL,
    T5_BUCKETS,
    ROPE,
    P_ROPE,
    LINEAR_ROPE,
    NTK_ROPE,
    YARN,
    LONG_ROPE,
    LLAMA3_ROPE,
    GRID_ROPE,
    DEBERTA,
    ALIBI,
    KERPLE,
    FIRE,
    COPE,
    FORGETTING,
    SELECTIVE,
    MULTI_TOKEN,
    POSITION_TEMPERATURE,
    FORMULA,
    JOINED,
)

__all__ = ["POSITIONS", "Position", "enters", "entries_of"]
