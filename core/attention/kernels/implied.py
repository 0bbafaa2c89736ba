"""What the kernels without a score matrix share: q and k with the scale in them, the keys that are real, the Steps."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from core.attention.kernels.base import product_of, to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.refusals import (
    Reason,
    combines_heads,
    drops_weights,
    enters_scores,
    mask_beyond,
    multiplies_weights,
    not_product,
    not_softmax,
    refuse_when,
)
from core.entries import ConfigError

IMPLIED = frozenset({"implied"})  # the trait of a kernel whose weights are another matrix than exact's
PADDING_ONLY = ("none", "padding")
CAUSAL_TOO = ("none", "causal", "padding")


def needs_plain_rows(kernel: str, *masks: str) -> Reason:
    """The `refuse` of a kernel that stands for a softmax over dot products, under no mask but these."""
    return refuse_when(kernel, not_product, not_softmax, enters_scores, multiplies_weights, combines_heads,
                       drops_weights, mask_beyond(*masks))


def scaled_qk(inputs: AttentionInputs) -> tuple[Tensor, Tensor, float | Tensor]:
    """q and k in at least fp32, and what their dot product is multiplied by to be the score."""
    q, k = product_of(inputs).prepare(inputs.q, inputs.k)
    return to_float32(q), to_float32(k), inputs.score.scale / inputs.normalizer.temperature


def split_scale(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """q and k whose dot product is the score: each takes the root of the scale."""
    q, k, scale = scaled_qk(inputs)
    if isinstance(scale, float) and scale == 1.0:
        return q, k
    root = scale.abs().sqrt() if isinstance(scale, Tensor) else abs(scale) ** 0.5
    return q * (scale / root), k * root


def visible_keys(inputs: AttentionInputs, kernel: str) -> Tensor | None:
    """Which keys are real, (B, 1, 1, S); ConfigError for what came with the call and cannot be honoured."""
    if inputs.call_bias is not None:
        raise ConfigError(f"kernel = {kernel} makes no scores that a bias could be added to; take kernel = exact.")
    given, real = inputs.call_mask, inputs.block.key_mask
    if given is not None:
        if given.dim() > 1 and given.shape[-2] > 1 or given.dim() > 2 and given.shape[-3] > 1:
            raise ConfigError(f"kernel = {kernel} makes no scores that a mask of {tuple(given.shape)} could hide; take "
                              "a mask of keys alone, (B, 1, 1, S), or kernel = exact.")
        given = given.reshape(-1, 1, 1, given.shape[-1])
        real = given if real is None else real & given
    return real


def steps(inputs: AttentionInputs, out: Tensor, weights: Callable[[], Tensor]) -> Steps:
    """The output, and, where they are asked for, the weights that it amounts to."""
    mask, drawn = (inputs.joined_mask(), weights().to(inputs.q.dtype)) if inputs.record else (None, None)
    return Steps(inputs.q, inputs.k, inputs.v, inputs.score.scale, None, mask, out.to(inputs.v.dtype),
                 weights=drawn, implied=True)
