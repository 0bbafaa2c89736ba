"""Random features of the softmax kernel: e^(qᵀk) = E_w[φ_w(q) φ_w(k)]. Choromanski et al. 2021 (FAVOR+)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.attention.kernels.exact import AttentionInputs, Steps
from core.attention.kernels.implied import (
    CAUSAL,
    IMPLIED,
    STATE,
    full_precision,
    needs_plain_rows,
    real_keys,
    split_scale,
)
from core.attention.kernels.implied_costs import performer_cost
from core.attention.kernels.linear import CHUNK, Features
from core.entries import ConfigError, Entry, LayerConfig, Param

EPSILON = 1e-6  # keeps every weight above zero, as in the authors' TensorFlow code


def orthogonal_gaussian(rows: int, dim: int, seed: int) -> Tensor:
    """(rows, dim): each row as long as a Gaussian one, rows orthogonal within each stretch of `dim`. Section 2.4."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-rows // dim), dim, dim, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(normal)
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(
        -2
    )  # else each first number is negative
    lengths = torch.randn(rows, dim, generator=generator, dtype=torch.float64).norm(
        dim=1, keepdim=True
    )
    return (basis.mT.flatten(0, 1)[:rows] * lengths).float()


def exponents(x: Tensor, products: Tensor) -> Tensor:
    """wᵀx − |x|²/2 of each direction w, (…, R), from the products wᵀx."""
    return products - 0.5 * x.square().sum(-1, keepdim=True)


def softmax_features(exponent: Tensor) -> Tensor:
    """φ(x) = (e^(wᵀx − |x|²/2 − a stabiliser that cancels out but for ε) + ε) / √R. Lemma 1."""
    return exponent.shape[-1] ** -0.5 * (exponent.exp() + EPSILON)


def query_features(q: Tensor, directions: Tensor) -> Tensor:
    """Each query has its own stabiliser, which divides out row by row but for ε: so it has its gradient too."""
    products = q @ directions.T
    return softmax_features(exponents(q, products) - products.amax(-1, keepdim=True))


def key_features(k: Tensor, directions: Tensor, real: Tensor | None, causal: bool) -> Tensor:
    """The keys of a head share a stabiliser; causal ones have none, as later keys would change earlier outputs by it.

    Padding keys do not count for it, and get exponent 0: theirs could overflow, and 0 · ∞ is a NaN gradient.
    """
    products = k @ directions.T
    exponent, hidden = exponents(k, products), None if real is None else ~real.mT
    if not causal:
        top = (
            products
            if hidden is None
            else products.masked_fill(hidden, torch.finfo(products.dtype).min)
        )
        exponent = exponent - top.amax((-1, -2), keepdim=True)
    return softmax_features(exponent if hidden is None else exponent.masked_fill(hidden, 0.0))


class Performer(nn.Module):
    directions: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config is None:
            raise ConfigError(
                "kernel = performer needs random features of the head size; take Attention(config), or "
                "kernel = linear."
            )
        self.features = Features(config)
        directions = orthogonal_gaussian(
            int(config.kernel["features"]), config.qk_dim, int(config.kernel["seed"])
        )
        self.register_buffer("directions", directions)

    @full_precision
    def forward(self, inputs: AttentionInputs) -> Steps:
        real = real_keys(inputs, "performer")
        q, k = split_scale(inputs)
        directions = self.directions.to(q.dtype)
        return self.features.summed(
            inputs,
            query_features(q, directions),
            key_features(k, directions, real, self.features.causal),
            real,
        )


PERFORMER = Entry(
    "performer",
    "Performer",
    Performer,
    r"e^{q^\top k} \approx \phi(q)^\top \phi(k),\quad \phi(x) = \tfrac{1}{\sqrt R}\, e^{W x - |x|^2 / 2}",
    "Random orthogonal directions W give features whose dot product equals the exponential of softmax on average. "
    "More directions give a smaller error.",
    "Choromanski et al.",
    2021,
    "https://arxiv.org/abs/2009.14794",
    (
        Param(
            "features",
            "Random features",
            128,
            1,
            4096,
            1,
            meaning="number R of random directions; the error falls as 1/√R",
        ),
        Param("seed", "Seed", 0, 0, 9999, 1, meaning="seed of the random directions"),
        CHUNK,
    ),
    short="{features} random features",
    traits=IMPLIED | STATE,
    cost=performer_cost,
    refuse=needs_plain_rows("performer", *CAUSAL),
)
