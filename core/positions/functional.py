"""Biases that are a learned function of the distance: KERPLE (Chi 2022) and FIRE (Li 2024)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.positions.rotary import Position
from core.score_block import ScoreBlock

FIRE_EPS = 1e-6  # the authors': keeps the ratio finite when c reaches 0


class Kerple(Position):
    """−r₁ log(1 + r₂|i − j|), or −r₁|i − j|^r₂ with r₂ ≤ 2: kernels of the distance. Chi 2022.

    r₁ and r₂ are positive numbers a head, here a softplus (2σ for the exponent) of what is learned.
    """

    def __init__(self, num_heads: int, kernel: str) -> None:
        super().__init__()
        self.kernel = kernel
        first = torch.empty(num_heads).uniform_(
            0.05, 2.0
        )  # the authors start r₁ in 0 … 2 and r₂ in 0 … 1
        second = torch.empty(num_heads).uniform_(0.05, 1.0)
        self.slope = nn.Parameter(first.expm1().log())  # the inverse of softplus
        self.shape = nn.Parameter(second.expm1().log() if kernel == "log" else (second / 2).logit())

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        distance = (block.i - block.j).abs().to(self.slope.dtype)
        slope = F.softplus(self.slope)[:, None, None]
        if self.kernel == "log":
            penalty = torch.log1p(F.softplus(self.shape)[:, None, None] * distance)
        else:
            penalty = distance ** (2 * self.shape.sigmoid()[:, None, None])
        return (-slope * penalty).to(block.dtype)


class Fire(Position):
    """f(ψ(|i − j|) / ψ(max(i, L))), ψ(x) = log(c·x + 1), f a small network from 1 to H. Li 2024.

    The distance is read relative to the query's position, so that a longer text gives no unseen input. c and the
    threshold L = |m| · L₀ are learned.
    """

    def __init__(self, num_heads: int, hidden: int, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, num_heads))
        self.stretch = nn.Parameter(torch.tensor(0.1))  # c, and below m: where the authors start
        self.multiple = nn.Parameter(torch.tensor(1.0))

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        position = block.i.to(self.stretch.dtype)
        longest = torch.maximum(position, (self.multiple * self.threshold).abs())  # (T, 1)
        share = self.squeeze(position - block.j) / (self.squeeze(longest) + FIRE_EPS)
        return self.network(share[..., None]).permute(2, 0, 1).to(block.dtype)

    def squeeze(self, distance: Tensor) -> Tensor:
        return torch.log1p((self.stretch * distance).abs())


def _kerple_cost(config: LayerConfig, area: Area) -> Cost:
    """Distances, and two matrices a head in the last step."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, 4 * area.cells + max(16 * area.cells, 2 * bias), bias)


def _fire_cost(config: LayerConfig, area: Area) -> Cost:
    """A network for each cell, with hidden numbers held before and after the ReLU."""
    cells, hidden, bias = (
        area.cells,
        int(config.position["hidden"]),
        4 * config.score_heads * area.cells,
    )
    return Cost(2.0 * cells * hidden * (1 + config.score_heads), 4 * cells * (1 + 2 * hidden), bias)


KERPLE = Entry(
    "kerple",
    "KERPLE",
    lambda config: Kerple(config.score_heads, **config.position.kwargs),
    r"-r_1 \log(1 + r_2\,|i - j|)\quad\text{or}\quad -r_1\,|i - j|^{r_2}",
    "A learned penalty, a logarithm or a power of the distance, is subtracted from each score.",
    "Chi et al.",
    2022,
    "https://arxiv.org/abs/2205.09921",
    (
        Param(
            "kernel",
            "Kernel",
            "log",
            choices=("log", "power"),
            labels=("Logarithm", "Power"),
            meaning="shape of the penalty: r₁ log(1 + r₂ distance), or r₁ distance to the power r₂",
        ),
    ),
    short="− kernel(|i−j|)",
    enters="scores",
    cost=_kerple_cost,
)
FIRE = Entry(
    "fire",
    "FIRE",
    lambda config: Fire(config.score_heads, **config.position.kwargs),
    r"f_\theta\!\left(\frac{\psi(|i - j|)}{\psi(\max(i, L))}\right)_h,\quad \psi(x) = \log(c\,x + 1)",
    "A small network computes the bias from the distance divided by the query’s position, so its input stays between "
    "0 and 1 in longer texts.",
    "Li et al.",
    2024,
    "https://arxiv.org/abs/2310.04418",
    (
        Param("hidden", "Hidden size", 32, 1, 256, 1, meaning="width of the network"),
        Param(
            "threshold",
            "Threshold L",
            512.0,
            1.0,
            65536.0,
            1.0,
            meaning="position up to which all queries share one denominator; its initial value, as it is learned",
        ),
    ),
    short="+ f(ψ|i−j| / ψ(i))",
    enters="scores",
    cost=_fire_cost,
)
