"""What scores and positions can express, measured: rank and symmetry of a score, rotations and shifts of a position."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from core.attention import Attention, AttentionConfig, Choice
from core.attention.base import Position
from core.attention.positions.rotary import Polar
from core.attention.scores import Score
from core.seeding import seed_layer, seeded_generator

# What a score can express, measured on random queries and keys: rank, symmetry, the effect of scaling and rotation.


# of the properties: more tokens than dimensions, so that the rank shows
PROBE_DIMS, PROBE_TOKENS = (8, 48)
# of the noise added to learned numbers, so that a gain of 1 does not pass for a constant
PARAMETER_STD = 0.5
TOLERANCE = 1e-9  # relative, in double precision


@dataclass(frozen=True)
class ScoreProperties:
    """What a score can express, measured at D = 8 on 48 random queries and keys with random learned numbers."""

    rank: int  # of the matrix of scores
    symmetric: bool  # s(a, b) = s(b, a)
    doubling: float  # median of |s(2q, k) / s(q, k)|
    # mean change when q and k are rotated alike, in standard deviations of the scores
    rotation: float


def randomized_score(choice: Choice, seed: int) -> Score:
    """The score in double precision, with noise added to every learned number."""
    layer = Attention(AttentionConfig(PROBE_DIMS, 1, score=choice)).double().requires_grad_(False)
    seed_layer(layer, seed)
    for name, weight in layer.score.named_parameters():
        weight += PARAMETER_STD * torch.randn(
            weight.shape, generator=seeded_generator(seed, name), dtype=weight.dtype
        )
    return cast(Score, layer.score)


@torch.inference_mode()
def score_properties(choice: Choice, seed: int) -> ScoreProperties:
    """Measure the properties of a score on the built module; queries, keys and learned numbers follow from the seed."""
    score, draw = randomized_score(choice, seed), seeded_generator(seed, "character")
    a, b = (
        torch.randn(1, 1, PROBE_TOKENS, PROBE_DIMS, generator=draw, dtype=torch.float64)
        for _ in range(2)
    )
    rotation = torch.linalg.qr(
        torch.randn(PROBE_DIMS, PROBE_DIMS, generator=draw, dtype=torch.float64)
    ).Q

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return score(*score.qk_transform(q, k))[0, 0]

    plain = scores(a, b)
    std = float(plain.std())
    asymmetry = float((plain - scores(b, a).mT).abs().max()) / std
    change = float((plain - scores(a @ rotation, b @ rotation)).abs().mean()) / std
    doubling = float((scores(2 * a, b) / plain).abs().median())
    return ScoreProperties(
        int(torch.linalg.matrix_rank(plain)),
        asymmetry < TOLERANCE,
        doubling,
        change if change > TOLERANCE else 0.0,
    )


TURNS = 1e-6  # below this a dimension is not rotated into another
SMALLEST = 1e-5  # singular values below this share of the largest are rounding of an fp32 table


def additive_table(position: Position, places: int, d_model: int) -> Float[Tensor, "T C"]:
    """What the encoding adds to the input, one row per position."""
    return position.add(torch.zeros(1, places, d_model))[0]


def rotation_matrices(position: Position, places: int, dim: int) -> Float[Tensor, "T E D"]:
    """The matrix R_i that rotates a query or key of size D at each position i: R_i q, of E = D numbers.

    Of PoPE that of a key's lengths, with a pair of numbers for each: E = 2D.
    """
    each = torch.eye(dim)[None, :, None].expand(1, dim, places, dim)  # a head for each dimension
    turn = position.turn if isinstance(position, Polar) else position.rotate
    return turn(each)[0].permute(1, 2, 0)


@dataclass(frozen=True)
class Pair:
    """Two dimensions that rotate together, and their angle from one position to the next, in radians."""

    first: int
    second: int
    angle: float

    @property
    def wavelength(self) -> float:
        """Positions per full turn."""
        return math.inf if self.angle == 0 else 2 * math.pi / abs(self.angle)


def rotation_pairs(turns: Float[Tensor, "T E D"]) -> tuple[Pair, ...]:
    """Which dimensions rotate together, from the matrices of at least two positions; unchanged ones are in no pair."""
    reach = turns.abs().sum(0).fill_diagonal_(0)
    return tuple(
        Pair(first, second, float(torch.atan2(turns[1, second, first], turns[1, first, first])))
        for first, second in enumerate(reach.argmax(0).tolist())
        if first < second and reach[second, first] > TURNS
    )


def sinusoid_pairs(table: Float[Tensor, "T C"]) -> tuple[Pair, ...]:
    """The pairs of sine and cosine of a table of sinusoids of at least two positions, and how far each rotates."""
    return tuple(
        Pair(m, m + 1, float(torch.atan2(table[1, m], table[1, m + 1])))
        for m in range(0, table.shape[1] - 1, 2)
    )


def cosines(table: Float[Tensor, "T C"]) -> Float[Tensor, "T T"]:
    """The cosine similarity of the vectors of two positions."""
    unit = torch.nn.functional.normalize(table, dim=-1)
    return unit @ unit.mT


def alignment(turns: Float[Tensor, "T E D"]) -> Float[Tensor, "T T"]:
    """The mean of (R_i u)ᵀ(R_j u) over all directions u of length 1: tr(R_iᵀR_j) / D."""
    flat = turns.flatten(1)
    return flat @ flat.mT / turns.shape[-1]


def sinusoid_shift(row: Float[Tensor, " C"]) -> Float[Tensor, "C C"]:
    """The exact map of sinusoids: M_k with P(i + k) = M_k P(i), made of the sines and cosines in P(k) itself.

    Vaswani 2017, section 3.5: each pair (sin, cos) is rotated by its angle at k. An odd last dimension,
    which has no cosine, is left as it is.
    """
    blocks = [
        torch.stack((torch.stack((cos, sin)), torch.stack((-sin, cos))))
        for sin, cos in zip(row[:-1:2], row[1::2], strict=True)
    ]
    return torch.block_diag(*blocks, torch.eye(len(row) % 2, dtype=row.dtype))


def fit_shift(table: Float[Tensor, "T C"], shift: int) -> Float[Tensor, "C C"]:
    """The linear map that takes P(i) closest to P(i + shift), by least squares over the table, in fp64."""
    inputs, targets = table[:-shift].double(), table[shift:].double()
    return torch.linalg.lstsq(inputs, targets, rcond=SMALLEST, driver="gelsd").solution.mT.to(
        table.dtype
    )


def shift_error(linear: Float[Tensor, "C C"], table: Float[Tensor, "T C"], shift: int) -> float:
    """How far M P(i) is from P(i + shift), as a share of its length (root mean square over positions)."""
    targets = table[shift:]
    return float((table[:-shift] @ linear.mT - targets).norm() / targets.norm())
