"""What every sequence-to-sequence model gives: logits with its attention, and the same decoder one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Steps


@dataclass(frozen=True)
class Memory:
    """What the encoder hands on: its states (padding's are zero or never read), which are real, and its attention."""

    states: Float[Tensor, "B S C"]
    mask: Bool[Tensor, "B S"]
    last: Any = None  # the recurrent encoder's final state; None for the transformer
    steps: tuple[Steps, ...] = ()


@dataclass(frozen=True)
class ModelOutput:
    """Logits, and when recorded the Steps of each layer by kind: self (encoder), causal (decoder), cross."""

    logits: Float[Tensor, "B T V"]
    maps: dict[str, list[Steps]] = field(default_factory=dict)


class Seq2Seq(nn.Module):
    """An encoder and a decoder; `step` gives the numbers that `forward` gives for the same prefix."""

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False) -> Memory:
        """The memory of a padded source; padding never changes it."""
        raise NotImplementedError

    def decode(self, memory: Memory, target_in: Int[Tensor, "B T"], record: bool = False) -> ModelOutput:
        """Logits of every next token, with teacher forcing."""
        raise NotImplementedError

    def forward(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], target_in: Int[Tensor, "B T"],
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token; `record` keeps the Steps, at the exact kernel's price."""
        return self.decode(self.encode(source, source_mask, record), target_in, record)

    def start(self, memory: Memory) -> Any:
        """The decoder's state before its first token."""
        raise NotImplementedError

    def step(
        self, memory: Memory, state: Any, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], Any, dict[str, list[Steps]]]:
        """Feed one token a row: the next token's logits, the new state, and this step's attention when recorded."""
        raise NotImplementedError
