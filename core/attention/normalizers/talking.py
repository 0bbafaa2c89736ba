"""Talking heads: heads exchange their scores before the softmax and their weights after it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.basics import Normalizer
from core.attention.normalizers.base import TEMPERATURE, matrices
from core.entries import Area, Cost, Entry, LayerConfig, Param


class TalkingHeads(Normalizer):
    """P_w softmax(P_l s), where both P (H, H) mix the H heads of a cell. Shazeer 2020.

    A masked score counts as 0 in the mix and a masked weight stays exactly 0, also where masks differ between heads. A
    row sums to what its row of P_w sums to, and weights may be negative. Before training each head is mixed with a
    share of the mean of all heads, so that rows sum to 1 at first.
    """

    def __init__(self, temperature: float, num_heads: int, mix: float) -> None:
        super().__init__(temperature)
        start = (1.0 - mix) * torch.eye(num_heads) + mix / num_heads
        self.before, self.after = nn.Parameter(start), nn.Parameter(start.clone())

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        visible = scores if mask is None else scores.masked_fill(~mask, 0.0)
        return mix_heads(super().prepare(visible, mask), self.before)

    def normalize(self, scores: Tensor) -> Tensor:
        weights = scores.softmax(-1).masked_fill(scores == torch.finfo(scores.dtype).min, 0.0)
        return mix_heads(weights, self.after)


def mix_heads(
    x: Float[Tensor, "B H T S"], matrix: Float[Tensor, "G H"]
) -> Float[Tensor, "B G T S"]:
    """Head g of the result is Σ_h matrix[g, h] · head h."""
    return torch.einsum("gh,bhts->bgts", matrix.to(x.dtype), x)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """Two products of H × H with all cells; one head is only multiplied by a number."""
    held, heads = matrices(3, 4)(config, area), config.score_heads
    return Cost(4.0 * heads**2 * area.cells if heads > 1 else 0.0, held.bytes, held.output)


TALKING_HEADS = Entry(
    "talking_heads",
    "Talking heads",
    lambda config: TalkingHeads(num_heads=config.score_heads, **config.normalizer.kwargs),
    r"w_{hij} = \sum_g P^w_{hg}\, \mathrm{softmax}_j\Big(\textstyle\sum_{g'} P^l_{gg'}\, s_{g'ij}/\tau\Big)",
    "A learned matrix mixes the scores of all heads before the softmax, and another mixes their weights after it. A "
    "weight may be negative, and a row may have any sum.",
    "Shazeer et al.",
    2020,
    "https://arxiv.org/abs/2003.02436",
    (
        TEMPERATURE,
        Param(
            "mix",
            "Initial mixing",
            0.25,
            0.0,
            1.0,
            0.05,
            meaning="share of the mean of all heads in each head before training; with 0 each head begins "
            "alone",
        ),
    ),
    "P·softmax(P·s)",
    traits=frozenset({"mixes heads"}),
    cost=_cost,
)
