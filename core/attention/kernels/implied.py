"""What the kernels without a score matrix share: scaled q and k, real keys, chunks, and their Steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention.kernels.base import product_of, to_float32
from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied_costs import power_of_two
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

IMPLIED = frozenset(
    {"implied"}
)  # the trait of a kernel whose weights are another matrix than exact's
STATE = frozenset({"state"})  # the trait of a kernel that can carry a state in place of keys
PADDING_ONLY = ("none", "padding")
CAUSAL = ("none", "causal", "padding")


def needs_plain_rows(kernel: str, *masks: str) -> Reason:
    """The `refuse` of a kernel that replaces the softmax over dot products, under these masks alone."""
    return refuse_when(
        kernel,
        not_product,
        not_softmax,
        enters_scores,
        multiplies_weights,
        combines_heads,
        drops_weights,
        mask_beyond(*masks),
    )


def full_precision(
    kernel: Callable[[Any, AttentionInputs], Steps],
) -> Callable[[Any, AttentionInputs], Steps]:
    """A kernel whose products autocast leaves in fp32: fp16 overflows where exponentials meet, bf16 loses ranks."""

    @wraps(kernel)
    def run(self: Any, inputs: AttentionInputs) -> Steps:
        device = inputs.q.device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return kernel(self, inputs)
        with torch.autocast(device, enabled=False):
            return kernel(self, inputs)

    return run


def scaled_qk(inputs: AttentionInputs) -> tuple[Tensor, Tensor, float | Tensor]:
    """q and k in at least fp32, and the scale of their dot product, over the temperature."""
    q, k = product_of(inputs).prepare(inputs.q, inputs.k)
    return to_float32(q), to_float32(k), inputs.score.scale / inputs.normalizer.temperature


def split_scale(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """q and k whose dot product is the score: the scale is split evenly between them."""
    q, k, scale = scaled_qk(inputs)
    if isinstance(scale, float) and scale == 1.0:
        return q, k
    root = scale.abs().sqrt() if isinstance(scale, Tensor) else abs(scale) ** 0.5
    return q * (scale / root), k * root


def real_keys(inputs: AttentionInputs, kernel: str) -> Tensor | None:
    """Which keys are real, (B, 1, 1, S); ConfigError for a bias, or a mask that differs between queries or heads."""
    if inputs.call_bias is not None:
        raise ConfigError(
            f"kernel = {kernel} computes no scores that a bias could be added to; take kernel = exact."
        )
    mask, real = inputs.call_mask, inputs.block.key_mask
    if mask is not None:
        if mask.dim() > 1 and mask.shape[-2] > 1 or mask.dim() > 2 and mask.shape[-3] > 1:
            raise ConfigError(
                f"kernel = {kernel} computes no scores that a mask of {tuple(mask.shape)} could hide; "
                "take a mask of keys alone, (B, 1, 1, S), or kernel = exact."
            )
        mask = mask.reshape(-1, 1, 1, mask.shape[-1])
        real = mask if real is None else real & mask
    return real


def in_chunks(
    q: Tensor, k: Tensor, v: Tensor, chunk: int, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in chunks, (B, H, n, chunk, D), with zeros before the first query (at `offset`) and at the end."""
    queries, keys = q.shape[2], k.shape[2]
    length = -(-max(offset + queries, keys) // chunk) * chunk
    q = pad_tokens(q, offset, length - offset - queries).unflatten(2, (-1, chunk))
    k, v = (pad_tokens(x, 0, length - keys).unflatten(2, (-1, chunk)) for x in (k, v))
    return q, k, v


def pad_tokens(x: Tensor, before: int, after: int) -> Tensor:
    """x (…, T, D) with rows of zeros before and after; x itself, of which F.pad would make a copy, for none."""
    if not torch.compiler.is_compiling() and before == after == 0:  # in a graph any length may come
        return x
    return F.pad(x, (0, 0, before, after))


def chunk_length(inputs: AttentionInputs, chunk: int) -> int:
    """The length of a chunk; a step of few tokens takes no longer ones than it fills, in powers of two."""
    return min(chunk, power_of_two(inputs.k.shape[2])) if inputs.carries else chunk


def states_before(
    updates: Tensor, decays: Tensor, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The state before each chunk, (B, H, n, D, E), and after the last: it decays over a chunk, which adds its update.

    updates (B, H, n, D, E); decays (B, H, n, D or 1, 1), that of each whole chunk; `past` is the first state.
    """
    state, states = torch.zeros_like(updates[:, :, 0]) if past is None else past, []
    for update, decay in zip(updates.unbind(2), decays.unbind(2), strict=True):
        states.append(state)
        state = torch.addcmul(update, state, decay)
    return torch.stack(states, 2), state


def steps(
    inputs: AttentionInputs,
    out: Tensor,
    weights: Callable[[], Tensor],
    state: Tensor | None = None,
) -> Steps:
    """The Steps of an output and of the state after it; with `inputs.record` the mask and the weights that it implies."""
    mask, implied = (
        (inputs.joined_mask(), weights().to(inputs.q.dtype)) if inputs.record else (None, None)
    )
    return Steps(
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.score.scale,
        None,
        mask,
        out.to(inputs.v.dtype),
        weights=implied,
        state=state if inputs.carries else None,
        implied=True,
    )
