"""A forecaster: an encoder over a window of a series and the places after it, whose values are asked."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.models.base import Model, ModelOutput, Shape
from core.models.config import ModelConfig
from core.models.inputs import Positions, check_shape, concatenate, gather_positions, gather_rows, source_embedding
from core.models.transformer import Encoder


class Forecaster(Model):
    """Every moment is a token, and so is every moment asked: a learned vector at its place, which looks back.

    Each window is read less its own mean, in units of its own spread, and the answer of the first channel is put back
    into its units (Kim 2022, RevIN, without its two weights).
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("series",), ("values",))
        self.config, self.ahead = config, shape.target
        self.source, self.places = source_embedding(config, shape), Positions(config, shape.longest + shape.target)
        # One learned query for every value ahead; "asked" is its name in saved checkpoints.
        self.register_parameter("asked", nn.Parameter(torch.randn(config.d_model)))
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, 1)

    def forward(
        self, source: Float[Tensor, "B S D"], source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None, record: bool = False,
    ) -> ModelOutput:
        """Values (B, N) of the first channel."""
        (batch, size, _), real = source.shape, source_mask[..., None]
        count = real.sum(1, keepdim=True)
        mean = source.masked_fill(~real, 0.0).sum(1, keepdim=True) / count  # (B, 1, D)
        std = (((source - mean).masked_fill(~real, 0.0).square().sum(1, keepdim=True) / count) + 1e-6).sqrt()
        x, places = concatenate(self.source((source - mean) / std), source_mask,
                            self.get_parameter("asked").expand(batch, self.ahead, -1))
        mask = torch.arange(x.shape[1], device=x.device) <= places[:, -1:]
        x, steps = self.encoder(self.places(x), mask, record, self.checkpointing)
        values = self.output(gather_positions(x, places))[..., 0] * std[..., 0] + mean[..., 0]
        attention = [gather_rows(one.weights, places, size) * source_mask[:, None, None] for one in steps]
        visible = mask.sum(1, keepdim=True).expand_as(places)
        return ModelOutput(values, {"self": steps} if record else {}, attention, visible)
