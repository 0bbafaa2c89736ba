"""The auxiliary losses of a model's attention layers: what trains parts that the task's loss does not reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from core.attention import Attention
from core.hooks import hooked

INDEXER_WEIGHT = 1.0  # of the indexers' mean loss, which alone reaches them, beside the task's


@contextmanager
def indexer_losses(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the loss of each layer's indexer in the forward passes inside the block; empty where there is none."""
    losses: list[Tensor] = []

    def collect(layer: nn.Module, given: object, steps: object) -> None:
        loss = getattr(steps, "indexer_loss", None)
        if loss is not None:
            losses.append(loss)

    with hooked(
        layer.register_forward_hook(collect)
        for layer in model.modules()
        if isinstance(layer, Attention) and layer.indexer is not None
    ):
        yield losses
