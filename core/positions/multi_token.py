"""Multi-token attention (Golovneva 2025): a score is mixed with those of neighbouring queries and keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.rotary import Position
from core.positions.selective import needs_all_rows, real_rows, require_rows
from core.score_block import ScoreBlock


class MultiToken(Position):
    """Σ θ_ab s of query i − a and key j + b, over a from 0 to c_q − 1 and |b| ≤ c_k / 2. Golovneva 2025, section 3.1.

    Each head has its own θ, a convolution of the score matrix. Before it a score of a key after its query counts 0, as
    in the authors' code, so no token sees a later one; so does any score of padding (of a padding key alone between two
    texts, as only keys have a mask). All earlier queries are needed: a
    layer with a cache computes the whole text again.
    """

    def __init__(self, num_heads: int, queries: int, keys: int, mix: float) -> None:
        """θ starts with a share `mix` spread over all its cells, and the rest on the score itself."""
        super().__init__()
        theta = torch.full((num_heads, 1, queries, keys), mix / (queries * keys))
        theta[:, :, -1, keys // 2] += 1.0 - mix  # the last row is that of the query itself
        self.theta = nn.Parameter(theta)

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        require_rows(scores, block, "multi_token")
        queries, keys = self.theta.shape[2:]
        precise = scores.to(torch.promote_types(scores.dtype, torch.float32))
        around = F.pad(
            precise.masked_fill(~self.counted(block), 0.0), (keys // 2, keys // 2, queries - 1, 0)
        )
        return F.conv2d(around, self.theta.to(around.dtype), groups=len(self.theta)).to(
            scores.dtype
        )

    def counted(self, block: ScoreBlock) -> Bool[Tensor, "*B T S"]:
        """The cells whose scores count: the key is not after its query, and neither is padding."""
        cells = block.j <= block.i
        cells = cells if block.key_mask is None else cells & block.key_mask
        return cells if (rows := real_rows(block)) is None else cells & rows[:, None]


def _refuse(config: LayerConfig) -> str | None:
    if (keys := int(config.position["keys"])) % 2 == 0:
        return (
            f"position = multi_token mixes a key with as many before as after it, and keys = {keys} is even; take "
            f"keys = {keys - 1} or {keys + 1}."
        )
    return needs_all_rows(config)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """A convolution a head, from a copy of the scores with zeros around it."""
    queries, keys = int(config.position["queries"]), int(config.position["keys"])
    around = 4 * config.score_heads * (area.queries + queries - 1) * (area.keys + keys - 1)
    scores = 4 * config.score_heads * area.cells
    return Cost(2.0 * queries * keys * config.score_heads * area.cells, scores + around)


MULTI_TOKEN = Entry(
    "multi_token",
    "Multi-token",
    lambda config: MultiToken(config.score_heads, **config.position.kwargs),
    r"\sum_{0 \le a < c_q,\ |b| \le c_k/2} \theta^{h}_{ab}\, s_{i-a,\,j+b}",
    "Each score is mixed with those of neighbouring keys and of the queries just before, so a token can be found by "
    "several words that stand together.",
    "Golovneva et al.",
    2025,
    "https://arxiv.org/abs/2504.00927",
    (
        Param(
            "queries",
            "Queries",
            6,
            1,
            64,
            1,
            meaning="number of queries that are mixed: a token and those before it",
        ),
        Param(
            "keys",
            "Keys",
            11,
            1,
            127,
            2,
            meaning="number of neighbouring keys that are mixed, an odd number",
        ),
        Param(
            "mix",
            "Initial mixing",
            0.25,
            0.0,
            1.0,
            0.05,
            meaning="share of the mean of all neighbours in each score before training; with 0, as in the paper, each "
            "score begins alone",
        ),
    ),
    short="Σ θ·s around (i, j)",
    enters="scores",
    traits=frozenset({"adjusts", "other rows", "whole rows"}),
    cost=_cost,
    refuse=_refuse,
)
