"""Rotary positions pair by pair: p-RoPE rotates only the fastest, LongRoPE slows each by a factor of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from core.entries import ConfigError, Entry, LayerConfig, Param
from core.params import quote
from core.positions.rotary import ROTARY_PARAMS, Rotary, refuse_odd

SMALLEST_FACTOR, LARGEST_FACTOR = 0.01, 1e6


class PartialRotary(Rotary):
    """Of all D/2 pairs the fastest `share` rotate, each as in RoPE; the others stay. Barbero 2024.

    Other than in GPT-NeoX (`Rotary` with a share) the frequencies are those of the whole head: the pairs that stay are
    the slowest ones of RoPE, and not pairs of their own.
    """

    def __init__(self, head_dim: int, base: float, layout: str, share: float) -> None:
        super().__init__(head_dim, base, layout)
        self.rotating = max(1, int(share * head_dim / 2))

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        plain = super().frequencies(length)
        return plain.where(torch.arange(len(plain)) < self.rotating, 0.0)


class LongRope(Rotary):
    """Pair m rotates by i · base^(−2m/d) / λ_m: one list of λ up to the trained length, one beyond. Ding 2024.

    The lists are found by a search. Each is spread over the pairs from the fastest to the slowest: with as many numbers
    as pairs every pair has its own, with fewer those between are interpolated. The amplitude √(1 + ln s / ln L₀)
    multiplies q and k. The angles depend on the length, so cached keys must be rotated again. The first tokens, which
    the paper may leave unscaled, are scaled here.
    """

    def __init__(
        self,
        head_dim: int,
        base: float,
        layout: str,
        share: float,
        stretch: float,
        original: int,
        short: str,
        long: str,
    ) -> None:
        super().__init__(head_dim, base, layout, share)
        self.original = original
        self.short, self.long = (
            spread_factors(parse_factors(text), self.dims // 2) for text in (short, long)
        )
        self.amplitude = math.sqrt(1.0 + math.log(stretch) / math.log(original))

    def frequencies(self, length: int) -> Float[Tensor, " half"]:
        factors = self.long if length > self.original else self.short
        return super().frequencies(length) / torch.tensor(factors, dtype=torch.float64)


def parse_factors(text: str) -> tuple[float, ...]:
    """The numbers of a text like "1, 1.5, 4"; ConfigError for anything else."""
    try:
        factors = tuple(float(part) for part in text.split(","))
    except ValueError:
        factors = ()
    if not factors or not all(SMALLEST_FACTOR <= factor <= LARGEST_FACTOR for factor in factors):
        raise ConfigError(
            f"The factors are {quote(text)}; expected numbers from {SMALLEST_FACTOR:g} to "
            f"{LARGEST_FACTOR:,.0f} with commas between them."
        )
    return factors


def spread_factors(factors: tuple[float, ...], pairs: int) -> tuple[float, ...]:
    """One factor for each pair: the numbers evenly from the first pair to the last, interpolated between."""
    steps = [m * (len(factors) - 1) / max(pairs - 1, 1) for m in range(pairs)]
    below = [min(int(step), max(len(factors) - 2, 0)) for step in steps]
    return tuple(
        factors[at] + (step - at) * (factors[min(at + 1, len(factors) - 1)] - factors[at])
        for step, at in zip(steps, below, strict=True)
    )


def _refuse_partial(config: LayerConfig) -> str | None:
    if config.qk_dim % 2:
        return (
            f"position = p_rope divides the dimensions into pairs, but d_model = {config.d_model} with num_heads = "
            f"{config.num_heads} and projection = {config.projection.key} gives queries of an odd size, "
            f"{config.qk_dim}; take an even one, or position = alibi."
        )
    return None


_BASE, _LAYOUT, _SHARE = ROTARY_PARAMS


def _factors(key: str, name: str, default: str, where: str) -> Param:
    return Param(
        key,
        name,
        default,
        parse=parse_factors,
        meaning=f"factors λ of texts {where}, from the fastest pair to the slowest, with commas between them",
    )


P_ROPE = Entry(
    "p_rope",
    "p-RoPE",
    lambda config: PartialRotary(config.qk_dim, **config.position.kwargs),
    r"\theta_m = b^{-2m/D}\ \text{for}\ m < p\,D/2,\ \text{else}\ 0",
    "Only the fastest pairs of dimensions rotate. The slowest do not see the position, so they can compare content at "
    "any distance.",
    "Barbero et al.",
    2024,
    "https://arxiv.org/abs/2410.06205",
    (
        replace(
            _SHARE,
            name="Share p",
            default=0.75,
            meaning="share p of the pairs of dimensions that rotate: the fastest ones, and at least one",
        ),
        _BASE,
        _LAYOUT,
    ),
    short="R[i] of the fast pairs",
    enters="q, k",
    refuse=_refuse_partial,
)
LONG_ROPE = Entry(
    "longrope",
    "LongRoPE",
    lambda config: LongRope(config.qk_dim, **config.position.kwargs),
    r"\theta_m \leftarrow \theta_m / \lambda_m,\quad s_{ij} \times \left(1 + \frac{\ln s}{\ln L_0}\right)",
    "Each pair of dimensions rotates more slowly by a factor of its own. The factors are searched, once for short and "
    "once for long texts.",
    "Ding et al.",
    2024,
    "https://arxiv.org/abs/2402.13753",
    (
        Param(
            "stretch",
            "Stretch s",
            4.0,
            1.0,
            2048.0,
            0.5,
            meaning="how many times longer texts become; scores grow with its logarithm",
        ),
        Param(
            "original",
            "Original length",
            2048,
            32,
            1_048_576,
            1,
            meaning="length of the texts in training",
        ),
        _factors("short", "Factors, short", "1", "up to the original length"),
        _factors("long", "Factors, long", "1, 4", "beyond the original length"),
        *ROTARY_PARAMS,
    ),
    short="R[i], a factor each pair",
    enters="q, k",
    traits=frozenset({"reads length"}),
    refuse=refuse_odd,
)
