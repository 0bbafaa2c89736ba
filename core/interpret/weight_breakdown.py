"""The queries, keys and values of a layer, and one weight broken down: products, score, row and contribution."""

import inspect
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.interpret.trace import Kind, to_numpy
from core.pretrained.attention_recorder import AttentionCall, bool_mask
from core.pretrained.base import ModelInputs, Pretrained, reject_if
from core.pretrained.maps import allowed_of
from core.pretrained.reading import encode, forward

Vector = Float[np.ndarray, " D"]
Row = Float[np.ndarray, " S"]


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """The inputs of one layer's attention by head; H query heads share G key and value heads.

    `unrotated_q` and `unrotated_k` are None where the family does not rotate, `softcap` and `sinks` where it has none.
    `bias` is added to the scaled scores; `sinks` are the scores of a sink at each row, or at all.
    """

    kind: Kind
    layer: int
    q: Float[Tensor, "H T D"]
    k: Float[Tensor, "G S D"]
    v: Float[Tensor, "G S E"]
    scale: float
    unrotated_q: Float[Tensor, "H T D"] | None = None
    unrotated_k: Float[Tensor, "G S D"] | None = None
    bias: Float[Tensor, "#H T S"] | None = None
    softcap: float | None = None
    allowed: Bool[Tensor, "#H #T S"] | None = None
    sinks: Float[Tensor, " H #T"] | None = None

    def kv_group(self, head: int) -> tuple[int, list[int]]:
        """The key and value head of a query head, and all query heads that share it."""
        each = len(self.q) // len(self.k)
        group = head // each
        return group, list(range(group * each, (group + 1) * each))


@dataclass(frozen=True, eq=False)
class WeightBreakdown:
    """Every intermediate value of one weight; rows run over all keys.

    `products` are q·k by dimension, `dot` their sum. `scores` are the input of the softmax, −inf where masked;
    `weights`, computed from them, equal the model's to 1e-6. `value` is the key's v, `out` the head's output.
    """

    q: Vector
    k: Vector
    products: Vector
    dot: float
    scale: float
    bias: float | None
    capped: float | None
    score: float
    allowed: bool
    scores: Row
    weights: Row
    sink: float | None
    value: Float[np.ndarray, " E"]
    out: Float[np.ndarray, " E"]
    unrotated_q: Vector | None
    unrotated_k: Vector | None
    key: int

    @property
    def weight(self) -> float:
        return float(self.weights[self.key])

    @property
    def contribution(self) -> Float[np.ndarray, " E"]:
        """The weight's contribution to the head's output: α·v."""
        return self.value * self.weights[self.key]


def layer_attentions(pretrained: Pretrained, inputs: ModelInputs) -> tuple[LayerAttention, ...]:
    """The q, k, v, scale, bias and mask of each layer, in map order; PretrainedError where none is recorded."""
    batch, *_ = encode(pretrained, inputs)
    _, recorder = forward(pretrained, batch, with_qkv=True)
    reject_if(
        not recorder.calls, f"{pretrained.name} has no layer whose queries and keys can be read."
    )
    with torch.no_grad():
        return tuple(_layer(pretrained.model, call) for call in recorder.calls)


def find_layer(layers: Sequence[LayerAttention], kind: Kind, layer: int) -> LayerAttention:
    """The layer of that kind and index."""
    return next(one for one in layers if (one.kind, one.layer) == (kind, layer))


def break_down_weight(layer: LayerAttention, head: int, query: int, key: int) -> WeightBreakdown:
    """Break one weight of a layer down. ValueError when there is no such head, query or key."""
    heads, rows, columns = len(layer.q), layer.q.shape[1], layer.k.shape[1]
    if not (0 <= head < heads and 0 <= query < rows and 0 <= key < columns):
        raise ValueError(
            f"head {head}, query {query}, key {key} is not in this layer; it has {heads} heads, {rows} "
            f"queries and {columns} keys."
        )
    group, _ = layer.kv_group(head)
    q, keys, values = layer.q[head, query], layer.k[group], layer.v[group]
    biased = q @ keys.mT * layer.scale
    bias = None if layer.bias is None else layer.bias.expand(heads, -1, -1)[head, query]
    if bias is not None:
        biased = biased + bias
    scores = biased if layer.softcap is None else layer.softcap * torch.tanh(biased / layer.softcap)
    allowed = torch.ones(columns, dtype=torch.bool)
    if layer.allowed is not None:
        allowed = layer.allowed.expand(heads, rows, columns)[head, query]
    scores = scores.masked_fill(~allowed, -torch.inf)
    sink = None if layer.sinks is None else layer.sinks.expand(-1, rows)[head, query]
    weights = (scores if sink is None else torch.cat([scores, sink[None]])).softmax(-1)[:columns]
    products = q * keys[key]
    return WeightBreakdown(
        to_numpy(q), to_numpy(keys[key]), to_numpy(products), float(products.sum()), layer.scale,
        None if bias is None else float(bias[key]),
        None if layer.softcap is None else float(layer.softcap * torch.tanh(biased[key] / layer.softcap)),
        float(scores[key]), bool(allowed[key]), to_numpy(scores), to_numpy(weights),
        None if sink is None else float(sink), to_numpy(values[key]), to_numpy(weights @ values),
        None if layer.unrotated_q is None else to_numpy(layer.unrotated_q[head, query]),
        None if layer.unrotated_k is None else to_numpy(layer.unrotated_k[group, key]), key)  # fmt: skip


def _layer(model: Any, call: AttentionCall) -> LayerAttention:
    assert call.q is not None and call.k is not None and call.v is not None
    options, keys, bias = call.options, call.k.shape[2], call.options.get("position_bias")
    if call.mask is not None and call.mask.dtype != torch.bool:
        # What a mask adds to the scores that it lets through, as Doge's does
        mask = call.mask[..., :keys]
        added = mask.masked_fill(~bool_mask(mask), 0)
        bias = added if bias is None else bias + added
    scale = options.get("scaling")
    # One of each head, or of each row (B, H, T, 1)
    sinks = options.get("sinks", getattr(call.module, "sinks", None))
    # q and k before rotation, by the family's own rotation function with the sign of the sine changed; None where the
    # family has no rotation, or where its code rotates only a part of q and k
    back: tuple[Tensor | None, Tensor | None] = None, None
    module, q = call.module, call.q
    rotate = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
    angles = [one for one in model.modules() if type(one).__name__.endswith("RotaryEmbedding")]
    if rotate is not None and len(angles) == 1 and call.kind != "cross":
        with suppress(RuntimeError, TypeError, AttributeError, KeyError):
            typed = "layer_type" in inspect.signature(angles[0].forward).parameters
            types = [module.config.layer_types[module.layer_idx]] if typed else []
            cos, sin = angles[0](q, torch.arange(q.shape[2])[None], *types)
            # Above 1 where a family also scales (YaRN)
            stretch = cos[0, 0].square() + sin[0, 0].square()
            before_q, before_k = rotate(q, call.k, cos / stretch, -sin / stretch)
            back = before_q[0].cpu(), before_k[0].cpu()
    return LayerAttention(
        call.kind,
        call.layer,
        q[0],
        call.k[0],
        call.v[0],
        q.shape[-1] ** -0.5 if scale is None else float(scale),
        *back,
        None if bias is None or not bool(bias[0].any()) else bias[0],
        options.get("softcap"),
        allowed_of(call.mask, keys),
        None if sinks is None else sinks.detach().cpu().reshape(q.shape[1], -1),
    )
