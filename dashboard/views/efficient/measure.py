"""What the page shows beside time: how far each output is from exact's, and the weights that a kernel implies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.kernels import exact
from dashboard.runtime.seeding import seeded_layer
from dashboard.runtime.tokens import embed

LENGTH = 512  # at which outputs are compared
D_MODEL, HEADS, SEED = 64, 4, 126


def apart(config: AttentionConfig) -> float:
    """|out − exact| / |exact| over all numbers of the output, on random q, k, v of LENGTH tokens; exact in float64.

    What reads the tokens' own vectors as well gets random ones.
    """
    layer, generator = Attention(config).eval(), torch.Generator().manual_seed(SEED)
    q, k, v = (torch.randn(1, config.num_heads, LENGTH, config.head_dim, generator=generator) for _ in range(3))
    x = torch.randn(1, LENGTH, config.d_model, generator=generator)
    with torch.no_grad():
        problem = layer.problem(q, k, v, x, x)
        ours = layer.kernel(problem).out.double()
        problem = replace(layer.problem(q.double(), k.double(), v.double()), recorded=False)
        return float((ours - exact(problem).out).norm() / exact(problem).out.norm())


@dataclass(frozen=True)
class Implied:
    """The weights (H, T, T) of one kernel on the sentence, and how far they are from exact's."""

    kernel: str
    weights: np.ndarray
    wrong: float  # mean |difference| over all cells of all heads
    largest: float  # of all its weights
    sums: tuple[float, float]  # the least and the largest sum of a row


def implied(choice: Choice, tokens: tuple[str, ...], causal: bool) -> Implied:
    """What a kernel weighs on these tokens, with the same seeded maps as all others."""
    config = AttentionConfig(D_MODEL, HEADS, mask="causal" if causal else "none", kernel=choice)
    weights, true = weights_of(config, tokens), weights_of(config.with_(kernel=Choice("exact")), tokens)
    rows = weights.sum(-1)
    return Implied(choice.key, weights.numpy(), float((weights - true).abs().mean()), float(weights.max()),
                   (float(rows.min()), float(rows.max())))


def weights_of(config: AttentionConfig, tokens: tuple[str, ...]) -> Tensor:
    with torch.no_grad():
        found = seeded_layer(config, SEED)(embed(tokens, D_MODEL, SEED)).weights
    assert found is not None
    return found[0]
