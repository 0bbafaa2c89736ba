"""The layers of a Transformer (Vaswani 2017), post-norm as published or pre-norm (Xiong 2020)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from core.attention import Attention, AttentionConfig, Steps, entry
from core.entries import Choice, ConfigError
from core.models.config import ModelConfig


def normalization(config: ModelConfig) -> nn.Module:
    """LayerNorm (Ba 2016), or RMSNorm (Zhang & Sennrich 2019), which neither centres nor shifts."""
    return nn.LayerNorm(config.d_model) if config.normalization == "layer" else nn.RMSNorm(config.d_model, eps=1e-6)


def final_norm(config: ModelConfig) -> nn.Module:
    """What a stack ends on: a norm where its layers norm only what they read."""
    return normalization(config) if config.norm == "pre" else nn.Identity()


class FeedForward(nn.Module):
    """W₂ act(W₁x), at each position alone. Vaswani 2017, section 3.3.

    SwiGLU is W₂ (silu(W₁x) · W₃x), of the same inner width and so half as many numbers again. Shazeer 2020, section 2.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(config.d_model, config.d_ff), nn.Linear(config.d_ff, config.d_model)
        self.gate = nn.Linear(config.d_model, config.d_ff) if config.activation == "swiglu" else None
        self.activation = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}[config.activation]
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        inner = self.activation(self.inner(x))
        return self.outer(self.dropout(inner if self.gate is None else inner * self.gate(x)))


class Residual(nn.Module):
    """norm(x + f(x)) for post, x + f(norm(x)) for pre."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.pre = normalization(config), config.norm == "pre"
        self.dropout = nn.Dropout(config.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, change: Tensor) -> Tensor:
        """What goes on, from what entered the block and what the sublayer made."""
        x = x + self.dropout(change)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.around_attention = Attention(inner_config(config.attention)), Residual(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Residual(config)

    def forward(
        self, x: Float[Tensor, "B S C"], key_mask: Bool[Tensor, "B S"] | None = None, record: bool = False
    ) -> tuple[Float[Tensor, "B S C"], Steps]:
        steps = self.attention(self.around_attention.enter(x), key_mask=key_mask, record=record)
        x = self.around_attention.leave(x, steps.merged)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x))), steps


class CausalLayer(nn.Module):
    """Causal self-attention, then feed-forward: a layer of a decoder that has no source beside it. Radford 2018."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.causal, self.around_causal = Attention(causal_config(inner_config(config.attention))), Residual(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Residual(config)

    def forward(
        self, x: Float[Tensor, "B T C"], past: Float[Tensor, "B P C"] | None = None, record: bool = False
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B R C"], Steps]:
        """x on, all R positions that self-attention has read (the next `past`), and its Steps."""
        x, history, causal = causal_attention(self.causal, self.around_causal, x, past, record)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x))), history, causal


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.causal, self.around_causal = Attention(causal_config(inner_config(config.attention))), Residual(config)
        self.cross, self.around_cross = Attention(cross_config(config.attention)), Residual(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Residual(config)

    def forward(
        self, x: Float[Tensor, "B T C"], memory: Float[Tensor, "B S C"], memory_mask: Bool[Tensor, "B S"] | None,
        past: Float[Tensor, "B P C"] | None = None, record: bool = False,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B R C"], Steps, Steps]:
        """x on, all R positions that self-attention has read (the next `past`), and the Steps of both attentions."""
        x, history, causal = causal_attention(self.causal, self.around_causal, x, past, record)
        offset = history.shape[1] - x.shape[1]
        cross = self.cross(self.around_cross.enter(x), memory, key_mask=memory_mask, offset=offset, record=record)
        x = self.around_cross.leave(x, cross.merged)
        x = self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))
        return x, history, causal, cross


def causal_attention(
    attention: Attention, around: Residual, x: Float[Tensor, "B T C"], past: Float[Tensor, "B P C"] | None, record: bool
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B R C"], Steps]:
    """x after causal self-attention on what came before and itself, all that was read, and the Steps."""
    inputs = around.enter(x)
    history = inputs if past is None else torch.cat((past, inputs), dim=1)
    offset = history.shape[1] - inputs.shape[1]
    steps = attention(inputs, None if past is None else history, offset=offset, record=record)
    return around.leave(x, steps.merged), history, steps


def run_layer(layer: nn.Module, recompute: bool, *inputs: Any) -> Any:
    """layer(*inputs); `again` keeps nothing of what it makes and computes it a second time for its gradients.

    Chen 2016. Where no gradient is asked, nothing is kept anyway.
    """
    return checkpoint(layer, *inputs, use_reentrant=False) if recompute and torch.is_grad_enabled() else layer(*inputs)


def inner_config(config: AttentionConfig) -> AttentionConfig:
    """A layer's own attention: positions that are added to x came in with the embedding, once."""
    return config.with_(position="none") if entry("position", config.position.key).enters == "x" else config


def causal_config(config: AttentionConfig) -> AttentionConfig:
    """The decoder's self-attention: causal and what of the config's own mask means something word by word."""
    own = decoding_mask(config.mask)
    mask = "causal" if own.key in ("none", "causal") else Choice.of("and", Choice("causal"), own)
    return with_fallback_kernel(config, mask=mask)


def decoding_mask(mask: Choice) -> Choice:
    """The mask with every part seeing all instead that asks for padding (causal hides that already), or for a length.

    A decoder does not know how long its text will be, so a mask that reads it would be another one at each word.
    """
    dropped = mask.key == "padding" or "reads length" in entry("mask", mask.key).traits
    if dropped or (mask.key == "not" and decoding_mask(mask.parts[0]) != mask.parts[0]):
        return Choice("none")
    return Choice(mask.key, mask.params, tuple(map(decoding_mask, mask.parts)))


def cross_config(config: AttentionConfig) -> AttentionConfig:
    """Attention to the source: places in two different sequences are not compared; all is seen."""
    return with_fallback_kernel(config, position="none", mask="none")


def with_fallback_kernel(config: AttentionConfig, **changes: Choice | str) -> AttentionConfig:
    """The config with those changes, by its own kernel, or by the exact one where that cannot do them."""
    try:
        return config.with_(**changes)
    except ConfigError:
        return config.with_(kernel="exact", **changes)


def exact_fallbacks(config: AttentionConfig) -> tuple[str, ...]:
    """The attentions of an encoder–decoder in which the config's kernel gives way to the exact one."""
    inside = causal_config(inner_config(config))
    parts = {"the decoder's self-attention": inside, "cross-attention": cross_config(config)}
    return tuple(name for name, made in parts.items() if made.kernel != config.kernel)


def encoder_masks(config: AttentionConfig) -> tuple[str, ...]:
    """The names of the masks that only the encoder has, because they read the length of the whole text."""
    entries = [entry("mask", part.key) for part in config.mask.walk()]
    return tuple(dict.fromkeys(item.name for item in entries if "reads length" in item.traits))
