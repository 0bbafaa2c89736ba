"""Composition of heads: how much a later head reads of what an earlier one writes, and how much it would at random.

Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, "Three kinds of composition".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.circuits.heads import HeadMatrices
from core.pretrained.circuits.measures import ov_factors, qk_factors

CompositionKind = Literal["Q", "K", "V"]
KINDS: tuple[CompositionKind, ...] = get_args(CompositionKind)
LEAST_PAIRS = 1000  # at random, so that one pair in a thousand is above all of them
MOST_NUMBERS = 2**24  # in the random matrices of an attention: 67 MB
SEED = 86


@dataclass(frozen=True, eq=False)
class Compositions:
    """Those of the heads (I) of one attention with the heads (H) of earlier ones, less the random level 1/√C.

    `scores` are by kind and by the index of the earlier attention. `highest` is the most that chance gives, on the same
    scale: of `pairs` pairs in which the earlier head keeps its singular values and gets random directions.
    """

    scores: dict[tuple[CompositionKind, int], Float[Tensor, "H I"]]
    highest: dict[CompositionKind, float]
    pairs: dict[CompositionKind, int]


class Composer:
    """The compositions of a model's heads, one attention after another; what earlier heads write is computed once."""

    def __init__(self, heads: Sequence[HeadMatrices]) -> None:
        self.heads = heads
        self._writers: list[tuple[Tensor, Tensor]] = []
        counts = [
            sum(
                len(heads[earlier].w_v) * len(one.w_v)
                for later, one in enumerate(heads)
                for earlier in self._earlier(later, kind)
            )
            for kind in KINDS
        ]
        self._copies = math.ceil(LEAST_PAIRS / min(filter(None, counts), default=LEAST_PAIRS))

    def into(self, later: int) -> Compositions:
        """The compositions of the attention of this index with those before it."""
        result = Compositions({}, {}, {})
        for kind in KINDS:
            reads = _read(self.heads[later], kind)
            for earlier in self._earlier(later, kind):
                assert reads is not None
                written, turned = self._writer(earlier)
                level = random_composition(written.shape[-1])
                result.scores[kind, earlier] = _norms(written, reads) - level
                by_chance = _norms(turned, reads) - level
                result.highest[kind] = max(result.highest.get(kind, -level), float(by_chance.max()))
                result.pairs[kind] = result.pairs.get(kind, 0) + by_chance.numel()
        return result

    def _earlier(self, later: int, kind: CompositionKind) -> list[int]:
        """The attentions whose output this one reads in this way."""
        reader = self.heads[later]
        return [index for index in range(later) if _meets(self.heads[index], reader, kind)]

    def _writer(self, index: int) -> tuple[Float[Tensor, "H E C"], Float[Tensor, "N E C"]]:
        """What the heads of an attention write, and copies of it in random directions."""
        for one in range(len(self._writers), index + 1):
            written = _written(self.heads[one])
            heads, rank, size = written.shape
            copies = max(1, min(self._copies, MOST_NUMBERS // written.numel()))
            drawn = torch.randn(
                copies * heads, size, rank, generator=torch.Generator().manual_seed(SEED + one)
            )
            turned = (
                written.norm(dim=-1, keepdim=True).repeat(copies, 1, 1)
                * torch.linalg.qr(drawn).Q.mT
            )
            self._writers.append((written, turned))
        return self._writers[index]


def composition(
    earlier: HeadMatrices, later: HeadMatrices, kind: CompositionKind
) -> Float[Tensor, "H I"] | None:
    """‖A B‖/(‖A‖ ‖B‖) (Frobenius) of each head's A = W_V W_O with B, what each head of a later layer reads it by.

    B is W_Q W_Kᵀ for Q, its transpose for K, and W_V W_O for V: what the later head's queries, keys or values take of
    the earlier head's output. None where B does not read that stream.
    """
    reads = _read(later, kind) if _meets(earlier, later, kind) else None
    return None if reads is None else _norms(_written(earlier), reads)


def compositions(
    heads: Sequence[HeadMatrices],
) -> dict[tuple[CompositionKind, int, int], Float[Tensor, "H I"]]:
    """Compositions less the random level, by kind and by the indices of the earlier and the later attention."""
    composer = Composer(heads)
    return {
        (kind, earlier, later): score
        for later in range(len(heads))
        for (kind, earlier), score in composer.into(later).scores.items()
    }


def random_composition(size: int) -> float:
    """The composition of matrices that have nothing to do with each other: 1/√C, the root of its mean square.

    It holds for any singular values if the directions of the two are random.
    """
    return size**-0.5


def _meets(earlier: HeadMatrices, later: HeadMatrices, kind: CompositionKind) -> bool:
    """Whether the later attention reads, in this way, the stream that the earlier one writes, and nothing beside it."""
    matrix = {"Q": later.w_q, "K": later.w_k, "V": later.w_v}[kind]
    same = earlier.writes == (later.writes if kind == "Q" else later.reads)
    return same and matrix is not None and matrix.shape[1] == earlier.w_o.shape[2]


def _written(heads: HeadMatrices) -> Float[Tensor, "H E C"]:
    """W_V W_O with norm 1, without the directions that it reads, which do not change the norm of a product."""
    _, size, vh = ov_factors(heads)
    return _unit(size)[..., None] * vh


def _read(heads: HeadMatrices, kind: CompositionKind) -> Float[Tensor, "I C D"] | None:
    """The same of what a head reads by, without the directions that it goes to."""
    factors = ov_factors(heads) if kind == "V" else qk_factors(heads)
    if factors is None:
        return None
    u, size, vh = factors
    return (vh.mT if kind == "K" else u) * _unit(size)[:, None]


def _unit(singular: Float[Tensor, "H D"]) -> Float[Tensor, "H D"]:
    return singular / singular.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def _norms(written: Float[Tensor, "H E C"], read: Float[Tensor, "I C D"]) -> Float[Tensor, "H I"]:
    """The norm of each product, all in one."""
    products = written.flatten(0, 1) @ read.transpose(0, 1).flatten(1)
    return products.view(*written.shape[:2], read.shape[0], -1).square().sum((1, 3)).sqrt()
