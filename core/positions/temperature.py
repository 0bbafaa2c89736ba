"""A temperature that falls with the position of the query, as in the layers of Llama 4 without rotation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.rotary import Position
from core.score_block import ScoreBlock


class PositionTemperature(Position):
    """sᵢⱼ · (1 + a·log(1 + ⌊(i + 1)/n⌋)): scores grow with the query's position, in steps of n positions. Llama 4.

    Without it a softmax becomes flatter as a query sees more keys (Nakanishi 2025). The model multiplies the query,
    which gives the same scores.
    """

    def __init__(self, growth: float, step: int) -> None:
        super().__init__()
        self.growth, self.step = growth, step

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        steps = torch.div(block.i + 1, self.step, rounding_mode="floor")  # (T, 1)
        steps = steps.to(torch.promote_types(scores.dtype, torch.float32))
        return scores * (1.0 + self.growth * steps.log1p()).to(scores.dtype)


def _cost(config: LayerConfig, area: Area) -> Cost:
    return Cost(0.0, 4 * config.score_heads * area.cells)


POSITION_TEMPERATURE = Entry(
    "position_temperature",
    "Temperature by position",
    lambda config: PositionTemperature(**config.position.kwargs),
    r"s_{ij} \cdot \left(1 + a \log\left(1 + \left\lfloor \tfrac{i + 1}{n} \right\rfloor\right)\right)",
    "Scores grow with the logarithm of the query's position, so a query that sees many keys still has large weights. "
    "The positions of the keys have no effect.",
    "Meta",
    2025,
    "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
    (
        Param(
            "growth",
            "Growth a",
            0.1,
            0.0,
            2.0,
            0.05,
            meaning="growth a of the scores with the logarithm of the position; 0.1 in Llama 4",
        ),
        Param(
            "step",
            "Step n",
            1,
            1,
            65536,
            1,
            meaning="number of positions n with the same factor; 8,192 in Llama 4",
        ),
    ),
    short="s·(1 + a·log(1 + i / {step}))",
    enters="scores",
    traits=frozenset({"adjusts"}),
    cost=_cost,
)
