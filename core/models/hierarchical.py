"""The hierarchical attention network: words to sentences, sentences to a document and its class. Yang 2016."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from core.attention import Attention, Steps
from core.entries import ConfigError
from core.models.base import Model, ModelOutput, Shape
from core.models.config import ModelConfig
from core.models.inputs import check_shape, source_embedding
from core.models.recurrent import check_lengths


@dataclass(frozen=True)
class Sentences:
    """Where each token of a padded batch of documents stands: its sentence, and its position in it, both from 0.

    `counts` is the number of sentences of each document, at most N, and `longest` the most words of a sentence. Both
    numbers of a padding token mean nothing.
    """

    number: Int[Tensor, "B S"]
    position: Int[Tensor, "B S"]
    counts: Int[Tensor, " B"]
    longest: int

    @classmethod
    def of(cls, source: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"], end: int) -> Sentences:
        """A sentence reaches up to its end mark, the last one as far as the document."""
        starts = F.pad((source == end) & mask, (1, 0), value=True)[
            :, :-1
        ]  # the token after an end mark
        number = starts.cumsum(1) - 1
        places = torch.arange(source.shape[1], device=source.device)
        position = places - torch.where(starts, places, 0).cummax(1).values
        return cls(
            number,
            position,
            number.masked_fill(~mask, -1).amax(1) + 1,
            int(position.masked_fill(~mask, -1).amax()) + 1,
        )

    @property
    def real(self) -> Bool[Tensor, "B N"]:
        """Which sentences each document has."""
        return (
            torch.arange(int(self.counts.max()), device=self.counts.device) < self.counts[:, None]
        )

    def words_of(self, mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B N S"]:
        """Which tokens belong to each sentence."""
        index = torch.arange(int(self.counts.max()), device=mask.device)
        return (self.number[:, None] == index[:, None]) & mask[:, None]

    def rows(self) -> Int[Tensor, "B S"]:
        """The number of each token's sentence among all sentences of the batch."""
        return self.number + (self.counts.cumsum(0) - self.counts)[:, None]


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
            batch_first=True,
            dropout=dropout,
            bidirectional=config.bidirectional,
        )
        self.query = nn.Parameter(torch.randn(size))
        self.attention = Attention(config.required_attention)

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
        assert steps.merged is not None
        return steps.merged, steps


class Hierarchical(Model):
    """A classifier of documents: the words of each sentence give a vector, and these give one of the document.

    `maps` holds "words" (B, 1, N, S), a row a sentence, in which the words of all other sentences are masked, and
    "sentences" (B, 1, 1, N). Their product is the source attention; uniform attention gives every sentence as much,
    however many words it has.
    """

    def __init__(self, config: ModelConfig, shape: Shape) -> None:
        """ConfigError for a task that is no classification of tokens, or has no mark at the end of a sentence."""
        super().__init__()
        check_shape(config, shape, ("tokens",), ("label",))
        if not shape.sentence_end:
            raise ConfigError(
                "kind = hierarchical reads a document sentence by sentence, and this task has no token "
                "that ends a sentence; take kind = classifier."
            )
        self.config, self.sentence_end = config, shape.sentence_end
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
        where = Sentences.of(source, source_mask, self.sentence_end)
        members = where.words_of(source_mask)
        states = self._word_states(self.dropout(self.source(source)), source_mask, where)
        vectors, words = self.words.attend(states, members, record)
        encoded = self.sentences.encode(self.dropout(vectors), where.counts)
        document, sentences = self.sentences.attend(encoded, where.real[:, None], record)
        logits = self.output(self.dropout(document[:, 0]))
        if not record:
            return ModelOutput(logits)
        assert words.weights is not None and sentences.weights is not None
        shares = members / members.sum(2, keepdim=True).clamp(min=1)  # (B, N, S)
        return ModelOutput(
            logits,
            {"sentences": [sentences], "words": [words]},
            [sentences.weights @ words.weights],
            uniform=shares.sum(1, keepdim=True) / where.counts[:, None, None],
        )

    def _word_states(
        self, x: Float[Tensor, "B S C"], mask: Bool[Tensor, "B S"], where: Sentences
    ) -> Float[Tensor, "B S C"]:
        """The state of each token; the cells begin anew at each sentence."""
        rows, positions = where.rows()[mask], where.position[mask]
        grid = x.new_zeros(int(where.counts.sum()), where.longest, x.shape[-1])
        grid[rows, positions] = x[mask]
        states = self.words.encode(grid, torch.bincount(rows))
        out = states.new_zeros(x.shape)
        out[mask] = states[rows, positions]
        return out
