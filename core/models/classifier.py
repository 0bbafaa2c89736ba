"""Encoder-only classifiers: of a text, of a picture (Dosovitskiy 2021), of a table's row (Gorishniy 2021)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.models.base import Model, ModelOutput, Shape, weights_of
from core.models.config import ModelConfig
from core.models.inputs import Positions, check_shape, source_embedding
from core.models.transformer import Encoder


class Classifier(Model):
    """An encoder over tokens, patches or features, and a linear classifier of its first or its mean state.

    With pool = first a learned vector stands before the source, and its row is the source attention (Devlin 2019); with
    pool = mean that is the mean of the real rows.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("tokens", "features", "patches"), ("label",))
        self.config = config
        self.source, self.places = (
            source_embedding(config, shape),
            Positions(config, shape.longest + 1),
        )
        self.first = nn.Parameter(torch.randn(config.d_model)) if config.pool == "first" else None
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, shape.target)

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, V) of the classes."""
        x, mask = self.source(source), source_mask
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), 1, -1), x), dim=1)
            mask = torch.cat((mask.new_ones(len(x), 1), mask), dim=1)
        x, steps = self.encoder(self.places(x), mask, record, self.checkpointing)
        state = x[:, 0] if self.first is not None else masked_mean(x, mask)
        attention = [self._source_attention(weights, mask) for weights in weights_of(steps)]
        return ModelOutput(
            self.output(state),
            {"self": steps} if record else {},
            attention,
            mask.sum(1, keepdim=True),
        )

    def _source_attention(
        self, weights: Float[Tensor, "B H L L"], mask: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B H one S"]:
        if self.first is not None:
            return weights[:, :, :1, 1:]
        return masked_mean(weights.transpose(1, 2), mask)[:, :, None]


class OneToken(Model):
    """The tabular classifier of many tutorials: the whole row is one token, so attention has a single key. Its weights
    are 1, whatever q and k are, and the model is a feed-forward network."""

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("features",), ("label",))
        self.config = config
        self.source, self.places = source_embedding(config, shape), Positions(config, 1)
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, shape.target)

    def forward(
        self,
        source: Float[Tensor, "B F"],
        source_mask: Bool[Tensor, "B F"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, V) of the classes; there is no attention to single columns."""
        columns = self.source(source).masked_fill(~source_mask[..., None], 0.0)  # (B, F, C)
        token = columns.sum(1, keepdim=True)  # (B, 1, C): one linear map of the whole row
        x, steps = self.encoder(self.places(token), None, record, self.checkpointing)
        return ModelOutput(self.output(x[:, 0]), {"self": steps} if record else {})


def masked_mean(
    x: Float[Tensor, "B L *rest"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, B * rest]:
    """The mean over real positions."""
    real = mask.reshape(*mask.shape, *(1,) * (x.dim() - 2))
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1)
