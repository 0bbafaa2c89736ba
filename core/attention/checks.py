"""Checks of the inputs of `attend` and `Attention`: shapes, the mask's dtype, and padding that holds no numbers."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

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


def clear_hidden_heads(
    heads: Float[Tensor, "B G S D"], mask: Tensor | None
) -> Float[Tensor, "B G S D"]:
    """`clear_padding` of k or v for the keys that the mask hides from every query."""
    real = visible_keys(mask)
    return clear_padding(heads, real if real is None or real.dim() == 1 else real[:, None])


def check_heads(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask in at least two dimensions; ValueError when the shapes of ready heads do not meet."""
    wrong = None
    if not q.dim() == k.dim() == v.dim() == 4:
        wrong = "q, k and v are (batch, heads, length, head size)"
    elif q.shape[-1] != k.shape[-1]:
        wrong = "q and k need one head size"
    elif k.shape[-2] != v.shape[-2]:
        wrong = "k and v need one number of keys"
    elif (
        not q.shape[0] == k.shape[0] == v.shape[0]
        or q.shape[1] % k.shape[1]
        or q.shape[1] % v.shape[1]
    ):
        wrong = "q, k and v need one batch, and heads of k and v that divide those of q"
    if wrong:
        raise ValueError(
            f"{wrong}; got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}."
        )
    return check_mask(mask)


def check_inputs(
    d_model: int,
    x: Tensor,
    context: Tensor | None,
    mask: Tensor | None,
    key_mask: Tensor | None,
) -> Tensor | None:
    """The mask in at least two dimensions; ValueError when the shapes of a layer's inputs do not meet."""
    for name, value in (("x", x), ("context", x if context is None else context)):
        if value.dim() != 3 or value.shape[-1] != d_model:
            raise ValueError(
                f"{name} is {tuple(value.shape)}; expected (batch, length, d_model = {d_model})."
            )
    keys = x if context is None else context
    if key_mask is not None and key_mask.shape != keys.shape[:2]:
        raise ValueError(
            f"key_mask is {tuple(key_mask.shape)}; expected (batch, keys) = {tuple(keys.shape[:2])}."
        )
    check_mask(key_mask)
    return check_mask(mask)


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


def check_mask(mask: Tensor | None) -> Tensor | None:
    """The mask, as (1, S) where it was (S); ValueError unless it is bool."""
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(
            f"mask is {mask.dtype}; expected torch.bool with True = may attend "
            "(a float mask would be added)."
        )
    return mask if mask is None else torch.atleast_2d(mask)
