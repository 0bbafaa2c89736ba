"""A config and an input → Steps, with every weight drawn from the page's seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Steps
from core.seeding import seeded_layer
from dashboard.runtime.threads import one_thread
from dashboard.runtime.tokens import embed, labels
from dashboard.views.one_query.matrices import Matrices

SMALL = 2**20  # products in the score matrix up to which one thread is enough


@dataclass(frozen=True)
class Source:
    """The names of queries and keys, and either tokens or three typed matrices."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    matrices: Matrices | None = None

    @classmethod
    def sentence(cls, tokens: tuple[str, ...]) -> Source:
        names = labels(tokens)
        return cls(names, names, tokens)

    @classmethod
    def of_matrices(cls, matrices: Matrices) -> Source:
        queries = tuple(f"q{i}" for i in range(len(matrices.q)))
        return cls(queries, tuple(f"k{j}" for j in range(len(matrices.k))), (), matrices)


def has_parameters(config: AttentionConfig, seed: int) -> bool:
    """Whether the layer has any parameter."""
    return any(True for _ in seeded_layer(config, seed).parameters())


@torch.inference_mode()
def run(config: AttentionConfig, source: Source, seed: int, real: int | None = None) -> Steps:
    """Every step of the attention of a source; `real` keys from the left are real, the others are padding."""
    key_mask = None if real is None else (torch.arange(len(source.keys)) < real)[None]
    with one_thread(len(source.queries) * len(source.keys) * config.d_model <= SMALL):
        layer = seeded_layer(config, seed)
        if source.matrices is None:
            return layer(embed(source.tokens, config.d_model, seed), key_mask=key_mask)
        return run_matrices(layer, *source.matrices.tensors(), key_mask)


def run_matrices(layer: Attention, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Steps:
    """The layer from its positions on: Q, K and V are typed, so there is nothing to project."""
    return layer.attend_heads(q, k, v, key_mask=key_mask)
