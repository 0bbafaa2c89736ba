"""The score of every head in every role over a set of readings, with the chance level of shuffled attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from core.entries import quote
from core.interpret.trace import Head, Kind, NumberedHeads
from core.pretrained.base import Reading
from core.roles.roles import ROLES
from core.roles.targets import Targets, Text

Scores = Float[np.ndarray, "R L H"]
Rows = Float[np.ndarray, "H N"]

MIN_SHARE = 0.2  # of the weight that chance leaves over
MIN_STDS = 3.0
UNIFORM = 0.9  # heads from here on are uniform, as all are before training
FEWEST_KEYS = 4  # a row of fewer is always broad
FEWEST_ROWS = 3
DRAWS = 400


@dataclass(frozen=True, eq=False)
class RoleScores(NumberedHeads):
    """Scores of roles × layers × heads; nan where no row of the set could show the role.

    `chance` and `std` are the mean and the standard deviation of the same score when the keys of each text are
    shuffled among those that a row may see (for Broad: when scores are random). `rows` counts the rows on which a role
    was measured. `numbers` are the model's own numbers of the layers.
    """

    kind: Kind
    score: Scores
    chance: Scores
    std: Scores
    rows: Int[np.ndarray, " R"]
    numbers: tuple[int, ...]

    @property
    def share(self) -> Scores:
        """The score rescaled so that chance is 0 and the maximum is 1."""
        return (self.score - self.chance) / (1 - self.chance)

    @property
    def counts(self) -> Bool[np.ndarray, "R L H"]:
        """Where a score is significant: 3 standard deviations above chance, and a share of at least 0.2."""
        with np.errstate(invalid="ignore"):
            above = (self.score > self.chance + MIN_STDS * self.std) & (self.share >= MIN_SHARE)
        above &= (self.rows >= FEWEST_ROWS)[:, None, None]
        broad = [role.targets is None for role in ROLES]
        above[broad] &= self.score[broad] < UNIFORM
        return above

    @property
    def head_roles(self) -> dict[Head, int]:
        """The role of each head (layer, head) as an index into ROLES: the significant one with the largest share.

        First token and Broad count only where no other role is significant, since many heads rest on most tokens
        (Kobayashi et al. 2020). Heads without a significant role are left out.
        """
        acts = np.asarray([role.acts for role in ROLES])[:, None, None]
        rank = np.where(self.counts, self.share + acts, -1.0)
        best = rank.argmax(0)
        return {
            (int(layer), int(head)): int(best[layer, head])
            for layer, head in np.argwhere(rank.max(0) >= 0)
        }

    def ranked(self, role: int) -> list[Head]:
        """The heads that have a score in a role, those furthest above chance first."""
        return ranked_heads(self.share[role])

    def best(self, role: int) -> Head | None:
        """The head in which a role's score is furthest above chance; None where it cannot be measured."""
        return next(iter(self.ranked(role)), None)


def ranked_heads(score: Float[np.ndarray, "L H"]) -> list[Head]:
    """The heads that have a score (not nan), the one with the highest first."""
    heads = [(int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(score))]
    return sorted(heads, key=lambda head: -score[head])


def stack_layers(
    layers: Sequence[Num[np.ndarray, "_ ..."]], empty: float = np.nan
) -> Num[np.ndarray, "L H ..."]:
    """The values of all layers in one array; `empty` for the heads that a layer has fewer than the widest one."""
    out = np.full(
        (len(layers), max(map(len, layers)), *layers[0].shape[1:]), empty, layers[0].dtype
    )
    for row, layer in zip(out, layers, strict=True):
        row[: len(layer)] = layer
    return out


class Sums(NamedTuple):
    """Sums over rows, by head: the score, and its mean and variance under chance."""

    score: Float[np.ndarray, " H"]
    chance: Float[np.ndarray, " H"]
    variance: Float[np.ndarray, " H"]
    rows: int


@dataclass(frozen=True, eq=False)
class RoleSums:
    """Sums over the rows of one reading or of several: the score, and its mean and variance under chance.

    `rows` counts the rows of each role and layer. Heads that a layer lacks are nan.
    """

    score: Scores
    chance: Scores
    variance: Scores
    rows: Int[np.ndarray, "R L"]

    def __add__(self, other: RoleSums) -> RoleSums:
        return RoleSums(
            self.score + other.score,
            self.chance + other.chance,
            self.variance + other.variance,
            self.rows + other.rows,
        )

    @property
    def mean(self) -> Scores:
        """The mean score of a row; nan where there is no row."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Scores = self.score / self.rows[..., None]
            return mean

    def scores(self, kind: Kind, numbers: tuple[int, ...]) -> RoleScores:
        """The scores of the model's layers of these numbers."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = self.rows[..., None]
            return RoleScores(
                kind,
                self.mean,
                self.chance / rows,
                np.sqrt(self.variance) / rows,
                self.rows.max(1),
                numbers,
            )


def score_roles(readings: Sequence[Reading], kind: Kind = "self") -> RoleScores:
    """The score of every head in every role, over readings of one model.

    A score is the mean weight on the role's target keys, over the rows that have such keys.
    ValueError for cross-attention, or when there is no map of that kind.
    """
    if not readings:
        raise ValueError("There is no reading to measure.")
    sums = role_sums(readings[0], kind)
    for reading in readings[1:]:
        sums += role_sums(reading, kind)
    return sums.scores(kind, readings[0].trace.of(kind).numbers)


def role_sums(reading: Reading, kind: Kind) -> RoleSums:
    """The sums of one reading for every role, layer and head; ValueError as in `score_roles`."""
    if kind == "cross":
        raise ValueError(
            "Roles use the tokens before and after, which exist only within one sequence."
        )
    trace, text = reading.trace.of(kind), Text(reading.lines(kind)[0])
    if not trace.maps:
        raise ValueError(f"There is no map of kind {quote(kind)} to measure.")
    shape = len(ROLES), *trace.shape
    score, chance, variance = (np.full(shape, np.nan) for _ in range(3))
    rows = np.zeros(shape[:2], dtype=int)
    expected = [None if role.targets is None else role.targets(text) for role in ROLES]
    for layer, item in enumerate(trace.maps):
        visible = item.visible_in_any
        for index, keys in enumerate(expected):
            sums = (
                _broad(item.weights, visible, text)
                if keys is None
                else weight_on_targets(item.weights, visible, text, keys & visible)
            )
            heads = index, layer, slice(len(item.weights))
            score[heads], chance[heads], variance[heads], rows[index, layer] = sums
    return RoleSums(score, chance, variance, rows)


def weight_on_targets(
    weights: Float[np.ndarray, "H T T"], visible: Targets, text: Text, expected: Targets
) -> Sums:
    """The weight on the expected keys, and its mean and variance when keys are shuffled, in closed form.

    All rows of a text are shuffled alike, as maps have vertical stripes. For rows i, i' that see the same n keys, with
    their weights and expected keys centred, the covariance is (w·w')(m·m') / (n − 1): Hoeffding 1951, theorem 2. Where
    a mask lets rows see different numbers of keys, n − 1 is the geometric mean of both.
    """
    rows = np.flatnonzero(expected.any(-1) & text.ordinary & (visible.sum(-1) > 1))
    w, keys, right = weights[:, rows].astype(np.float64), visible[rows], expected[rows]
    n, m = keys.sum(-1, keepdims=True), right.sum(-1, keepdims=True)
    mean = (w * keys).sum(-1, keepdims=True) / n
    apart = (w - mean) * keys
    targets = (right - m / n) * keys / np.sqrt(n - 1)
    covariance = (apart @ apart.swapaxes(-1, -2)) * (targets @ targets.T)
    return Sums((w * right).sum((1, 2)), (mean * m).sum((1, 2)), covariance.sum((1, 2)), len(rows))


def _broad(weights: Float[np.ndarray, "H T T"], visible: Targets, text: Text) -> Sums:
    """The share of its keys that a row uses, and its chance level for random scores."""
    n = visible.sum(-1)
    rows = np.flatnonzero(text.ordinary & (n >= FEWEST_KEYS))
    used = share_used(weights[:, rows].astype(np.float64), n[rows])
    means, variances = np.array([random_rows(int(keys)) for keys in n[rows]]).reshape(-1, 2).T
    heads = np.ones(len(weights))
    return Sums(used.sum(-1), heads * means.sum(), heads * variances.sum(), len(rows))


def share_used(
    rows: Float[np.ndarray, "... T S"], keys: Int[np.ndarray, " T"]
) -> Float[np.ndarray, "... T"]:
    """The effective share of keys of each row, e^entropy / keys: 1 when uniform, 1 / keys on a single key."""
    rows = rows / np.maximum(rows.sum(-1, keepdims=True), 1e-12)
    return np.exp(-(rows * np.log(np.where(rows > 0, rows, 1.0))).sum(-1)) / keys


@cache
def random_rows(keys: int) -> tuple[float, float]:
    """Mean and variance of e^entropy / n over rows whose scores are drawn from N(0, 1), as q·k/√D of random q and k."""
    scores = np.random.default_rng(keys).standard_normal((DRAWS, keys))
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    used = np.exp(-(weights * np.log(weights)).sum(-1)) / keys
    return float(used.mean()), float(used.var())
