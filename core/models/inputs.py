"""Embeddings of each type of source, positions, and the concatenation of two padded sequences."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from core.entries import ConfigError, find
from core.models.base import Shape
from core.models.config import ModelConfig
from core.positions import POSITIONS


class Positions(nn.Module):
    """Adds absolute positions, where the config has them, and dropout. Vaswani 2017, sections 3.5 and 5.4."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        """ConfigError where a table of positions is shorter than `max_length`."""
        super().__init__()
        longest = int(dict(config.required_attention.position.params).get("max_len", max_length))
        if longest < max_length:
            raise ConfigError(
                f"position = learned has max_len = {longest}, but the task reaches {max_length}; "
                f"take max_len ≥ {max_length}, or a position without a table (sinusoidal, rope, alibi)."
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

    def tie(self, output: nn.Linear) -> None:
        """Share the matrix with the output layer. It then begins at N(0, 0.02²) (Radford 2018, section 4.1): as large
        as without sharing, it would have each token predict itself."""
        output.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)


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
        source = source.nan_to_num()  # a missing number is masked, but 0 · NaN would be NaN
        weights, tables = iter(self.weight), iter(self.categories)
        parts = [
            next(tables)(column.long()) if count else column[:, None] * next(weights)
            for count, column in zip(self.columns, source.unbind(1), strict=True)
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
        if value not in fitting:
            raise ConfigError(
                f"kind = {config.kind} {name} {' or '.join(fitting)}, and this task has {value}; take "
                "one of the kinds that the task names."
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
    """The vectors at those positions."""
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
