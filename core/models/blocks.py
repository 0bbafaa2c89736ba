"""The layers of a Transformer (Vaswani 2017), post-norm as published or pre-norm (Xiong 2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from core.attention import Attention, AttentionConfig, Cache, Steps, entry
from core.entries import Choice, ConfigError
from core.models.config import ModelConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swiglu": F.silu,
}


def normalization(config: ModelConfig) -> nn.Module:
    """LayerNorm (Ba 2016), or RMSNorm (Zhang & Sennrich 2019), which neither centres nor shifts."""
    return (
        nn.LayerNorm(config.d_model)
        if config.normalization == "layer"
        else nn.RMSNorm(config.d_model, eps=1e-6)
    )


def final_norm(config: ModelConfig) -> nn.Module:
    """The norm at the end of a pre-norm stack."""
    return normalization(config) if config.norm == "pre" else nn.Identity()


def dropout(config: ModelConfig) -> nn.Module | None:
    """Dropout, or None where its share is 0."""
    return nn.Dropout(config.dropout) if config.dropout else None


class FeedForward(nn.Module):
    """W₂ act(W₁x), at each position alone. Vaswani 2017, section 3.3. SwiGLU is W₂ (silu(W₁x) · W₃x), with the same
    inner width: half as many weights again. Shazeer 2020, section 2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner, self.outer = (
            nn.Linear(config.d_model, config.d_ff),
            nn.Linear(config.d_ff, config.d_model),
        )
        self.gate = (
            nn.Linear(config.d_model, config.d_ff) if config.activation == "swiglu" else None
        )
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = dropout(config)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        inner = self.activation(self.inner(x))
        inner = inner if self.gate is None else inner * self.gate(x)
        return self.outer(inner if self.dropout is None else self.dropout(inner))


class Residual(nn.Module):
    """norm(x + f(x)) for post, x + f(norm(x)) for pre."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.pre = normalization(config), config.norm == "pre"
        self.dropout = dropout(config)

    def enter(self, x: Tensor) -> Tensor:
        """The input of the sublayer."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, change: Tensor) -> Tensor:
        """The block's output, from its input and the sublayer's output."""
        x = x + (change if self.dropout is None else self.dropout(change))
        return x if self.pre else self.norm(x)

    def wrap(self, x: Tensor, sublayer: nn.Module) -> Tensor:
        """The block's output for a sublayer that maps x alone."""
        return self.leave(x, sublayer(self.enter(x)))


class NoSublayer(nn.Module):
    """In place of a sublayer that a model does without, and of the residual connection around it."""

    def wrap(self, x: Tensor, sublayer: nn.Module) -> Tensor:
        return x


def feed_forward(config: ModelConfig) -> tuple[nn.Module, Residual | NoSublayer]:
    """A layer's feed-forward network and what is around it; neither does anything with d_ff = 0 (Elhage 2021)."""
    return (FeedForward(config), Residual(config)) if config.d_ff else (NoSublayer(), NoSublayer())


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.attention = Attention(inner_config(config.layer_attention(layer)), layer=layer)
        self.around_attention = Residual(config)
        self.feed_forward, self.around_feed_forward = feed_forward(config)

    def forward(
        self,
        x: Float[Tensor, "B S C"],
        key_mask: Bool[Tensor, "B S"] | None = None,
        record: bool = False,
        shared: dict[str, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "B S C"], Steps]:
        steps = self.attention(
            self.around_attention.enter(x), key_mask=key_mask, record=record, shared=shared
        )
        assert steps.merged is not None
        x = self.around_attention.leave(x, steps.merged)
        return self.around_feed_forward.wrap(x, self.feed_forward), steps


class CausalLayer(nn.Module):
    """Causal self-attention, then feed-forward: a layer of a decoder-only model. Radford 2018."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        attention = causal_config(config.layer_attention(layer))
        self.causal = Attention(
            attention, takes_kv=config.kv_source(layer) is not None, layer=layer
        )
        self.around_causal = Residual(config)
        self.feed_forward, self.around_feed_forward = feed_forward(config)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Cache | None = None,
        record: bool = False,
        kv: tuple[Tensor, ...] | None = None,
        shared: dict[str, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache, Steps]:
        """x after the layer, what self-attention has stored of all tokens (the next `past`), and its Steps; `kv` are
        another layer's keys and values of all tokens."""
        x, cache, causal = causal_attention(
            self.causal, self.around_causal, x, past, record, kv, shared
        )
        return self.around_feed_forward.wrap(x, self.feed_forward), cache, causal


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        causal, cross = (
            config.layer_attention(layer, "causal"),
            config.layer_attention(layer, "cross"),
        )
        self.causal, self.around_causal = (
            Attention(causal_config(causal), layer=layer),
            Residual(config),
        )
        self.cross, self.around_cross = Attention(cross_config(cross)), Residual(config)
        self.feed_forward, self.around_feed_forward = feed_forward(config)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
        memory_mask: Bool[Tensor, "B S"] | None,
        past: Cache | None = None,
        record: bool = False,
        cross_kv: tuple[Tensor, ...] | None = None,
        shared: dict[str, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache, Steps, Steps]:
        """x after the layer, what self-attention has stored of all tokens (the next `past`), and both Steps;
        `cross_kv` are the memory's keys and values for cross-attention, where they are computed already."""
        offset = 0 if past is None else past.length
        x, cache, causal = causal_attention(
            self.causal, self.around_causal, x, past, record, shared=shared
        )
        cross = self.cross(
            self.around_cross.enter(x),
            memory,
            key_mask=memory_mask,
            offset=offset,
            record=record,
            kv=cross_kv,
        )
        assert cross.merged is not None
        x = self.around_cross.leave(x, cross.merged)
        return self.around_feed_forward.wrap(x, self.feed_forward), cache, causal, cross


def causal_attention(
    attention: Attention,
    around: Residual,
    x: Float[Tensor, "B T C"],
    past: Cache | None,
    record: bool,
    kv: tuple[Tensor, ...] | None = None,
    shared: dict[str, Tensor] | None = None,
) -> tuple[Float[Tensor, "B T C"], Cache, Steps]:
    """x after causal self-attention to `past` and itself, the longer cache, and the Steps."""
    steps, cache = attention.step(around.enter(x), past, record, kv, shared)
    assert steps.merged is not None
    return around.leave(x, steps.merged), cache, steps


def run_layer(layer: nn.Module, recompute: bool, *inputs: Any) -> Any:
    """layer(*inputs); with `recompute` its activations are computed again in the backward pass. Chen 2016."""
    return (
        checkpoint(layer, *inputs, use_reentrant=False)
        if recompute and torch.is_grad_enabled()
        else layer(*inputs)
    )


def inner_config(config: AttentionConfig) -> AttentionConfig:
    """The config of self-attention: positions that are added to x are added once, to the embedding."""
    return (
        config.with_(position="none")
        if entry("position", config.position.key).enters == "x"
        else config
    )


def causal_config(config: AttentionConfig) -> AttentionConfig:
    """The config of the decoder's self-attention: the causal mask and those parts of the config's mask that exist
    while the length is unknown."""
    mask = decoding_mask(config.mask)
    both = "causal" if mask.key in ("none", "causal") else Choice.of("and", Choice("causal"), mask)
    return with_fallback_kernel(inner_config(config), mask=both)


def decoding_mask(mask: Choice) -> Choice:
    """The mask without the parts that read padding (hidden by causal already) or the length of the text, which grows
    while decoding; "none" stands in for each of them."""
    unusable = mask.key == "padding" or "reads length" in entry("mask", mask.key).traits
    if unusable or (mask.key == "not" and decoding_mask(mask.parts[0]) != mask.parts[0]):
        return Choice("none")
    return Choice(mask.key, mask.params, tuple(map(decoding_mask, mask.parts)))


def cross_config(config: AttentionConfig) -> AttentionConfig:
    """The config of cross-attention: without positions, which two sequences do not share, and without a mask; with
    multi-head in place of a projection for one sequence alone."""
    alone = config.has("projection", "one sequence")
    bias = bool(config.projection.kwargs.get("bias", True))
    projection = Choice.of("multi_head", bias=bias) if alone else config.projection
    return with_fallback_kernel(config, position="none", mask="none", projection=projection)


def with_fallback_kernel(config: AttentionConfig, **changes: Choice | str) -> AttentionConfig:
    """The config with those changes, and the exact kernel where its own cannot compute them."""
    try:
        return config.with_(**changes)
    except ConfigError:
        return config.with_(kernel="exact", **changes)


def exact_fallbacks(config: AttentionConfig) -> tuple[str, ...]:
    """The attentions of an encoder–decoder in which the exact kernel replaces the config's."""
    parts = {
        "the decoder's self-attention": causal_config(config),
        "cross-attention": cross_config(config),
    }
    return tuple(name for name, part in parts.items() if part.kernel != config.kernel)


def encoder_masks(config: AttentionConfig) -> tuple[str, ...]:
    """The names of the masks that only the encoder has, as they read the length of the whole text."""
    entries = [entry("mask", part.key) for part in config.mask.walk()]
    return tuple(dict.fromkeys(item.name for item in entries if "reads length" in item.traits))
