"""What is measured of a head on one text: a number a row, and its mean over the rows of the text's own tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from core.interpret import trace
from core.interpret.trace import AttentionMap, Kind
from core.pretrained.base import Reading
from core.roles.roles import ROLES, Role
from core.roles.scores import FEWEST_KEYS, RoleSums, role_sums, share_used
from core.roles.targets import Text

Rows = Float[np.ndarray, "H T"]
RowRule = Callable[[Float[np.ndarray, "H T S"], Text], Rows]
ABLATION = "ablation"


@dataclass(frozen=True)
class Measure:
    """A measure of a head: what it is a number of, the rule for its rows (None for roles and ablation), its source."""

    key: str
    name: str
    meaning: str
    unit: str
    rows: RowRule | None = None
    role: Role | None = None
    paper: str = ""
    url: str = ""


def entropy_rows(weights: Float[np.ndarray, "H T S"], text: Text) -> Rows:
    """The entropy of each row in nats."""
    return trace.entropy(weights)


def distance_rows(weights: Float[np.ndarray, "H T S"], text: Text) -> Rows:
    """The mean distance |i − j| of each row, by its weights."""
    distance: Rows = (weights * np.abs(text.distance)).sum(-1)
    return distance


def sink_rows(weights: Float[np.ndarray, "H T S"], text: Text) -> Rows:
    """The weight of each row on the first token and on special tokens, and what a learned sink takes."""
    sinks = np.asarray(text.line.special, dtype=bool)
    sinks[:1] = True
    own: Rows = 1 - (weights * ~sinks).sum(-1)
    return own.clip(0, 1)


CLARK = "Clark et al. 2019", "https://arxiv.org/abs/1906.04341"
MEASURES: tuple[Measure, ...] = (
    Measure(
        "entropy",
        "Entropy",
        "how evenly a row's weights are spread",
        "nats",
        entropy_rows,
        None,
        *CLARK,
    ),
    Measure(
        "distance",
        "Distance",
        "how many tokens lie between a query and its keys, on average",
        "tokens",
        distance_rows,
        None,
        "Vig and Belinkov 2019",
        "https://arxiv.org/abs/1906.04284",
    ),
    Measure(
        "sink",
        "Sink share",
        "the weight on the first token and on special tokens",
        "weight",
        sink_rows,
        None,
        "Xiao et al. 2024",
        "https://arxiv.org/abs/2309.17453",
    ),
    *(
        Measure(
            role.key,
            role.name,
            role.meaning,
            "weight" if role.targets else "share of keys",
            None,
            role,
            role.paper,
            role.url,
        )
        for role in ROLES
    ),
    Measure(
        ABLATION,
        "Ablation effect",
        "how much the answer changes when the head is switched off",
        "change of the answer",
        None,
        None,
        "Michel et al. 2019",
        "https://arxiv.org/abs/1905.10650",
    ),
)
COPYING = Measure(
    "copying",
    "OV copying",
    "whether attending to a token raises its own logit, by the weights alone",
    "Σλ/Σ|λ|",
    None,
    None,
    "Elhage et al. 2021",
    "https://transformer-circuits.pub/2021/framework/index.html",
)
AXES = (*MEASURES, COPYING)
INDEX = {measure.key: index for index, measure in enumerate(MEASURES)}
BY_KEY = {measure.key: measure for measure in AXES}


def measure_rows(
    measure: Measure, item: AttentionMap, text: Text
) -> tuple[Rows, Bool[np.ndarray, "T T"]]:
    """The measure of each row of one map (nan where a row does not count), and the keys that a role expects."""
    seen = item.visible_in_any
    expected, counts = np.zeros_like(seen), text.ordinary
    if measure.role is None:
        rows = (measure.rows or largest_rows)(item.weights, text)
    elif measure.role.targets is None:
        rows, counts = (
            share_used(item.weights, seen.sum(-1)),
            counts & (seen.sum(-1) >= FEWEST_KEYS),
        )
    else:
        expected = measure.role.targets(text) & seen
        rows, counts = (
            (item.weights * expected).sum(-1),
            counts & expected.any(-1) & (seen.sum(-1) > 1),
        )
    return np.where(counts, rows, np.nan), expected


def largest_rows(weights: Float[np.ndarray, "H T S"], text: Text) -> Rows:
    """The largest weight of each row: what is shown of a head whose measure has no rows."""
    largest: Rows = weights.max(-1)
    return largest


def measure_text(reading: Reading, kind: Kind) -> tuple[Float[np.ndarray, "M L H"], RoleSums]:
    """Every measure of every head on one text, in the order of MEASURES, and the sums of its roles.

    nan where a text cannot show a measure, where a layer lacks a head, and for the ablation, which is measured apart.
    """
    maps, text = reading.trace.of(kind).maps, Text(reading.lines(kind)[0])
    roles = role_sums(reading, kind)
    values = np.full((len(MEASURES), *roles.score.shape[1:]), np.nan)
    values[[INDEX[role.key] for role in ROLES]] = roles.mean
    for measure in MEASURES:
        if measure.rows is not None and text.ordinary.any():
            for layer, item in enumerate(maps):
                rows = measure.rows(item.weights, text)[:, text.ordinary]
                values[INDEX[measure.key], layer, : len(item.weights)] = rows.mean(-1)
    return values, roles
