"""The interface of every model: Shape, ModelOutput, and encoding and stepwise decoding (Seq2Seq)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Steps


@dataclass(frozen=True)
class Shape:
    """The type and sizes of a model's input and output, set by its task.

    | input | a source is | `source` counts |
    | --- | --- | --- |
    | tokens | ids (B, S) | words in the vocabulary |
    | features | numbers (B, F), a category as its index | columns; `columns`: 0 for a number, else its categories |
    | patches | numbers (B, P, D) | numbers in a patch; `grid` is (rows, columns) of patches |
    | series | numbers (B, S, D) | channels |

    `output` is tokens (`target` words), label (`target` classes) or values (`target` numbers ahead). `longest` is the
    longest source or target, end mark included; `one_vocabulary` where source and target number the same words;
    `sentence_end` the id of the token that ends a sentence, 0 where no token does.
    """

    source: int
    target: int
    longest: int
    input: str = "tokens"
    output: str = "tokens"
    columns: tuple[int, ...] = ()
    grid: tuple[int, int] = (0, 0)
    one_vocabulary: bool = False
    sentence_end: int = 0


@dataclass(frozen=True)
class EncoderOutput:
    """The encoder's states (those of padding are zero or masked), which of them are real, and its attention."""

    states: Float[Tensor, "B S C"]
    mask: Bool[Tensor, "B S"]
    last: Any = None  # the recurrent encoder's final state; None for the transformer
    steps: tuple[Steps, ...] = ()


@dataclass(frozen=True)
class ModelOutput:
    """Logits (or values), and when recorded the Steps of each layer by kind: self (encoder), causal (decoder), cross;
    of a document its words, a row a sentence, and its sentences.

    `source_attention` holds, layer by layer, the weights of each output on the source, from whichever map has them (the
    cross-attention of a decoder, the lower left of a decoder-only model's map, the row of the token that a classifier
    reads, the product of both levels of a document); `visible` is the number of keys visible to each output, None for
    all of the source. `uniform` is what uniform attention gives, where that is not the same to all visible keys.
    """

    logits: Float[Tensor, B * out]
    maps: dict[str, list[Steps]] = field(default_factory=dict)
    source_attention: list[Float[Tensor, "B H T S"]] = field(default_factory=list)
    visible: Int[Tensor, "B T"] | None = None
    uniform: Float[Tensor, "B T S"] | None = None


class Model(nn.Module):
    """A padded source, and for a decoder the target so far, to a ModelOutput. With `checkpointing` the backward pass
    computes the layers again instead of storing their activations."""

    checkpointing = False

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits of every output, whatever the padding; `record` returns the Steps, computed by the exact kernel."""
        raise NotImplementedError


class Seq2Seq(Model):
    """An encoder and a decoder; `step` gives the same numbers as `forward` for the same prefix."""

    def encode(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        """The encoding of a padded source, whatever its padding."""
        raise NotImplementedError

    def decode(
        self, memory: EncoderOutput, target_in: Int[Tensor, "B T"], record: bool = False
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token, with teacher forcing."""
        logits, _, maps = self.read(memory, self.start(memory), target_in, record)
        if record and memory.steps:
            maps = {"self": list(memory.steps)} | maps
        return ModelOutput(logits, maps, weights_of(maps.get("cross", ())))

    def forward(
        self,
        source: Tensor,
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token."""
        if target_in is None:
            raise ValueError("A decoder needs target_in, which starts with the start mark.")
        return self.decode(self.encode(source, source_mask, record), target_in, record)

    def start(self, memory: EncoderOutput) -> Any:
        """The decoder's state before its first token; every tensor in it has the batch first."""
        raise NotImplementedError

    def read(
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, "B T"], record: bool
    ) -> tuple[Float[Tensor, "B T V"], Any, dict[str, list[Steps]]]:
        """Logits of the next token after each of T more tokens a row, the new state, and the recorded maps."""
        raise NotImplementedError

    def step(
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], Any, dict[str, list[Steps]]]:
        """`read` for one token a row."""
        logits, state, maps = self.read(memory, state, tokens[:, None], record)
        return logits[:, 0], state, maps


def weights_of(steps: Iterable[Steps]) -> list[Float[Tensor, "B H T S"]]:
    """The weights of each of the layers' Steps."""
    return [one.weights for one in steps if one.weights is not None]
