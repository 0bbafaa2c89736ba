"""What a mask is: a rule on cells, which may have weights and may reweigh what it lets through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from core.layer_config import LayerConfig
from core.score_block import ScoreBlock


class Mask(nn.Module):
    """Which cells may be seen; it may have weights, and may read the queries that meet there."""

    def forward(self, block: ScoreBlock) -> Tensor:
        """Bool, True = may attend, broadcastable to (B, H, T, S)."""
        raise NotImplementedError

    def weight_factor(self, block: ScoreBlock) -> Tensor | None:
        """What multiplies the weights after the normalizer (trait "reweighs"); None for nothing."""
        return None


class Rule(Mask):
    """A plain function of the cells."""

    def __init__(self, allows: Callable[[ScoreBlock], Tensor]) -> None:
        super().__init__()
        self.allows = allows

    def forward(self, block: ScoreBlock) -> Tensor:
        return self.allows(block)


Build = Callable[..., Mask]


def rule(allows: Callable[..., Tensor]) -> Build:
    """The build of an entry whose mask is a plain function of the cells and the entry's parameters."""
    def build(config: LayerConfig, parts: tuple[Mask, ...], **params: Any) -> Mask:
        return Rule(partial(allows, **params))  # a local function would leave the layer without a pickle

    build.__wrapped__ = allows  # type: ignore[attr-defined]  # so that inspect shows the rule itself
    return build
