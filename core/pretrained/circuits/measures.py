"""Measures of heads from their weights: singular values, effective rank, and copying.

Products of two matrices of rank D are never formed at full size: a QR decomposition of each factor leaves D × D.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from core.pretrained.circuits.heads import HeadMatrices
from core.pretrained.circuits.vocabulary import Vocabularies

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
    middle = vocabularies.between(heads.writes, heads.reads)
    values = torch.linalg.eigvals(heads.w_o @ middle @ heads.w_v)
    return values.real.sum(-1) / values.abs().sum(-1).clamp(min=1e-30)
