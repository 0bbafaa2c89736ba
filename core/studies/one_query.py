"""One query through the formula: a sentence or typed matrices in, every step out; and what √D does as D grows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from core.attention import AttentionConfig, ConfigError, Steps, attend
from core.attention.basics import MultiHead
from core.entries import quote
from core.seeding import seeded_generator, seeded_layer
from core.studies.heads import saved_qkv
from core.tokens import embed, labels

WORKED = "1,2|1,0;0,1;1,1|0.5,0.3;0.8,0.2;0.1,0.9"
MAX_ROWS, MAX_COLUMNS = 32, 16
Rows = list[list[float]]


# Three matrices that fit: Q (T, D), K (S, D), V (S, E).
Matrices: TypeAlias = tuple[Rows, Rows, Rows]


def parse(text: str) -> list[Rows]:
    """`1,2|1,0;0,1|…` → three lists of rows; ConfigError when there are not three, or a cell is not a number."""
    parts = text.split("|")
    if len(parts) != 3:
        raise ConfigError(
            "The link holds no Q, K and V: three matrices are written as 1,2|1,0;0,1|3;4."
        )
    return [
        [[_cell(c) for c in row.split(",")] for row in re.split("[;\n]", part) if row.strip()]
        for part in parts
    ]


def _cell(text: str) -> float:
    try:
        return float(text.replace("−", "-"))
    except ValueError as error:
        raise ConfigError(f"{quote(text.strip())} in the link's matrix is not a number.") from error


def write(parts: list[Rows]) -> str:
    return "|".join(
        ";".join(",".join(f"{value:.9g}" for value in row) for row in part) for part in parts
    )


def check(parts: list[Rows]) -> Matrices:
    """The three together; ConfigError names the first thing that does not fit, counting rows from 0."""
    for name, rows in zip("QKV", parts, strict=True):
        if not rows or not rows[0]:
            raise ConfigError(f"{name} has no rows; give it at least one.")
        if len(rows) > MAX_ROWS or max(map(len, rows)) > MAX_COLUMNS:
            raise ConfigError(
                f"{name} is larger than {MAX_ROWS} × {MAX_COLUMNS}; take fewer rows or columns."
            )
        if len({len(row) for row in rows}) > 1:
            raise ConfigError(
                f"{name}'s rows have {' and '.join(map(str, sorted({len(r) for r in rows})))} numbers; "
                "every row needs the same."
            )
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if not abs(value) <= 1e6:
                    infinite = "infinite" if math.isinf(value) else f"{value:g}"
                    text = "empty or not a number (NaN)" if math.isnan(value) else infinite
                    raise ConfigError(
                        f"{name} row {i}, column {j} is {text}; "
                        "every cell needs a number between −1,000,000 and 1,000,000."
                    )
    q, k, v = parts
    if len(q[0]) != len(k[0]):
        raise ConfigError(
            f"Q has {len(q[0])} columns and K has {len(k[0])}; a query and a key are multiplied number "
            "by number, so give both the same."
        )
    if len(k) != len(v):
        raise ConfigError(
            f"K has {len(k)} rows and V has {len(v)}; each key has one value, so give both the same."
        )
    return q, k, v


DIMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUERIES, KEYS = 64, 64


@dataclass(frozen=True)
class Source:
    """The names of queries and keys, and either tokens or three typed matrices."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    matrices: Matrices | None = None

    @classmethod
    def sentence(cls, tokens: tuple[str, ...]) -> Source:
        names = labels(tokens)
        return cls(names, names, tokens)

    @classmethod
    def of_matrices(cls, matrices: Matrices) -> Source:
        return cls(
            tuple(f"q{i}" for i in range(len(matrices[0]))),
            tuple(f"k{j}" for j in range(len(matrices[1]))),
            (),
            matrices,
        )


@torch.inference_mode()
def run(config: AttentionConfig, source: Source, seed: int, real: int | None = None) -> Steps:
    """Every step of the attention of a source; `real` keys from the left are real, the others are padding.

    Typed matrices enter after the projection; ConfigError where a choice needs what they do not have.
    """
    key_mask = None if real is None else (torch.arange(len(source.keys)) < real)[None]
    layer = seeded_layer(config, seed)
    if source.matrices is None:
        return layer(embed(source.tokens, config.d_model, seed), key_mask=key_mask)
    columns = len(source.matrices[2][0])
    if config.has("position", "values") and columns != config.v_dim:
        raise ConfigError(
            f"position = {config.position.key} adds vectors of size {config.v_dim} to the values, "
            f"and V has {columns} columns; give V as many columns as K, or take position = none."
        )
    q, k, v = (torch.tensor(part)[None, None] for part in source.matrices)  # one batch, one head
    return layer.attend_heads(q, k, v, key_mask=key_mask)


@torch.inference_mode()
def projected(
    config: AttentionConfig, source: Source, seed: int, head: int, steps: Steps
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """What a head's query, key and value are made of, x (T, C) and the matrices w (C, D) without biases.

    q = x · w[0], k = x · w[1], v = x · w[2]; None where they are more than one matrix times x.
    """
    projection = seeded_layer(config, seed).projection
    if source.matrices is not None or not isinstance(projection, MultiHead):
        return None
    x = embed(source.tokens, config.d_model, seed)[0]
    rows = slice(head * config.head_dim, (head + 1) * config.head_dim)
    w = [part.weight[rows].T for part in (projection.query, projection.key, projection.value)]
    if not all(
        torch.allclose(x @ each, value, atol=1e-5)
        for each, value in zip(
            w, (steps.q[0, head], steps.k[0, head], steps.v[0, head]), strict=True
        )
    ):
        return None  # a position added to x or rotated q and k, or the score scaled them
    return x.numpy(), [each.numpy() for each in w]


TRAINED_LAYER, TRAINED_HEAD = 3, 1  # of MiniLM: here "it" attends to "animal"


@torch.inference_mode()
def trained_weights() -> dict[str, float]:
    """What "it" gives each word of MINILM_TEXT in that head, by the word (the last of its repetitions)."""
    saved = saved_qkv(TRAINED_LAYER)
    weights = attend(saved.q, saved.k, saved.v).weights[0, TRAINED_HEAD]
    return dict(zip(saved.tokens, weights[saved.tokens.index("it")].tolist(), strict=True))


class Scaling(NamedTuple):
    """One size: variance of the scores and mean entropy of the rows (nats), and the mean of each row's largest weight.

    Each for the dot product alone and divided by √D.
    """

    dims: int
    variance: tuple[float, ...]
    entropy: tuple[float, ...]
    largest: tuple[float, ...]


def measure_scaling(seed: int) -> tuple[Scaling, ...]:
    """64 standard normal queries against 64 such keys at each D from 1 to 512."""
    generator, points = seeded_generator(seed, "scaling"), []
    for dims in DIMS:
        q, k = (torch.randn(1, 1, rows, dims, generator=generator) for rows in (QUERIES, KEYS))
        both = attend(q, k, k, scale=1.0), attend(q, k, k)
        measures = zip(
            *(
                (
                    float(steps.scores.var()),
                    float(torch.special.entr(steps.weights).sum(-1).mean()),  # 0 · ln 0 as 0
                    float(steps.weights.max(-1).values.mean()),
                )
                for steps in both
            ),
            strict=True,
        )
        points.append(Scaling(dims, *measures))
    return tuple(points)
