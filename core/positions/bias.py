"""Positions as a bias on the scores by distance: ALiBi (Press 2022), and T5's learned buckets (Raffel 2020)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from core.eager_cache import eager_cache
from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.rotary import Position
from core.score_block import ScoreBlock


@eager_cache(maxsize=32)
def alibi_slopes(
    num_heads: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Float[Tensor, " H"]:
    """m_h = 2^(−8h/H), h from 1; when H is no power of two, BLOOM's rule fills in from the next one's odd slopes.

    Cached: never change the result.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    with torch.inference_mode(False):
        return torch.tensor(slopes, dtype=dtype, device=device)


class Alibi(Position):
    """−m_h · |i − j|: equal to Press's −m_h (i − j) wherever a causal mask lets it be seen, symmetric elsewhere."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        precise = torch.promote_types(block.dtype, torch.float32)
        slopes = alibi_slopes(self.num_heads, precise, block.i.device)
        return (-slopes[:, None, None] * (block.i - block.j).abs()).to(block.dtype)


def _alibi_cost(config: LayerConfig, area: Area) -> Cost:
    """Distances in whole numbers, then a bias."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, 8 * area.cells + max(8 * area.cells, bias), bias)


ALIBI = Entry(
    "alibi",
    "ALiBi",
    lambda config: Alibi(config.score_heads),
    r"-m_h\,|i - j|,\quad m_h = 2^{-8(h+1)/H}",
    "A penalty that grows linearly with the distance is subtracted from each score. Each head has its slope.",
    "Press et al.",
    2022,
    "https://arxiv.org/abs/2108.12409",
    short="− m·|i−j|",
    enters="scores",
    cost=_alibi_cost,
)


def bucket(
    distance: Int[Tensor, "*cells"],
    bidirectional: bool = True,
    buckets: int = 32,
    max_distance: int = 128,
) -> Int[Tensor, "*cells"]:
    """The bucket of j − i: half of them hold one distance each, the others grow logarithmically up to `max_distance`.

    With `bidirectional`, keys after the query have separate buckets; without, they share that of distance 0.
    """
    first: Tensor | int = 0
    if bidirectional:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # The clamp avoids log(0); always fp32, since another precision may move a boundary.
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)


class T5(Position):
    """b[bucket(j − i)], one learned number a head and bucket. Raffel 2020, section 2.1 (T5's dot product has no √D)."""

    def __init__(
        self, d_model: int, num_heads: int, buckets: int, max_distance: int, bidirectional: bool
    ) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(buckets, num_heads).normal_(std=d_model**-0.5))

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        rows = bucket(block.j - block.i, self.bidirectional, self.buckets, self.max_distance)
        return self.table[rows].permute(2, 0, 1).to(block.dtype)


def _refuse_t5(config: LayerConfig) -> str | None:
    buckets, farthest = int(config.position["buckets"]), int(config.position["max_distance"])
    exact = buckets // 4 if config.position["bidirectional"] else buckets // 2
    if farthest <= exact:
        return (
            f"position = t5 with buckets = {buckets} has one bucket for each distance below {exact}, which leaves "
            f"none up to max_distance = {farthest}; take max_distance ≥ {exact + 1}, or fewer buckets."
        )
    return None


def _t5_cost(config: LayerConfig, area: Area) -> Cost:
    """Buckets through logarithms, in matrices of T × S, then a bias."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, max(40 * area.cells, 8 * area.cells + bias), bias)


T5_BUCKETS = Entry(
    "t5",
    "T5 buckets",
    lambda config: T5(config.d_model, config.score_heads, **config.position.kwargs),
    r"b_h[\mathrm{bucket}(j - i)]",
    "Each head learns a bias for each short distance, and one for each range of long distances. The ranges grow with "
    "the distance.",
    "Raffel et al.",
    2020,
    "https://arxiv.org/abs/1910.10683",
    (
        Param(
            "buckets", "Buckets", 32, 4, 256, 2, meaning="number of learned biases for each head"
        ),
        Param(
            "max_distance",
            "Farthest distance",
            128,
            2,
            4096,
            1,
            meaning="distance from which all share one bucket",
        ),
        Param(
            "bidirectional",
            "Both directions",
            True,
            meaning="whether half of the buckets are for keys after the query; off in the decoder of T5",
        ),
    ),
    short="+ b[bucket(j−i)]",
    enters="scores",
    refuse=_refuse_t5,
    cost=_t5_cost,
)
