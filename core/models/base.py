"""What every model is told (Shape) and gives (ModelOutput), and a decoder's life one step at a time (Seq2Seq)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.attention import Steps

INPUTS, OUTPUTS = ("tokens", "features", "patches", "series"), ("tokens", "label", "values")


@dataclass(frozen=True)
class Shape:
    """What comes in and what goes out: the sizes that a task brings to a model.

    | input | a source is | `source` counts |
    | --- | --- | --- |
    | tokens | ids (B, S) | words in the vocabulary |
    | features | numbers (B, F), a category as its index | columns; `columns`: 0 for a number, else its categories |
    | patches | numbers (B, P, D) | numbers in a patch; `grid` is (rows, columns) of patches |
    | series | numbers (B, S, D) | channels |

    `output` is tokens (`target` words), label (`target` classes) or values (`target` numbers ahead). `longest` is the
    longest source or target, end mark included; `one_vocabulary` where source and target number the same words.
    """

    source: int
    target: int
    longest: int
    input: str = "tokens"
    output: str = "tokens"
    columns: tuple[int, ...] = ()
    grid: tuple[int, int] = (0, 0)
    one_vocabulary: bool = False


@dataclass(frozen=True)
class EncoderOutput:
    """What the encoder hands on: its states (padding's are zero or never read), which are real, and its attention."""

    states: Float[Tensor, "B S C"]
    mask: Bool[Tensor, "B S"]
    last: Any = None  # the recurrent encoder's final state; None for the transformer
    steps: tuple[Steps, ...] = ()


@dataclass(frozen=True)
class ModelOutput:
    """Logits (or values), and when recorded the Steps of each layer by kind: self (encoder), causal (decoder), cross.

    `looks` is what each output put on each place of the source, layer by layer, whatever maps that is found in (the
    cross-attention of a decoder, the lower left of a decoder-only model, the row of the token that a classifier reads);
    `visible` is how many keys each output might have looked at, None for all of the source.
    """

    logits: Float[Tensor, B *out]
    maps: dict[str, list[Steps]] = field(default_factory=dict)
    source_attention: list[Float[Tensor, "B H T S"]] = field(default_factory=list)
    visible: Int[Tensor, "B T"] | None = None


class Model(nn.Module):
    """Anything that is trained here: a padded source, and for a decoder the target so far, to a ModelOutput.

    With `checkpointing` its layers are computed again in the backward pass instead of keeping what they made.
    """

    checkpointing = False

    def forward(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits of every output; `record` keeps the Steps, at the exact kernel's price. Padding changes nothing."""
        raise NotImplementedError


class Seq2Seq(Model):
    """An encoder and a decoder; `step` gives the numbers that `forward` gives for the same prefix."""

    def encode(self, source: Tensor, source_mask: Bool[Tensor, "B S"], record: bool = False) -> EncoderOutput:
        """The memory of a padded source; padding never changes it."""
        raise NotImplementedError

    def decode(self, memory: EncoderOutput, target_in: Int[Tensor, "B T"], record: bool = False) -> ModelOutput:
        """Logits of every next token, with teacher forcing."""
        raise NotImplementedError

    def forward(
        self, source: Tensor, source_mask: Bool[Tensor, "B S"], target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, T, V) of every next token."""
        if target_in is None:
            raise ValueError("A decoder needs target_in, which begins with the start mark.")
        return self.decode(self.encode(source, source_mask, record), target_in, record)

    def start(self, memory: EncoderOutput) -> Any:
        """The decoder's state before its first token; as in a Memory, every tensor in it has the batch first."""
        raise NotImplementedError

    def step(
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], Any, dict[str, list[Steps]]]:
        """Feed one token a row: the next token's logits, the new state, and this step's attention when recorded."""
        raise NotImplementedError


def with_source_attention(logits: Tensor, maps: dict[str, list[Steps]]) -> ModelOutput:
    """An output that looks at its source by cross-attention."""
    return ModelOutput(logits, maps, [steps.weights for steps in maps.get("cross", []) if steps.weights is not None])
