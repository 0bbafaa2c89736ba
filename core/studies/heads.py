"""The same parameters split into heads, the key-value cache of four projections, and two maps with their λ.

Each of a random layer, and of the queries, keys and values of a layer of MiniLM; those on MINILM_TEXT are saved.
`python -m core.studies.heads` saves them again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice, LayerSteps, attend as attend_heads
from core.attention.basics import MultiHead
from core.attention.projections.combined import Differential, lambda_init
from core.interpret import trace as analysis
from core.pretrained import Pretrained, layer_qkv, load_minilm
from core.pretrained.load import MINILM, MINILM_SHA256
from core.seeding import pooled_layer, seeded_layer, seeded_normal
from core.tokens import embed

MINILM_LAYERS, MINILM_HEADS, MINILM_WIDTH = 6, 12, 384
MINILM_TEXT = "The animal didn't cross the street because it was too tired."
SAVED = Path(__file__).with_name("data") / "heads" / "minilm.safetensors"  # of MINILM_TEXT


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


@dataclass(frozen=True, eq=False)
class QKV:
    """The queries, keys and values of one layer by head, and the tokens, with [CLS] first and [SEP] last."""

    tokens: tuple[str, ...]
    q: Float[Tensor, "H T D"]
    k: Float[Tensor, "H T D"]
    v: Float[Tensor, "H T D"]
    lengths: Float[np.ndarray, "H T"]  # of what each head adds to each token's new vector

    @property
    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each as (1, H, T, D)."""
        return self.q[None], self.k[None], self.v[None]


def saved_qkv(layer: int) -> QKV:
    """The queries, keys and values of a layer of MiniLM on MINILM_TEXT."""
    with safe_open(SAVED, "pt") as file:
        tokens = tuple(json.loads(file.metadata()["tokens"]))
        q, k, v, lengths = (file.get_slice(name)[layer] for name in ("q", "k", "v", "lengths"))
        return QKV(tokens, q, k, v, lengths.numpy())


@torch.inference_mode()
def read_qkv(model: Pretrained, text: str, layer: int) -> QKV:
    """The same on any text, by running the model; PretrainedError when it cannot read the text."""
    result = layer_qkv(model, text, layer)
    w_o = model.model.encoder.layer[layer].attention.output.dense.weight
    out = attend_heads(result.q, result.k, result.v).out[0]
    lengths = head_parts(out, w_o).norm(dim=-1).numpy()
    return QKV(result.tokens, result.q[0], result.k[0], result.v[0], lengths)


def saved_on() -> str:
    """The date on which the saved arrays were made."""
    with safe_open(SAVED, "pt") as file:
        return str(file.metadata()["date"])


@torch.inference_mode()
def split_trained(qkv: QKV, heads: int) -> Split:
    """MiniLM's queries and keys as that many heads; 12 are what the model was trained with."""
    parts = (rearrange(part, "1 h t d -> t (h d)") for part in qkv.batch)
    q, k, v = (rearrange(part, "t (h d) -> 1 h t d", h=heads) for part in parts)
    weights = attend_heads(q, k, v).weights[0].numpy()
    return Split(
        heads,
        4 * (MINILM_WIDTH * MINILM_WIDTH + MINILM_WIDTH),
        weights,
        float(analysis.entropy(weights).mean()),
        float(analysis.mean_distance(weights).mean()),
        mean_overlap(weights),
    )


@torch.inference_mode()
def share_trained(qkv: QKV, config: AttentionConfig, seed: int, length: int) -> CacheSize:
    """The cache of a layer of MiniLM's size, and its maps: groups of heads share the mean of their keys.

    Latent attention has weights of its own, which are random here.
    """
    result = cache_size(config, qkv.tokens, seed, length)
    if config.projection.key == "latent":
        return result
    q, k, v = qkv.batch
    groups = config.kv_heads
    k, v = (rearrange(part, "b (g n) t d -> b g n t d", g=groups).mean(2) for part in (k, v))
    weights = attend_heads(q, k, v).weights[0].numpy()
    return replace(result, weights=weights, overlap=mean_overlap(weights))


@torch.inference_mode()
def two_maps_trained(qkv: QKV, head: int, depth: int) -> TwoMaps:
    """One head's map from the first half of its query and key, and one from the second; λ as training starts it."""
    q, k, v = (part[:, head : head + 1] for part in qkv.batch)
    first, second = (
        attend_heads(*halves, v).weights[0, 0].numpy()
        for halves in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    )
    start = lambda_init(depth)
    return TwoMaps(first, second, start, start)


def main() -> None:
    """Save q, k and v, each (layers, heads, tokens, head size), what each head adds, and where they come from."""
    model = load_minilm()
    layers = [read_qkv(model, MINILM_TEXT, layer) for layer in range(MINILM_LAYERS)]
    tensors = {
        name: torch.stack([getattr(layer, name) for layer in layers]).contiguous() for name in "qkv"
    }
    tensors["lengths"] = torch.from_numpy(np.stack([layer.lengths for layer in layers]))
    metadata = {
        "tokens": json.dumps(layers[0].tokens),
        "text": MINILM_TEXT,
        "model": MINILM,
        "sha256": MINILM_SHA256,
        "date": datetime.now(UTC).date().isoformat(),
    }
    save_file(tensors, SAVED, metadata=metadata)


if __name__ == "__main__":
    main()
