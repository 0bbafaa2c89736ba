"""Rotary positions (Su 2021): RoPE, its forms for longer texts, of grids, of some pairs, and of lengths and phases (PoPE)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.base import Position, eager_cache
from core.entries import Entry, LayerConfig, Param, quote, refuse_if

Scaled: TypeAlias = tuple[Float[Tensor, " half"], float]  # frequencies, and the amplitude


class Rotary(Position):
    """R_i q and R_i k: pair m of dimensions is rotated by i · base^(−2m/D). Su 2021, section 3.2.

    Of D dimensions the first `share` rotate, in whole pairs; the others see no position (GPT-NeoX, section 2.1).
    """

    def __init__(
        self,
        head_dim: int,
        base: float,
        layout: str,
        share: float = 1.0,
        rule: Callable[..., Scaled] | None = None,
        **scaling: Any,
    ) -> None:
        """A `rule` changes the frequencies for longer texts: rule(frequencies, length, base, **scaling)."""
        super().__init__()
        self.base, self.layout, self.rule, self.scaling = base, layout, rule, scaling
        self.dims = max(2, 2 * int(head_dim * share / 2))

    def frequencies(self, length: int) -> Scaled:
        """Radians per position of each pair, in a sequence of that length, fp64; and what multiplies q and k."""
        plain = plain_frequencies(self.base, self.dims)
        return (
            (plain, 1.0)
            if self.rule is None
            else self.rule(plain, length, self.base, **self.scaling)
        )

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        end = offset + x.shape[-2]
        frequencies, amplitude = self.frequencies(end if length is None else length)
        # a graph cannot hold numbers read from a tensor; a cache needs them
        known = frequencies if torch.compiler.is_compiling() else tuple(frequencies.tolist())
        cos, sin = cos_sin(known, offset, end, amplitude, self.layout, x.dtype, x.device)
        if self.dims == x.shape[-1]:
            return rotate_pairs(x, cos, sin, self.layout)
        rotated, plain = x[..., : self.dims], x[..., self.dims :]
        return torch.cat((rotate_pairs(rotated, cos, sin, self.layout), plain), dim=-1)


@eager_cache(maxsize=32)
def plain_frequencies(base: float, dims: int) -> Float[Tensor, " half"]:
    """base^(−2m/dims) for each pair m; fp64."""
    return base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)


def rotate_pairs(
    x: Tensor, cos: Float[Tensor, "*T D"], sin: Float[Tensor, "*T D"], layout: str
) -> Tensor:
    """Each pair of dimensions of x (…, T, D) rotated by the angle of the `tables_of_pairs` cos and sin.

    The halves layout (Llama) pairs m with m + D/2; the interleaved one (Su, GPT-J) pairs 2m with 2m + 1.
    """
    partners = (
        x.roll(x.shape[-1] // 2, -1)
        if layout == "halves"
        else torch.stack((x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    )
    return torch.addcmul(x * cos, partners, sin)


def tables_of_pairs(
    cos: Float[Tensor, "*T half"],
    sin: Float[Tensor, "*T half"],
    layout: str,
) -> tuple[Float[Tensor, "*T D"], Float[Tensor, "*T D"]]:
    """What multiplies each dimension and what its partner: cos of the pair, and −sin for the first, sin for the second."""
    if layout == "halves":
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return torch.stack((cos, cos), dim=-1).flatten(-2), torch.stack((-sin, sin), dim=-1).flatten(-2)


@eager_cache(maxsize=32)
def cos_sin(
    frequencies: Float[Tensor, " half"] | tuple[float, ...],
    start: int,
    stop: int,
    amplitude: float,
    layout: str,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """The `tables_of_pairs` of position · frequency; angles in fp64, which large positions need."""
    angle = torch.arange(start, stop, dtype=torch.float64)[:, None] * torch.as_tensor(
        frequencies, dtype=torch.float64
    )
    cos, sin = ((amplitude * wave).to(device, dtype) for wave in (angle.cos(), angle.sin()))
    return tables_of_pairs(cos, sin, layout)


def refuse_odd(config: LayerConfig) -> None:
    """Pairs need an even number of dimensions; a smaller share of an odd number leaves the rest alone, but in p-RoPE,
    whose share is one of all pairs."""
    position, size = config.position, config.qk_dim
    all_pairs = position.key == "p_rope" or position.kwargs.get("share", 1.0) == 1.0
    refuse_if(
        size % 2 and (size == 1 or all_pairs),
        f"position = {position.key} rotates pairs of dimensions, but d_model = {config.d_model} with "
        f"num_heads = {config.num_heads} and projection = {config.projection.key} gives queries of an odd "
        f"size, {size}",
        "an even one",
        axes=("position", "projection"),
        position="alibi",
    )


BASE = Param(
    "base",
    "Base",
    default=10000.0,
    low=2.0,
    high=1e7,
    step=1.0,
    meaning="ratio of the longest wavelength to the shortest",
)
LAYOUT = Param(
    "layout",
    "Layout",
    default="halves",
    choices=("halves", "interleaved"),
    meaning="which dimensions form a pair: m with m + D/2, or 2m with 2m + 1",
)
SHARE = Param(
    "share",
    "Rotary share",
    default=1.0,
    low=0.05,
    high=1.0,
    step=0.05,
    meaning="share of the dimensions that are rotated, in whole pairs; the others have no position",
)
ROTARY_PARAMS = (BASE, LAYOUT, SHARE)


# Rotary positions scaled to texts longer than in training: linear, dynamic NTK, YaRN and Llama 3.


SMALLEST_RAMP = 0.001  # the authors of YaRN, where both ends of the ramp meet
YARN_GROWTH = 0.1  # of the temperature with ln(factor), fitted by the authors of YaRN


def linear(plain: Tensor, length: int, base: float, factor: float) -> Scaled:
    """Every position is divided by `factor`, so that a longer text stays within the trained angles. Chen 2023."""
    return plain / factor, 1.0


def dynamic_ntk(plain: Tensor, length: int, base: float, factor: float, original: int) -> Scaled:
    """The base is multiplied by (s·L/L₀ − (s − 1))^(d/(d−2)) for a length L beyond the trained L₀. Peng 2023, 3.3.

    Slow pairs are stretched, the fastest stays. The angles depend on the length, so cached keys must be rotated again.
    """
    dims = 2 * len(plain)
    if dims == 2:
        return plain, 1.0  # the fastest pair is the only one
    grown = factor * max(length, original) / original - (factor - 1)
    return plain_frequencies(base * grown ** (dims / (dims - 2)), dims), 1.0


def yarn(
    plain: Tensor,
    length: int,
    base: float,
    factor: float,
    original: int,
    fast: float,
    slow: float,
) -> Scaled:
    """Fast pairs stay, slow ones are divided by `factor`, with a ramp between. Peng 2023.

    A pair is fast when it makes more than `fast` turns within the original length, slow below `slow` (section 3.2).
    The amplitude 0.1 ln s + 1 stands for a softmax temperature (section 3.4): it multiplies q and k, so a score twice.
    """
    dims = 2 * len(plain)
    first, last = (  # the dimensions that make so many turns
        dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (fast, slow)
    )
    low, high = max(math.floor(first), 0), min(math.ceil(last), dims - 1)
    width = high - low if high != low else SMALLEST_RAMP
    divided = ((torch.arange(len(plain), dtype=torch.float64) - low) / width).clamp(0, 1)
    return plain * (1 - divided) + plain / factor * divided, YARN_GROWTH * math.log(factor) + 1.0


def llama3(
    plain: Tensor,
    length: int,
    base: float,
    factor: float,
    original: int,
    low: float,
    high: float,
) -> Scaled:
    """As YaRN, with the ramp in wavelengths: below L₀/high they stay, above L₀/low they are divided. Llama 3, 2024."""
    turns = original * plain / (2 * math.pi)  # within the original length
    fast = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * fast + plain / factor * (1 - fast), 1.0


def _entry(
    key: str,
    name: str,
    *,
    rule: Callable[..., Scaled],
    params: tuple[Param, ...],
    **fields: Any,
) -> Entry:
    return Entry(
        key,
        name,
        build=lambda config: Rotary(config.qk_dim, rule=rule, **config.position.kwargs),
        params=(*params, *ROTARY_PARAMS),
        enters="q, k",
        refuse=refuse_odd,
        **fields,
    )


FACTOR = Param(
    "factor",
    "Factor",
    default=4.0,
    low=1.0,
    high=128.0,
    step=0.5,
    meaning="factor by which texts become longer",
)
ORIGINAL = Param(
    "original",
    "Original length",
    default=2048,
    low=32,
    high=1_048_576,
    step=1,
    meaning="length of the texts in training",
)


# Rotary positions in a grid: patches of a picture, whose rows and columns rotate pairs of their own (Heo 2024).


class GridRotary(Position):
    """R_{r,c} q: half of the pairs are rotated by the patch's row r, the others by its column c. Heo 2024.

    Token i is the patch of row ⌊i / columns⌋ and column i mod columns. Each half has the frequencies of RoPE at its own
    size; of an odd number of pairs the columns have one more.
    """

    def __init__(self, head_dim: int, base: float, layout: str, columns: int) -> None:
        super().__init__()
        self.head_dim, self.base, self.layout, self.columns = head_dim, base, layout, columns

    def rotate(self, x: Tensor, offset: int = 0, length: int | None = None) -> Tensor:
        cos, sin = grid_tables(
            self.head_dim,
            self.base,
            self.layout,
            self.columns,
            offset,
            offset + x.shape[-2],
            x.dtype,
            x.device,
        )
        return rotate_pairs(x, cos, sin, self.layout)


@eager_cache(maxsize=32)
def grid_tables(
    head_dim: int,
    base: float,
    layout: str,
    columns: int,
    start: int,
    stop: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """The `tables_of_pairs` of tokens from start to stop; angles in fp64."""
    tokens, by_row = torch.arange(start, stop), head_dim // 4
    places = (tokens // columns, by_row), (tokens % columns, head_dim // 2 - by_row)
    angle = torch.cat(
        [at[:, None] * plain_frequencies(base, 2 * pairs) for at, pairs in places], -1
    )
    return tables_of_pairs(angle.cos().to(device, dtype), angle.sin().to(device, dtype), layout)


SMALLEST_FACTOR, LARGEST_FACTOR = 0.01, 1e6


def fastest(plain: Tensor, length: int, base: float, part: float) -> Scaled:
    """Of all D/2 pairs the fastest `part` rotate, each as in RoPE; the others stay. Barbero 2024.

    Other than in GPT-NeoX (`Rotary` with a share) the frequencies are those of the whole head: the pairs that stay are
    the slowest ones of RoPE, and not pairs of their own.
    """
    return plain.where(torch.arange(len(plain)) < max(1, int(part * len(plain))), 0.0), 1.0


def searched(
    plain: Tensor,
    length: int,
    base: float,
    stretch: float,
    original: int,
    short: tuple[float, ...],
    long: tuple[float, ...],
) -> Scaled:
    """Pair m rotates by i · base^(−2m/d) / λ_m: one list of λ up to the trained length, one beyond. LongRoPE, Ding 2024.

    The lists are found by a search. Each is spread over the pairs from the fastest to the slowest: with as many numbers
    as pairs every pair has its own, with fewer those between are interpolated. The amplitude √(1 + ln s / ln L₀)
    multiplies q and k. The angles depend on the length, so cached keys must be rotated again. The first tokens, which
    the paper may leave unscaled, are scaled here.
    """
    factors = spread_factors(long if length > original else short, len(plain))
    return (
        plain / torch.tensor(factors, dtype=torch.float64),
        math.sqrt(1.0 + math.log(stretch) / math.log(original)),
    )


def parse_factors(text: str) -> tuple[float, ...]:
    """The numbers of a text like "1, 1.5, 4"; ConfigError for anything else."""
    try:
        factors = tuple(float(part) for part in text.split(","))
    except ValueError:
        factors = ()
    refuse_if(
        not factors or not all(SMALLEST_FACTOR <= factor <= LARGEST_FACTOR for factor in factors),
        f"The factors are {quote(text)}; expected numbers from {SMALLEST_FACTOR:g} to "
        f"{LARGEST_FACTOR:,.0f} with commas between them.",
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


def _factors(key: str, name: str, *, default: str, where: str) -> Param:
    return Param(
        key,
        name,
        default=default,
        parse=parse_factors,
        meaning=f"factors λ of texts {where}, from the fastest pair to the slowest, with commas between them",
    )


# PoPE: what a number says is a length, where it stands is a phase, and neither moves the other.


class Polar(Position):
    """Σ_c softplus(q_c) softplus(k_c) cos((i − j) θ_c − δ_c), θ_c = base^(−c/D). Gopalakrishnan 2025 (PoPE).

    Each of the D numbers of a query or key is the length of a pair whose phase is the position times θ_c, so there are
    2D numbers once they are turned: D cosines, then D sines. δ_c, one a head and number and from −2π to 0, is learned;
    the authors add it to the phases of keys, and here it is taken from those of queries, which heads never share.
    """

    def __init__(self, num_heads: int, head_dim: int, base: float, random: bool) -> None:
        super().__init__()
        self.base = base
        phase = torch.zeros(num_heads, 1, head_dim)
        self.phase = nn.Parameter(phase.uniform_(-2 * math.pi, 0.0) if random else phase)

    def waves(self, x: Tensor, offset: int) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
        """cos and sin of position · θ for each token and number of x."""
        dims, stop = x.shape[-1], offset + x.shape[-2]
        frequencies = plain_frequencies(self.base, 2 * dims)
        known = frequencies if torch.compiler.is_compiling() else tuple(frequencies.tolist())
        cos, sin = cos_sin(known, offset, stop, 1.0, "halves", x.dtype, x.device)
        return cos[:, :dims], sin[:, dims:]

    def rotate(
        self, x: Float[Tensor, "B H T D"], offset: int = 0, length: int | None = None
    ) -> Float[Tensor, "B H T E"]:
        (cos, sin), phase = self.waves(x, offset), self.phase.clamp(-2 * math.pi, 0.0)
        # of the angle − δ
        cos, sin = (cos * phase.cos() + sin * phase.sin(), sin * phase.cos() - cos * phase.sin())
        lengths = F.softplus(x)
        return torch.cat((lengths * cos, lengths * sin), dim=-1)

    def rotate_keys(
        self, x: Float[Tensor, "B G S D"], offset: int = 0, length: int | None = None
    ) -> Float[Tensor, "B G S E"]:
        return self.turn(F.softplus(x), offset)

    def turn(self, lengths: Float[Tensor, "B G S D"], offset: int = 0) -> Float[Tensor, "B G S E"]:
        """The pairs of these lengths, turned by their positions: a linear map of the lengths."""
        cos, sin = self.waves(lengths, offset)
        return torch.cat((lengths * cos, lengths * sin), dim=-1)


PRODUCTS = ("dot", "scaled_dot", "qk_norm", "cosine")  # scores without weights for turned numbers


def _refuse_polar(config: LayerConfig) -> None:
    key = config.position.key
    refuse_if(
        config.score.key not in PRODUCTS,
        f"position = {key} makes two numbers of each number of a query, and score = {config.score.key} has weights "
        "for as many as there were",
        axes=("position", "score"),
        score="scaled_dot",
        position="rope",
    )
    refuse_if(
        not config.has("kernel", "same"),
        f"position = {key} makes two numbers of each number of a query, and kernel = {config.kernel.key} counts on as "
        "many as there were",
        axes=("position", "kernel"),
        kernel=("exact", "fused"),
        position="rope",
    )
    refuse_if(
        any(part.key == "local_p" for part in config.mask.walk()),
        f"position = {key} makes two numbers of each number of a query, and mask = local_p has weights for as many "
        "as there were",
        axes=("position", "mask"),
        mask="local_m",
        position="rope",
    )


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "rope",
        "RoPE",
        build=lambda config: Rotary(config.qk_dim, **config.position.kwargs),
        latex=r"(R_i q_i)^\top (R_j k_j) = q_i^\top R_{j-i} k_j",
        meaning="Queries and keys are rotated by angles that grow with their position, so a score depends on the distance.",
        paper="Su et al.",
        year=2021,
        url="https://arxiv.org/abs/2104.09864",
        params=ROTARY_PARAMS,
        short="(R[i] q)·(R[j] k)",
        enters="q, k",
        refuse=refuse_odd,
    ),
    _entry(
        "linear_rope",
        "RoPE, linear scaling",
        rule=linear,
        latex=r"R_{i/s},\quad \theta_m \leftarrow \theta_m / s",
        meaning="Positions are divided by a factor, so the angles of a longer text stay within those of training.",
        paper="Chen et al.",
        year=2023,
        url="https://arxiv.org/abs/2306.15595",
        short="R[i/{factor}]",
        params=(FACTOR,),
    ),
    _entry(
        "ntk_rope",
        "RoPE, dynamic NTK",
        rule=dynamic_ntk,
        latex=r"b \leftarrow b\left(\frac{s L}{L_0} - (s - 1)\right)^{\frac{d}{d-2}}\ \text{for}\ L > L_0",
        meaning="The base grows with the length. Slow pairs of dimensions rotate more slowly, and the fastest pair does not "
        "change.",
        paper="Peng et al.",
        year=2023,
        url="https://arxiv.org/abs/2309.00071",
        short="R[i], base by length",
        params=(
            replace(FACTOR, default=2.0),
            ORIGINAL,
        ),
        traits=frozenset({"reads length"}),
    ),
    _entry(
        "yarn",
        "YaRN",
        rule=yarn,
        latex=r"\theta_m \leftarrow (1 - \gamma_m)\,\theta_m / s + \gamma_m\,\theta_m,\quad s_{ij} \times (0.1 \ln s + 1)^2",
        meaning="Pairs of dimensions that rotate often within the original length do not change, the others rotate more "
        "slowly, and scores become a little larger.",
        paper="Peng et al.",
        year=2023,
        url="https://arxiv.org/abs/2309.00071",
        short="R[i] by parts",
        params=(
            FACTOR,
            ORIGINAL,
            Param(
                "fast",
                "Fast from",
                default=32.0,
                low=8.0,
                high=128.0,
                step=1.0,
                meaning="turns in the original length from which a pair does not change",
            ),
            Param(
                "slow",
                "Slow below",
                default=1.0,
                low=0.25,
                high=4.0,
                step=0.25,
                meaning="turns in the original length below which the whole factor applies",
            ),
        ),
    ),
    _entry(
        "llama3_rope",
        "RoPE, Llama 3 scaling",
        rule=llama3,
        latex=r"\theta_m \leftarrow (1 - \gamma_m)\,\theta_m / s + \gamma_m\,\theta_m,\quad "
        r"\gamma_m = \mathrm{clip}\!\left(\frac{L_0/\lambda_m - l}{h - l},\,0,\,1\right)",
        meaning="Short wavelengths do not change, long ones are multiplied by the factor, and those between by a part of it.",
        paper="Grattafiori et al.",
        year=2024,
        url="https://arxiv.org/abs/2407.21783",
        short="R[i] by parts",
        params=(
            replace(FACTOR, default=8.0),
            replace(ORIGINAL, default=8192),
            Param(
                "low",
                "Slow below",
                default=1.0,
                low=0.25,
                high=2.0,
                step=0.25,
                meaning="turns in the original length below which the whole factor applies",
            ),
            Param(
                "high",
                "Fast from",
                default=4.0,
                low=2.5,
                high=32.0,
                step=0.5,
                meaning="turns in the original length from which a pair does not change",
            ),
        ),
    ),
    Entry(
        "grid_rope",
        "RoPE in a grid",
        build=lambda config: GridRotary(config.qk_dim, **config.position.kwargs),
        latex=r"(R_{r_i, c_i} q_i)^\top (R_{r_j, c_j} k_j) = q_i^\top R_{r_j - r_i,\, c_j - c_i} k_j",
        meaning="Tokens are the patches of a picture, row by row. Half of each query and key is rotated by the row, the "
        "other half by the column, so a score depends on how far apart two patches are in both directions.",
        paper="Heo et al.",
        year=2024,
        url="https://arxiv.org/abs/2403.13298",
        params=(
            Param(
                "columns",
                "Columns",
                default=4,
                low=2,
                high=256,
                step=1,
                meaning="number of patches in a row of the picture",
            ),
            BASE,
            LAYOUT,
        ),
        short="(R[r, c] q)·(R[r, c] k)",
        enters="q, k",
        refuse=refuse_odd,
    ),
    Entry(
        "p_rope",
        "p-RoPE",
        build=lambda config: Rotary(
            config.qk_dim,
            config.position.kwargs["base"],
            config.position.kwargs["layout"],
            rule=fastest,
            part=config.position["share"],
        ),
        latex=r"\theta_m = b^{-2m/D}\ \text{for}\ m < p\,D/2,\ \text{else}\ 0",
        meaning="Only the fastest pairs of dimensions rotate. The slowest do not see the position, so they can compare "
        "content at any distance.",
        paper="Barbero et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.06205",
        params=(
            replace(
                SHARE,
                name="Share p",
                default=0.75,
                meaning="share p of the pairs of dimensions that rotate: the fastest ones, and at least one",
            ),
            BASE,
            LAYOUT,
        ),
        short="R[i] of the fast pairs",
        enters="q, k",
        refuse=refuse_odd,
    ),
    Entry(
        "longrope",
        "LongRoPE",
        build=lambda config: Rotary(
            config.qk_dim,
            rule=searched,
            **config.position.kwargs
            | {name: parse_factors(config.position.kwargs[name]) for name in ("short", "long")},
        ),
        latex=r"\theta_m \leftarrow \theta_m / \lambda_m,\quad s_{ij} \times \left(1 + \frac{\ln s}{\ln L_0}\right)",
        meaning="Each pair of dimensions rotates more slowly by a factor of its own. The factors are searched, once for "
        "short and once for long texts.",
        paper="Ding et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.13753",
        params=(
            Param(
                "stretch",
                "Stretch s",
                default=4.0,
                low=1.0,
                high=2048.0,
                step=0.5,
                meaning="how many times longer texts become; scores grow with its logarithm",
            ),
            ORIGINAL,
            _factors("short", "Factors, short", default="1", where="up to the original length"),
            _factors("long", "Factors, long", default="1, 4", where="beyond the original length"),
            *ROTARY_PARAMS,
        ),
        short="R[i], a factor each pair",
        enters="q, k",
        traits=frozenset({"reads length"}),
        refuse=refuse_odd,
    ),
    Entry(
        "pope",
        "PoPE",
        build=lambda config: Polar(config.score_heads, config.qk_dim, **config.position.kwargs),
        latex=r"\sum_c \sigma_+(q_{ic})\, \sigma_+(k_{jc}) \cos\big((i - j)\,\theta_c - \delta_c\big),\quad "
        r"\sigma_+(x) = \ln(1 + e^x)",
        meaning="Each number of a query or key becomes the length of an arrow, and its position the arrow's angle. What a "
        "token says and where it stands are apart: with RoPE both change the angle.",
        paper="Gopalakrishnan et al.",
        year=2025,
        url="https://arxiv.org/abs/2509.10534",
        params=(
            BASE,
            Param(
                "random",
                "Random phases",
                default=False,
                meaning="whether the learned phases δ begin at random angles; without, they begin at 0",
            ),
        ),
        short="Σ |q||k| cos",
        enters="q, k",
        traits=frozenset({"doubles"}),
        refuse=_refuse_polar,
    ),
)
