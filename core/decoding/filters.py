"""The settings of a search, and filters of the next token's distribution: temperature, top-k, top-p, no repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

NEVER = -torch.inf
Strategy = Literal["greedy", "beam", "sampling"]


@dataclass(frozen=True)
class Sampling:
    """Temperature, then top-k (Fan 2018), then top-p (Holtzman 2020, section 3); top_k = 0 and top_p = 1 keep all
    tokens. ValueError for a setting out of bounds."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.temperature <= 10:
            raise ValueError(f"temperature = {self.temperature}; expected 0.05 to 10.")
        if self.top_k < 0:
            raise ValueError(f"top_k = {self.top_k}; expected 0, for all tokens, or more.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}; expected more than 0, up to 1.")

    def reshape(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """The logits of the distribution to sample from; −∞ for a token that is filtered out."""
        logits = logits / self.temperature
        if self.top_k:
            logits = top_k(logits, self.top_k)
        return top_p(logits, self.top_p) if self.top_p < 1 else logits


@dataclass(frozen=True)
class SearchSettings:
    """A search strategy and its settings; those of other strategies are ignored.

    `length_penalty` is the exponent of the divisor of a beam's log-probability. No `no_repeat` tokens in a row are
    generated twice (0: no limit). `longest` is the largest number of new tokens. The searches check the bounds.
    """

    strategy: Strategy = "greedy"
    width: int = 4
    length_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    samples: int = 5
    seed: int = 0
    no_repeat: int = 0
    longest: int = 20

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


def top_k(logits: Float[Tensor, "B V"], k: int) -> Float[Tensor, "B V"]:
    """−∞ for all below the k-th largest; ties with it stay."""
    least = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return logits.masked_fill(logits < least, NEVER)


def top_p(logits: Float[Tensor, "B V"], p: float) -> Float[Tensor, "B V"]:
    """−∞ for all but the fewest likeliest tokens that together have at least probability p; one always stays."""
    ordered, order = logits.sort(descending=True, stable=True)
    share = ordered.softmax(-1)
    beyond = share.cumsum(-1) - share >= p  # the tokens before have p already
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), NEVER)


def no_repeat(
    logits: Float[Tensor, "B V"], prefixes: Sequence[Sequence[int]], n: int
) -> Float[Tensor, "B V"]:
    """−∞ for a token that would complete an n-gram that its row has already; n = 0 forbids none. Paulus 2017, section
    2.5."""
    if n < 0:
        raise ValueError(f"no_repeat = {n}; expected 0, for none, or more.")
    logits = logits.clone() if n else logits
    for row, tokens in enumerate(prefixes if n else ()):
        last = tuple(tokens[len(tokens) - n + 1 :])
        repeated = [
            tokens[i + n - 1]
            for i in range(len(tokens) - n + 1)
            if tuple(tokens[i : i + n - 1]) == last
        ]
        logits[row, repeated] = NEVER
    return logits
