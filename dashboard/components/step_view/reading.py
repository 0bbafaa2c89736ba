"""One head of one attention as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from core.attention import Steps

ONE = 5e-3  # how far from 1 a row's sum may be and still be written 1.00


@dataclass(frozen=True)
class Reading:
    """One query of one head, each step by name; arrays are (T, ·), T queries and S keys.

    Where a projection combines heads, all up to the mask is of one of them; `normalized` holds each one's weights.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    query: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    raw: np.ndarray
    scale: float
    bias: np.ndarray | None
    before: np.ndarray  # raw · scale + bias, which a position may still adjust
    scores: np.ndarray
    allowed: np.ndarray
    normalized: tuple[np.ndarray, ...]
    weights: np.ndarray
    out: np.ndarray
    position_values: np.ndarray | None

    @property
    def name(self) -> str:
        return self.queries[self.query]

    @property
    def sees(self) -> int:
        """How many keys the chosen query may see."""
        return int(self.allowed[self.query].sum())

    @property
    def best(self) -> int:
        """The visible key with most weight; the query's own position where it sees none."""
        if not self.sees:
            return min(self.query, len(self.keys) - 1)
        return int(np.where(self.allowed[self.query], self.weights[self.query], -np.inf).argmax())

    @property
    def sum(self) -> float:
        """What the weights of the chosen query add up to."""
        return float(self.weights[self.query].sum())

    @property
    def sums_to_one(self) -> bool:
        return abs(self.sum - 1) < ONE

    @property
    def signed(self) -> bool:
        """Whether any weight is below zero."""
        return bool((self.weights < 0).any())

    @property
    def adjusted(self) -> bool:
        """Whether the position changed the scores other than by a bias."""
        return self.before is not self.scores

    @property
    def reweighed(self) -> bool:
        """Whether the mask multiplied what the normalizer gave."""
        return len(self.normalized) == 1 and self.normalized[0] is not self.weights

    @property
    def folded(self) -> bool:
        return len(self.normalized) > 1


def folds(steps: Steps) -> int:
    """How many score heads are combined into one head of weights."""
    assert steps.raw is not None
    assert steps.weights is not None
    return steps.raw.shape[1] // steps.weights.shape[1]


def read(
    steps: Steps,
    queries: tuple[str, ...],
    keys: tuple[str, ...],
    query: int,
    head: int,
    *,
    half: int = 0,
    adjusts: bool = False,
) -> Reading:
    """One head and query of Steps, batch item 0, with the scores that only the exact kernel keeps.

    `half` is which of the combined heads is read; `adjusts` whether a position does more than add a bias.
    """
    raw, weights = steps.raw, steps.weights
    if raw is None or weights is None or steps.scores is None:
        raise ValueError("these Steps hold no scores; let the exact kernel make them")
    each = folds(steps)
    met = head * each + half

    def one(tensor: Tensor, at: int = met) -> np.ndarray:
        return tensor.detach()[0, at].double().numpy()

    def expand(tensor: Tensor) -> np.ndarray:
        return tensor.detach().expand(raw.shape)[0, met].numpy()

    scale = (
        float(expand(steps.scale)[0, 0]) if isinstance(steps.scale, Tensor) else float(steps.scale)
    )
    bias = None if steps.bias is None else expand(steps.bias).astype(float)
    scores, final = one(steps.scores), one(weights, head)
    before = one(raw) * scale + (0.0 if bias is None else bias) if adjusts else scores
    normalized = (
        tuple(one(steps.normalized, head * each + n) for n in range(each))
        if steps.normalized is not None
        else (final,)
    )
    return Reading(
        queries,
        keys,
        query,
        one(steps.q),
        one(steps.k),
        one(steps.v, head),
        one(raw),
        scale,
        bias,
        before,
        scores,
        np.ones(raw.shape[-2:], bool) if steps.mask is None else expand(steps.mask),
        normalized,
        final,
        one(steps.out, head),
        None if steps.position_values is None else one(steps.position_values, head),
    )
