"""Induction scores of generated text: how much each head attends to earlier positions of the next token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from core.trace import AttentionMap, AttentionTrace


def induction_score(item: AttentionMap, keys: Sequence[int],
                    generated: Sequence[int]) -> Float[np.ndarray, " H"] | None:  # fmt: skip
    """The mean weight of each head on earlier positions of the token that a step generates, over eligible steps.

    A step is eligible where such a position is visible; None without any. Induction heads score high (Olsson et al.
    2022, section 2). `keys` (S) and `generated` (T) are the ids of the map's columns and of its rows.
    """
    same = _same(item, keys, generated)
    able = same.any(-1)
    return (item.weights * same).sum(-1)[:, able].mean(-1) if able.any() else None


def uniform_induction_score(
    item: AttentionMap, keys: Sequence[int], generated: Sequence[int]
) -> float:
    """The same score for uniform attention; 0 where no step is eligible."""
    same = _same(item, keys, generated)
    able = same.any(-1)
    return float((same.sum(-1) / item.visible[0].sum(-1))[able].mean()) if able.any() else 0.0


def count_eligible_steps(item: AttentionMap, keys: Sequence[int], generated: Sequence[int]) -> int:
    """How many steps generate a token that is among their visible keys."""
    return int(_same(item, keys, generated).any(-1).sum())


def _same(item: AttentionMap, keys: Sequence[int], generated: Sequence[int]) -> np.ndarray:
    return (np.asarray(generated)[:, None] == np.asarray(keys)[None, :]) & item.visible[0]


def most_informative_head(
    trace: AttentionTrace, keys: Sequence[int], generated: Sequence[int]
) -> tuple[int, int]:
    """The (map, head) with the highest induction score; without one, that with the highest maximum weights.

    The first position does not count: it is an attention sink."""
    best, head_index = -1.0, (0, 0)
    for layer, item in enumerate(trace.maps):
        scores = induction_score(item, keys, generated) if item.kind != "cross" else None
        first = 0 if item.kind == "cross" or item.weights.shape[-1] == 1 else 1
        sharp = item.weights[:, :, first:].max(-1).mean(-1)
        for head, score in enumerate(sharp if scores is None else 1 + scores):
            if score > best:
                best, head_index = float(score), (layer, head)
    return head_index
