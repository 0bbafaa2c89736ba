"""The error of a kernel's output, against exact attention in double precision."""

from __future__ import annotations

from dataclasses import replace

import torch

from core.attention import Attention, AttentionConfig
from core.attention.kernels import exact
from core.seeding import seeded_generator, seeded_rng

LENGTH = 512  # tokens at which outputs are compared


def output_error(config: AttentionConfig, seed: int) -> float:
    """|out − exact| / |exact| over all numbers of the output, on random q, k, v of LENGTH tokens; exact in float64.

    Kernels that also read the tokens' own vectors get random ones.
    """
    with seeded_rng(seed):
        layer = Attention(config).eval()
    generator = seeded_generator(seed, "output error")
    q, k, v = (
        torch.randn(1, config.num_heads, LENGTH, config.head_dim, generator=generator)
        for _ in range(3)
    )
    x = torch.randn(1, LENGTH, config.d_model, generator=generator)
    with torch.no_grad():
        inputs = layer.kernel_inputs(q, k, v, x, x)
        ours = layer.kernel(inputs).out.double()
        inputs = replace(layer.kernel_inputs(q.double(), k.double(), v.double()), record=False)
        return float((ours - exact(inputs).out).norm() / exact(inputs).out.norm())
