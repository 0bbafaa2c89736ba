"""Normalizers that give exact zeros: the α-entmax family, of which sparsemax is α = 2, and softmax of the k largest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from core.attention.basics import Normalizer
from core.attention.normalizers.base import TEMPERATURE, matrices
from core.attention.normalizers.soft import SUMS_TO_ONE
from core.entries import Area, Cost, Entry, LayerConfig, Param

BLOCK = 2**17  # floats solved at a time: a block fits a core's cache, up to 3 × faster on long rows
MOST_STEPS = 40  # each step divides excess · slope by 4 or more, so 22 bring 1,024² below the precision of fp32


def solved_threshold(z: Tensor, power: float) -> Tensor:
    """τ with Σ max(z − τ, 0)^power = 1, by Newton's steps; z (rows, S) in [−1, 0], its largest 0.

    The sum is convex and falls with τ, so steps from below never pass the solution. By Jensen's inequality τ is at
    least mean(z) − S^(−1/power), and at least −1, where the largest z alone gives 1.
    """
    tau = (z.mean(-1, keepdim=True) - z.shape[-1] ** (-1.0 / power)).clamp_(min=-1.0)
    close = 8 * torch.finfo(z.dtype).eps
    gap, total, compiling = (
        torch.empty_like(z),
        torch.empty_like(tau),
        torch.compiler.is_compiling(),
    )
    for _ in range(MOST_STEPS):
        torch.sub(z, tau, out=gap).clamp_(min=0.0)
        if power == 1.0:
            torch.sum(gap, -1, keepdim=True, out=total)
            slope = gap.sign_().sum(-1, keepdim=True)
        elif power == 2.0:
            slope = gap.sum(-1, keepdim=True)
            torch.sum(gap.square_(), -1, keepdim=True, out=total)
        else:
            inner = gap.pow(power - 1.0)
            slope = inner.sum(-1, keepdim=True)
            torch.sum(inner.mul_(gap), -1, keepdim=True, out=total)
        excess = total.sub_(1.0)
        # A NaN row counts as converged. A compiled graph takes every step.
        far = compiling or bool((excess > close).any())
        tau.addcdiv_(excess, slope, value=1.0 / power)
        if not far:
            break
    return tau


def sorted_threshold(z: Tensor, power: float) -> Tensor:
    """The same τ for power 1 or 2, in closed form from the k largest, for the right k. z (rows, S), its largest 0."""
    largest = z.sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    total = largest.cumsum(-1)
    if power == 1.0:
        return (
            (total - 1.0).div_(count).amax(-1, keepdim=True)
        )  # the right k has the largest (Σ z − 1) / k
    inside = total.square().sub_(count * (largest.square().cumsum(-1) - 1.0))
    roots = total.sub_(inside.clamp_(min=0.0).sqrt_()).div_(count)
    return roots.masked_fill_(roots > largest, -1.0).amax(-1, keepdim=True)


def entmax_rows(scores: Tensor, power: float) -> Tensor:
    """max((α − 1)s − τ, 0)^power with power = 1/(α − 1), over the last dimension."""
    z = (scores - scores.amax(-1, keepdim=True)).contiguous()
    z = (z if power == 1.0 else z.div_(power)).clamp_(min=-1.0)  # a score lower by 1 gets no weight
    whole = (
        torch.compiler.is_compiling() or z.device.type != "cpu"
    )  # a graph is one for all lengths; a GPU would wait
    if power in (1.0, 2.0) and whole:
        gap = z.sub_(sorted_threshold(z, power)).clamp_(min=0.0)
        return gap if power == 1.0 else gap.square_()
    rows = z.view(-1, z.shape[-1])
    for block in (rows,) if whole else rows.split(max(1, BLOCK // z.shape[-1])):
        gap = block.sub_(solved_threshold(block, power)).clamp_(min=0.0)
        if power != 1.0:
            gap.square_() if power == 2.0 else gap.pow_(power)
    return z


class _Entmax(torch.autograd.Function):
    """∂w_j/∂s_m = g_j (1[j = m] − g_m / Σ g) with g = w^(2 − α). Peters 2019, proposition 2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, power: float) -> Tensor:
        return entmax_rows(scores, power)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.power = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        if ctx.power == 1.0:
            inner = weights.sign()
        else:
            inner = weights.sqrt() if ctx.power == 2.0 else weights.pow(1.0 - 1.0 / ctx.power)
        out = grad * inner
        shared = out.sum(-1, keepdim=True).div_(inner.sum(-1, keepdim=True))
        return out.addcmul_(inner, shared, value=-1.0), None


class Entmax(Normalizer):
    """The α-entmax: argmax of ⟨w, s⟩ + Tsallis α-entropy on the simplex. Peters 2019, equation 10."""

    def __init__(self, temperature: float = 1.0, alpha: float = 2.0) -> None:
        super().__init__(temperature)
        self.alpha = alpha

    def normalize(self, scores: Tensor) -> Tensor:
        if not scores.numel():
            return scores
        weights: Tensor = _Entmax.apply(scores, 1.0 / (self.alpha - 1.0))  # type: ignore[no-untyped-call]
        return weights


class TopK(Normalizer):
    """Softmax of a row's k largest scores, and of those equal to the k-th, so that the keys' order does not matter."""

    def __init__(self, temperature: float, k: int) -> None:
        super().__init__(temperature)
        self.k = k

    def normalize(self, scores: Tensor) -> Tensor:
        keys = scores.shape[-1]
        if not torch.compiler.is_compiling() and self.k >= keys:
            return scores.softmax(-1)
        kth = scores.detach().topk(min(self.k, keys), dim=-1).values[..., -1:]
        return scores.masked_fill(scores < kth, float("-inf")).softmax(-1)


def _cost(config: LayerConfig, area: Area) -> Cost:
    """A copy of the scores becomes the weights, which are solved some at a time."""
    cost = matrices(1, 2)(config, area)
    scores = 4 * config.score_heads * area.cells
    power = config.normalizer.key == "entmax" and config.normalizer["alpha"] not in (1.5, 2.0)
    return cost + Cost(bytes=(1 + power) * min(scores, 4 * BLOCK))


_PETERS = ("Peters et al.", 2019, "https://arxiv.org/abs/1905.05702")

SPARSEMAX = Entry(
    "sparsemax",
    "Sparsemax",
    lambda config: Entmax(alpha=2.0, **config.normalizer.kwargs),
    r"w_{ij} = \max(s_{ij}/\tau - t_i,\ 0),\quad \textstyle\sum_m w_{im} = 1",
    "The weights are the nearest point of the simplex to the scores. Keys with a score below the row's threshold t "
    "get weight 0.",
    "Martins and Astudillo",
    2016,
    "https://arxiv.org/abs/1602.02068",
    (TEMPERATURE,),
    "max(s − t, 0)",
    traits=SUMS_TO_ONE,
    cost=_cost,
)

ENTMAX15 = Entry(
    "entmax15",
    "Entmax 1.5",
    lambda config: Entmax(alpha=1.5, **config.normalizer.kwargs),
    r"w_{ij} = \max\left(\tfrac{s_{ij}}{2\tau} - t_i,\ 0\right)^2,\quad \textstyle\sum_m w_{im} = 1",
    "Half way between softmax and sparsemax: keys with low scores get weight 0, and weights fall smoothly to 0.",
    *_PETERS,
    (TEMPERATURE,),
    "max(s/2 − t, 0)²",
    traits=SUMS_TO_ONE,
    cost=_cost,
)

ENTMAX = Entry(
    "entmax",
    "Entmax α",
    lambda config: Entmax(**config.normalizer.kwargs),
    r"w_{ij} = \max\left((\alpha - 1)\tfrac{s_{ij}}{\tau} - t_i,\ 0\right)^{1/(\alpha - 1)}"
    r",\quad \textstyle\sum_m w_{im} = 1",
    "A family of normalizers: α near 1 gives softmax, α = 2 gives sparsemax, and a larger α gives more weights of 0.",
    *_PETERS,
    (
        TEMPERATURE,
        Param(
            "alpha",
            "α",
            1.25,
            1.05,
            2.0,
            0.05,
            meaning="how sparse the weights are: 1.5 is entmax 1.5, 2 is sparsemax",
        ),
    ),
    "max((α − 1)s − t, 0)^(1/(α − 1))",
    traits=SUMS_TO_ONE,
    cost=_cost,
)

TOP_K = Entry(
    "top_k",
    "Top-k",
    lambda config: TopK(**config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_{m \in K_i} e^{s_{im}/\tau}} \text{ for } j \in K_i,\ \text{else } 0",
    "Softmax of the k largest scores of each row. The other keys get weight 0 and no gradient. Scores equal to the "
    "k-th largest are included.",
    "Zhao et al.",
    2019,
    "https://arxiv.org/abs/1912.11637",
    (
        TEMPERATURE,
        Param("k", "k", 4, 1, 512, 1, meaning="number of keys in a row that get a weight"),
    ),
    "softmax of the k largest",
    traits=SUMS_TO_ONE,
    cost=matrices(2, 3),
)
