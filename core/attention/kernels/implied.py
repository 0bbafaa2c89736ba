"""What the kernels without a score matrix share: q and k with the scale in them, the keys that are real, the Steps."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from core.attention.kernels.base import Problem, Steps, precise
from core.attention.kernels.refusals import (
    Reason,
    drops_weights,
    enters_scores,
    folded,
    mask_beyond,
    not_product,
    not_softmax,
    refused,
    reweighed,
)
from core.entries import ConfigError

IMPLIED = frozenset({"implied"})  # the trait of a kernel whose weights are another matrix than exact's
PADDING_ONLY = ("none", "padding")
CAUSAL_TOO = ("none", "causal", "padding")


def needs_plain_rows(kernel: str, *masks: str) -> Reason:
    """The `refuse` of a kernel that stands for a softmax over dot products, under no mask but these."""
    return refused(kernel, not_product, not_softmax, enters_scores, reweighed, folded, drops_weights,
                   mask_beyond(*masks))


def meeting(problem: Problem) -> tuple[Tensor, Tensor, float | Tensor]:
    """q and k in at least fp32, and what their dot product is multiplied by to be the score."""
    q, k = problem.score.prepare(problem.q, problem.k)
    return precise(q), precise(k), problem.score.scale / problem.normalizer.temperature


def scaled(problem: Problem) -> tuple[Tensor, Tensor]:
    """q and k whose dot product is the score: each takes the root of the scale."""
    q, k, scale = meeting(problem)
    if isinstance(scale, float) and scale == 1.0:
        return q, k
    root = scale.abs().sqrt() if isinstance(scale, Tensor) else abs(scale) ** 0.5
    return q * (scale / root), k * root


def seen_keys(problem: Problem, kernel: str) -> Tensor | None:
    """Which keys are real, (B, 1, 1, S); ConfigError for what came with the call and cannot be honoured."""
    if problem.added is not None:
        raise ConfigError(f"kernel = {kernel} makes no scores that a bias could be added to; take kernel = exact.")
    given, real = problem.given, problem.cells.key_mask
    if given is not None:
        if given.dim() > 1 and given.shape[-2] > 1 or given.dim() > 2 and given.shape[-3] > 1:
            raise ConfigError(f"kernel = {kernel} makes no scores that a mask of {tuple(given.shape)} could hide; take "
                              "a mask of keys alone, (B, 1, 1, S), or kernel = exact.")
        given = given.reshape(-1, 1, 1, given.shape[-1])
        real = given if real is None else real & given
    return real


def steps(problem: Problem, out: Tensor, weights: Callable[[], Tensor]) -> Steps:
    """The output, and, where they are asked for, the weights that it amounts to."""
    mask, drawn = (problem.allowed(), weights().to(problem.q.dtype)) if problem.recorded else (None, None)
    return Steps(problem.q, problem.k, problem.v, problem.score.scale, None, mask, out.to(problem.v.dtype),
                 weights=drawn, implied=True)
