"""MiniLM's own queries, keys and values of one layer, as one head and as twelve, shared, and in two maps."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from core.attention import AttentionConfig, attend
from core.attention.projections.combined import lambda_init
from core.interpret import trace as analysis
from core.pretrained import Pretrained, layer_qkv
from core.studies import heads
from core.studies.heads import CacheSize, Split, TwoMaps, head_parts, mean_overlap
from dashboard.server.cache import cached, shared
from dashboard.widgets.model_picker import EMBEDDED, load_model

LAYERS, HEADS, D_MODEL = 6, 12, 384
TEXT = "The animal didn't cross the street because it was too tired."
SAVED = Path(__file__).with_name(
    "minilm.safetensors"
)  # of TEXT; made by dashboard.views.heads.example


@dataclass(frozen=True, eq=False)
class QKV:
    """The queries, keys and values of one layer by head, and the tokens, with [CLS] first and [SEP] last."""

    tokens: tuple[str, ...]
    q: Float[Tensor, "H T D"]
    k: Float[Tensor, "H T D"]
    v: Float[Tensor, "H T D"]

    @property
    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each as (1, H, T, D)."""
        return self.q[None], self.k[None], self.v[None]


def read_qkv(text: str, layer: int) -> QKV:
    """The layer's queries, keys and values on a text: saved ones of TEXT, else by running the model.

    PretrainedError when the model cannot be loaded or read the text.
    """
    return shared(_saved_qkv if text == TEXT else _computed_qkv, text, layer)


def _saved_qkv(text: str, layer: int) -> QKV:
    with safe_open(SAVED, "pt") as file:
        tokens = tuple(json.loads(file.metadata()["tokens"]))
        return QKV(tokens, *(file.get_slice(name)[layer] for name in "qkv"))


def _computed_qkv(text: str, layer: int) -> QKV:
    result = layer_qkv(load_model(EMBEDDED), text, layer)
    return QKV(result.tokens, result.q[0], result.k[0], result.v[0])


def saved_on() -> str:
    """The date on which the saved arrays were made."""
    with safe_open(SAVED, "pt") as file:
        return str(file.metadata()["date"])


@torch.inference_mode()
def split(text: str, layer: int, heads: int) -> Split:
    """The layer's queries and keys as that many heads; 12 are what the model was trained with."""
    parts = (rearrange(part, "1 h t d -> t (h d)") for part in read_qkv(text, layer).batch)
    q, k, v = (rearrange(part, "t (h d) -> 1 h t d", h=heads) for part in parts)
    weights = attend(q, k, v).weights[0].numpy()
    return Split(
        heads,
        4 * (D_MODEL * D_MODEL + D_MODEL),
        weights,
        float(analysis.entropy(weights).mean()),
        float(analysis.mean_distance(weights).mean()),
        mean_overlap(weights),
    )


@torch.inference_mode()
def lengths(text: str, layer: int) -> np.ndarray:
    """The length of what each head adds to each token's new vector, (H, T); saved of TEXT."""
    if text == TEXT:
        with safe_open(SAVED, "pt") as file:
            return file.get_slice("lengths")[layer].numpy()
    return computed_lengths(read_qkv(text, layer), load_model(EMBEDDED), layer)


def computed_lengths(qkv: QKV, model: Pretrained, layer: int) -> np.ndarray:
    """The same from the layer's queries, keys and values and the model's W_o."""
    w_o = model.model.encoder.layer[layer].attention.output.dense.weight
    return head_parts(attend(*qkv.batch).out[0], w_o).norm(dim=-1).detach().numpy()


@torch.inference_mode()
def cache_size(config: AttentionConfig, text: str, layer: int, seed: int, length: int) -> CacheSize:
    """The cache of a layer of MiniLM's size, and its maps: groups of heads share the mean of their keys.

    Latent attention has weights of its own, which are random here.
    """
    qkv = read_qkv(text, layer)
    result = cached(heads.cache_size, config, qkv.tokens, seed, length)
    if config.projection.key == "latent":
        return result
    q, k, v = qkv.batch
    groups = config.kv_heads
    k, v = (rearrange(part, "b (g n) t d -> b g n t d", g=groups).mean(2) for part in (k, v))
    weights = attend(q, k, v).weights[0].numpy()
    return replace(result, weights=weights, overlap=mean_overlap(weights))


@torch.inference_mode()
def two_maps(text: str, layer: int, head: int, depth: int) -> TwoMaps:
    """One head's map from the first half of its query and key, and one from the second; λ as training starts it."""
    q, k, v = (part[:, head : head + 1] for part in read_qkv(text, layer).batch)
    first, second = (
        attend(*halves, v).weights[0, 0].numpy()
        for halves in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    )
    start = lambda_init(depth)
    return TwoMaps(first, second, start, start)
