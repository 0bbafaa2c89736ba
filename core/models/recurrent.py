"""The recurrent seq2seq (Sutskever 2014), with attention as in Luong (2015) or Bahdanau (2014), or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from core.attention import OF_QUERIES, Attention, Steps
from core.entries import refuse_if
from core.models.base import (
    EncoderOutput,
    Model,
    ModelConfig,
    ModelOutput,
    Positions,
    Seq2Seq,
    Shape,
    source_embedding,
)
from core.models.transformer import cross_config, inner_config

CellState = Tensor | tuple[Tensor, Tensor]  # (B, layers, C); for an LSTM also its cell state
Maps = dict[str, list[Steps]]


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
        super().__init__(config, shape, ("tokens",), ("tokens",))
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
        # A hybrid's mask and position are those of its self-attention
        own = config.kind != "hybrid"
        attention = config.attention if own else cross_config(config.attention)
        self.attention: Any = None if attention is None else Attention(attention)
        self.readout = (
            nn.Linear(3 * size, 2 * size) if feeding == "bahdanau" else nn.Linear(2 * size, size)
        )
        self.output = nn.Linear(size, shape.target)
        if config.tied:
            self.output.weight = self.target.weight
            # so that logits begin near zero, too
            nn.init.normal_(self.target.weight, std=size**-0.5)
        self.dropout = nn.Dropout(config.dropout)

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
        # (B, L, directions, D)
        split = last.reshape(layers, directions, *last.shape[1:]).permute(2, 0, 1, 3)
        return split.flatten(2) if self.enter is None else torch.tanh(self.enter(split[:, :, -1]))

    def start(self, memory: EncoderOutput) -> RecurrentState:
        feedback = torch.zeros_like(memory.states[:, 0]) if self.config.feeding == "input" else None
        return RecurrentState(0, memory.last, feedback)

    def read(
        self,
        memory: EncoderOutput,
        state: RecurrentState,
        tokens: Int[Tensor, "B T"],
        record: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], RecurrentState, Maps]:
        words = self.dropout(self.target(tokens))
        mask = None if bool(memory.mask.all()) and not record else memory.mask
        outputs, recorded = [], []
        for part in (words,) if self.config.feeding == "none" else words.split(1, dim=1):
            output, state, steps = self._read_words(memory, mask, state, part, record)
            outputs.append(output)
            if record and steps is not None:
                recorded.append(steps)
        logits = self.output(self.dropout(torch.cat(outputs, dim=1)))
        if not recorded:
            return logits, state, {}
        # The Steps of single queries as one of all; k and v are the source's, the same at every step.
        whole: dict[str, Any] = {
            name: torch.cat([getattr(one, name) for one in recorded], dim=-2)
            for name in OF_QUERIES
            if getattr(recorded[0], name) is not None
        }
        return logits, state, {"cross": [replace(recorded[0], **whole)]}

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
    return (cells[0] if isinstance(cells, tuple) else cells)[:, -1:]


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


class HybridSeq2Seq(RecurrentSeq2Seq):
    """A recurrent encoder (as a rule a BiLSTM) under norm(x + self-attention(x)), and a recurrent decoder with
    cross-attention.

    The config's mask and position apply to the self-attention; the decoder sees all of the source. Feeding and readout
    are those of the recurrent model.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__(config, shape)
        self.places, self.norm = Positions(config, shape.longest), nn.LayerNorm(config.d_model)
        self.inner = Attention(inner_config(config.attention))

    def encode(
        self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False
    ) -> EncoderOutput:
        memory = super().encode(source, source_mask, record)
        masked = self.config.attention.mask.key != "none"  # it may read which keys are real
        key_mask = source_mask if masked or not bool(source_mask.all()) else None
        steps = self.inner(self.places(memory.states), key_mask=key_mask, record=record)
        states = self.norm(memory.states + self.dropout(steps.merged))
        return replace(memory, states=states, steps=(steps,) if record else ())


def sentences_of(
    source: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"], end: int
) -> Bool[Tensor, "B N S"]:
    """Which tokens belong to each sentence: it reaches up to its end mark, the last one as far as the document."""
    ended = F.pad((source == end) & mask, (1, 0), value=True)[:, :-1]  # by the token before
    number = (ended.cumsum(1) - 1).masked_fill(~mask, -1)
    return number[:, None] == torch.arange(int(number.max()) + 1, device=source.device)[:, None]


class Level(nn.Module):
    """States of a recurrent encoder h, and attention from one learned query to them. Yang 2016, equations 1 to 10.

    With score = additive, vᵀtanh(W₁h + W₂q) is the paper's u_wᵀtanh(W_w h + b_w): W₁ is W_w, v is u_w, and W₂q, which
    no input changes, is b_w.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size, directions = config.d_model, 2 if config.bidirectional else 1
        dropout = config.dropout if config.layers > 1 else 0.0  # between layers
        self.encoder = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell](
            size,
            size // directions,
            config.layers,
            dropout=dropout,
            bidirectional=config.bidirectional,
        )
        self.query = nn.Parameter(torch.randn(size))
        self.attention = Attention(config.attention)

    def encode(
        self, x: Float[Tensor, "M L C"], lengths: Int[Tensor, " M"]
    ) -> Float[Tensor, "M L C"]:
        """The states of M sequences of at least one element; those of padding are zero."""
        packed, _ = self.encoder(
            pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        )
        return pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0]

    def attend(
        self, states: Float[Tensor, "B S C"], mask: Bool[Tensor, "B T S"], record: bool
    ) -> tuple[Float[Tensor, "B T C"], Steps]:
        """One vector for each of T sets of states; `mask` says which states are in a set."""
        queries = self.query.expand(*mask.shape[:2], -1)
        steps = self.attention(
            queries, states, mask=mask[:, None], key_mask=mask.any(1), record=record
        )
        return steps.merged, steps


class Hierarchical(Model):
    """A classifier of documents: the words of each sentence give a vector, and these give one of the document.

    `maps` holds "words" (B, 1, N, S), a row a sentence, in which the words of all other sentences are masked, and
    "sentences" (B, 1, 1, N). Their product is the source attention; uniform attention gives every sentence as much,
    however many words it has.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        """ConfigError for a task that is no classification of tokens, or has no mark at the end of a sentence."""
        super().__init__(config, shape, ("tokens",), ("label",))
        refuse_if(
            not shape.sentence_end,
            "kind = hierarchical reads a document sentence by sentence, and this task has no token "
            "that ends a sentence; take kind = classifier.",
        )
        self.sentence_end = shape.sentence_end
        self.source = source_embedding(config, shape)
        self.words, self.sentences = Level(config), Level(config)
        self.output, self.dropout = (
            nn.Linear(config.d_model, shape.target),
            nn.Dropout(config.dropout),
        )

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_mask: Bool[Tensor, "B S"],
        target_in: Int[Tensor, "B T"] | None = None,
        record: bool = False,
    ) -> ModelOutput:
        """Logits (B, V) of the classes; ValueError for a row without a token, or with padding before its last one."""
        check_lengths(source_mask)
        members = sentences_of(source, source_mask, self.sentence_end)
        real = members.any(-1)  # (B, N): which sentences each document has
        x, lengths = self.dropout(self.source(source)), members.sum(-1)[real]
        states = self._word_states(x, source_mask, lengths)
        vectors, words = self.words.attend(states, members, record)
        encoded = self.sentences.encode(self.dropout(vectors), real.sum(1))
        document, sentences = self.sentences.attend(encoded, real[:, None], record)
        logits = self.output(self.dropout(document[:, 0]))
        if not record:
            return ModelOutput(logits)
        shares = members / members.sum(2, keepdim=True).clamp(min=1)  # (B, N, S)
        return ModelOutput(
            logits,
            {"sentences": [sentences], "words": [words]},
            [sentences.weights @ words.weights],
            uniform=shares.sum(1, keepdim=True) / real.sum(1)[:, None, None],
        )

    def _word_states(
        self, x: Float[Tensor, "B S C"], mask: Bool[Tensor, "B S"], lengths: Int[Tensor, " M"]
    ) -> Float[Tensor, "B S C"]:
        """The state of each token; the cells begin anew at each of M sentences of so many tokens, which are in order."""
        inside = torch.arange(int(lengths.max()), device=x.device) < lengths[:, None]
        grid = x.new_zeros(*inside.shape, x.shape[-1])
        grid[inside] = x[mask]
        states = self.words.encode(grid, lengths)
        out = states.new_zeros(x.shape)
        out[mask] = states[inside]
        return out
