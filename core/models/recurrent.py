"""The recurrent seq2seq (Sutskever 2014), with attention as in Luong (2015) or Bahdanau (2014), or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from core.attention import Attention, AttentionConfig, Steps
from core.entries import ConfigError
from core.models.base import EncoderOutput, Seq2Seq, Shape
from core.models.config import ModelConfig

CellState = Tensor | tuple[Tensor, Tensor]  # (B, layers, C); for an LSTM also its cell state
Maps = dict[str, list[Steps]]
STEP_FIELDS = (
    "q",
    "out",
    "raw",
    "scores",
    "masked",
    "normalized",
    "weights",
    "position_values",
    "merged",
    "mask",
    "bias",
)


@dataclass(frozen=True)
class RecurrentState:
    """The number of words read, the decoder's cells, with input feeding h (B, C) of the step before, and the source's
    keys and values, which the first `step` computes."""

    position: int
    cells: CellState
    feedback: Tensor | None = None
    kv: tuple[Tensor, ...] | None = None


class RecurrentSeq2Seq(Seq2Seq):
    """An encoder, a decoder that starts from the encoder's last state, and logits from its state s and the context c.

    | feeding | step t, after the word y | input of the logits | paper |
    | --- | --- | --- | --- |
    | none | s = f(y, s⁻), c of s | h = tanh(W[c; s]) | Luong 2015, equation 5 |
    | input | s = f([y; h⁻], s⁻), c of s | h = tanh(W[c; s]) | Luong 2015, section 3.3 |
    | bahdanau | c of s⁻, s = f([y; c], s⁻) | maxout(W[s⁻; y; c]) | Bahdanau 2014, appendix A.2 |

    s⁻ and h⁻ are those of the step before. Without attention c is the encoder's last state at every step. Without
    feeding all steps of a known target run at once. Bahdanau's decoder starts from tanh(W s) of the backward encoder's
    last state s; the others start from the last states of both directions. His GRU resets before the product, U(r∘s),
    torch's after it, r∘(Us).
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        if (shape.input, shape.output) != ("tokens", "tokens"):
            raise ConfigError(
                f"kind = {config.kind} reads tokens and writes tokens, and this task has {shape.input} "
                f"and {shape.output}; take kind = classifier, transformer or forecaster."
            )
        self.config = config
        size, directions, feeding = config.d_model, 2 if config.bidirectional else 1, config.feeding
        cell = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell]
        dropout = config.dropout if config.layers > 1 else 0.0  # between layers
        self.source, self.target = (
            nn.Embedding(shape.source, size),
            nn.Embedding(shape.target, size),
        )
        self.encoder = cell(
            size,
            size // directions,
            config.layers,
            batch_first=True,
            dropout=dropout,
            bidirectional=config.bidirectional,
        )
        self.enter = nn.Linear(size // directions, size) if feeding == "bahdanau" else None
        self.decoder = cell(
            size if feeding == "none" else 2 * size,
            size,
            config.layers,
            batch_first=True,
            dropout=dropout,
        )
        attention = self.decoder_attention(config)
        self.attention: Any = None if attention is None else Attention(attention)
        self.readout = (
            nn.Linear(3 * size, 2 * size) if feeding == "bahdanau" else nn.Linear(2 * size, size)
        )
        self.output = nn.Linear(size, shape.target)
        if config.tied:
            self.output.weight = self.target.weight
            nn.init.normal_(
                self.target.weight, std=size**-0.5
            )  # so that logits begin near zero, too
        self.dropout = nn.Dropout(config.dropout)

    def decoder_attention(self, config: ModelConfig) -> AttentionConfig | None:
        """The attention of the decoder to the source."""
        return config.attention

    def encode(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        """ValueError for a row without a token, or with padding before its last one."""
        x, lengths = self.dropout(self.source(source)), check_lengths(source_mask)
        if bool(source_mask.all()):
            states, last = self.encoder(x)
        else:
            packed, last = self.encoder(
                pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            )
            states, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        return EncoderOutput(states, source_mask, map_cells(self._last, last))

    def _last(self, last: Float[Tensor, "LD B D"]) -> Float[Tensor, "B L C"]:
        """The last states of both directions, concatenated; for Bahdanau tanh(W s) of the backward one."""
        layers, directions = self.config.layers, 2 if self.config.bidirectional else 1
        split = last.reshape(layers, directions, *last.shape[1:]).permute(
            2, 0, 1, 3
        )  # (B, L, directions, D)
        return split.flatten(2) if self.enter is None else torch.tanh(self.enter(split[:, :, -1]))

    def start(self, memory: EncoderOutput) -> RecurrentState:
        feedback = torch.zeros_like(memory.states[:, 0]) if self.config.feeding == "input" else None
        return RecurrentState(0, memory.last, feedback)

    def read(
        self, memory: EncoderOutput, state: RecurrentState, tokens: Int[Tensor, "B T"], record: bool
    ) -> tuple[Float[Tensor, "B T V"], RecurrentState, Maps]:
        words = self.dropout(self.target(tokens))
        mask = None if bool(memory.mask.all()) and not record else memory.mask
        outputs, recorded = [], []
        for part in (words,) if self.config.feeding == "none" else words.split(1, dim=1):
            output, state, steps = self._read_words(memory, mask, state, part, record)
            outputs.append(output)
            if record and steps is not None:
                recorded.append(steps)
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        logits = self.output(self.dropout(output))
        return logits, state, {"cross": [concat_steps(recorded)]} if recorded else {}

    def step(
        self,
        memory: EncoderOutput,
        state: RecurrentState,
        tokens: Int[Tensor, " B"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B V"], RecurrentState, Maps]:
        if self.attention is not None and state.kv is None:
            state = replace(state, kv=self.attention.keys_values(memory.states, memory.mask))
        return super().step(memory, state, tokens, record)

    def _read_words(
        self,
        memory: EncoderOutput,
        mask: Tensor | None,
        state: RecurrentState,
        words: Float[Tensor, "B T C"],
        record: bool,
    ) -> tuple[Float[Tensor, "B T C"], RecurrentState, Steps | None]:
        """The input of the logits, the new state, and the Steps: for one word, for any number without feeding."""
        options = {"key_mask": mask, "offset": state.position, "record": record, "kv": state.kv}
        if self.config.feeding == "bahdanau":
            before = top_layer(state.cells)
            steps = self.attention(before, memory.states, **options)
            _, cells = self._cell(torch.cat((words, steps.merged), dim=-1), state.cells)
            pairs = self.readout(torch.cat((before, words, steps.merged), dim=-1)).unflatten(
                -1, (-1, 2)
            )
            return pairs.amax(-1), replace(state, position=state.position + 1, cells=cells), steps
        inputs = (
            words if state.feedback is None else torch.cat((words, state.feedback[:, None]), dim=-1)
        )
        s, cells = self._cell(inputs, state.cells)
        steps = None if self.attention is None else self.attention(s, memory.states, **options)
        context = top_layer(memory.last).expand_as(s) if steps is None else steps.merged
        h = torch.tanh(self.readout(torch.cat((context, s), dim=-1)))
        feedback = None if state.feedback is None else h[:, 0]
        return h, RecurrentState(state.position + s.shape[1], cells, feedback, state.kv), steps

    def _cell(
        self, x: Float[Tensor, "B T I"], cells: CellState
    ) -> tuple[Float[Tensor, "B T C"], CellState]:
        """One or more steps of the decoder; torch's states have the layers first, a RecurrentState the batch."""
        x, cells = self.decoder(x, map_cells(batch_first, cells))
        return x, map_cells(batch_first, cells)


def map_cells(change: Callable[[Tensor], Tensor], cells: Any) -> Any:
    """change(state) for a GRU's state, or for both of an LSTM's."""
    return tuple(map(change, cells)) if isinstance(cells, tuple) else change(cells)


def batch_first(cells: Float[Tensor, "L B C"]) -> Float[Tensor, "B L C"]:
    return cells.transpose(0, 1).contiguous()


def top_layer(cells: CellState) -> Float[Tensor, "B 1 C"]:
    """The state of the highest layer."""
    return (cells[0] if isinstance(cells, tuple) else cells)[:, -1:]


def concat_steps(steps: Sequence[Steps]) -> Steps:
    """The Steps of single queries as one of all queries; k and v are the source's, the same at every step."""
    whole: dict[str, Any] = {
        name: torch.cat([getattr(one, name) for one in steps], dim=-2)
        for name in STEP_FIELDS
        if getattr(steps[0], name) is not None
    }
    return replace(steps[0], **whole)


def check_lengths(mask: Bool[Tensor, "B S"]) -> Int[Tensor, " B"]:
    """The number of tokens of each row; ValueError unless every row has some, all before its padding."""
    lengths = mask.sum(1).cpu()
    if mask.shape[1] == 0 or bool((lengths == 0).any()):
        raise ValueError("Each source needs at least one token.")
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError(
            "Padding must follow the tokens of a source, not come before or between them."
        )
    return lengths
