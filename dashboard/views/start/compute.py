"""A look-up of one query among a few keys: the hard one of a dictionary, and the soft one of attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.attention import attend
from dashboard.views.start.controls import Controls


@dataclass(frozen=True)
class Lookup:
    """The products q · k, the scores q · k / √D, the weights, the output, and the index of the equal key or None."""

    products: tuple[float, ...]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    output: float
    equal: int | None


def look_up(controls: Controls) -> Lookup:
    """Compute both look-ups; the soft one by core.attention.attend."""
    q = torch.tensor(controls.query).reshape(1, 1, 1, -1)
    k = torch.tensor(controls.keys)[None, None]  # (1, 1, S, D)
    v = torch.tensor(controls.values).reshape(1, 1, -1, 1)
    steps = attend(q, k, v)
    equal = [index for index, key in enumerate(controls.keys) if key == controls.query]
    products, scores, weights = (
        tuple(row[0, 0, 0].tolist()) for row in (q @ k.mT, steps.scores, steps.weights)
    )
    return Lookup(products, scores, weights, float(steps.out), equal[0] if equal else None)
