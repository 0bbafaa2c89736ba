"""What every normalizer keeps: masked cells are exactly 0, an empty row is zeros, half precision becomes fp32."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.entries import Area, Cost, Param
from core.layer_config import LayerConfig

HALF = (torch.float16, torch.bfloat16)
TEMPERATURE = Param("temperature", "Temperature", 1.0, 0.01, 100.0, 0.01,
                    meaning="τ divides every score before anything else is done to it")


def matrices(plain: float, masked: float) -> Any:
    """The `cost` of an entry that holds so many matrices at once beside the scores, without and with a mask.

    A temperature takes one more.
    """
    def cost(config: LayerConfig, area: Area) -> Cost:
        scores = 4.0 * config.score_heads * area.cells
        own = (masked if area.masked else plain) + (config.normalizer["temperature"] != 1.0)
        return Cost(0.0, own * scores + (area.cells if area.masked else 0), scores)

    return cost


class Normalizer(nn.Module):
    """Scores to weights, row by row; a subclass says what happens to a row in `weigh`.

    A row that sees no key gives zeros and zero gradients: filling with the dtype's own least number, instead of −∞,
    keeps NaN out of both, and the last line takes away whatever `weigh` leaves in a masked cell.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: Float[Tensor, "B H T S"], mask: Bool[Tensor, ...] | None) -> Float[Tensor, "B H T S"]:
        """Weights in the scores' own dtype; mask is True where a key may be seen."""
        dtype = scores.dtype
        ready = self.prepare(scores.float() if dtype in HALF else scores, mask)
        if mask is None:
            return self.normalize(ready).to(dtype)
        hidden = ~mask
        weights = self.normalize(ready.masked_fill(hidden, torch.finfo(ready.dtype).min))
        return weights.masked_fill(hidden, 0.0).to(dtype)

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """What is done to each score alone; those that may not be seen may still hold anything, NaN too."""
        return scores if self.temperature == 1.0 else scores / self.temperature

    def normalize(self, scores: Tensor) -> Tensor:
        """Rows of scores to rows of weights; masked scores are the dtype's least number."""
        raise NotImplementedError
