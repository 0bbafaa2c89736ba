"""Kernels: how the same weights are computed. Exact returns every step; fused returns the output alone, faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from core.entries import Entry


@dataclass(frozen=True)
class Steps:
    """Every intermediate of one attention, by name; B batch, H heads, T queries, S keys, D head size.

    A fused kernel never makes `raw`, `scores`, `masked` and `weights`: they are None.
    """

    q: Float[Tensor, "B H T D"]  # as they meet: projected and rotated
    k: Float[Tensor, "B H S D"]
    v: Float[Tensor, "B H S E"]
    scale: float
    bias: Tensor | None  # broadcastable to (B, H, T, S)
    mask: Tensor | None  # bool, True = may attend, broadcastable to (B, H, T, S)
    out: Float[Tensor, "B H T E"]  # weights · v
    raw: Float[Tensor, "B H T S"] | None = None  # how query meets key, before scale and bias
    scores: Float[Tensor, "B H T S"] | None = None  # raw · scale + bias
    masked: Float[Tensor, "B H T S"] | None = None  # scores, −∞ where nothing may be seen
    weights: Float[Tensor, "B H T S"] | None = None  # after the normalizer, before dropout
    merged: Float[Tensor, "B T C"] | None = None  # heads merged and projected; the layer's output


@dataclass(frozen=True)
class Problem:
    """What a kernel is given: q, k, v as they meet, and the choices that are already made."""

    q: Tensor
    k: Tensor
    v: Tensor
    score: Any  # a module with .scale, from q and k to raw scores
    normalizer: Any  # a module with .temperature, from scores and mask to weights
    bias: Tensor | None = None
    mask: Tensor | None = None
    causal: bool = False  # the mask is exactly the square causal one, so a kernel may use its own
    dropout: float = 0.0


def weighted_sum(weights: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    """weights · v, in which a value that may not be seen cannot leak, not even as 0 · NaN or 0 · ∞."""
    if allowed is None or bool(v.isfinite().all()):
        return weights @ v
    finite = v.isfinite()
    out = weights @ v.masked_fill(~finite, 0.0)
    sees_broken = (allowed & (weights > 0)).to(v.dtype) @ (~finite).to(v.dtype)
    return out.masked_fill(sees_broken > 0, float("nan"))


def exact(problem: Problem) -> Steps:
    """Make every step as a matrix: O(T·S·D) time and O(T·S) memory. Used wherever weights are shown."""
    q, k, v, mask = problem.q, problem.k, problem.v, problem.mask
    raw = problem.score(q, k)
    scale = problem.score.scale
    scores = raw if scale == 1.0 else raw * scale
    if problem.bias is not None:
        scores = scores + problem.bias
    weights = problem.normalizer(scores, mask)
    used = F.dropout(weights, problem.dropout) if problem.dropout else weights
    out = weighted_sum(used, v, mask)  # dropout falls on a copy, so that the weights drawn stay whole
    masked = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    return Steps(q, k, v, scale, problem.bias, mask, out, raw, scores, masked, weights)


def fused(problem: Problem) -> Steps:
    """F.scaled_dot_product_attention: the same output in O(T) memory, without the steps between.

    Where a broken value hides behind the mask it would leak through 0 · NaN, so exact takes over.
    """
    q, k, v, mask, bias = problem.q, problem.k, problem.v, problem.mask, problem.bias
    if mask is not None and not bool(v.sum().isfinite()):  # one pass; an overflowing sum only costs the detour
        return exact(problem)
    temperature = problem.normalizer.temperature
    scale = problem.score.scale
    extra = mask
    if bias is not None:
        extra = bias / temperature if mask is None else (bias / temperature).masked_fill(~mask, float("-inf"))
        extra = extra.to(q.dtype)
    own_causal = problem.causal and bias is None
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=None if own_causal else extra, dropout_p=problem.dropout, is_causal=own_causal,
        scale=scale / temperature)
    if mask is not None and q.device.type != "cpu":  # PyTorch's CPU kernels give zeros here; others are not promised to
        out = out.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return Steps(q, k, v, scale, problem.bias, mask, out)


def why_not_fused(config: Any) -> str | None:
    """The reason why F.scaled_dot_product_attention cannot compute these choices, or None when it can."""
    if config.score.key not in ("dot", "scaled_dot"):
        return (f"kernel = fused computes dot products alone, not score = {config.score.key}; "
                "take kernel = exact, or score = scaled_dot.")
    return None


# build(config) -> function(Problem) -> Steps
KERNELS: tuple[Entry, ...] = (
    Entry("exact", "Exact", lambda config: exact, r"O(T S D)\ \text{time},\ O(T S)\ \text{memory}",
          "Every step is made as a matrix, so every step can be drawn.", "Vaswani et al.", 2017,
          "https://arxiv.org/abs/1706.03762"),
    Entry("fused", "Fused", lambda config: fused, r"O(T S D)\ \text{time},\ O(T + S)\ \text{memory}",
          "The same output block by block, without ever holding the weights.", "Dao et al.", 2022,
          "https://arxiv.org/abs/2205.14135", refuse=why_not_fused),
)
