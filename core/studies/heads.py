"""The same parameters split into heads, the key-value cache of four projections, and two maps with their λ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange

from core.attention import Attention, AttentionConfig, Choice, LayerSteps
from core.attention.basics import MultiHead
from core.attention.projections.combined import Differential
from core.interpret import trace as analysis
from core.seeding import pooled_layer, seeded_layer, seeded_normal
from core.tokens import embed


@dataclass(frozen=True, eq=False)
class Split:
    """One layer as H heads: weights (H, T, T), and their measures."""

    heads: int
    parameters: int
    weights: np.ndarray
    entropy: float  # of a row, nats, mean of all heads
    distance: float
    overlap: (
        float | None
    )  # the share of weight that two heads have in common, mean of all pairs; None for one head


@torch.inference_mode()
def attend(layer: Attention, tokens: tuple[str, ...], seed: int) -> LayerSteps:
    return layer(embed(tokens, layer.config.d_model, seed))


def parameter_count(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def split(tokens: tuple[str, ...], d_model: int, heads: int, seed: int) -> Split:
    """The same W_q, W_k, W_v, W_o cut into that many heads."""
    layer = seeded_layer(AttentionConfig(d_model, heads), seed)
    weights = attend(layer, tokens, seed).weights[0].numpy()
    return Split(
        heads,
        parameter_count(layer),
        weights,
        float(analysis.entropy(weights).mean()),
        float(analysis.mean_distance(weights).mean()),
        mean_overlap(weights),
    )


def head_parts(out: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    """What each head adds to each word's new vector, (H, T, C): its output (H, T, D) times its D rows of W_o.

    `w_o` is as PyTorch stores it, (C, H·D). The sum over the heads, with the bias, is the layer's output.
    """
    return torch.einsum("htd,hcd->htc", out, rearrange(w_o, "c (h d) -> h c d", h=len(out)))


@torch.inference_mode()
def lengths(tokens: tuple[str, ...], d_model: int, heads: int, seed: int) -> np.ndarray:
    """The length of what each head adds to each word's new vector, (H, T)."""
    layer = seeded_layer(AttentionConfig(d_model, heads), seed)
    assert isinstance(layer.projection, MultiHead)
    return (
        head_parts(attend(layer, tokens, seed).out[0], layer.projection.output.weight)
        .norm(dim=-1)
        .numpy()
    )


def mean_overlap(weights: np.ndarray) -> float | None:
    pairs = analysis.overlap(weights)[np.triu_indices(len(weights), 1)]
    return float(pairs.mean()) if pairs.size else None


@dataclass(frozen=True, eq=False)
class CacheSize:
    """A projection's weights and parameters, and the size of a decoder's cache of keys and values."""

    config: AttentionConfig
    weights: np.ndarray  # (H, T, T)
    parameters: int
    overlap: float | None
    bytes: int  # of the tensors cached for `length` tokens, fp32, as they lie in memory

    @property
    def numbers(self) -> int:
        """Cached for each token, in closed form."""
        return self.config.sizes.cache


def projections(
    d_model: int, heads: int, kv_heads: int, latent: int
) -> tuple[AttentionConfig, ...]:
    """Multi-head, grouped-query, multi-query and latent attention; the last's rotated key is half a head."""
    rotated = max(2, d_model // heads // 4 * 2)
    return tuple(
        AttentionConfig(d_model, heads, choice)
        for choice in (
            Choice("multi_head"),
            Choice.of("grouped_query", kv_heads=kv_heads),
            Choice("multi_query"),
            Choice.of("latent", latent=latent, rope=rotated),
        )
    )


@torch.inference_mode()
def cache_size(
    config: AttentionConfig, tokens: tuple[str, ...], seed: int, length: int
) -> CacheSize:
    """Attend to the words, and measure what a decoder caches for `length` random tokens."""
    layer = pooled_layer(config, seed)
    weights = attend(layer, tokens, seed).weights[0].numpy()
    cache = layer.projection.cached(
        seeded_normal(1, length, config.d_model, seed=seed, name="context")
    )
    return CacheSize(
        config,
        weights,
        parameter_count(layer),
        mean_overlap(weights),
        sum(part.untyped_storage().nbytes() for part in cache),
    )


@dataclass(frozen=True, eq=False)
class TwoMaps:
    """One head of differential attention: its two maps (T, T), λ, and λ at the start of training."""

    first: np.ndarray
    second: np.ndarray
    weight: float
    start: float

    @property
    def difference(self) -> np.ndarray:
        return self.first - self.weight * self.second

    @property
    def common(self) -> float:
        """The share of weight that both maps put on the same keys."""
        return float(analysis.overlap(np.stack((self.first, self.second)))[0, 1])


def two_maps(
    tokens: tuple[str, ...], d_model: int, heads: int, seed: int, head: int, depth: int
) -> TwoMaps:
    config = AttentionConfig(d_model, heads, Choice.of("differential", depth=depth))
    layer = seeded_layer(config, seed)
    assert isinstance(layer.projection, Differential)
    steps = attend(layer, tokens, seed)
    assert steps.normalized is not None
    first, second = steps.normalized[0, 2 * head].numpy(), steps.normalized[0, 2 * head + 1].numpy()
    return TwoMaps(first, second, float(layer.projection.weight()), layer.projection.start)
