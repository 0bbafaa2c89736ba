"""Attention without a score matrix: φ(q)ᵀφ(k) in place of e^(qᵀk), so that keys and values are summed once.

Katharopoulos et al. 2020: out_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j), with φ(x) = elu(x) + 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    chunk_length,
    full_precision,
    in_chunks,
    needs_plain_rows,
    real_keys,
    split_scale,
    steps,
)
from core.attention.kernels.implied_costs import linear_cost
from core.attention.kernels.refusals import and_parts
from core.entries import Entry, LayerConfig, Param

CHUNK = Param("chunk", "Chunk", 64, 1, 1024, 1, meaning="tokens in a block under a causal mask")


def elu_features(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, above zero everywhere. Katharopoulos 2020, equation 7."""
    return F.elu(x).add_(1.0)


def with_ones(v: Tensor) -> Tensor:
    """v with a column of ones, whose weighted sum is the sum of the weights."""
    return F.pad(v, (0, 1), value=1.0)


def divided(sums: Tensor) -> Tensor:
    """The weighted sum of v over the sum of the weights, from sums of `with_ones`; zeros where nothing is visible."""
    total = sums[..., -1:]
    unseen = total <= torch.finfo(sums.dtype).tiny
    return (sums[..., :-1] / total.masked_fill(unseen, 1.0)).masked_fill(unseen, 0.0)


def linear_attention(features_q: Tensor, features_k: Tensor, v: Tensor) -> Tensor:
    """Every query sees every key. features (B, H, T, R) and (B, H, S, R), v (B, H, S, E): O(T·R·E) time."""
    total = features_q @ features_k.sum(2).unsqueeze(-1)
    total = total.masked_fill(total <= torch.finfo(total.dtype).tiny, 1.0)  # nothing visible: 0 / 1
    return (features_q @ (features_k.mT @ v)).div_(total)


def causal_linear_attention(
    features_q: Tensor,
    features_k: Tensor,
    v: Tensor,
    chunk: int,
    offset: int = 0,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output, where query i, at position offset + i, sees keys j ≤ offset + i, and the state after the last key.

    O(T·(chunk + R)·E) time: within a chunk weights are computed, chunk × chunk; earlier chunks enter through one state
    of R × (E + 1), the sum over their keys and those of `past`. A running sum of T such states would be far slower than
    the quadratic form.
    """
    queries = features_q.shape[2]
    q, k, v = in_chunks(
        features_q, features_k, with_ones(v), chunk, offset
    )  # (B, H, n, chunk, R or E + 1)
    inside = (q @ k.mT).tril() @ v
    start = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if past is None else past
    states = torch.cat((start[:, :, None], k.mT @ v), 2).cumsum(
        2
    )  # before each chunk, and after the last
    sums = inside.add_(q @ states[:, :, :-1]).flatten(2, 3)[:, :, offset : offset + queries]
    return divided(sums), states[:, :, -1].clone()


def implied_weights(features_q: Tensor, features_k: Tensor, allowed: Tensor | None) -> Tensor:
    """The weights, (B, H, T, S), that the sums imply; the output does not need them."""
    weights = features_q @ features_k.mT
    weights = weights if allowed is None else weights.masked_fill(~allowed, 0.0)
    return divided(torch.cat((weights, weights.sum(-1, keepdim=True)), -1))


class Features:
    """A kernel of feature maps φ(q) and φ(k); causal sums are computed in chunks."""

    def __init__(self, config: LayerConfig) -> None:
        self.causal = config is not None and any(
            part.key == "causal" for part in and_parts(config.mask)
        )
        self.chunk = int(config.kernel["chunk"] if config else CHUNK.default)

    @full_precision
    def __call__(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "linear")
        q, k = split_scale(inputs)
        return self.summed(inputs, elu_features(q), elu_features(k), real)

    def summed(
        self, inputs: AttentionInputs, features_q: Tensor, features_k: Tensor, real: Tensor | None
    ) -> Steps:
        if real is not None:
            features_k = features_k.masked_fill(~real.mT, 0.0)
        v, state = to_float32(inputs.v), None
        if self.causal:
            out, state = causal_linear_attention(
                features_q,
                features_k,
                v,
                chunk_length(inputs, self.chunk),
                inputs.block.offset,
                inputs.past,
            )
        else:
            out = linear_attention(features_q, features_k, v)
        return steps(
            inputs,
            out,
            lambda: implied_weights(features_q, features_k, inputs.joined_mask()),
            state,
        )


LINEAR = Entry(
    "linear",
    "Linear",
    Features,
    r"\frac{\phi(q_i)^\top \sum_j \phi(k_j) v_j^\top}{\phi(q_i)^\top \sum_j \phi(k_j)},"
    r"\quad \phi(x) = \text{elu}(x) + 1",
    "A feature map replaces the exponential, so keys and values are summed once for all queries. The weights differ "
    "from those of softmax.",
    "Katharopoulos et al.",
    2020,
    "https://arxiv.org/abs/2006.16236",
    (CHUNK,),
    short="elu + 1",
    traits=IMPLIED | STATE,
    cost=linear_cost,
    refuse=needs_plain_rows("linear", *CAUSAL),
)
