"""The reference: every step as a matrix, so that every step can be drawn."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import SAME, AttentionInputs, Steps, weighted_sum
from core.attention.kernels.costs import exact_cost
from core.entries import Entry


def compute_scores(inputs: AttentionInputs) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """The raw scores where they are recorded, the bias, and the scores that the normalizer reads, before the mask."""
    raw, scale, bias = inputs.score(inputs.q, inputs.k), inputs.score.scale, inputs.bias()
    if isinstance(scale, float):
        scores = raw if scale == 1.0 else raw * scale if inputs.record else raw.mul_(scale)
    else:
        scores = raw * scale
    if bias is not None:
        scores = scores + bias
    if inputs.position is not None:
        scores = inputs.position.adjust(scores, inputs.block)
    return raw if inputs.record else None, bias, scores


def exact(inputs: AttentionInputs) -> Steps:
    """Make every step as a matrix: O(T·S·D) time and O(T·S) memory. Used wherever weights are shown.

    Unless the problem is recorded, a step is let go as soon as the next one is made.
    """
    q, k, v, mask, block = inputs.q, inputs.k, inputs.v, inputs.allowed(), inputs.block
    raw, bias, scores = compute_scores(inputs)
    weights = normalized = inputs.normalizer(scores, mask)
    if inputs.mask is not None and (factor := inputs.mask.weight_factor(block)) is not None:
        weights = weights * factor
    if inputs.combine_heads is not None:
        weights = inputs.combine_heads(weights)
    used = F.dropout(weights, inputs.dropout) if inputs.dropout else weights
    out = weighted_sum(used, v, mask)  # dropout falls on a copy, so that the weights drawn stay whole
    extra = None if inputs.position is None else inputs.position.values(used, block)
    if extra is not None:
        out = out + extra
    if not inputs.record:
        return Steps(q, k, v, inputs.score.scale, bias, mask, out)
    masked = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    before = None if normalized is weights else normalized
    return Steps(q, k, v, inputs.score.scale, bias, mask, out, raw, scores, masked, before, weights, extra)


EXACT = Entry(
    "exact", "Exact", lambda config: exact, r"O(T S D)\ \text{time},\ O(T S)\ \text{memory}",
    "Every step is made as a matrix, so every step can be drawn.", "Vaswani et al.", 2017,
    "https://arxiv.org/abs/1706.03762", short="every cell", traits=SAME, cost=exact_cost)
