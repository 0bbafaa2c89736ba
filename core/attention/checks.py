"""Checks of the inputs of `attend` and `Attention`: shapes, the mask's dtype, and padding that holds no numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.attention.config import AttentionConfig
from core.entries import refuse_type

LARGEST_INPUT = 1e4  # padding with larger numbers is cleared; real inputs are smaller


def visible_keys(mask: Tensor | None, key_mask: Bool[Tensor, "B S"] | None = None) -> Tensor | None:
    """The keys that a mask without rows and a key mask allow, (S) or (B, S); None where there are neither."""
    if mask is None or mask.shape[-2] != 1:
        return key_mask
    keys = mask[..., 0, :].any(-2) if mask.dim() > 2 else mask[0]
    return keys if key_mask is None else keys & key_mask


def clear_padding(
    x: Float[Tensor, "*batch S C"], real: Bool[Tensor, ...] | None
) -> Float[Tensor, "*batch S C"]:
    """x with zeros for tokens that are not real and hold NaN, ±∞ or numbers from LARGEST_INPUT; x for real = None.

    A weight of 0 does not remove those, as 0 · NaN is NaN, forward and backward. Other padding is unchanged.
    """
    if real is None:
        return x
    unchanged = real | (x.abs().amax(-1) < LARGEST_INPUT)  # False for NaN
    return torch.where(unchanged[..., None], x, 0.0)


def check_heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask in at least two dimensions; ValueError when the shapes of ready heads do not meet."""
    for value in (q, k, v):
        refuse_type(value, Tensor, "attend(q, k, v) of (batch, heads, length, head size)")
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}."
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"q, k and v are (batch, heads, length, head size); {shapes}")
    needs = {
        "q and k need one head size": q.shape[-1] == k.shape[-1],
        "k and v need one number of keys": k.shape[-2] == v.shape[-2],
        "q, k and v need one batch, and heads of k and v that divide those of q": (
            q.shape[0] == k.shape[0] == v.shape[0]
            and q.shape[1] % k.shape[1] == q.shape[1] % v.shape[1] == 0
        ),
    }
    if unmet := [need for need, met in needs.items() if not met]:
        raise ValueError(f"{unmet[0]}; {shapes}")
    return check_mask(mask, (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))


def check_inputs(
    config: AttentionConfig,
    x: Tensor,
    context: Tensor | None,
    mask: Tensor | None,
    key_mask: Tensor | None,
) -> Tensor | None:
    """The mask in at least two dimensions; ValueError when the shapes of a layer's inputs do not meet."""
    for name, value in (("x", x), ("context", x if context is None else context)):
        refuse_type(value, Tensor, f"{name} of (batch, length, d_model = {config.d_model})")
        if value.dim() != 3 or value.shape[-1] != config.d_model:
            raise ValueError(
                f"{name} is {tuple(value.shape)}; expected (batch, length, d_model = {config.d_model})."
            )
    keys = x if context is None else context
    if key_mask is not None and key_mask.shape != keys.shape[:2]:
        raise ValueError(
            f"key_mask is {tuple(key_mask.shape)}; expected (batch, keys) = {tuple(keys.shape[:2])}."
        )
    check_mask(key_mask, keys.shape[:2])
    return check_mask(mask, (x.shape[0], config.score_heads, x.shape[1], keys.shape[1]))


def check_step(length: int, offset: int, **given: Tensor | None) -> None:
    """ValueError for what a layer with a cache of that length would not use."""
    if unused := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{' and '.join(unused)} cannot go with a cache, where x attends to the cached tokens and to "
            "itself; leave the cache out and give the whole text."
        )
    if offset not in (0, length):
        raise ValueError(
            f"offset is {offset}, and the cache holds {length} tokens, after which x begins; leave offset "
            "out."
        )


def check_mask(mask: Tensor | None, sizes: Sequence[int]) -> Tensor | None:
    """The mask, as (1, S) where it was (S); ValueError unless it is bool and broadcasts to these sizes, (B, H, T, S), and
    for three dimensions."""
    if mask is not None:
        refuse_type(mask, Tensor, "a mask of bool")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(
            f"mask is {mask.dtype}; expected torch.bool with True = may attend "
            "(a float mask would be added)."
        )
    if mask is not None and mask.dim() == 3:  # of texts or of heads: which, nobody can tell
        raise ValueError(
            f"mask is {tuple(mask.shape)}; expected (queries, keys) or (batch, heads, queries, keys): "
            "mask[:, None] for one mask a text, mask[None] for one a head."
        )
    if mask is None:
        return None
    mask = torch.atleast_2d(mask)
    check_broadcast("mask", mask, sizes)
    return mask


def check_broadcast(name: str, given: Tensor, sizes: Sequence[int]) -> None:
    """ValueError unless what was given broadcasts to these sizes, (B, H, T, S)."""
    shape, fits = tuple(given.shape), tuple(sizes)
    if len(shape) > len(fits) or any(
        one not in (1, size) for one, size in zip(reversed(shape), reversed(fits), strict=False)
    ):
        raise ValueError(
            f"{name} is {shape}; expected (queries, keys) = {fits[-2:]} or (batch, heads, queries, keys) = {fits}, "
            "with 1 where all are alike: one of keys alone for each text is (batch, 1, 1, keys)."
        )
