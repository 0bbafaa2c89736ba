"""The encoder–decoder Transformer (Vaswani 2017) around any attention, position and mask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Cache, Steps
from core.models.base import EncoderOutput, Seq2Seq, Shape
from core.models.blocks import DecoderLayer, EncoderLayer, final_norm, run_layer
from core.models.config import ModelConfig
from core.models.inputs import Positions, TokenEmbedding, check_shape, source_embedding


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
            self.target.tie(self.output)

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
