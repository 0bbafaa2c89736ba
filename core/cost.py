"""The parameters, FLOPs and activation memory of an attention layer, in closed form, for one fp32 sequence.

Each entry has its own cost; a kernel's adds up those of the others. FLOPs are those of matrix products, a multiply and
an add counted as two, as torch.utils.flop_counter counts them; elementwise operations (softmax, mask) are left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from core.attention import AXES, Attention, AttentionConfig, entry
from core.entries import Area, Cost

RANDOM = ("normal_", "uniform_", "kaiming_uniform_")


class ShapesOnly(TorchFunctionMode):
    """Makes new matrices on the meta device, and leaves unfilled what would begin with random numbers: it draws none.

    Not all tensors, as `torch.device("meta")` would: there normal_, arange and log import PyTorch's compiler, which
    takes seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.randn and "generator" not in kwargs:
            func = torch.empty
        if func is torch.empty and (len(args) > 1 or (isinstance(args[0], tuple) and len(args[0]) > 1)):
            return func(*args, **{**kwargs, "device": "meta"})
        if getattr(func, "__name__", "") in RANDOM:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def meta_layer(config: AttentionConfig) -> Attention:
    """The layer with the shapes of its weights, which take no memory and hold nothing."""
    with ShapesOnly():
        return Attention(config)


@lru_cache(maxsize=256)
def parameters(config: AttentionConfig) -> dict[str, int]:
    """The number of learned parameters of each axis, counted on a layer built on the meta device."""
    modules = dict(meta_layer(config).named_children())
    return {axis: sum(weight.numel() for weight in modules[axis].parameters()) if axis in modules else 0
            for axis in AXES}


def attention_cost(config: AttentionConfig, num_queries: int, num_keys: int, real: int | None = None) -> Cost:
    """One forward pass from projected heads to the output of each head, without gradients, as benchmark.py measures it.

    `real` is the number of keys before the padding where there is a key mask. `bytes` is the peak on a CPU, beyond q,
    k, v and x.
    """
    masked = config.mask.key != "none" or real is not None
    area = Area.whole(num_queries, num_keys, masked=masked, real=real)
    return entry("kernel", config.kernel.key).cost(config, area)


def at_most(config: AttentionConfig) -> bool:
    """Whether the cost is an upper bound: a kernel that skips masked keys, under a mask that depends on the input."""
    return config.has("kernel", "reads mask") and config.has("mask", "reads content")
