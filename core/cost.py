"""The parameters, FLOPs and activation memory of an attention layer, in closed form, for one fp32 sequence.

Each entry has its own cost; a kernel's adds up those of the others. FLOPs are those of matrix products, a multiply and
an add counted as two, as torch.utils.flop_counter counts them; elementwise operations (softmax, mask) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from core.attention import AXES, Attention, AttentionConfig, ConfigError, entry
from core.entries import Area, Cost
from core.masks import make_mask
from core.score_block import ScoreBlock

DENSE = ("exact", "fused")  # kernels that compute every cell, masked or not
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
        if func is torch.empty and (
            len(args) > 1 or (isinstance(args[0], tuple) and len(args[0]) > 1)
        ):
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
    return {
        axis: sum(weight.numel() for weight in modules[axis].parameters()) if axis in modules else 0
        for axis in AXES
    }


def attention_cost(
    config: AttentionConfig, num_queries: int, num_keys: int, real: int | None = None
) -> Cost:
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


@dataclass(frozen=True)
class ClosedFormCost:
    """Learned numbers, and FLOPs at a length; a kernel that computes masked cells too (`dense`) spends them all.

    `at_most`: the FLOPs are a bound, since they depend on the numbers themselves.
    """

    parameters: int
    flops: float
    dense: bool
    at_most: bool = False


def closed_form_cost(config: AttentionConfig, length: int) -> ClosedFormCost:
    """The layer's learned numbers; the FLOPs from projected heads to outputs, of every cell that is computed.

    `dense`: the kernel computes cells that it then masks.
    """
    dense = config.kernel.key in DENSE and visible_share(config, length) < 1.0
    return ClosedFormCost(
        sum(parameters(config).values()),
        attention_cost(config, length, length).flops,
        dense,
        at_most(config),
    )


def visible_share(config: AttentionConfig, length: int) -> float:
    """The share of visible cells at that length; 1 where the mask depends on the numbers themselves."""
    if config.mask.key == "none" or config.has("mask", "learned"):
        return 1.0
    cells = ScoreBlock.whole(length, length, key_mask=torch.ones(1, length, dtype=torch.bool))
    try:
        return float(make_mask(config.mask, config)(cells).float().mean())
    except (ConfigError, ValueError):  # a rule that needs more than positions
        return 1.0
