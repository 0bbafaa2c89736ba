"""Attention as a textbook writes it: no options beyond the formula, no speed. Every faster path must agree with it."""

from __future__ import annotations

import math

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attention(
    x: Float[Tensor, "B T C"],
    context: Float[Tensor, "B S C"],
    to_q: nn.Linear,
    to_k: nn.Linear,
    to_v: nn.Linear,
    to_out: nn.Linear,
    num_heads: int,
    mask: Bool[Tensor, ...],
    bias: Float[Tensor, ...] | float = 0.0,
    rotary_base: float | None = 10000.0,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
    """softmax(R q (R k)ᵀ / √D + bias) v in each of H heads of size D = C / H. Vaswani 2017, section 3.2.

    x (B, T, C) attends to context (B, S, C); the four maps are C to C. `mask`, True = may attend, and `bias` broadcast
    to (B, H, T, S); every query must see at least one key. Returns the output (B, T, C) and the weights (B, H, T, S).
    """
    q = rearrange(to_q(x), "b t (h d) -> b h t d", h=num_heads)  # project
    k = rearrange(to_k(context), "b s (h d) -> b h s d", h=num_heads)
    v = rearrange(to_v(context), "b s (h d) -> b h s d", h=num_heads)
    if rotary_base is not None:
        q, k = rotate(q, rotary_base), rotate(k, rotary_base)  # rotate
    scores = q @ k.mT  # score: (B, H, T, S)
    scores = scores / math.sqrt(q.shape[-1])  # scale
    scores = scores + bias
    scores = scores.masked_fill(~mask, -math.inf)  # mask
    weights = scores.softmax(-1)  # softmax over the keys
    out = weights @ v  # weighted sum of values: (B, H, T, D)
    return to_out(rearrange(out, "b h t d -> b t (h d)")), weights  # merge


def rotate(x: Float[Tensor, "B H T D"], base: float) -> Float[Tensor, "B H T D"]:
    """Rotate dimensions m and m + D/2 of the vector at position i by the angle i · base^(−2m/D). Su 2021."""
    half = x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency  # (T, D/2)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
