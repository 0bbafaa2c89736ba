"""A config and an input → Steps, with every weight drawn from the page's seed; and what √D does, as D grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.attention import AttentionConfig, ConfigError, Steps, attend
from core.attention.basics import MultiHead
from core.seeding import seeded_generator, seeded_layer
from core.tokens import embed, labels
from dashboard.ui.threads import one_thread
from dashboard.views.one_query.matrices import Matrices

SMALL = 2**20  # products in the score matrix up to which one thread is enough
DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUERIES, KEYS = 64, 64


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


@torch.inference_mode()
def run(config: AttentionConfig, source: Source, seed: int, real: int | None = None) -> Steps:
    """Every step of the attention of a source; `real` keys from the left are real, the others are padding.

    Typed matrices enter after the projection; ConfigError where a choice needs what they do not have.
    """
    key_mask = None if real is None else (torch.arange(len(source.keys)) < real)[None]
    with one_thread(len(source.queries) * len(source.keys) * config.d_model <= SMALL):
        layer = seeded_layer(config, seed)
        if source.matrices is None:
            return layer(embed(source.tokens, config.d_model, seed), key_mask=key_mask)
        columns = len(source.matrices.v[0])
        if config.has("position", "values") and columns != config.v_dim:
            raise ConfigError(
                f"position = {config.position.key} adds vectors of size {config.v_dim} to the values, "
                f"and V has {columns} columns; give V as many columns as K, or take position = none."
            )
        q, k, v = source.matrices.tensors()
        return layer.attend_heads(q, k, v, key_mask=key_mask)


@dataclass(frozen=True, eq=False)
class Projected:
    """One head's projection without biases: q = x · w[0], k = x · w[1], v = x · w[2]; x (T, C), each w (C, D)."""

    x: np.ndarray
    w: tuple[np.ndarray, np.ndarray, np.ndarray]


@torch.inference_mode()
def projected(
    config: AttentionConfig, source: Source, seed: int, head: int, steps: Steps
) -> Projected | None:
    """What a head's query, key and value are made of; None where they are more than one matrix times x."""
    projection = seeded_layer(config, seed).projection
    if source.matrices is not None or not isinstance(projection, MultiHead):
        return None
    x = embed(source.tokens, config.d_model, seed)[0]
    rows = slice(head * config.head_dim, (head + 1) * config.head_dim)
    w = tuple(part.weight[rows].T for part in (projection.query, projection.key, projection.value))
    made = (steps.q[0, head], steps.k[0, head], steps.v[0, head])
    if not all(
        torch.allclose(x @ each, value, atol=1e-5) for each, value in zip(w, made, strict=True)
    ):
        return None  # a position added to x or rotated q and k, or the score scaled them
    return Projected(x.numpy(), tuple(each.numpy() for each in w))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scaling:
    """One size: variance of the scores and mean entropy of the rows (nats), and the mean of each row's largest weight.

    Each for the dot product alone and divided by √D.
    """

    dims: int
    variance: float
    scaled_variance: float
    entropy: float
    scaled_entropy: float
    largest: float
    scaled_largest: float


def measure_scaling(seed: int) -> tuple[Scaling, ...]:
    """64 standard normal queries against 64 such keys at each D from 1 to 512."""
    generator = seeded_generator(seed, "scaling")
    return tuple(_scaling(dims, generator) for dims in DIMS)


def _scaling(dims: int, generator: torch.Generator) -> Scaling:
    q, k = (torch.randn(1, 1, rows, dims, generator=generator) for rows in (QUERIES, KEYS))
    both = attend(q, k, k, scale=1.0), attend(q, k, k)
    entropies = (
        float(torch.special.entr(steps.weights).sum(-1).mean()) for steps in both
    )  # 0 · ln 0 = 0
    largest = (float(steps.weights.max(-1).values.mean()) for steps in both)
    return Scaling(dims, *(float(steps.scores.var()) for steps in both), *entropies, *largest)
