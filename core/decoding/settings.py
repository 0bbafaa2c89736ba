"""The settings of a search for the next tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.decoding.filters import Sampling

Strategy = Literal["greedy", "beam", "sampling"]


@dataclass(frozen=True)
class SearchSettings:
    """A search strategy and its settings; settings of other strategies are ignored.

    `length_penalty` is the exponent by which a beam's log-probability is divided. No `no_repeat` tokens in a row are
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
