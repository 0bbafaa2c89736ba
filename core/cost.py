"""What an attention layer takes: its parameters, its operations and the memory of its activations, in closed form.

Each entry says its own share, and a kernel how often it pays for those of the others. One sequence, fp32. FLOPs are
those of matrix products, a multiply and an add counted as two, as torch.utils.flop_counter counts them: what is done
number by number (a softmax, a mask, a rotation) is left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from core.attention import AXES, Attention, AttentionConfig, entry
from core.entries import Area, Cost


@lru_cache(maxsize=256)
def parameters(config: AttentionConfig) -> dict[str, int]:
    """The learned numbers of each axis, counted on the layer itself, which is built without its memory."""
    with torch.device("meta"):
        layer = Attention(config)
    pieces: dict[str, Any] = {axis: getattr(layer, axis) for axis in AXES}
    return {axis: sum(weight.numel() for weight in piece.parameters()) if isinstance(piece, torch.nn.Module) else 0
            for axis, piece in pieces.items()}


def attention_cost(config: AttentionConfig, num_queries: int, num_keys: int, real: int | None = None) -> Cost:
    """One forward pass from projected heads to the output of each, without gradients, as benchmark.py measures it.

    `real` is how many keys come before the padding where a key mask is given. `bytes` is the most alive at once on a
    CPU, beyond q, k, v and x.
    """
    masked = config.mask.key != "none" or real is not None
    area = Area.whole(num_queries, num_keys, masked=masked, real=real)
    return entry("kernel", config.kernel.key).cost(config, area)


def projection_cost(config: AttentionConfig, num_queries: int, num_keys: int) -> Cost:
    """The learned maps from x to heads and from heads to the layer's output."""
    return entry("projection", config.projection.key).cost(config, Area.whole(num_queries, num_keys))


def total(config: AttentionConfig, num_queries: int, num_keys: int) -> Cost:
    """The whole layer."""
    return projection_cost(config, num_queries, num_keys) + attention_cost(config, num_queries, num_keys)


def at_most(config: AttentionConfig) -> bool:
    """Whether the cost is a bound: a kernel that skips what a mask hides, under a mask that hides anew in each call."""
    return config.has("kernel", "reads mask") and config.has("mask", "learned")
