"""Rotary positions scaled to texts longer than in training: linear, dynamic NTK, YaRN and Llama 3."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import Entry, Param
from core.positions.rotary import ROTARY_PARAMS, Rotary, refuse_odd

SMALLEST_RAMP = 0.001  # the authors of YaRN, where both ends of the ramp meet
YARN_GROWTH = 0.1  # of the temperature with ln(factor), fitted by the authors of YaRN


class Linear(Rotary):
    """Every position is divided by `factor`, so that a longer text stays within the trained angles. Chen 2023."""

    def __init__(
        self, head_dim: int, base: float, layout: str, share: float, factor: float
    ) -> None:
        super().__init__(head_dim, base, layout, share)
        self.factor = factor

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        return super().frequencies(length) / self.factor


class DynamicNtk(Rotary):
    """The base is multiplied by (s·L/L₀ − (s − 1))^(d/(d−2)) for a length L beyond the trained L₀. Peng 2023, 3.3.

    Slow pairs are stretched, the fastest stays. The angles depend on the length, so cached keys must be rotated again.
    """

    def __init__(
        self, head_dim: int, base: float, layout: str, share: float, factor: float, original: int
    ) -> None:
        super().__init__(head_dim, base, layout, share)
        self.factor, self.original = factor, original

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        if self.dims == 2:
            return super().frequencies(length)  # the fastest pair is the only one
        grown = self.factor * max(length, self.original) / self.original - (self.factor - 1)
        base = self.base * grown ** (self.dims / (self.dims - 2))
        return base ** (-torch.arange(0, self.dims, 2, dtype=torch.float64) / self.dims)


class Yarn(Rotary):
    """Fast pairs stay, slow ones are divided by `factor`, with a ramp between. Peng 2023.

    A pair is fast when it makes more than `fast` turns within the original length, slow below `slow` (section 3.2).
    The amplitude 0.1 ln s + 1 stands for a softmax temperature (section 3.4): it multiplies q and k, so a score twice.
    """

    def __init__(
        self,
        head_dim: int,
        base: float,
        layout: str,
        share: float,
        factor: float,
        original: int,
        fast: float,
        slow: float,
    ) -> None:
        super().__init__(head_dim, base, layout, share)
        self.factor, self.original, self.fast, self.slow = factor, original, fast, slow
        self.amplitude = YARN_GROWTH * math.log(factor) + 1.0

    def pair_of(self, turns: float) -> float:
        """The dimension that makes so many turns within the original length."""
        return (
            self.dims * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))
        )

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        plain = super().frequencies(length)
        low = max(math.floor(self.pair_of(self.fast)), 0)
        high = min(math.ceil(self.pair_of(self.slow)), self.dims - 1)
        width = high - low if high != low else SMALLEST_RAMP
        slow = ((torch.arange(len(plain), dtype=torch.float64) - low) / width).clamp(0, 1)
        return plain * (1 - slow) + plain / self.factor * slow


class Llama3(Rotary):
    """As YaRN, with the ramp in wavelengths: below L₀/high they stay, above L₀/low they are divided. Llama 3, 2024."""

    def __init__(
        self,
        head_dim: int,
        base: float,
        layout: str,
        share: float,
        factor: float,
        original: int,
        low: float,
        high: float,
    ) -> None:
        super().__init__(head_dim, base, layout, share)
        self.factor, self.original, self.low, self.high = factor, original, low, high

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        plain = super().frequencies(length)
        turns = self.original * plain / (2 * math.pi)  # within the original length
        fast = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return plain * fast + plain / self.factor * (1 - fast)


def _entry(
    key: str,
    name: str,
    kind: type[Rotary],
    latex: str,
    meaning: str,
    paper: str,
    year: int,
    url: str,
    short: str,
    *params: Param,
    traits: frozenset[str] = frozenset(),
) -> Entry:
    return Entry(
        key,
        name,
        lambda config: kind(config.qk_dim, **config.position.kwargs),
        latex,
        meaning,
        paper,
        year,
        url,
        (*params, *ROTARY_PARAMS),
        short=short,
        enters="q, k",
        traits=traits,
        refuse=refuse_odd,
    )


def _factor(default: float) -> Param:
    return Param(
        "factor", "Factor", default, 1.0, 128.0, 0.5, meaning="factor by which texts become longer"
    )


def _original(default: int) -> Param:
    return Param(
        "original",
        "Original length",
        default,
        32,
        1_048_576,
        1,
        meaning="length of the texts in training",
    )


LINEAR_ROPE = _entry(
    "linear_rope",
    "RoPE, linear scaling",
    Linear,
    r"R_{i/s},\quad \theta_m \leftarrow \theta_m / s",
    "Positions are divided by a factor, so the angles of a longer text stay within those of training.",
    "Chen et al.",
    2023,
    "https://arxiv.org/abs/2306.15595",
    "R[i/{factor}]",
    _factor(4.0),
)
NTK_ROPE = _entry(
    "ntk_rope",
    "RoPE, dynamic NTK",
    DynamicNtk,
    r"b \leftarrow b\left(\frac{s L}{L_0} - (s - 1)\right)^{\frac{d}{d-2}}\ \text{for}\ L > L_0",
    "The base grows with the length. Slow pairs of dimensions rotate more slowly, and the fastest pair does not "
    "change.",
    "Peng et al.",
    2023,
    "https://arxiv.org/abs/2309.00071",
    "R[i], base by length",
    _factor(2.0),
    _original(2048),
    traits=frozenset({"reads length"}),
)
YARN = _entry(
    "yarn",
    "YaRN",
    Yarn,
    r"\theta_m \leftarrow (1 - \gamma_m)\,\theta_m / s + \gamma_m\,\theta_m,\quad s_{ij} \times (0.1 \ln s + 1)^2",
    "Pairs of dimensions that rotate often within the original length do not change, the others rotate more slowly, "
    "and scores become a little larger.",
    "Peng et al.",
    2023,
    "https://arxiv.org/abs/2309.00071",
    "R[i] by parts",
    _factor(4.0),
    _original(2048),
    Param(
        "fast",
        "Fast from",
        32.0,
        8.0,
        128.0,
        1.0,
        meaning="turns in the original length from which a pair does not change",
    ),
    Param(
        "slow",
        "Slow below",
        1.0,
        0.25,
        4.0,
        0.25,
        meaning="turns in the original length below which the whole factor applies",
    ),
)
LLAMA3_ROPE = _entry(
    "llama3_rope",
    "RoPE, Llama 3 scaling",
    Llama3,
    r"\theta_m \leftarrow (1 - \gamma_m)\,\theta_m / s + \gamma_m\,\theta_m,\quad "
    r"\gamma_m = \mathrm{clip}\!\left(\frac{L_0/\lambda_m - l}{h - l},\,0,\,1\right)",
    "Short wavelengths do not change, long ones are multiplied by the factor, and those between by a part of it.",
    "Grattafiori et al.",
    2024,
    "https://arxiv.org/abs/2407.21783",
    "R[i] by parts",
    _factor(8.0),
    _original(8192),
    Param(
        "low",
        "Slow below",
        1.0,
        0.25,
        2.0,
        0.25,
        meaning="turns in the original length below which the whole factor applies",
    ),
    Param(
        "high",
        "Fast from",
        4.0,
        2.5,
        32.0,
        0.5,
        meaning="turns in the original length from which a pair does not change",
    ),
)
