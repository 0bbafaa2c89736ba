"""The interface of every model: Shape, ModelOutput, and encoding and stepwise decoding (Seq2Seq)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from core.attention import Steps
from core.attention.positions import POSITIONS
from core.entries import find, refuse_if
from core.models.config import ModelConfig
from core.tokens import token_text


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
    """An encoder and a decoder; `step` gives the same numbers as `forward` for the same prefix.

    With `one_length` all sources that are decoded together have one length.
    """

    one_length = False

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
        self, memory: EncoderOutput, state: Any, tokens: Int[Tensor, "B T"], record: bool = False
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
    return [one.weights for one in steps if one.weights is not None]


BEGIN, END, CLASS, ROW, AHEAD = "<bos>", "<eos>", "[class]", "row", "+"
SENTENCE, SENTENCE_END = "sentence", "."
Tokens = tuple[str, ...]


def map_tokens(
    config: ModelConfig, kind: str, source: Sequence[str], target: Sequence[str] | None
) -> tuple[Tokens, Tokens]:
    """The tokens of the rows and of the columns of a map of that kind (as in core.interpret.trace), and so its size. `target`
    is None where the model reads no target (a language model, a classifier); a forecaster's are its values."""
    source_tokens, target_tokens = (
        tuple(token_text(str(token)) for token in line) for line in (source, target or ())
    )
    if kind in ("words", "sentences"):
        sentences = tuple(f"{SENTENCE} {i + 1}" for i in range(len(sentence_spans(source))))
        return (sentences, source_tokens) if kind == "words" else ((CLASS,), sentences)
    if kind == "cross":
        return (*target_tokens, END), source_tokens
    if kind == "causal":
        fed_tokens = () if target is None else (BEGIN, *target_tokens)
        both = (*source_tokens, *fed_tokens) if config.kind == "decoder" else fed_tokens
        return both, both
    if config.kind == "one_token":
        return (ROW,), (ROW,)
    if config.kind == "classifier" and config.pool == "first":
        source_tokens = (CLASS, *source_tokens)
    if config.kind == "forecaster":
        source_tokens = (
            *source_tokens,
            *(f"{AHEAD}{step}" for step in range(1, len(target_tokens) + 1)),
        )
    return source_tokens, source_tokens


def sentence_spans(source: Sequence[str]) -> tuple[range, ...]:
    """The positions of each sentence's tokens; a sentence reaches up to its end mark, the last one to the end."""
    ends = [i + 1 for i, token in enumerate(source) if token == SENTENCE_END]
    return tuple(
        range(start, end)
        for start, end in zip([0, *ends], [*ends, len(source)], strict=True)
        if start < end
    )


class Positions(nn.Module):
    """Adds absolute positions, where the config has them, and dropout. Vaswani 2017, sections 3.5 and 5.4."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        """ConfigError where a table of positions is shorter than `max_length`."""
        super().__init__()
        longest = int(dict(config.required_attention.position.params).get("max_len", max_length))
        refuse_if(
            longest < max_length,
            f"position = learned has max_len = {longest}, but the task reaches {max_length}; "
            f"take max_len ≥ {max_length}, or a position without a table (sinusoidal, rope, alibi).",
        )
        self.position = find(POSITIONS, "position", config.required_attention.position.key).build(
            config.required_attention
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B S C"], offset: int = 0) -> Float[Tensor, "B S C"]:
        return self.dropout(self.position.add(x, offset))


class TokenEmbedding(nn.Module):
    """√C · E[token]. Vaswani 2017, section 3.4."""

    def __init__(self, vocab: int, size: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, size)
        nn.init.normal_(self.token.weight, std=size**-0.5)
        self.scale = math.sqrt(size)

    def forward(self, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "B S C"]:
        return self.token(tokens) * self.scale

    def tie(self, output: nn.Linear, layers: nn.ModuleList) -> None:
        """Share the matrix with the output layer. It then begins at N(0, σ²) with σ = 2/C, at most 0.05: as large as
        without sharing, it would have each token predict itself. So that L layers do not drown so small an input, what
        their 2L sublayers add begins 1/√(2L) as large (Radford 2019, section 2.3)."""
        output.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=min(0.05, 2 / self.token.embedding_dim))
        for name, weight in layers.named_parameters():
            if name.endswith(("projection.output.weight", "feed_forward.outer.weight")):
                weight.data *= (2 * len(layers)) ** -0.5


class FeatureEmbedding(nn.Module):
    """A table's row as tokens: a number times its column's vector, or the embedding of a category (given by its index),
    plus the column's bias. Gorishniy 2021, section 3.3."""

    def __init__(self, columns: tuple[int, ...], size: int) -> None:
        """`columns` holds 0 for a number, else how many categories the column has."""
        super().__init__()
        self.columns = columns
        self.weight = nn.Parameter(torch.randn(sum(not count for count in columns), size))
        self.bias = nn.Parameter(torch.randn(len(columns), size))
        self.categories = nn.ModuleList(nn.Embedding(count, size) for count in columns if count)

    def forward(self, source: Float[Tensor, "B F"]) -> Float[Tensor, "B F C"]:
        """One vector a column; ValueError for another number of columns."""
        if source.shape[1] != len(self.columns):
            raise ValueError(
                f"A row has {source.shape[1]} columns; this model reads {len(self.columns)}."
            )
        weights, tables = iter(self.weight), iter(self.categories)
        columns = source.nan_to_num().unbind(1)  # missing is masked, but 0 · NaN would be NaN
        parts = [
            next(tables)(column.long()) if count else column[:, None] * next(weights)
            for count, column in zip(self.columns, columns, strict=True)
        ]
        return torch.stack(parts, dim=1) + self.bias


def source_embedding(config: ModelConfig, shape: Shape) -> nn.Module:
    """The embedding of a source of that shape, to (B, S, C), before positions."""
    if shape.input == "tokens":
        return TokenEmbedding(shape.source, config.d_model)
    if shape.input == "features":
        return FeatureEmbedding(shape.columns, config.d_model)
    return nn.Linear(
        shape.source, config.d_model
    )  # a patch or a moment is numbers: Dosovitskiy 2021, equation 1


def check_shape(
    config: ModelConfig, shape: Shape, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    """ConfigError unless the model can read such an input and give such an output."""
    for name, value, fitting in (
        ("reads", shape.input, inputs),
        ("answers with", shape.output, outputs),
    ):
        refuse_if(
            value not in fitting,
            f"kind = {config.kind} {name} {' or '.join(fitting)}, and this task has {value}; take "
            "one of the kinds that the task names.",
        )


def concatenate(
    first: Float[Tensor, "B S C"], first_mask: Bool[Tensor, "B S"], second: Float[Tensor, "B T C"]
) -> tuple[Float[Tensor, "B L C"], Int[Tensor, "B T"]]:
    """Each row's real part of `first`, then `second` without a gap, and the positions of `second`. L = S + T; the
    padding moves to the end, where the causal mask hides it from real positions."""
    (_, size, _), length = first.shape, second.shape[1]
    lengths = first_mask.sum(1, keepdim=True)  # (B, 1)
    positions = lengths + torch.arange(length, device=first.device)
    both = torch.cat((first, second), dim=1)
    if bool((lengths == size).all()):
        return both, positions
    index = torch.arange(size + length, device=first.device).expand(len(first), -1)
    moved = torch.where(index < lengths, index, index - lengths + size).clamp(
        max=size + length - 1
    )  # (B, L)
    return gather_positions(both, moved), positions


def gather_positions(
    x: Float[Tensor, "B L C"], positions: Int[Tensor, "B T"]
) -> Float[Tensor, "B T C"]:
    return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))


def gather_rows(
    weights: Float[Tensor, "B H L K"],
    positions: Int[Tensor, "B T"],
    source_mask: Bool[Tensor, "B S"],
) -> Float[Tensor, "B H T S"]:
    """The rows of a map at those positions, on the columns of the source; 0 where the source is padding."""
    keys = source_mask.shape[1]
    index = positions[:, None, :, None].expand(-1, weights.shape[1], -1, keys)
    return weights[..., :keys].gather(2, index) * source_mask[:, None, None]


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Hooks on modules, which are removed at the end of the block."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield
