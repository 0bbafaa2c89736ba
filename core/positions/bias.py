"""Positions as a bias on the scores: ALiBi (Press 2022)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Area, Cost, Entry
from core.layer_config import LayerConfig
from core.positions.rotary import Position
from core.score_block import ScoreBlock


def alibi_slopes(num_heads: int) -> Float[Tensor, " H"]:
    """m_h = 2^(−8h/H), h from 1; when H is no power of two, BLOOM's rule fills in from the next one's odd slopes."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor(slopes)


class Alibi(Position):
    """−m_h · |i − j|: equal to Press's −m_h (i − j) wherever a causal mask lets it be seen, symmetric elsewhere."""

    slopes: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(num_heads), persistent=False)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        distance = (block.i - block.j).abs()
        return (-self.slopes[:, None, None] * distance).to(block.dtype)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """Distances in whole numbers, then a bias."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, 8 * area.cells + max(8 * area.cells, bias), bias)


ALIBI = Entry(
    "alibi", "ALiBi", lambda config: Alibi(config.score_heads), r"-m_h\,|i - j|,\quad m_h = 2^{-8h/H}",
    "Every step of distance costs a head a fixed amount of score.", "Press et al.", 2022,
    "https://arxiv.org/abs/2108.12409", short="− m·|i−j|", enters="scores",
    cost=_cost)
