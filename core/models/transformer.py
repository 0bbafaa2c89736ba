"""The encoder–decoder Transformer (Vaswani 2017) around any attention, position and mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Steps
from core.models.base import Memory, ModelOutput, Seq2Seq, Shape, recorded
from core.models.blocks import DecoderLayer, EncoderLayer, last_norm, run_layer
from core.models.config import ModelConfig
from core.models.inputs import Places, Words, reader, refuse


class Encoder(nn.Module):
    """A stack of encoder layers; a pre-norm stack ends on a norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm, self.reads_padding = last_norm(config), config.attention.mask.key != "none"

    def forward(
        self, x: Float[Tensor, "B S C"], key_mask: Bool[Tensor, "B S"] | None = None, record: bool = False,
        checkpointing: bool = False,
    ) -> tuple[Float[Tensor, "B S C"], list[Steps]]:
        """x after all layers, and each layer's Steps (empty unless recorded)."""
        kept = []
        if key_mask is not None and not self.reads_padding:
            key_mask = needed(key_mask)
        for layer in self.layers:
            x, steps = run_layer(layer, checkpointing, x, key_mask, record)
            if record:
                kept.append(steps)
        return self.norm(x), kept


@dataclass(frozen=True)
class Decoded:
    """How far stepwise decoding has come: tokens fed, and what each layer's self-attention has read of them."""

    length: int
    past: tuple[Float[Tensor, "B P C"] | None, ...]


class TransformerSeq2Seq(Seq2Seq):
    """Embedding and encoder, embedding and decoder, a linear map to the target's words.

    Its source may be the patches of a picture: image-to-text, by cross-attention.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        refuse(config, shape, ("tokens", "patches"), ("tokens",))
        self.config = config
        self.source, self.source_places = reader(config, shape), Places(config, shape.longest)
        self.encoder = Encoder(config)
        self.target, self.target_places = Words(shape.target, config.d_model), Places(config, shape.longest)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = last_norm(config)
        self.output = nn.Linear(config.d_model, shape.target, bias=config.output_bias)
        if config.tied:
            self.output.weight = self.target.token.weight

    def encode(self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False) -> Memory:
        x = self.source_places(self.source(source))
        states, steps = self.encoder(x, source_mask, record, self.checkpointing)
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
        x, memory_mask = self.target_places(self.target(tokens), state.length), needed(memory.mask)
        seen, maps = [], {"causal": [], "cross": []}
        for layer, past in zip(self.layers, state.past, strict=True):
            x, read, causal, cross = run_layer(layer, self.checkpointing, x, memory.states, memory_mask, past, record)
            seen.append(read)
            if record:
                maps["causal"].append(causal)
                maps["cross"].append(cross)
        state = Decoded(state.length + tokens.shape[1], tuple(seen))
        return self.output(self.norm(x)), state, maps if record else {}


def needed(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S"] | None:
    """The mask, or None where nothing is padded: an attention without one is faster."""
    return None if bool(torch.all(mask)) else mask
