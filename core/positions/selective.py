"""Selective attention (Leviathan 2024): a token may say that later tokens no longer need an earlier one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param
from core.positions.rotary import Position
from core.score_block import ScoreBlock


class Selective(Position):
    """sᵢⱼ − Σ max(0, s¹ₘⱼ) over the queries m with j < m < i, s¹ the scores of the first head. Leviathan 2024.

    A token never says it of itself, of a later token or, with `keep_first`, of the first one. A padding query says
    nothing; between two texts every query speaks, as only keys have a mask. A query may say it of a key that a mask
    hides from it, which matters only under masks that show the key to a later query. All earlier queries are needed: a
    layer with a cache computes the whole text again.
    """

    def __init__(self, keep_first: bool) -> None:
        super().__init__()
        self.keep_first = keep_first

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        require_rows(scores, block, "selective")
        first = scores[:, 0].to(
            torch.promote_types(scores.dtype, torch.float32)
        )  # a sum over many queries
        selected = first.relu().masked_fill(~self.selecting(block), 0.0)
        before = F.pad(selected, (0, 0, 1, -1)).cumsum(-2)  # (B, T, S): of the rows before each
        return scores - before[:, None].to(scores.dtype)

    def selecting(self, block: ScoreBlock) -> Bool[Tensor, "*B T S"]:
        """The cells in which a query may say that a key is no longer needed."""
        cells = block.j < block.i
        if self.keep_first:
            cells = cells & (block.j > 0)
        return cells if (rows := real_rows(block)) is None else cells & rows


def require_rows(scores: Tensor, block: ScoreBlock, owner: str) -> None:
    """ConfigError unless the scores are of all queries, from the first on."""
    if scores.shape[2] != block.num_queries:
        raise ConfigError(
            f"position = {owner} reads the scores of all earlier queries, which are not given here; "
            "give the whole text, or take position = forgetting."
        )


def real_rows(block: ScoreBlock) -> Bool[Tensor, "B T 1"] | None:
    """Which queries are no padding, where they are the tokens that the key mask speaks of; None for all of them."""
    return block.real[:, block.i] if block.real is not None and block.owns_queries else None


def needs_all_rows(config: LayerConfig) -> str | None:
    """The `refuse` of a position that reads earlier rows: only the exact kernel holds them together."""
    return (
        None
        if config.kernel.key == "exact"
        else (
            f"position = {config.position.key} reads the scores of all earlier queries, and kernel = "
            f"{config.kernel.key} never holds them together; take kernel = exact, or position = forgetting."
        )
    )


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The first head's scores, masked and summed, then the sums and all scores again."""
    return Cost(0.0, 4 * area.cells * max(3, 1 + config.score_heads) + area.cells)


SELECTIVE = Entry(
    "selective",
    "Selective",
    lambda config: Selective(**config.position.kwargs),
    r"s_{ij} - \sum_{m:\,j<m<i} \max(0,\ s^{1}_{mj})",
    "A token can tell all later tokens that they need an earlier token less: a positive score of the first head is "
    "subtracted from the scores of all later queries.",
    "Leviathan et al.",
    2024,
    "https://arxiv.org/abs/2410.02703",
    (
        Param(
            "keep_first",
            "Keep the first token",
            True,
            meaning="whether the first token can never be selected",
        ),
    ),
    short="− Σ max(0, s¹)",
    enters="scores",
    traits=frozenset({"adjusts", "other rows"}),
    cost=_cost,
    refuse=needs_all_rows,
)
