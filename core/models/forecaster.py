"""A forecaster: an encoder over a window of a series and the positions after it, whose values it predicts."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.models.base import Model, ModelOutput, Shape, weights_of
from core.models.config import ModelConfig
from core.models.inputs import (
    Positions,
    check_shape,
    concatenate,
    gather_positions,
    gather_rows,
    source_embedding,
)
from core.models.transformer import Encoder


class Forecaster(Model):
    """Every moment is a token; one learned vector stands at each moment to predict.

    Each window is normalized by its mean and standard deviation, and the prediction of the first channel is scaled back
    (Kim 2022, RevIN, without its two weights).
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("series",), ("values",))
        self.config, self.ahead = config, shape.target
        self.source, self.places = (
            source_embedding(config, shape),
            Positions(config, shape.longest + shape.target),
        )
        # One learned query for every value ahead; "asked" is its name in saved checkpoints.
        self.register_parameter("asked", nn.Parameter(torch.randn(config.d_model)))
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, 1)

    def forward(
        self,
        source: Float[Tensor, "B S D"],
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Values (B, N) of the first channel."""
        real = source_mask[..., None]
        count = real.sum(1, keepdim=True)
        mean = source.masked_fill(~real, 0.0).sum(1, keepdim=True) / count  # (B, 1, D)
        std = (
            ((source - mean).masked_fill(~real, 0.0).square().sum(1, keepdim=True) / count) + 1e-6
        ).sqrt()
        x, positions = concatenate(
            self.source((source - mean) / std),
            source_mask,
            self.get_parameter("asked").expand(len(source), self.ahead, -1),
        )
        mask = torch.arange(x.shape[1], device=x.device) <= positions[:, -1:]
        x, steps = self.encoder(self.places(x), mask, record, self.checkpointing)
        values = self.output(gather_positions(x, positions))[..., 0] * std[..., 0] + mean[..., 0]
        attention = [gather_rows(weights, positions, source_mask) for weights in weights_of(steps)]
        visible = mask.sum(1, keepdim=True).expand_as(positions)
        return ModelOutput(values, {"self": steps} if record else {}, attention, visible)
