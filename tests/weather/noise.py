"""The last bit of every matrix product on the CPU moves, as if its sums were added in another order.

A multiple of 1/1024 stays: sums of small numbers written by hand are exact in every order.
"""

from collections.abc import Callable

import torch
from torch import Tensor

ATEN = torch.library.Library("aten", "IMPL")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")  # dot and mv, whose kernels call themselves, are left
ULPS = 1


def _factors(count: int, dtype: torch.dtype) -> Tensor:
    """1 − ε, 1 or 1 + ε by the place in the result: the same at every call, so that what repeats stays the same."""
    kept = _kept.get(dtype)
    if kept is None or len(kept) < count:
        places = torch.arange(max(count, 1 << 16))
        signs = ((places * 2_654_435_761 + 12_345) >> 7).remainder_(3).sub_(1)
        kept = _kept[dtype] = (1 + ULPS * torch.finfo(dtype).eps * signs.double()).to(dtype)
    return kept[:count]


_kept: dict[torch.dtype, Tensor] = {}


def _noisy(product: Callable) -> Callable:
    """The product as PyTorch's own kernel writes it into a given tensor, which is not replaced, and then the noise."""

    def call(first: Tensor, *rest: object, **options: object) -> Tensor:
        out = product(first, *rest, **options, out=torch.empty(0, dtype=first.dtype))
        if out.is_floating_point():
            with torch.inference_mode(out.is_inference()):
                moved = out * _factors(out.numel(), out.dtype).view(out.shape)
                out.copy_(torch.where((out * 1024).frac() == 0, out, moved))
        return out

    return call


def install() -> None:
    for name in PRODUCTS:
        ATEN.impl(name, _noisy(getattr(torch.ops.aten, name).out), "CPU")
