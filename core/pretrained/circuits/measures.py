"""Measures of heads from their weights: singular values, effective rank, copying, and composition of two heads.

Products of two matrices of rank D are never formed at full size: a QR decomposition of each factor leaves D × D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.circuits.heads import HeadMatrices
from core.pretrained.circuits.vocabulary import Vocabularies

CompositionKind = Literal["Q", "K", "V"]
KINDS: tuple[CompositionKind, ...] = get_args(CompositionKind)
Factors = tuple[Tensor, Tensor, Tensor]  # U (H, C, D), S (H, D) and Vᵀ (H, D, C)


def thin_svd(left: Float[Tensor, "H C D"], right: Float[Tensor, "H D X"]) -> Factors:
    """U, S and Vᵀ of left · right, with D singular values, largest first."""
    (q_left, r_left), (q_right, r_right) = torch.linalg.qr(left), torch.linalg.qr(right.mT)
    u, s, vh = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
    return q_left @ u, s, vh @ q_right.mT


def ov_factors(heads: HeadMatrices) -> Factors:
    """The singular value decomposition of W_V W_O: what is read of a key's state, how much, and what is written."""
    return thin_svd(heads.w_v, heads.w_o)


def qk_factors(heads: HeadMatrices) -> Factors | None:
    """That of W_Q W_Kᵀ: what is read of a query's state, how much, and of a key's; None without these matrices."""
    return None if heads.w_q is None or heads.w_k is None else thin_svd(heads.w_q, heads.w_k.mT)


def effective_rank(singular: Float[Tensor, "... D"]) -> Float[Tensor, ...]:
    """The exponential of the entropy of singular values as shares: D when all are equal, 1 for one alone.

    Roy and Vetterli 2007, equation 3.
    """
    shares = singular / singular.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def copying_scores(heads: HeadMatrices, vocabularies: Vocabularies) -> Float[Tensor, " H"] | None:
    """Σλ/Σ|λ| over the eigenvalues of W_E W_V W_O W_U, from −1 to 1; positive where tokens raise their own logit.

    Elhage et al. 2021, "Summarizing OV/QK matrices". The V × V matrix has the eigenvalues of W_O W_U W_E W_V, which is
    D × D, and zeros. None where there are no tokens.
    """
    if not vocabularies.serves(heads):
        return None
    middle = vocabularies.unembeddings[heads.writes] @ vocabularies.embeddings[heads.reads]
    values = torch.linalg.eigvals(heads.w_o @ middle @ heads.w_v)
    return values.real.sum(-1) / values.abs().sum(-1).clamp(min=1e-30)


def composition(earlier: HeadMatrices, later: HeadMatrices, kind: CompositionKind) -> Float[Tensor, "H I"] | None:
    """‖A B‖/(‖A‖ ‖B‖) (Frobenius) of each head's A = W_V W_O with B, what each head of a later layer reads it by.

    B is W_Q W_Kᵀ for Q, its transpose for K, and W_V W_O for V: what the later head's queries, keys or values take of
    the earlier head's output. Elhage et al. 2021, "Three kinds of composition". None where B does not read that stream.
    """
    reads = _read(later, kind)
    return None if reads is None or not _meets(earlier, later, kind) else _norms(_written(earlier), reads)


def _meets(earlier: HeadMatrices, later: HeadMatrices, kind: CompositionKind) -> bool:
    """Whether the later attention reads, in this way, the stream that the earlier one writes."""
    return earlier.writes == (later.writes if kind == "Q" else later.reads)


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


def random_composition(size: int) -> float:
    """The composition of matrices that have nothing to do with each other: 1/√C, the root of its mean square.

    It holds for any singular values if the directions of the two are random.
    """
    return size ** -0.5


def compositions(heads: Sequence[HeadMatrices]) -> dict[tuple[CompositionKind, int, int], Float[Tensor, "H I"]]:
    """Compositions above the random level, by kind and by the indices of the earlier and the later attention."""
    written = [_written(one) for one in heads]
    scores = {}
    for kind in KINDS:
        for later, reader in enumerate(heads):
            reads = _read(reader, kind)
            for earlier, writer in enumerate(heads[:later]):
                if reads is not None and _meets(writer, reader, kind):
                    score = _norms(written[earlier], reads)
                    scores[kind, earlier, later] = score - random_composition(written[earlier].shape[-1])
    return scores
