"""The loss that trains a lightning indexer beside the model: its choice of keys has no gradient of its own."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from core.attention.kernels.exact import AttentionInputs, compute_scores
from core.masks import Mask, indexer_loss
from core.masks.content import LightningIndexer
from core.masks.patterns import causal


def find_indexer(mask: Mask | None) -> LightningIndexer | None:
    """The indexer among a mask's parts, or None."""
    parts = () if mask is None else mask.modules()
    return next((part for part in parts if isinstance(part, LightningIndexer)), None)


def loss_of_indexer(inputs: AttentionInputs, indexer: LightningIndexer) -> Float[Tensor, ""]:
    """The KL divergence of the indexer's softmax from the weights of full attention, over all keys up to each query.

    The dense form of DeepSeek-V3.2, section 2.1. Its gradient reaches the indexer alone: x, the context and the weights
    are constants here.
    """
    block = inputs.block
    assert block.x is not None and block.context is not None
    visible = causal(block)
    if block.key_mask is not None:
        visible = visible & block.key_mask
    with torch.no_grad():
        weights = inputs.normalizer(compute_scores(replace(inputs, record=False))[-1], visible)
    scores = indexer.index_scores(
        replace(block, x=block.x.detach(), context=block.context.detach())
    )
    return indexer_loss(scores, weights, visible.squeeze(1) if visible.dim() == 4 else visible)
