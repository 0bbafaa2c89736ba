"""The tree that a search grows: every candidate that it weighed, and the outputs that came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

ROOT = -1


@dataclass
class Candidate:
    """One token after one beginning. `logp` is what the model gives it there, `total` the sum from the start.

    `fate`: kept (the search went on with it), ended (it is the end mark), cut (kept to the last step allowed), or
    dropped. `drawn` counts the samples that took it, `chance` is the probability that each had of it.
    """

    token: int
    parent: int
    step: int
    logp: float
    total: float
    fate: str = "dropped"
    samples: int = 0
    chance: float | None = None


@dataclass(frozen=True)
class Hypothesis:
    """One output: where it ends in the tree, its tokens (its end mark too, if it has one), and what it is ranked by."""

    leaf: int
    tokens: tuple[int, ...]
    logp: float
    score: float
    samples: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass
class Tree:
    """Candidates in the order in which they were weighed, and the outputs, best first."""

    candidates: list[Candidate] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, candidate: Candidate) -> int:
        self.candidates.append(candidate)
        return len(self.candidates) - 1

    def path(self, place: int) -> list[int]:
        """The places of the candidates from the first step to this one."""
        places = []
        while place != ROOT:
            places.append(place)
            place = self.candidates[place].parent
        return places[::-1]

    def tokens(self, place: int) -> tuple[int, ...]:
        """What was said up to this candidate."""
        return tuple(self.candidates[step].token for step in self.path(place))

    def prefixes(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        return [self.tokens(place) for place in places]

    def finish(self, place: int, score: float) -> None:
        one = self.candidates[place]
        self.hypotheses.append(Hypothesis(place, self.tokens(place), one.total, score, one.samples))
