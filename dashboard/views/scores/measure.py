"""What each score makes of the same queries and keys, and what it can express, all measured on the built modules."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.scores import Score
from core.benchmark import Work, peak_bytes, workload
from dashboard.runtime.racing import ONE_AT_A_TIME
from dashboard.runtime.seeding import generator, seeded_layer
from dashboard.runtime.tokens import embed

TRIED_DIMS, TRIED_TOKENS = 8, 48  # where characters are measured: more tokens than dimensions, so that a rank shows
SPREAD = 0.5  # how far learned numbers are moved from where they start, so that gains of 1 are not taken as fixed
SAME = 1e-9  # relative, in double precision
TIMED_TOKENS, TIMED_WIDTH, TIMED_HEADS = 64, 64, 4
LONGEST_WAIT = 2.0  # seconds for another measurement on this server to end, before both share the machine
ROUNDS, LEAST_ROUNDS, PATIENCE = 20, 3, 0.8  # at most, at least, and the seconds after which no round begins


@dataclass(frozen=True, eq=False)
class Met:
    """One score on the page's queries and keys: q and k as they meet (T, D), scores and weights (T, S).

    `factors` gives, of each query and key, the numbers whose products add up to the raw score, None where none do.
    """

    key: str
    q: np.ndarray
    k: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    scale: float
    factors: tuple[np.ndarray, np.ndarray] | None
    learned: int


@dataclass(frozen=True)
class Character:
    """What a score can express, tried at D = 8 on 48 random queries and keys with its learned numbers moved.

    `rank` of its matrix; `symmetric`: s(a, b) = s(b, a); `twice`: the median of |s(2q, k) / s(q, k)|; `turned`: what
    turning q and k alike changes, as a share of the scores' spread.
    """

    rank: int
    symmetric: bool
    twice: float
    turned: float


def config_of(choice: Choice, dims: int) -> AttentionConfig:
    """One head of that size around the score."""
    return AttentionConfig(dims, 1, score=choice)


@torch.inference_mode()
def meet(choice: Choice, tokens: tuple[str, ...], dims: int, seed: int, stretch: float) -> Met:
    """The score on seeded q and k of the tokens; equal names have equal weights, so every score gets the same two."""
    layer = seeded_layer(config_of(choice, dims), seed)
    x = embed(tokens, dims, seed)
    q, k, v = layer.projection(x, x)
    steps = layer.recorded(replace(layer.problem(q * stretch, k, v, x, x), recorded=True))
    scale = float(torch.as_tensor(steps.scale).flatten()[0])
    matrices = (each[0, 0].numpy() for each in (steps.q, steps.k, steps.scores, steps.weights))
    learned = sum(weight.numel() for weight in layer.score.parameters())
    return Met(choice.key, *matrices, scale, factors_of(layer.score, steps.q[0, 0], steps.k[0, 0]), learned)


def factors_of(score: Score, q: Tensor, k: Tensor) -> tuple[np.ndarray, np.ndarray] | None:
    """For every pair of q (T, D) and k (S, D), (T, S, D) each."""
    rows, columns = len(q), len(k)
    pairs = q.repeat_interleave(columns, 0), k.repeat(rows, 1)
    found = score.factors(*(part[:, None, None] for part in pairs))  # as a batch of T·S times one query and one key
    if found is None:
        return None
    one, other = (part.reshape(rows, columns, -1).numpy() for part in found)
    return one, other


def tried(choice: Choice, seed: int) -> Score:
    """The score in double precision, with every learned number moved at random."""
    layer = Attention(config_of(choice, TRIED_DIMS)).double().requires_grad_(False)
    for name, weight in layer.score.named_parameters():
        weight += SPREAD * torch.randn(weight.shape, generator=generator(seed, name), dtype=weight.dtype)
    score: Score = layer.score
    return score


@torch.inference_mode()
def character(choice: Choice, seed: int) -> Character:
    """Measured, not looked up: the module is asked."""
    score, draw = tried(choice, seed), generator(seed, "character")
    a, b = (torch.randn(1, 1, TRIED_TOKENS, TRIED_DIMS, generator=draw, dtype=torch.float64) for _ in range(2))
    turn = torch.linalg.qr(torch.randn(TRIED_DIMS, TRIED_DIMS, generator=draw, dtype=torch.float64)).Q

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return score(*score.before_turning(q, k))[0, 0]

    usual = scores(a, b)
    spread = float(usual.std())
    apart = float((usual - scores(b, a).mT).abs().max()) / spread
    turned = float((usual - scores(a @ turn, b @ turn)).abs().mean()) / spread
    twice = float((scores(2 * a, b) / usual).abs().median())
    return Character(int(torch.linalg.matrix_rank(usual)), apart < SAME, twice, turned if turned > SAME else 0.0)


@dataclass(frozen=True)
class Timed:
    """One training step of an attention with the score: its seconds, and the most bytes alive at once."""

    seconds: float
    bytes: int


def processor_seconds(work: Work) -> float:
    """How long this thread computes in a call; waiting for its turn on a busy machine does not count."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def times(choices: tuple[Choice, ...], again: int) -> tuple[Timed, ...]:
    """Forward and backward of each, in rounds in turn; `again` only makes another measurement.

    The quickest round counts, in processor time: the clock would also say what else a shared machine was doing.
    """
    alone = ONE_AT_A_TIME.acquire(timeout=LONGEST_WAIT)
    try:
        return _times(choices)
    finally:
        if alone:
            ONE_AT_A_TIME.release()


def _times(choices: tuple[Choice, ...]) -> tuple[Timed, ...]:
    works = [workload(AttentionConfig(TIMED_WIDTH, TIMED_HEADS, score=choice), TIMED_TOKENS, backward=True)
             for choice in choices]
    held = [peak_bytes(work) for work in works]  # the first call, which also warms up
    rounds, started = [], time.perf_counter()
    while len(rounds) < LEAST_ROUNDS or (len(rounds) < ROUNDS and time.perf_counter() - started < PATIENCE):
        rounds.append([processor_seconds(work) for work in works])
    return tuple(Timed(min(each), size) for each, size in zip(zip(*rounds, strict=True), held, strict=True))
