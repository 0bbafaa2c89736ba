"""The recurrent seq2seq (Sutskever 2014) with Luong's readout (2015), asking any attention, or none."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from core.attention import Attention, Steps
from core.models.base import Memory, ModelOutput, Seq2Seq, Shape, recorded
from core.models.config import ModelConfig

Cells = Tensor | tuple[Tensor, Tensor]  # (layers, B, C), and the cell's own for an LSTM
State = tuple[int, Cells]  # how many words were read, and what is remembered of them


class RecurrentSeq2Seq(Seq2Seq):
    """An encoder, a decoder that starts from its last state, and logits from tanh(W[c; s]). Luong 2015, equation 5.

    c is what the attention finds for the decoder state s; without attention it is the encoder's last state, the same
    at every step. c is not fed back into the cells, so all steps of a known target run at once.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        super().__init__()
        self.config = config
        size, directions = config.d_model, 2 if config.bidirectional else 1
        cell = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell]
        between = config.dropout if config.layers > 1 else 0.0
        self.source, self.target = nn.Embedding(shape.source, size), nn.Embedding(shape.target, size)
        self.encoder = cell(size, size // directions, config.layers, batch_first=True, dropout=between,
                            bidirectional=config.bidirectional)
        self.decoder = cell(size, size, config.layers, batch_first=True, dropout=between)
        self.attention = None if config.attention is None else Attention(config.attention)
        self.readout, self.output = nn.Linear(2 * size, size), nn.Linear(size, shape.target)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"], record: bool = False) -> Memory:
        """ValueError for a row without a token, or with padding before its last one."""
        x, lengths = self.dropout(self.source(source)), check_lengths(source_mask)
        if bool(source_mask.all()):
            states, last = self.encoder(x)
        else:
            packed, last = self.encoder(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            states, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        last = tuple(map(self._join, last)) if isinstance(last, tuple) else self._join(last)
        return Memory(states, source_mask, last)

    def _join(self, last: Float[Tensor, "LD B D"]) -> Float[Tensor, "L B C"]:
        """The last states of both directions, side by side."""
        layers, directions = self.config.layers, 2 if self.config.bidirectional else 1
        split = last.reshape(layers, directions, *last.shape[1:])
        return split.transpose(1, 2).flatten(2).contiguous()  # (L, B, C)

    def decode(self, memory: Memory, target_in: Int[Tensor, "B T"], record: bool = False) -> ModelOutput:
        logits, _, maps = self._run(memory, self.start(memory), target_in, record)
        return recorded(logits, maps)

    def start(self, memory: Memory) -> State:
        return 0, memory.last

    def step(
        self, memory: Memory, state: State, tokens: Int[Tensor, " B"], record: bool = False
    ) -> tuple[Float[Tensor, "B V"], State, dict[str, list[Steps]]]:
        logits, state, maps = self._run(memory, state, tokens[:, None], record)
        return logits[:, 0], state, maps

    def _run(
        self, memory: Memory, state: State, tokens: Int[Tensor, "B T"], record: bool
    ) -> tuple[Float[Tensor, "B T V"], State, dict[str, list[Steps]]]:
        place, cells = state
        s, cells = self.decoder(self.dropout(self.target(tokens)), cells)  # (B, T, C)
        if self.attention is None:
            last = memory.last[0] if isinstance(memory.last, tuple) else memory.last
            context, maps = last[-1][:, None].expand_as(s), {}
        else:
            key_mask = None if bool(memory.mask.all()) and not record else memory.mask
            steps = self.attention(s, memory.states, key_mask=key_mask, offset=place, record=record)
            context, maps = steps.merged, {"cross": [steps]} if record else {}
        read = torch.tanh(self.readout(torch.cat((context, s), dim=-1)))
        return self.output(self.dropout(read)), (place + s.shape[1], cells), maps


def check_lengths(mask: Bool[Tensor, "B S"]) -> Int[Tensor, " B"]:
    """How many tokens each row has; ValueError unless every row has some, all before its padding."""
    lengths = mask.sum(1).cpu()
    if mask.shape[1] == 0 or bool((lengths == 0).any()):
        raise ValueError("A source without a single token cannot be read; give each at least one.")
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError("Padding must follow the tokens of a source, not stand before or between them.")
    return lengths
