"""The encoder–decoder Transformer (Vaswani 2017) around any attention, position and mask."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import AttentionConfig, Steps
from core.entries import ConfigError, find
from core.models.base import Memory, ModelOutput, Seq2Seq, Shape, recorded
from core.models.blocks import DecoderLayer, EncoderLayer
from core.models.config import ModelConfig
from core.positions import POSITIONS


class Encoder(nn.Module):
    """A stack of encoder layers; a pre-norm stack ends on a norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(
        self, x: Float[Tensor, "B S C"], key_mask: Bool[Tensor, "B S"] | None = None, record: bool = False
    ) -> tuple[Float[Tensor, "B S C"], list[Steps]]:
        """x after all layers, and each layer's Steps (empty unless recorded)."""
        kept = []
        for layer in self.layers:
            x, steps = layer(x, key_mask, record)
            if record:
                kept.append(steps)
        return self.norm(x), kept


class Embedding(nn.Module):
    """√C · E[token], with absolute positions added. Vaswani 2017, sections 3.4 and 3.5."""

    def __init__(self, vocab: int, config: AttentionConfig, dropout: float, max_length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, config.d_model)
        nn.init.normal_(self.token.weight, std=config.d_model**-0.5)
        longest = dict(config.position.params).get("max_len", max_length)
        if longest < max_length:
            raise ConfigError(f"position = learned has max_len = {longest}, but the task reaches {max_length}; "
                              f"take max_len ≥ {max_length}, or a position without a table (sinusoidal, rope, alibi).")
        self.position = find(POSITIONS, "position", config.position.key).build(config)
        self.dropout, self.scale = nn.Dropout(dropout), math.sqrt(config.d_model)

    def forward(self, tokens: Int[Tensor, "B T"], offset: int = 0) -> Float[Tensor, "B T C"]:
        return self.dropout(self.position.add(self.token(tokens) * self.scale, offset))


@dataclass(frozen=True)
class Decoded:
    """How far stepwise decoding has come: tokens fed, and what each layer's self-attention has read of them."""

    length: int
    past: tuple[Float[Tensor, "B P C"] | None, ...]


class TransformerSeq2Seq(Seq2Seq):
    """Embedding and encoder, embedding and decoder, a linear map to the target's words."""

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        self.config = config
        self.source = Embedding(shape.source, config.attention, config.dropout, shape.longest)
        self.encoder = Encoder(config)
        self.target = Embedding(shape.target, config.attention, config.dropout, shape.longest)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(config.d_model, shape.target)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False) -> Memory:
        own = self.config.attention.mask.key != "none"  # it may ask which keys are real
        states, steps = self.encoder(self.source(source), source_mask if own else needed(source_mask), record)
        return Memory(states, source_mask, steps=tuple(steps))

    def decode(self, memory: Memory, target_in: Int[Tensor, "B T"], record: bool = False) -> ModelOutput:
        logits, _, maps = self._run(memory, self.start(memory), target_in, record)
        return recorded(logits, {"self": list(memory.steps)} | maps if record else {})

    def start(self, memory: Memory) -> Decoded:
        return Decoded(0, (None,) * len(self.layers))

    def step(
        self, memory: Memory, state: Decoded, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], Decoded, dict[str, list[Steps]]]:
        logits, state, maps = self._run(memory, state, tokens[:, None], record)
        return logits[:, 0], state, maps

    def _run(
        self, memory: Memory, state: Decoded, tokens: Int[Tensor, "B T"], record: bool
    ) -> tuple[Float[Tensor, "B T V"], Decoded, dict[str, list[Steps]]]:
        x, memory_mask = self.target(tokens, state.length), needed(memory.mask)
        seen, maps = [], {"causal": [], "cross": []}
        for layer, past in zip(self.layers, state.past, strict=True):
            x, read, causal, cross = layer(x, memory.states, memory_mask, past, record)
            seen.append(read)
            if record:
                maps["causal"].append(causal)
                maps["cross"].append(cross)
        state = Decoded(state.length + tokens.shape[1], tuple(seen))
        return self.output(self.norm(x)), state, maps if record else {}


def needed(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"] | None:
    """The mask, or None where nothing is padded: an attention without one is faster."""
    return None if bool(torch.all(mask)) else mask
