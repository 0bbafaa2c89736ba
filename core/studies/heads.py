"""The same parameters split into heads, the key-value cache of four projections, and two maps with their λ.

Each of the queries, keys and values of a random layer or of a layer of MiniLM; those on MINILM_TEXT are saved.
`make heads` saves them again.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from core.attention import AttentionConfig, Choice, attend
from core.attention.basics import MultiHead
from core.attention.projections.combined import Differential
from core.interpret import trace as analysis
from core.pretrained import Pretrained, layer_qkv, load_minilm
from core.pretrained.load import MINILM, MINILM_SHA256
from core.seeding import pooled_layer, seeded_layer, seeded_normal
from core.tokens import embed

MINILM_LAYERS, MINILM_HEADS, MINILM_WIDTH = 6, 12, 384
MINILM_TEXT = "The animal didn't cross the street because it was too tired."
SAVED = Path(__file__).with_name("data") / "heads" / "minilm.safetensors"  # of MINILM_TEXT


@dataclass(frozen=True, eq=False)
class QKV:
    """The queries, keys and values of one layer on a text, by head.

    MiniLM's tokens have [CLS] first and [SEP] last.
    """

    tokens: tuple[str, ...]
    q: Float[Tensor, "1 H T D"]
    k: Float[Tensor, "1 H T D"]
    v: Float[Tensor, "1 H T D"]
    lengths: Float[np.ndarray, "H T"]  # of what each head adds to each token's new vector


@torch.inference_mode()
def random_qkv(tokens: tuple[str, ...], d_model: int, heads: int, seed: int) -> QKV:
    """Those of a multi-head layer with seeded weights, on seeded word vectors."""
    layer = seeded_layer(AttentionConfig(d_model, heads), seed)
    assert isinstance(layer.projection, MultiHead)
    steps = layer(embed(tokens, d_model, seed))
    return QKV(
        tokens,
        steps.q,
        steps.k,
        steps.v,
        head_parts(steps.out[0], layer.projection.output.weight).norm(dim=-1).numpy(),
    )


def saved_qkv(layer: int) -> QKV:
    """Those of a layer of MiniLM on MINILM_TEXT, as saved."""
    with safe_open(SAVED, "pt") as file:
        q, k, v, lengths = (file.get_slice(name)[layer] for name in ("q", "k", "v", "lengths"))
        return QKV(
            tuple(json.loads(file.metadata()["tokens"])), q[None], k[None], v[None], lengths.numpy()
        )


@torch.inference_mode()
def read_qkv(model: Pretrained, text: str, layer: int) -> QKV:
    """Those of a layer of MiniLM on any text; PretrainedError when it cannot read the text."""
    read = layer_qkv(model, text, layer)
    parts = head_parts(
        attend(read.q, read.k, read.v).out[0],
        model.model.encoder.layer[layer].attention.output.dense.weight,
    )
    return QKV(read.tokens, read.q, read.k, read.v, parts.norm(dim=-1).numpy())


def head_parts(out: Float[Tensor, "H T D"], w_o: Float[Tensor, "C HD"]) -> Float[Tensor, "H T C"]:
    """What each head adds to each word's new vector: its output times its D rows of W_o, as PyTorch stores it.

    The sum over the heads, with the bias, is the layer's output.
    """
    return torch.einsum("htd,hcd->htc", out, rearrange(w_o, "c (h d) -> h c d", h=len(out)))


def saved_on() -> str:
    """The date on which the saved arrays were made."""
    with safe_open(SAVED, "pt") as file:
        return str(file.metadata()["date"])


@dataclass(frozen=True, eq=False)
class Split:
    """One layer as H heads: weights (H, T, T), and their measures."""

    heads: int
    parameters: int
    weights: np.ndarray
    entropy: float  # of a row, nats, mean of all heads
    distance: float
    overlap: float | None  # of two heads, mean of all pairs; None for one head


@torch.inference_mode()
def split(qkv: QKV, heads: int) -> Split:
    """The same W_q, W_k, W_v and W_o cut into that many heads; MiniLM was trained with 12."""
    q, k, v = (
        rearrange(rearrange(part, "1 h t d -> t (h d)"), "t (h d) -> 1 h t d", h=heads)
        for part in (qkv.q, qkv.k, qkv.v)
    )
    weights, d_model = attend(q, k, v).weights[0].numpy(), heads * q.shape[-1]
    return Split(
        heads,
        4 * (d_model * d_model + d_model),
        weights,
        float(analysis.entropy(weights).mean()),
        float(analysis.mean_distance(weights).mean()),
        mean_overlap(weights),
    )


def mean_overlap(weights: np.ndarray) -> float | None:
    """The share of weight that two heads have in common, mean of all pairs; None for one head."""
    pairs = analysis.overlap(weights)[np.triu_indices(len(weights), 1)]
    return float(pairs.mean()) if pairs.size else None


def most_different(weights: np.ndarray, count: int = 3) -> tuple[int, ...]:
    """The heads of (H, T, T) whose weights have the least in common, by the overlap of their pairs."""
    shares = analysis.overlap(weights)
    choices = combinations(range(len(weights)), min(count, len(weights)))
    return min(choices, key=lambda heads: sum(shares[pair] for pair in combinations(heads, 2)))


@dataclass(frozen=True, eq=False)
class CacheSize:
    """A projection's weights and parameters, and the size of a decoder's cache of keys and values.

    In closed form, `config.sizes.cache` numbers are cached for each token.
    """

    config: AttentionConfig
    weights: np.ndarray  # (H, T, T)
    parameters: int
    overlap: float | None
    bytes: int  # of the tensors cached for `length` tokens, fp32, as they lie in memory


def projections(
    d_model: int, heads: int, kv_heads: int, latent: int
) -> tuple[AttentionConfig, ...]:
    """Multi-head, grouped-query, multi-query and latent attention; the last's rotated key is half a head."""
    return tuple(
        AttentionConfig(d_model, heads, choice)
        for choice in (
            Choice("multi_head"),
            Choice.of("grouped_query", kv_heads=kv_heads),
            Choice("multi_query"),
            Choice.of("latent", latent=latent, rope=max(2, d_model // heads // 4 * 2)),
        )
    )


@torch.inference_mode()
def share(qkv: QKV, config: AttentionConfig, seed: int, length: int) -> CacheSize:
    """The maps of a projection, and what a decoder caches with it for `length` random tokens, measured.

    Groups of heads share the mean of their keys and values; latent attention has random weights of its own.
    """
    layer = pooled_layer(config, seed)
    if config.projection.key == "latent":
        weights = layer(embed(qkv.tokens, config.d_model, seed)).weights
    else:
        k, v = (
            rearrange(part, "b (g n) t d -> b g n t d", g=config.kv_heads).mean(2)
            for part in (qkv.k, qkv.v)
        )
        weights = attend(qkv.q, k, v).weights
    context = seeded_normal(1, length, config.d_model, seed=seed, name="context")
    return CacheSize(
        config,
        weights[0].numpy(),
        sum(weight.numel() for weight in layer.parameters()),
        mean_overlap(weights[0].numpy()),
        sum(part.untyped_storage().nbytes() for part in layer.projection.cached(context)),
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


@torch.inference_mode()
def two_maps(qkv: QKV, head: int, depth: int, seed: int | None = None) -> TwoMaps:
    """One head's map from the first half of its query and key, and one from the second.

    λ is that of a layer with seeded weights, without a seed as training starts it; ConfigError for an odd head size.
    """
    _, heads, _, size = qkv.q.shape
    q, k, v = (part[:, head : head + 1] for part in (qkv.q, qkv.k, qkv.v))
    first, second = (
        attend(*halves, v).weights[0, 0].numpy()
        for halves in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    )
    projection = seeded_layer(
        AttentionConfig(heads * size, heads, Choice.of("differential", depth=depth)),
        0 if seed is None else seed,
    ).projection
    assert isinstance(projection, Differential)
    weight = projection.start if seed is None else float(projection.weight())
    return TwoMaps(first, second, weight, projection.start)


def main() -> None:
    """Save q, k and v, each (layers, heads, tokens, head size), what each head adds, and where they come from."""
    model = load_minilm()
    layers = [read_qkv(model, MINILM_TEXT, layer) for layer in range(MINILM_LAYERS)]
    tensors = {
        name: torch.cat([getattr(layer, name) for layer in layers]).contiguous() for name in "qkv"
    } | {"lengths": torch.from_numpy(np.stack([layer.lengths for layer in layers]))}
    save_file(
        tensors,
        SAVED,
        metadata={
            "tokens": json.dumps(layers[0].tokens),
            "text": MINILM_TEXT,
            "model": MINILM,
            "sha256": MINILM_SHA256,
            "date": datetime.now(UTC).date().isoformat(),
        },
    )
