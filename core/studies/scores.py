"""Scores of the same queries and keys by each rule, and what each rule costs.

`make generated` saves the times of rules that have none yet, `make scores` those of all.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from core.attention import AXES, AttentionConfig, Choice, ConfigError, entry
from core.attention.cost import peak_bytes, seconds, workload
from core.attention.properties import score_properties
from core.plugins import describe
from core.seeding import seeded_layer
from core.studies.efficient import Saved, alone, save
from core.tokens import embed

TIMED_TOKENS, TIMED_WIDTH, TIMED_HEADS = 64, 64, 4
MAX_ROUNDS, MIN_ROUNDS, TIME_LIMIT = 20, 3, 0.8  # seconds


@dataclass(frozen=True, eq=False)
class ScoreMaps:
    """One score on the page's queries and keys: q and k (T, D), scores and weights (T, S).

    `factors` holds, for each query and key, the numbers whose products sum to the raw score; None where none do.
    """

    key: str
    q: np.ndarray
    k: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    scale: float
    factors: tuple[np.ndarray, ...] | None
    parameters: int


def query_rows(maps: Sequence[ScoreMaps], query: int) -> np.ndarray:
    """What one query takes from each key, a row a score: (N, S)."""
    return np.stack([each.weights[query] for each in maps])


@torch.inference_mode()
def score_maps(
    choice: Choice, tokens: tuple[str, ...], dims: int, seed: int, stretch: float
) -> ScoreMaps:
    """Score seeded q and k of the tokens, which are the same for every score: equal names have uniform weights."""
    layer = seeded_layer(AttentionConfig(dims, 1, score=choice), seed)
    x = embed(tokens, dims, seed)
    q, k, v = layer.projection(x, x)
    steps = layer.attend_heads(q * stretch, k, v, x, x)
    scale = float(torch.as_tensor(steps.scale).flatten()[0])
    queries, keys, scores, weights = (
        each[0, 0].numpy() for each in (steps.q, steps.k, steps.scores, steps.weights)
    )
    size = len(tokens)
    # Of every pair: a batch of T·S, one query and one key each
    factors = layer.score.factors(
        steps.q[0, 0].repeat_interleave(size, 0)[:, None, None],
        steps.k[0, 0].repeat(size, 1)[:, None, None],
    )
    return ScoreMaps(
        choice.key,
        queries,
        keys,
        scores,
        weights,
        scale,
        None if factors is None else tuple(f.reshape(size, size, -1).numpy() for f in factors),
        sum(weight.numel() for weight in layer.score.parameters()),
    )


def favourite(maps: Sequence[ScoreMaps], query: int) -> int:
    """The key on which most scores put most of the query's weight."""
    tops = [int(each.weights[query].argmax()) for each in maps]
    return max(set(tops), key=tops.count)


def most_different_query(maps: Sequence[ScoreMaps]) -> int:
    """The query whose weights differ most from score to score."""
    return int(np.ptp(np.stack([each.weights for each in maps]), axis=0).sum(1).argmax())


def failure(
    choice: Choice, tokens: tuple[str, ...], dims: int, seed: int, stretch: float
) -> str | None:
    """Why a plug-in's score cannot be drawn, in a sentence; None for one that can, and for the lab's own."""
    if not (source := entry("score", choice.key).source):
        return None
    plain = Choice(choice.key)
    try:
        for one, names in ((choice, tokens), (plain, ("a",))):
            score_maps(one, names, dims, seed, stretch)
        score_properties(plain, seed)
        workload(
            AttentionConfig(TIMED_WIDTH, TIMED_HEADS, score=plain), TIMED_TOKENS, backward=True
        )()
    except ConfigError as error:
        return f"{error} It is left out."
    except Exception as error:  # it is a person's own code
        return f"score = {choice.key} failed. {describe(error, Path(source))} It is left out."
    return None


@dataclass(frozen=True)
class Timing:
    """One training step of an attention with the score: its seconds, and the most bytes alive at once."""

    seconds: float
    bytes: int


def timings(
    choices: tuple[Choice, ...],
    repetition: int,
    max_rounds: int = MAX_ROUNDS,
    limit: float = TIME_LIMIT,
) -> tuple[Timing, ...]:
    """Time a forward and backward pass of each score; `repetition` only makes the cache measure again.

    The quickest round counts, in this thread's processor time, which leaves out waits on a busy machine. No round
    starts after `limit` seconds.
    """
    works = [
        workload(
            AttentionConfig(TIMED_WIDTH, TIMED_HEADS, score=choice), TIMED_TOKENS, backward=True
        )
        for choice in choices
    ]
    with alone():
        sizes = [peak_bytes(work) for work in works]  # the first call, which also warms up
        start, rounds = time.perf_counter(), list[list[float]]()
        while len(rounds) < MIN_ROUNDS or (
            len(rounds) < max_rounds and time.perf_counter() - start < limit
        ):
            rounds.append([seconds(work, time.thread_time) for work in works])
        return tuple(
            Timing(min(each), size)
            for each, size in zip(zip(*rounds, strict=True), sizes, strict=True)
        )


SAVED = Path(__file__).parent / "data" / "scores.json"
ROUNDS, SECONDS = 400, 20.0  # more than the page takes, for times that a busy moment does not move


def load_measurement() -> Saved[dict[str, Timing]]:
    """The time and memory of each score's training step by its key."""
    return msgspec.json.decode(SAVED.read_bytes(), type=Saved[dict[str, Timing]])


def main() -> None:
    """Measure each score that the file lacks, one thread, and save it beside the others."""
    torch.set_num_threads(1)
    keys = [item.key for item in AXES["score"]]
    saved = load_measurement() if SAVED.exists() else None
    times = saved.measured if saved else {}
    new = [key for key in keys if key not in times]
    measured = timings(tuple(map(Choice, new)), 0, ROUNDS, SECONDS)
    times = times | dict(zip(new, measured, strict=True))
    now = Saved({key: times[key] for key in keys})
    if saved and new:
        days = {*saved.date.split(" and "), now.date}
        others = "" if now.machine == saved.machine else f"; {', '.join(new)}: {now.machine}"
        now = replace(now, date=" and ".join(sorted(days)), machine=saved.machine + others)
    elif saved:
        now = replace(saved, measured=now.measured)
    save(SAVED, now)
