"""The tree of a search: every candidate that it considered, and its outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

ROOT = -1


@dataclass
class Candidate:
    """One token after one prefix. `logp` is its log-probability there, `total` the sum from the start.

    `fate`: kept (the search continued with it), ended (it is an end mark), cut (kept at the last step), or dropped.
    `samples` counts the samples that drew it, `chance` is the probability with which each did.
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
    """One output: its last candidate in the tree, its tokens (with its end mark, if any), and its score."""

    leaf: int
    tokens: tuple[int, ...]
    logp: float
    score: float
    samples: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass
class Tree:
    """Candidates in the order of the search, and the outputs, best first."""

    candidates: list[Candidate] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, candidate: Candidate) -> int:
        self.candidates.append(candidate)
        return len(self.candidates) - 1

    def path(self, index: int) -> list[int]:
        """The indexes of the candidates from the first step to this one."""
        path = []
        while index != ROOT:
            path.append(index)
            index = self.candidates[index].parent
        return path[::-1]

    def tokens(self, index: int) -> tuple[int, ...]:
        """The tokens up to this candidate."""
        return tuple(self.candidates[step].token for step in self.path(index))

    def finish(self, index: int, score: float) -> None:
        """Add the output that ends on this candidate."""
        leaf = self.candidates[index]
        self.hypotheses.append(
            Hypothesis(index, self.tokens(index), leaf.total, score, leaf.samples)
        )
