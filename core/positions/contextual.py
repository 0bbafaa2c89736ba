"""Positions that are read from the content itself: CoPE (Golovneva 2024) and the forgetting gate (Lin 2025)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.distance import require
from core.positions.rotary import Position
from core.score_block import ScoreBlock


class Cope(Position):
    """qᵢᵀ e[pᵢⱼ], pᵢⱼ = Σ σ(sᵢₘ) over m from j to i: a position counted in gated keys. Golovneva 2024, section 4.

    p is fractional, so e is interpolated between its two neighbours; a key after the query, or padding, counts 0.
    """

    def __init__(self, qk_dim: int, places: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(places, qk_dim).normal_(std=0.02))

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        q = require(block, "q", "cope")
        counted = block.j <= block.i
        if block.key_mask is not None:
            counted = counted & block.key_mask
        precise = scores.to(
            torch.promote_types(scores.dtype, torch.float32)
        )  # a sum over many keys
        gates = precise.sigmoid().masked_fill(~counted, 0.0)
        position = (
            gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        )  # (B, H, T, S), from j to the end
        below = position.floor()
        share = position - below
        products = q @ self.table.mT  # (B, H, T, places)
        bias = (
            products.gather(-1, below.long()) * (1 - share)
            + products.gather(-1, position.ceil().long()) * share
        )
        return scores + bias.to(scores.dtype)


class Forgetting(Position):
    """Σ log fₗ over l from j + 1 to i, fₗ = σ(wᵀxₗ + b) a head. Lin 2025, section 3.

    For a key after its query the gates between them count likewise (a causal mask hides it). There are gates for keys
    only, so queries past the last key add none, and decoding with a cache agrees with the whole run. Padding keys have
    no gate.
    """

    table_count = 1

    def __init__(self, d_model: int, num_heads: int, start: float) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, num_heads)
        nn.init.constant_(self.gate.bias, start)

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """The cumulative log of the forget gates up to each key, (B, H, Sx)."""
        gates = self.gate(require(block, "context", "forgetting")).mT
        precise = torch.promote_types(gates.dtype, torch.float32)  # a sum over many keys
        logs = F.logsigmoid(gates.to(precise))
        return (
            (logs if block.real is None else logs.masked_fill(~block.real[:, None], 0.0)).cumsum(
                -1
            ),
        )

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        context = require(block, "context", "forgetting")
        (total,) = block.tables or self.tables(block)
        at_query = total[..., block.i.flatten().clamp(max=context.shape[1] - 1)]
        between = at_query[..., :, None] - total[..., block.j.flatten()][..., None, :]
        return -between.abs().to(context.dtype)


def _cope_cost(config: LayerConfig, area: Area) -> Cost:
    """The products of queries and table; then gates, positions, their two neighbours and a share, each a matrix."""
    heads = config.score_heads
    products = heads * area.queries * int(config.position["places"])
    return Cost(2.0 * products * config.qk_dim, 36 * heads * area.cells + 4 * products)


def _forgetting_cost(config: LayerConfig, area: Area) -> Cost:
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, 3 * bias, bias)


def _forgetting_tables(config: LayerConfig, area: Area) -> Cost:
    gates = config.score_heads * area.keys
    return Cost(2.0 * gates * config.d_model, 12 * gates, 4 * gates)


COPE = Entry(
    "cope",
    "CoPE",
    lambda config: Cope(config.qk_dim, **config.position.kwargs),
    r"q_i^\top e\!\left[\textstyle\sum_{m=j}^{i} \sigma(s_{im})\right]",
    "The position of a key is a count of the keys that the query finds relevant, not of all tokens.",
    "Golovneva et al.",
    2024,
    "https://arxiv.org/abs/2405.18719",
    (
        Param(
            "places",
            "Places",
            64,
            2,
            4096,
            1,
            meaning="number of vectors in the table; larger positions share the last one",
        ),
    ),
    short="+ q·e[Σσ(s)]",
    enters="scores",
    traits=frozenset({"adjusts", "whole rows"}),
    cost=_cope_cost,
)
FORGETTING = Entry(
    "forgetting",
    "Forgetting gate",
    lambda config: Forgetting(config.d_model, config.score_heads, **config.position.kwargs),
    r"\sum_{l=j+1}^{i} \log f_l,\quad f_l = \sigma(w_h^\top x_l + b_h)",
    "Each token has a forget gate from 0 to 1. The logarithms of the gates between key and query are added to the "
    "score.",
    "Lin et al.",
    2025,
    "https://arxiv.org/abs/2503.02130",
    (
        Param(
            "start",
            "Initial bias",
            0.0,
            -5.0,
            8.0,
            0.5,
            meaning="bias of the gate before training: with 0 the gate is σ(0) = 0.5, with 5 it is σ(5) = 0.993",
        ),
    ),
    short="Σ log f",
    enters="scores",
    traits=frozenset({"reads x"}),
    cost=_forgetting_cost,
    tables=_forgetting_tables,
)
