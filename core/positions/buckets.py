"""T5's relative bias (Raffel 2020): one learned number a head for each bucket of distances."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from core.entries import Area, Cost, Entry, Param
from core.layer_config import LayerConfig
from core.positions.rotary import Position
from core.score_block import ScoreBlock


def bucket(
    distance: Int[Tensor, "*cells"], bidirectional: bool = True, buckets: int = 32, max_distance: int = 128,
) -> Int[Tensor, "*cells"]:
    """The bucket of j − i: half of them hold one distance each, the rest grow as its logarithm up to `max_distance`.

    With `bidirectional`, keys after the query have buckets of their own; without, they share that of distance 0.
    """
    first: Tensor | int = 0
    if bidirectional:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # The clamp keeps log(0) away; fp32, since a boundary may fall to the other side in another precision.
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    grown = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, grown)


class T5(Position):
    """b[bucket(j − i)], one learned number a head and bucket. Raffel 2020, section 2.1 (T5's dot product has no √D)."""

    def __init__(self, d_model: int, num_heads: int, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(buckets, num_heads).normal_(std=d_model**-0.5))

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        rows = bucket(block.j - block.i, self.bidirectional, self.buckets, self.max_distance)
        return self.table[rows].permute(2, 0, 1).to(block.dtype)


def _t5(config: LayerConfig) -> T5:
    return T5(config.d_model, config.score_heads, **config.position.kwargs)


def _refuse(config: LayerConfig) -> str | None:
    buckets, farthest = int(config.position["buckets"]), int(config.position["max_distance"])
    exact = buckets // 4 if config.position["bidirectional"] else buckets // 2
    if farthest <= exact:
        return (f"position = t5 gives the distances below {exact} a bucket each with buckets = {buckets}, which leaves "
                f"nothing to grow up to max_distance = {farthest}; take max_distance ≥ {exact + 1}, or fewer buckets.")
    return None


def _cost(config: LayerConfig, area: Area) -> Cost:
    """Buckets by way of logarithms, all in matrices of T × S, then a bias."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, max(40 * area.cells, 8 * area.cells + bias), bias)


T5_BUCKETS = Entry(
    "t5", "T5 buckets", _t5, r"b_h[\mathrm{bucket}(j - i)]",
    "Each head learns one number for each near distance, and one for each widening range of far ones.",
    "Raffel et al.", 2020, "https://arxiv.org/abs/1910.10683",
    (Param("buckets", "Buckets", 32, 4, 256, 2, meaning="learned numbers a head"),
     Param("max_distance", "Farthest distance", 128, 2, 4096, 1, meaning="all distances from here on share a bucket"),
     Param("bidirectional", "Both directions", True,
           meaning="keys after the query have half of the buckets; off, as in T5's decoder, all look back")),
    short="+ b[bucket(j−i)]", enters="scores", refuse=_refuse, cost=_cost)
