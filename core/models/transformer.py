"""The Transformer (Vaswani 2017): its layers, post-norm as published or pre-norm (Xiong 2020), and the models that are
made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from core.attention import Attention, AttentionConfig, Cache, Steps, entry
from core.entries import Choice, ConfigError
from core.models.base import (
    EncoderOutput,
    Model,
    ModelConfig,
    ModelOutput,
    Positions,
    Seq2Seq,
    Shape,
    TokenEmbedding,
    concatenate,
    gather_positions,
    gather_rows,
    source_embedding,
    weights_of,
)

# Between layers: how a sublayer reads the outputs before it, and how its own output is passed on. A stacked model
# carries a stream over depth. Plain, it is x, the sum of all outputs so far (B, T, C); with attention over depth all of
# them one beside the other (B, T, N, C); with hyper-connections n sums of them (B, T, n, C). It holds nothing of other
# tokens, so stepwise decoding stores none of it.


EPSILON = 1e-6  # of an RMSNorm
ROUNDS = 20  # of Sinkhorn's normalization


def normalization(config: ModelConfig) -> nn.Module:
    """LayerNorm (Ba 2016), or RMSNorm (Zhang & Sennrich 2019), which neither centres nor shifts."""
    return (
        nn.LayerNorm(config.d_model)
        if config.normalization == "layer"
        else nn.RMSNorm(config.d_model, eps=EPSILON)
    )


class Residual(nn.Module):
    """norm(x + f(x)) for post, x + f(norm(x)) for pre."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm, self.pre = normalization(config), config.norm == "pre"
        self.dropout = nn.Dropout(config.dropout)

    def enter(self, stream: Tensor) -> tuple[Float[Tensor, "B T C"], Any]:
        """The input of the sublayer, and what passes it by."""
        return (self.norm(stream) if self.pre else stream), stream

    def leave(self, passed: Any, change: Float[Tensor, "B T C"]) -> Tensor:
        """The stream after the sublayer, from what passed it by and its output."""
        x = passed + self.dropout(change)
        return x if self.pre else self.norm(x)

    def wrap(self, stream: Tensor, sublayer: nn.Module) -> Tensor:
        """The stream after a sublayer that maps x alone."""
        x, passed = self.enter(stream)
        return self.leave(passed, sublayer(x))


class DepthAttention(nn.Module):
    """Attention over depth: Σᵢ αᵢ vᵢ with α = softmaxᵢ(wᵀ RMSNorm(vᵢ)), where w is one learned query.

    Kimi Team 2026, "Attention Residuals", arXiv 2603.15031. With w = 0, as training begins, it is the mean; its norm is
    that of the sum, so the model is then the plain pre-norm one.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(size))
        self.weight = nn.Parameter(torch.ones(size))  # of the norm

    def forward(
        self, outputs: Float[Tensor, "B T N C"]
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T N"]]:
        """What is read of the N outputs so far, and their weights α."""
        # The norm is a factor of the score, so that no normed copy of all outputs is made.
        scores = torch.einsum("btnc,c->btn", outputs, self.query * self.weight)
        weights = (scores * (outputs.square().mean(-1) + EPSILON).rsqrt()).softmax(-1)
        return torch.einsum("btn,btnc->btc", weights, outputs), weights


class AttentionResidual(Residual):
    """f(norm(Σᵢ αᵢ vᵢ)) joins the outputs so far: the embedding v₀ and those of all sublayers before."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.read = DepthAttention(config.d_model)

    def enter(self, stream: Float[Tensor, "B T N C"]) -> tuple[Float[Tensor, "B T C"], Tensor]:
        return self.norm(self.read(stream)[0]), stream

    def leave(self, passed: Tensor, change: Float[Tensor, "B T C"]) -> Float[Tensor, "B T M C"]:
        """M = N + 1 outputs."""
        return torch.cat((passed, self.dropout(change)[..., None, :]), dim=-2)


def sinkhorn(logits: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """exp(logits), its columns and then its rows divided by their sums, again and again: after that all of them sum to 1
    (rows exactly, columns nearly). Sinkhorn 1964."""
    for _ in range(ROUNDS):
        logits = logits.log_softmax(-2).log_softmax(-1)
    return logits.exp()


class StreamMixing(nn.Module):
    """The weights of a hyper-connection, which the n streams of each token compute themselves: how the sublayer reads
    them, σ(·), how its output is written to each, 2σ(·), and how they mix on the way past it, a doubly stochastic matrix.

    Xie et al. 2025, "mHC: Manifold-Constrained Hyper-Connections", arXiv 2512.24880, section 4.
    """

    def __init__(self, size: int, streams: int) -> None:
        super().__init__()
        self.sizes = streams, streams, streams * streams
        self.norm = nn.RMSNorm(streams * size, eps=EPSILON, elementwise_affine=False)
        self.map = nn.Linear(streams * size, sum(self.sizes), bias=False)
        nn.init.normal_(self.map.weight, std=0.02)
        self.scale = nn.Parameter(torch.ones(3))
        self.bias = nn.Parameter(torch.zeros(sum(self.sizes)))

    def forward(
        self, streams: Float[Tensor, "B T n C"]
    ) -> tuple[Float[Tensor, "B T n"], Float[Tensor, "B T n"], Float[Tensor, "B T n n"]]:
        """The weights to read, to write, and to mix: row i of the last is what stream i takes of each."""
        parts = self.map(self.norm(streams.flatten(-2))).split(self.sizes, -1)
        read, write, mix = (
            part * scale + bias
            for part, scale, bias in zip(
                parts, self.scale, self.bias.split(self.sizes), strict=True
            )
        )
        side = self.sizes[0]
        return read.sigmoid(), 2 * write.sigmoid(), sinkhorn(mix.unflatten(-1, (side, side)))


class HyperResidual(Residual):
    """X ← M X + w f(norm(rᵀ X))ᵀ for the streams X, with the weights r, w and M of each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.mixing = StreamMixing(config.d_model, config.streams)

    def enter(
        self, stream: Float[Tensor, "B T n C"]
    ) -> tuple[Float[Tensor, "B T C"], tuple[Tensor, Tensor]]:
        read, write, mix = self.mixing(stream)
        return self.norm(torch.einsum("btn,btnc->btc", read, stream)), (mix @ stream, write)

    def leave(
        self, passed: tuple[Tensor, Tensor], change: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T n C"]:
        mixed, write = passed
        return mixed + write[..., None] * self.dropout(change)[..., None, :]


class LastRead(nn.Module):
    """What a stack gives, from its stream: attention over all outputs, or the mean of the streams; then the last norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        attends = config.residual == "attention"
        self.read = DepthAttention(config.d_model) if attends else None
        self.norm = normalization(config)

    def forward(self, stream: Float[Tensor, "B T N C"]) -> Float[Tensor, "B T C"]:
        return self.norm(stream.mean(-2) if self.read is None else self.read(stream)[0])


def residual(config: ModelConfig) -> Residual:
    """What is around a sublayer."""
    kinds = {"plain": Residual, "attention": AttentionResidual, "hyper": HyperResidual}
    return kinds[config.residual](config)


def first_stream(config: ModelConfig, x: Float[Tensor, "B T C"]) -> Tensor:
    """The stream before the first sublayer: x, x as the only output so far, or x in each of n streams."""
    if config.residual == "plain":
        return x
    copies = config.streams if config.residual == "hyper" else 1
    return x[..., None, :].expand(*x.shape[:-1], copies, -1)


def final_norm(config: ModelConfig) -> nn.Module:
    """The end of a stack: where the stream is no single vector it is read; a pre-norm stack ends on a norm."""
    if config.residual != "plain":
        return LastRead(config)
    return normalization(config) if config.norm == "pre" else nn.Identity()


# Layers, and the models that are made of them.


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swiglu": F.silu,
}


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
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        inner = self.activation(self.inner(x))
        return self.outer(self.dropout(inner if self.gate is None else inner * self.gate(x)))


def feed_forward(config: ModelConfig) -> tuple[Any, Any]:
    """A layer's feed-forward network and what is around it; None with d_ff = 0 (Elhage 2021)."""
    return (FeedForward(config), residual(config)) if config.d_ff else (None, None)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.attention = Attention(inner_config(config.layer_attention(layer)), layer=layer)
        self.around_attention = residual(config)
        self.feed_forward, self.around_feed_forward = feed_forward(config)

    def forward(
        self,
        x: Tensor,
        key_mask: Bool[Tensor, "B S"] | None = None,
        record: bool = False,
        shared: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Steps]:
        """The stream x after the layer (B, S, C, or as core.models.transformer has it), and the Steps."""
        inner, passed = self.around_attention.enter(x)
        steps = self.attention(inner, key_mask=key_mask, record=record, shared=shared)
        x = self.around_attention.leave(passed, steps.merged)
        if self.feed_forward is not None:
            x = self.around_feed_forward.wrap(x, self.feed_forward)
        return x, steps


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward; without `cross` a layer of a decoder-only
    model (Radford 2018)."""

    def __init__(self, config: ModelConfig, layer: int = 0, cross: bool = True) -> None:
        super().__init__()
        attention = causal_config(config.layer_attention(layer, "causal"))
        self.causal = Attention(
            attention, takes_kv=config.kv_source(layer) is not None, layer=layer
        )
        self.around_causal = residual(config)
        if cross:
            self.cross = Attention(cross_config(config.layer_attention(layer, "cross")))
            self.around_cross = residual(config)
        self.feed_forward, self.around_feed_forward = feed_forward(config)

    def forward(
        self,
        x: Tensor,
        past: Cache | None = None,
        record: bool = False,
        kv: tuple[Tensor, ...] | None = None,
        shared: dict[str, Tensor] | None = None,
        memory: Float[Tensor, "B S C"] | None = None,
        memory_mask: Bool[Tensor, "B S"] | None = None,
        cross_kv: tuple[Tensor, ...] | None = None,
    ) -> tuple[Tensor, Cache, dict[str, Steps]]:
        """The stream x after the layer, what self-attention has stored of all tokens (the next `past`), and the Steps by
        kind; `kv` are another layer's keys and values of all tokens, `cross_kv` the memory's, where they are computed
        already."""
        inner, passed = self.around_causal.enter(x)
        causal, cache = self.causal.step(inner, past, record, kv, shared)
        x, steps = self.around_causal.leave(passed, causal.merged), {"causal": causal}
        if memory is not None:
            inner, passed = self.around_cross.enter(x)
            steps["cross"] = self.cross(
                inner,
                memory,
                key_mask=memory_mask,
                offset=0 if past is None else past.length,
                record=record,
                kv=cross_kv,
            )
            x = self.around_cross.leave(passed, steps["cross"].merged)
        if self.feed_forward is not None:
            x = self.around_feed_forward.wrap(x, self.feed_forward)
        return x, cache, steps


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


class Encoder(nn.Module):
    """A stack of encoder layers; a pre-norm stack ends on a norm, and one with a stream of several vectors reads it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.layers))
        self.config, self.norm = config, final_norm(config)
        self.reads_padding = any(attention.mask.key != "none" for attention in config.pattern)

    def forward(
        self,
        x: Float[Tensor, "B S C"],
        key_mask: Bool[Tensor, "B S"] | None = None,
        record: bool = False,
        checkpointing: bool = False,
    ) -> tuple[Float[Tensor, "B S C"], list[Steps]]:
        """x after all layers, and each layer's Steps (empty unless recorded)."""
        recorded, shared = [], dict[str, Tensor]()
        if key_mask is not None and not self.reads_padding:
            key_mask = mask_if_padded(key_mask)
        x = first_stream(self.config, x)
        for layer in self.layers:
            x, steps = run_layer(layer, checkpointing, x, key_mask, record, shared)
            if record:
                recorded.append(steps)
        return self.norm(x), recorded


@dataclass(frozen=True)
class DecoderState:
    """The state of stepwise decoding: the number of tokens read, what each layer's self-attention has stored, and the
    source's keys and values for each cross-attention, which the first step computes."""

    length: int
    past: tuple[Cache | None, ...]
    cross: tuple[tuple[Tensor, ...], ...] = ()


class CausalStack(Seq2Seq):
    """Decoder layers and the logits over them: what an encoder–decoder and a decoder-only model share."""

    target: TokenEmbedding

    def add_layers(self, config: ModelConfig, shape: Shape, cross: bool) -> None:
        """The layers, the last norm and the output, which may be the embedding of the target."""
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer, cross) for layer in range(config.layers)
        )
        self.kv_sources = [config.kv_source(layer) for layer in range(config.layers)]
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, shape.target, bias=config.output_bias)
        if config.tied:
            self.target.tie(self.output, self.layers)

    def start(self, memory: EncoderOutput | None) -> DecoderState:
        return DecoderState(0, (None,) * len(self.layers))

    def run_layers(
        self,
        x: Float[Tensor, "B T C"],
        state: DecoderState,
        record: bool,
        memory: EncoderOutput | None = None,
    ) -> tuple[Float[Tensor, "B T C"], DecoderState, dict[str, list[Steps]]]:
        """x after all layers and the last norm, the new state, and the Steps where recorded."""
        encoded = () if memory is None else (memory.states, mask_if_padded(memory.mask))
        caches, maps = list[Cache](), defaultdict[str, list[Steps]](list)
        shared, cross_kv = dict[str, Tensor](), state.cross or (None,) * len(self.layers)
        length = state.length + x.shape[1]
        x = first_stream(self.config, x)
        for index, layer in enumerate(self.layers):
            source = self.kv_sources[index]
            kv = None if source is None else caches[source].heads
            more = (*encoded, cross_kv[index]) if encoded else ()
            x, cache, steps = run_layer(
                layer, self.checkpointing, x, state.past[index], record, kv, shared, *more
            )
            caches.append(cache)
            for kind, one in steps.items() if record else ():
                maps[kind].append(one)
        return self.norm(x), DecoderState(length, tuple(caches), state.cross), dict(maps)


class TransformerSeq2Seq(CausalStack):
    """An encoder, and a decoder with cross-attention; over the patches of a picture it is image-to-text."""

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape, ("tokens", "patches"), ("tokens",))
        self.source = source_embedding(config, shape)
        self.source_places = Positions(config, shape.longest)
        self.encoder = Encoder(config)
        self.target = TokenEmbedding(shape.target, config.d_model, config.scaled_embedding)
        self.target_places = Positions(config, shape.longest)
        self.add_layers(config, shape, cross=True)

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        x = self.source_places(self.source(source))
        x, steps = self.encoder(x, source_mask, record, self.checkpointing)
        return EncoderOutput(x, source_mask, steps=tuple(steps))

    def read(
        self,
        memory: EncoderOutput,
        state: DecoderState,
        tokens: Int[Tensor, "B T"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], DecoderState, dict[str, list[Steps]]]:
        x = self.target_places(self.target(tokens), state.length)
        x, state, maps = self.run_layers(x, state, record, memory)
        return self.output(x), state, maps

    def step(
        self,
        memory: EncoderOutput,
        state: DecoderState,
        tokens: Int[Tensor, " B"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B V"], DecoderState, dict[str, list[Steps]]]:
        if not state.cross:
            mask = mask_if_padded(memory.mask)
            state = replace(
                state,
                cross=tuple(
                    cast(DecoderLayer, layer).cross.keys_values(memory.states, mask)
                    for layer in self.layers
                ),
            )
        return super().step(memory, state, tokens, record)


def mask_if_padded(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"] | None:
    """The mask, or None where nothing is padded: attention without one is faster."""
    return None if bool(torch.all(mask)) else mask


class Decoder(CausalStack):
    """A stack of causal layers over one sequence (Radford 2018): the source, then the target from its start mark on.

    Without a target it predicts the next token of the source at every position. Source and target share an embedding
    where they share a vocabulary. Stepwise decoding takes a batch of sources of one length.
    """

    one_length = True

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape, ("tokens", "patches"), ("tokens",))
        self.target = TokenEmbedding(shape.target, config.d_model, config.scaled_embedding)
        self.source = self.target if shape.one_vocabulary else source_embedding(config, shape)
        self.places = Positions(config, 2 * shape.longest)
        self.add_layers(config, shape, cross=False)

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits of the next token at each position of the target, or of the source where there is no target. Padding
        needs no mask: it stands at the end, hidden by the causal mask."""
        x = self.source(source)
        if target_in is None:
            positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        else:
            x, positions = concatenate(x, source_mask, self.target(target_in))
        x, _, maps = self.run_layers(self.places(x), self.start(None), record)
        attention = [
            gather_rows(weights, positions, source_mask)
            for weights in weights_of(maps.get("causal", ()))
        ]
        return ModelOutput(
            self.output(gather_positions(x, positions)), maps, attention, positions + 1
        )

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        """The sequence up to the end of the source; ValueError unless all sources have one length."""
        length = int(source_mask.sum(1).max())
        if not bool(source_mask[:, :length].all()):
            raise ValueError(
                "A decoder-only model decodes sources of one length together; group sources by length."
            )
        x = self.places(self.source(source[:, :length]))
        x, state, maps = self.run_layers(x, self.start(None), record)
        return EncoderOutput(x, source_mask[:, :length], state, tuple(maps.get("causal", ())))

    def decode(
        self, memory: EncoderOutput, target_in: Int[Tensor, "B T"], record: bool = False
    ) -> ModelOutput:
        logits, _, maps = self.read(memory, memory.last, target_in, record)
        size = memory.states.shape[1]
        visible = (
            size
            + 1
            + torch.arange(target_in.shape[1], device=logits.device).expand(len(logits), -1)
        )
        attention = [weights[..., :size] for weights in weights_of(maps.get("causal", ()))]
        return ModelOutput(logits, maps, attention, visible)

    def start(self, memory: EncoderOutput | None) -> DecoderState:
        return super().start(memory) if memory is None else memory.last

    def read(
        self,
        memory: EncoderOutput | None,
        state: DecoderState,
        tokens: Int[Tensor, "B T"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], DecoderState, dict[str, list[Steps]]]:
        x = self.places(self.target(tokens), state.length)
        x, state, maps = self.run_layers(x, state, record)
        return self.output(x), state, maps


class Classifier(Model):
    """An encoder over tokens, patches or features, and a linear classifier of its first or its mean state.

    With pool = first a learned vector stands before the source, and its row is the source attention (Devlin 2019); with
    pool = mean that is the mean of the real rows.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape, ("tokens", "features", "patches"), ("label",))
        self.source, self.places = (
            source_embedding(config, shape),
            Positions(config, shape.longest + 1),
        )
        self.first = nn.Parameter(torch.randn(config.d_model)) if config.pool == "first" else None
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, shape.target)

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, V) of the classes."""
        x, mask = self.source(source), source_mask
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), 1, -1), x), dim=1)
            mask = torch.cat((mask.new_ones(len(x), 1), mask), dim=1)
        x, steps = self.encoder(self.places(x), mask, record, self.checkpointing)
        state = x[:, 0] if self.first is not None else masked_mean(x, mask)
        attention = [
            weights[:, :, :1, 1:]
            if self.first is not None
            else masked_mean(weights.transpose(1, 2), mask)[:, :, None]
            for weights in weights_of(steps)
        ]
        return ModelOutput(
            self.output(state),
            {"self": steps} if record else {},
            attention,
            mask.sum(1, keepdim=True),
        )


class OneToken(Model):
    """The tabular classifier of many tutorials: the whole row is one token, so attention has a single key. Its weights
    are 1, whatever q and k are, and the model is a feed-forward network."""

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape, ("features",), ("label",))
        self.source, self.places = source_embedding(config, shape), Positions(config, 1)
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, shape.target)

    def forward(
        self,
        source: Float[Tensor, "B F"],
        source_mask: Bool[Tensor, "B F"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, V) of the classes; there is no attention to single columns."""
        columns = self.source(source).masked_fill(~source_mask[..., None], 0.0)  # (B, F, C)
        # One token (B, 1, C): one linear map of the whole row.
        token = self.places(columns.sum(1, keepdim=True))
        x, steps = self.encoder(token, None, record, self.checkpointing)
        return ModelOutput(self.output(x[:, 0]), {"self": steps} if record else {})


def masked_mean(
    x: Float[Tensor, "B L *rest"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, B * rest]:
    real = mask.reshape(*mask.shape, *(1,) * (x.dim() - 2))
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1)


class Forecaster(Model):
    """Every moment is a token; one learned vector stands at each moment to predict.

    Each window is normalized by its mean and standard deviation, and the prediction of the first channel is scaled back
    (Kim 2022, RevIN, without its two weights).
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape, ("series",), ("values",))
        self.ahead = shape.target
        self.source, self.places = (
            source_embedding(config, shape),
            Positions(config, shape.longest + shape.target),
        )
        # One learned query for every value ahead; "asked" is its name in saved checkpoints.
        self.register_parameter("asked", nn.Parameter(torch.randn(config.d_model)))
        self.encoder, self.output = Encoder(config), nn.Linear(config.d_model, 1)

    def forward(
        self,
        source: Float[Tensor, "B S D"],
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Values (B, N) of the first channel."""
        real = source_mask[..., None]
        count = real.sum(1, keepdim=True)
        mean = source.masked_fill(~real, 0.0).sum(1, keepdim=True) / count  # (B, 1, D)
        std = (
            ((source - mean).masked_fill(~real, 0.0).square().sum(1, keepdim=True) / count) + 1e-6
        ).sqrt()
        x, positions = concatenate(
            self.source((source - mean) / std),
            source_mask,
            self.get_parameter("asked").expand(len(source), self.ahead, -1),
        )
        mask = torch.arange(x.shape[1], device=x.device) <= positions[:, -1:]
        x, steps = self.encoder(self.places(x), mask, record, self.checkpointing)
        values = self.output(gather_positions(x, positions))[..., 0] * std[..., 0] + mean[..., 0]
        attention = [gather_rows(weights, positions, source_mask) for weights in weights_of(steps)]
        visible = mask.sum(1, keepdim=True).expand_as(positions)
        return ModelOutput(values, {"self": steps} if record else {}, attention, visible)
