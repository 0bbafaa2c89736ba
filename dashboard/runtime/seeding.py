"""Layers with weights that depend on the page's seed and each weight's name alone, so that mechanisms share them."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig

LAMBDA_SPREAD = 0.1  # of the vectors that make a differential layer's λ, as training starts them
TABLE_SPREAD = 0.5  # training starts a table of positions near 0, which no picture would show


@lru_cache(maxsize=24)
def seeded_layer(config: AttentionConfig, seed: int) -> Attention:
    """The layer of a config with seeded weights; two configs have equal weights wherever names and shapes are equal.

    What a module starts at one value (a gain, a bias, a sink) stays as it is. Shared by sessions: never change it.
    """
    layer = Attention(config, add_positions=True).eval().requires_grad_(False)
    for name, weight in layer.named_parameters():
        if (spread := spread_of(name, weight)) is not None:
            weight.normal_(std=spread, generator=generator(seed, name))
    return layer


def spread_of(name: str, weight: Tensor) -> float | None:
    """The standard deviation with which a page draws a weight; None for one that a module starts at a single value."""
    if bool((weight == weight.flatten()[0]).all()):
        return None
    if "lambda" in name:
        return LAMBDA_SPREAD
    return TABLE_SPREAD if name.startswith("position") else float(weight.shape[-1] ** -0.5)


def generator(seed: int, name: str) -> torch.Generator:
    """A stream of its own for each name, the same in every session."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


def seeded_normal(*shape: int, seed: int, name: str) -> Tensor:
    """Standard normal numbers of that shape and name."""
    return torch.randn(shape, generator=generator(seed, name))
