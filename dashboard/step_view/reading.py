"""One head of one attention as plain numbers: what the picture, the equation and the sentence are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.attention import Steps


@dataclass(frozen=True)
class Reading:
    """A chosen query row (T queries, S keys) of a chosen head, every step of it by name; arrays are (T, ·)."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    query: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    raw: np.ndarray
    scale: float
    bias: np.ndarray | None
    scores: np.ndarray
    allowed: np.ndarray
    weights: np.ndarray
    out: np.ndarray

    @property
    def name(self) -> str:
        return self.queries[self.query]

    @property
    def sees(self) -> int:
        """How many keys the chosen query may see."""
        return int(self.allowed[self.query].sum())

    @property
    def best(self) -> int:
        """The key with most weight; the query's own place where it sees none."""
        return int(self.weights[self.query].argmax()) if self.sees else min(self.query, len(self.keys) - 1)


def read(steps: Steps, queries: tuple[str, ...], keys: tuple[str, ...], query: int, head: int) -> Reading:
    """One head and one query of Steps, batch item 0; exact kernels only, because a fused one keeps no scores."""
    shape = steps.raw.shape

    def one(tensor):
        return tensor.detach()[0, head].double().numpy()

    def spread(tensor):
        return tensor.detach().expand(shape)[0, head].numpy()

    allowed = np.ones(shape[-2:], bool) if steps.mask is None else spread(steps.mask)
    bias = None if steps.bias is None else spread(steps.bias).astype(float)
    return Reading(queries, keys, query, one(steps.q), one(steps.k), one(steps.v), one(steps.raw), float(steps.scale),
                   bias, one(steps.scores), allowed, one(steps.weights), one(steps.out))


def number(value: float, digits: int = 2) -> str:
    """A number as the screens write it: two decimals, U+2212 for minus, and never a minus before zero."""
    if not np.isfinite(value):
        return "not a number" if np.isnan(value) else ("∞" if value > 0 else "−∞")
    if abs(value) >= 1000:
        text = f"{value:.0f}" if abs(value) < 1e5 else f"{value:.1e}"
    else:
        text = f"{value:.{digits if abs(value) < 100 else 1}f}"
    return text[1:] if float(text) == 0 and text.startswith("-") else text.replace("-", "−")
