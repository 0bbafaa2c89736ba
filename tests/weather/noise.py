"""The last bit of every matrix product on the CPU moves, as if its sums were added in another order.

A multiple of 1/1024 stays: sums of small numbers written by hand are exact in every order.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

ATEN = torch.library.Library("aten", "IMPL")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")  # dot and mv, whose kernels call themselves, are left
ULPS = 1


def _factors(count: int, dtype: np.dtype) -> np.ndarray:
    """1 − ε, 1 or 1 + ε by the place in the result: the same at every call, so that what repeats stays the same."""
    factors = _signs.get(dtype)
    if factors is None or len(factors) < count:
        places = np.arange(max(count, 1 << 16))
        signs = (places * 2_654_435_761 + 12_345 >> 7) % 3 - 1
        factors = _signs[dtype] = (1 + ULPS * np.finfo(dtype).eps * signs).astype(dtype)
    return factors[:count]


_signs: dict[np.dtype, np.ndarray] = {}


def _noisy(product: Callable) -> Callable:
    """The product as PyTorch's own kernel writes it into a given tensor, which is not replaced, and then the noise."""

    def call(first: Tensor, *rest: object, **options: object) -> Tensor:
        out = product(first, *rest, **options, out=torch.empty(0, dtype=first.dtype))
        if out.dtype in (torch.float32, torch.float64):
            with np.errstate(all="ignore"):  # NumPy's copies are none of the bytes that tests count
                values = out.detach().numpy()
                scaled = values * 1024
                np.multiply(
                    values,
                    _factors(out.numel(), values.dtype).reshape(values.shape),
                    out=values,
                    where=scaled != np.floor(scaled),
                )
        return out

    return call


def install() -> None:
    for name in PRODUCTS:
        ATEN.impl(name, _noisy(getattr(torch.ops.aten, name).out), "CPU")
