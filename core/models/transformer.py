"""The encoder–decoder Transformer (Vaswani 2017) around any attention, position and mask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Cache, Steps
from core.models.base import (
    EncoderOutput,
    Model,
    ModelOutput,
    Positions,
    Seq2Seq,
    Shape,
    TokenEmbedding,
    check_shape,
    concatenate,
    gather_positions,
    gather_rows,
    source_embedding,
    weights_of,
)
from core.models.blocks import CausalLayer, DecoderLayer, EncoderLayer, final_norm, run_layer
from core.models.config import ModelConfig


class Encoder(nn.Module):
    """A stack of encoder layers; a pre-norm stack ends on a norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.layers))
        self.norm = final_norm(config)
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


class TransformerSeq2Seq(Seq2Seq):
    """An encoder, and a decoder with cross-attention; over the patches of a picture it is image-to-text."""

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("tokens", "patches"), ("tokens",))
        self.config = config
        self.source, self.source_places = (
            source_embedding(config, shape),
            Positions(config, shape.longest),
        )
        self.encoder = Encoder(config)
        self.target, self.target_places = (
            TokenEmbedding(shape.target, config.d_model),
            Positions(config, shape.longest),
        )
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.layers))
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, shape.target, bias=config.output_bias)
        if config.tied:
            self.target.tie(self.output, self.layers)

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        x = self.source_places(self.source(source))
        states, steps = self.encoder(x, source_mask, record, self.checkpointing)
        return EncoderOutput(states, source_mask, steps=tuple(steps))

    def start(self, memory: EncoderOutput) -> DecoderState:
        return DecoderState(0, (None,) * len(self.layers))

    def read(
        self, memory: EncoderOutput, state: DecoderState, tokens: Int[Tensor, "B T"], record: bool
    ) -> tuple[Float[Tensor, "B T V"], DecoderState, dict[str, list[Steps]]]:
        x, memory_mask = (
            self.target_places(self.target(tokens), state.length),
            mask_if_padded(memory.mask),
        )
        caches, maps = [], dict[str, list[Steps]](causal=[], cross=[])
        cross_kv, shared = state.cross or (None,) * len(self.layers), dict[str, Tensor]()
        for layer, past, kv in zip(self.layers, state.past, cross_kv, strict=True):
            x, cache, causal, cross = run_layer(
                layer, self.checkpointing, x, memory.states, memory_mask, past, record, kv, shared
            )
            caches.append(cache)
            if record:
                maps["causal"].append(causal)
                maps["cross"].append(cross)
        state = DecoderState(state.length + tokens.shape[1], tuple(caches), state.cross)
        return self.output(self.norm(x)), state, maps if record else {}

    def step(
        self,
        memory: EncoderOutput,
        state: DecoderState,
        tokens: Int[Tensor, " B"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B V"], DecoderState, dict[str, list[Steps]]]:
        if not state.cross:
            mask = mask_if_padded(memory.mask)
            cross = tuple(
                cast(DecoderLayer, layer).cross.keys_values(memory.states, mask)
                for layer in self.layers
            )
            state = replace(state, cross=cross)
        return super().step(memory, state, tokens, record)


def mask_if_padded(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"] | None:
    """The mask, or None where nothing is padded: attention without one is faster."""
    return None if bool(torch.all(mask)) else mask


# Decoder only (Radford 2018): a language model, and for pairs the source and its target in one sequence.


class Decoder(Seq2Seq):
    """A stack of causal layers over one sequence: the source, then the target from its start mark on.

    Without a target it predicts the next token of the source at every position. Source and target share an embedding
    where they share a vocabulary. Stepwise decoding takes a batch of sources of one length.
    """

    one_length = True

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("tokens", "patches"), ("tokens",))
        self.config = config
        self.target = TokenEmbedding(shape.target, config.d_model)
        self.source = self.target if shape.one_vocabulary else source_embedding(config, shape)
        self.places = Positions(config, 2 * shape.longest)
        self.layers = nn.ModuleList(CausalLayer(config, layer) for layer in range(config.layers))
        self.kv_sources = [config.kv_source(layer) for layer in range(config.layers)]
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, shape.target, bias=config.output_bias)
        if config.tied:
            self.target.tie(self.output, self.layers)

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
        x, _, steps = self._run(x, self.start(None), record)
        maps = {"causal": steps} if record else {}
        attention = [gather_rows(weights, positions, source_mask) for weights in weights_of(steps)]
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
        x, state, steps = self._run(self.source(source[:, :length]), self.start(None), record)
        return EncoderOutput(x, source_mask[:, :length], state, tuple(steps))

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
        return DecoderState(0, (None,) * len(self.layers)) if memory is None else memory.last

    def read(
        self,
        memory: EncoderOutput | None,
        state: DecoderState,
        tokens: Int[Tensor, "B T"],
        record: bool,
    ) -> tuple[Float[Tensor, "B T V"], DecoderState, dict[str, list[Steps]]]:
        x, state, steps = self._run(self.target(tokens), state, record)
        return self.output(x), state, {"causal": steps} if record else {}

    def _run(
        self, x: Float[Tensor, "B T C"], state: DecoderState, record: bool
    ) -> tuple[Float[Tensor, "B T C"], DecoderState, list[Steps]]:
        """x after all layers and the last norm, the new state, and the Steps where recorded."""
        length, caches, recorded = state.length + x.shape[1], list[Cache](), []
        shared: dict[str, Tensor] = {}
        x = self.places(x, state.length)
        for layer, past, source in zip(self.layers, state.past, self.kv_sources, strict=True):
            kv = None if source is None else caches[source].heads
            x, cache, steps = run_layer(layer, self.checkpointing, x, past, record, kv, shared)
            caches.append(cache)
            if record:
                recorded.append(steps)
        return self.norm(x), DecoderState(length, tuple(caches)), recorded


# Encoder-only classifiers: of a text, of a picture (Dosovitskiy 2021), of a table's row (Gorishniy 2021).


class Classifier(Model):
    """An encoder over tokens, patches or features, and a linear classifier of its first or its mean state.

    With pool = first a learned vector stands before the source, and its row is the source attention (Devlin 2019); with
    pool = mean that is the mean of the real rows.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("tokens", "features", "patches"), ("label",))
        self.config = config
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
        super().__init__()
        check_shape(config, shape, ("features",), ("label",))
        self.config = config
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
        token = columns.sum(1, keepdim=True)  # (B, 1, C): one linear map of the whole row
        x, steps = self.encoder(self.places(token), None, record, self.checkpointing)
        return ModelOutput(self.output(x[:, 0]), {"self": steps} if record else {})


def masked_mean(
    x: Float[Tensor, "B L *rest"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, B * rest]:
    """The mean over real positions."""
    real = mask.reshape(*mask.shape, *(1,) * (x.dim() - 2))
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1)


# A forecaster: an encoder over a window of a series and the positions after it, whose values it predicts.


class Forecaster(Model):
    """Every moment is a token; one learned vector stands at each moment to predict.

    Each window is normalized by its mean and standard deviation, and the prediction of the first channel is scaled back
    (Kim 2022, RevIN, without its two weights).
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        check_shape(config, shape, ("series",), ("values",))
        self.config, self.ahead = config, shape.target
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
