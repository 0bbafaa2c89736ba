"""What is measured for the page: the same numbers split into heads, what is kept of a token, two maps and their λ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core import analysis
from core.attention import Attention, AttentionConfig, Choice, Steps
from core.attention.projections import Differential, GroupedQuery, MultiHead
from dashboard.runtime.seeding import seeded_layer, seeded_normal
from dashboard.runtime.tokens import embed


@dataclass(frozen=True, eq=False)
class Split:
    """One layer's numbers as H heads: weights (H, T, T), and what they measure."""

    heads: int
    parameters: int
    weights: np.ndarray
    entropy: float  # of a row, nats, mean of all heads
    distance: float
    alike: float | None  # the share of weight that two heads have in common, mean of all pairs; None for one head

    @property
    def overlap(self) -> np.ndarray:
        return analysis.overlap(self.weights)


@torch.inference_mode()
def attend(layer: Attention, tokens: tuple[str, ...], seed: int) -> Steps:
    return layer(embed(tokens, layer.config.d_model, seed))


def numbers(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def split(tokens: tuple[str, ...], d_model: int, heads: int, seed: int) -> Split:
    """The same maps W_q, W_k, W_v, W_o, cut into that many heads."""
    layer = seeded_layer(AttentionConfig(d_model, heads), seed)
    weights = attend(layer, tokens, seed).weights[0].numpy()
    return Split(heads, numbers(layer), weights, float(analysis.entropy(weights).mean()),
                 float(analysis.mean_distance(weights).mean()), alike(weights))


def alike(weights: np.ndarray) -> float | None:
    pairs = analysis.overlap(weights)[np.triu_indices(len(weights), 1)]
    return float(pairs.mean()) if pairs.size else None


@dataclass(frozen=True, eq=False)
class Kept:
    """One way to hold keys and values: its map, its parameters, and what a decoder keeps."""

    config: AttentionConfig
    weights: np.ndarray  # (H, T, T)
    parameters: int
    alike: float | None
    bytes: int  # of the tensors that are kept of `length` tokens, fp32, as they lie in memory

    @property
    def numbers(self) -> int:
        """Kept of each token, in closed form."""
        return self.config.sizes.cache


def ways(d_model: int, heads: int, kv_heads: int, latent: int) -> tuple[AttentionConfig, ...]:
    """Multi-head, grouped-query, multi-query and latent attention at one size; the last's turned key is half a head."""
    turned = max(2, d_model // heads // 4 * 2)
    return tuple(AttentionConfig(d_model, heads, choice) for choice in (
        Choice("multi_head"), Choice.of("grouped_query", kv_heads=kv_heads), Choice("multi_query"),
        Choice.of("latent", latent=latent, rope=turned)))


def layer_of(config: AttentionConfig, seed: int) -> Attention:
    """The seeded layer; shared keys are the means of the multi-head layer's, so that both can be held side by side."""
    if config.projection.key not in ("grouped_query", "multi_query"):
        return seeded_layer(config, seed)
    many = seeded_layer(AttentionConfig(config.d_model, config.num_heads), seed).projection
    assert isinstance(many, MultiHead)
    layer = Attention(config).eval().requires_grad_(False)
    layer.projection = GroupedQuery.pooled(many, config.kv_heads).requires_grad_(False)
    return layer


@torch.inference_mode()
def kept(config: AttentionConfig, tokens: tuple[str, ...], seed: int, length: int) -> Kept:
    """Attend to the words, and hold what a decoder keeps of `length` tokens to weigh it."""
    layer = layer_of(config, seed)
    weights = attend(layer, tokens, seed).weights[0].numpy()
    held = layer.projection.cached(seeded_normal(1, length, config.d_model, seed=seed, name="context"))
    return Kept(config, weights, numbers(layer), alike(weights), sum(part.untyped_storage().nbytes() for part in held))


@dataclass(frozen=True, eq=False)
class Subtracted:
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


def subtracted(tokens: tuple[str, ...], d_model: int, heads: int, seed: int, head: int, depth: int) -> Subtracted:
    config = AttentionConfig(d_model, heads, Choice.of("differential", depth=depth))
    layer = seeded_layer(config, seed)
    assert isinstance(layer.projection, Differential)
    steps = attend(layer, tokens, seed)
    first, second = steps.normalized[0, 2 * head].numpy(), steps.normalized[0, 2 * head + 1].numpy()
    return Subtracted(first, second, float(layer.projection.weight()), layer.projection.start)
