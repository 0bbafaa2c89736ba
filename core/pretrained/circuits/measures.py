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
    if earlier.writes != (later.writes if kind == "Q" else later.reads):
        return None
    factors = ov_factors(later) if kind == "V" else qk_factors(later)
    if factors is None:
        return None
    _, size, written = ov_factors(earlier)
    u, s, vh = factors
    read = (vh.mT if kind == "K" else u) * s[:, None]  # (I, C, D)
    products = torch.einsum("hec,icd->hied", size[..., None] * written, read)
    return products.norm(dim=(-2, -1)) / (size.norm(dim=-1)[:, None] * s.norm(dim=-1)).clamp(min=1e-30)


def random_composition(size: int) -> float:
    """The composition of matrices that have nothing to do with each other: 1/√C, the root of its mean square.

    It holds for any singular values if the directions of the two are random.
    """
    return size ** -0.5


def compositions(heads: Sequence[HeadMatrices]) -> dict[tuple[CompositionKind, int, int], Float[Tensor, "H I"]]:
    """Compositions above the random level, by kind and by the indices of the earlier and the later attention."""
    scores = {}
    for later, reader in enumerate(heads):
        for earlier, writer in enumerate(heads[:later]):
            for kind in KINDS:
                score = composition(writer, reader, kind)
                if score is not None:
                    scores[kind, earlier, later] = score - random_composition(writer.w_o.shape[-1])
    return scores
