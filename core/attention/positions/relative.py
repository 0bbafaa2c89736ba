"""Positions added to the input (sinusoidal, learned), biases by distance (ALiBi, T5, KERPLE, FIRE), and vectors of the
distance (Shaw, Transformer-XL, DeBERTa, Inkling)."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from core.attention.base import (
    Position,
    ScoreBlock,
    clip_rms,
    dot_product_scale,
    eager_cache,
    linear,
    split_heads,
)
from core.attention.positions.rotary import BASE as ROTARY_BASE, plain_frequencies
from core.entries import Area, ConfigError, Cost, Entry, LayerConfig, Param, refuse_if

# Absolute positions, added to the input: none, sinusoidal (Vaswani 2017) and learned (Gehring 2017).

BASE = replace(ROTARY_BASE, high=1e6)


def sinusoids(
    positions: Float[Tensor, " T"], dim: int, base: float = 10000.0
) -> Float[Tensor, "T dim"]:
    """sin and cos of position / base^(2i/dim), interleaved; an odd dim ends on a sine. Vaswani 2017, section 3.5.

    Angles are in fp64, which large positions need; the table has the dtype of the positions.
    """
    angle = positions.double()[:, None] * plain_frequencies(base, dim).to(positions.device)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :dim].to(positions.dtype)


class Sinusoidal(Position):
    """x + sinusoids, with wavelengths from 2π to 2π · base. Vaswani 2017, section 3.5."""

    def __init__(self, dim: int, base: float) -> None:
        super().__init__()
        self.dim, self.base = dim, base

    def add(self, x: Tensor, offset: int = 0) -> Tensor:
        # not every device has float64
        return x + sinusoids(
            torch.arange(offset, offset + x.shape[1], dtype=torch.float64), self.dim, self.base
        ).to(x)


class Learned(Position):
    """x + one learned vector a position. Gehring 2017, section 3.1."""

    def __init__(self, dim: int, max_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def add(self, x: Tensor, offset: int = 0) -> Tensor:
        end, max_len = offset + x.shape[1], self.table.num_embeddings
        if end > max_len:
            raise ConfigError(
                f"position = learned has max_len = {max_len}, but the sequence reaches {end}; "
                f"take max_len ≥ {end}, or a position without a table (sinusoidal, rope, alibi)."
            )
        return x + self.table.weight[offset:end]


# What position entries share: products with a table of vectors by distance.


def clipped_rows(block: ScoreBlock, most: int) -> tuple[Int[Tensor, "T S"], slice]:
    """For each cell the row of a table of 2·most + 1 vectors, and the slice of rows that the block reads.

    A cell reads row j − i, clipped to −most … most and counted from the slice's start.
    """
    rows = table_rows(-block.high, -block.low, most, 2 * most + 1)
    return (block.j - block.i).clamp(-most, most) + (most - rows.start), rows


def table_rows(low: int, high: int, zero: int, vectors: int) -> slice:
    """The rows of a table for distances low … high, clipped at both ends; row `zero` is distance 0.

    All rows in a compiled graph, which serves all lengths.
    """
    if torch.compiler.is_compiling():
        return slice(0, vectors)
    first, last = (min(max(distance + zero, 0), vectors - 1) for distance in (low, high))
    return slice(first, last + 1)


def gather_by_distance(
    content: Float[Tensor, "B H T D"],
    table: Float[Tensor, "H_ N D"],
    row: Int[Tensor, "T S"],
) -> Float[Tensor, "B H T S"]:
    """contentᵢ · table[row of (i, j)]: each query's products with the N vectors, from which each cell takes one.

    `table` is one for all heads, (1, N, D), or one a head, (H, N, D).
    """
    products = content @ table.mT  # (B, H, T, N)
    return products.gather(-1, row.expand(*products.shape[:2], *row.shape))


INITIAL_STD = 0.02  # of the profiles of `relative_logits`, as in the authors' code


def bias_cost(
    config: LayerConfig, area: Area, other: float, making: float, matrices: int = 1
) -> Cost:
    """A bias a head, beside `other` bytes: the peak is while those take `making` more, or with so many matrices."""
    bias = 4 * config.score_heads * area.cells
    return Cost(0.0, other + max(making, matrices * bias), bias)


# Positions as a bias on the scores by distance: ALiBi (Press 2022), and T5's learned buckets (Raffel 2020).


@eager_cache(maxsize=32)
def alibi_slopes(
    num_heads: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Float[Tensor, " H"]:
    """m_h = 2^(−8h/H), h from 1; when H is no power of two, BLOOM's rule fills in from the next one's odd slopes."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor(slopes, dtype=dtype, device=device)


class Alibi(Position):
    """−m_h · |i − j|: equal to Press's −m_h (i − j) wherever a causal mask lets it be seen, symmetric elsewhere."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        precise = torch.promote_types(block.dtype, torch.float32)
        slopes = alibi_slopes(self.num_heads, precise, block.i.device)
        return (-slopes[:, None, None] * (block.i - block.j).abs()).to(block.dtype)


def bucket(
    distance: Int[Tensor, "*cells"],
    bidirectional: bool = True,
    buckets: int = 32,
    max_distance: int = 128,
) -> Int[Tensor, "*cells"]:
    """The bucket of j − i: half of them hold one distance each, the others grow logarithmically up to `max_distance`.

    With `bidirectional`, keys after the query have separate buckets; without, they share that of distance 0.
    """
    if bidirectional:
        after = (distance > 0) * (buckets // 2)
        return after + bucket(-distance.abs(), False, buckets // 2, max_distance)
    distance, exact = (-distance).clamp(min=0), buckets // 2
    # The clamp avoids log(0); always fp32, since another precision may move a boundary.
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return torch.where(distance < exact, distance, far)


class T5(Position):
    """b[bucket(j − i)], one learned number a head and bucket. Raffel 2020, section 2.1 (T5's dot product has no √D)."""

    def __init__(
        self, d_model: int, num_heads: int, buckets: int, max_distance: int, bidirectional: bool
    ) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(buckets, num_heads).normal_(std=d_model**-0.5))

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        rows = bucket(block.j - block.i, self.bidirectional, self.buckets, self.max_distance)
        return self.table[rows].permute(2, 0, 1).to(block.dtype)


def _refuse_t5(config: LayerConfig) -> None:
    buckets, farthest = int(config.position["buckets"]), int(config.position["max_distance"])
    exact = buckets // 4 if config.position["bidirectional"] else buckets // 2
    refuse_if(
        farthest <= exact,
        f"position = t5 with buckets = {buckets} has one bucket for each distance below {exact}, which leaves "
        f"none up to max_distance = {farthest}",
        f"max_distance ≥ {exact + 1}",
        "fewer buckets",
        axes=("position",),
    )


# Biases that are a learned function of the distance: KERPLE (Chi 2022) and FIRE (Li 2024).


FIRE_EPS = 1e-6  # the authors': keeps the ratio finite when c reaches 0


class Kerple(Position):
    """−r₁ log(1 + r₂|i − j|), or −r₁|i − j|^r₂ with r₂ ≤ 2: kernels of the distance. Chi 2022.

    r₁ and r₂ are positive numbers a head, here a softplus (2σ for the exponent) of what is learned.
    """

    def __init__(self, num_heads: int, kernel: str) -> None:
        super().__init__()
        self.kernel = kernel
        # the authors start r₁ in 0 … 2 and r₂ in 0 … 1
        first, second = (torch.empty(num_heads).uniform_(0.05, high) for high in (2.0, 1.0))
        self.slope = nn.Parameter(first.expm1().log())  # the inverse of softplus
        self.shape = nn.Parameter(second.expm1().log() if kernel == "log" else (second / 2).logit())

    def bias(self, block: ScoreBlock) -> Float[Tensor, "H T S"]:
        distance = (block.i - block.j).abs().to(self.slope.dtype)
        slope, shape = self.slope[:, None, None], self.shape[:, None, None]
        penalty = (
            torch.log1p(F.softplus(shape) * distance)
            if self.kernel == "log"
            else distance ** (2 * shape.sigmoid())
        )
        return (-F.softplus(slope) * penalty).to(block.dtype)


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


def _fire_cost(config: LayerConfig, area: Area) -> Cost:
    """A network for each cell, with hidden numbers held before and after the ReLU."""
    hidden, heads = int(config.position["hidden"]), config.score_heads
    return Cost(2.0 * hidden * (1 + heads), 4 * (1 + 2 * hidden), 4 * heads) * area.cells


class Shaw(Position):
    """qᵢᵀ(kⱼ + aᴷ)/√D and Σ w (vⱼ + aⱽ), a = the vector of clip(j − i, ±K) for all heads. Shaw 2018, equations 3, 4.

    The key side is a bias, divided by the same √D as the content; the value side is added to the output.
    """

    def __init__(self, qk_dim: int, v_dim: int, distance: int, values: bool) -> None:
        super().__init__()
        self.distance, self.scale = distance, dot_product_scale(qk_dim)
        self.key = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance + 1, qk_dim)))
        self.value = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance + 1, v_dim)))
            if values
            else None
        )

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q = block.require("q", "position = shaw", position="alibi")
        row, read = clipped_rows(block, self.distance)
        return gather_by_distance(q * self.scale, self.key[None, read], row)

    def values(
        self, weights: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T E"] | None:
        if self.value is None:
            return None
        row, read = clipped_rows(block, self.distance)
        vectors, row = self.value[read], row.expand(*weights.shape[:2], -1, -1)
        # the sum of weights at each distance, times that distance's vector
        none = weights.new_zeros(*weights.shape[:3], len(vectors))
        return none.scatter_add(-1, row, weights) @ vectors


class RelativeLogits(Position):
    """rᵢ · P[i − j] with rᵢ = W xᵢ a head and P (R, E) for all heads; 0 for a key after its query, or E and more before.

    Thinking Machines 2026 (Inkling): P holds R profiles over the distance, which each query mixes anew. With a `clip`
    (Inkling 2) r is multiplied by learned gains, then shortened to a root mean square of `clip` where it is larger.
    """

    def __init__(self, d_model: int, num_heads: int, size: int, distance: int, clip: float) -> None:
        super().__init__()
        self.num_heads, self.distance, self.clip = num_heads, distance, clip
        self.mix = linear(d_model, num_heads * size)
        self.profiles = nn.Parameter(torch.empty(size, distance).normal_(std=INITIAL_STD))
        self.gain = nn.Parameter(torch.ones(num_heads, 1, size)) if clip else None

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """r of every query, (B, H, T, R)."""
        x = block.require("x", "position = relative_logits", position="shaw")
        states = split_heads(self.mix(x), self.num_heads)
        return (states if self.gain is None else clip_rms(states * self.gain, self.clip),)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        (states,) = block.tables or self.tables(block)
        read = table_rows(block.low, block.high, 1, self.distance + 2)
        row = (block.i - block.j).clamp(-1, self.distance) + (1 - read.start)
        ends = F.pad(self.profiles, (1, 1))  # zeros for a key after its query, and for one too far
        return gather_by_distance(
            states[:, :, block.i.flatten() - block.offset], ends[:, read].mT[None], row
        )


class TransformerXL(Position):
    """(uᵀkⱼ + (qᵢ + v)ᵀ W r) / √D with r the sinusoids of i − j. Dai 2019, section 3.3: its terms b, c and d."""

    def __init__(self, d_model: int, num_heads: int, qk_dim: int, base: float) -> None:
        super().__init__()
        self.d_model, self.base, self.scale = d_model, base, dot_product_scale(qk_dim)
        self.project = nn.Linear(d_model, num_heads * qk_dim, bias=False)
        self.content = nn.Parameter(torch.zeros(num_heads, qk_dim))  # u
        self.place = nn.Parameter(torch.zeros(num_heads, qk_dim))  # v

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """W r of every distance i − j, (H, T + S − 1, D), the least first."""
        q = block.require("q", "position = transformer_xl", position="alibi")
        distances = torch.arange(least(block), block.num_queries, dtype=torch.float64)
        waves = sinusoids(distances, self.d_model, self.base).to(q)
        return (rearrange(self.project(waves), "n (h d) -> h n d", h=len(self.place)),)

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = (block.require(name, "position = transformer_xl", position="alibi") for name in "qk")
        (table,) = block.tables or self.tables(block)
        first = least(block)
        by_distance = gather_by_distance(
            q + self.place[:, None],
            table[:, block.low - first : block.high - first + 1],
            block.i - block.j - block.low,
        )
        # the same for every query: (B, H, 1, S)
        return (by_distance + self.content[:, None] @ k.mT) * self.scale


class Deberta(Position):
    """(qᵢᵀkⱼ + qᵢᵀKʳ + kⱼᵀQʳ) / √(3D), Kʳ and Qʳ maps of the vector of clip(i − j). He 2021, equation 4.

    The two new terms are a bias over √D, and `adjust` divides all three by √3. The index of Qʳ is i − j, as in the
    authors' code; the paper's δ(j, i) only reverses the learned table.
    """

    def __init__(self, d_model: int, num_heads: int, qk_dim: int, distance: int) -> None:
        super().__init__()
        self.distance, self.num_heads, self.scale = distance, num_heads, dot_product_scale(qk_dim)
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance, d_model)))
        self.key, self.query = (
            nn.Linear(d_model, num_heads * qk_dim, bias=False) for _ in range(2)
        )

    def tables(self, block: ScoreBlock) -> tuple[Tensor, ...]:
        """Kʳ and Qʳ, (H, 2k, D) each."""
        return tuple(
            rearrange(turn(self.table), "n (h d) -> h n d", h=self.num_heads)
            for turn in (self.key, self.query)
        )

    def bias(self, block: ScoreBlock) -> Float[Tensor, "B H T S"]:
        q, k = (block.require(name, "position = deberta", position="alibi") for name in "qk")
        read = table_rows(block.low, block.high, self.distance, 2 * self.distance)
        row = (block.i - block.j + self.distance).clamp(0, 2 * self.distance - 1) - read.start
        keys, queries = (table[:, read] for table in block.tables or self.tables(block))
        content_to_place = gather_by_distance(q, keys, row)
        return (content_to_place + gather_by_distance(k, queries, row.mT).mT) * self.scale

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        return scores * 3**-0.5


def least(block: ScoreBlock) -> int:
    """The least distance i − j of the whole matrix."""
    return block.offset - block.num_keys + 1


def _gathered_cost(config: LayerConfig, area: Area, vectors: int, contents: int) -> Cost:
    """Products of so many contents and vectors, and a bias gathered from them by a matrix of distances."""
    products = contents * vectors * config.score_heads
    bias = 4 * config.score_heads * area.cells
    return Cost(2.0 * products * config.qk_dim, 4 * products + 8 * area.cells + bias, bias)


def _shaw_cost(config: LayerConfig, area: Area) -> Cost:
    most = int(config.position["distance"])
    read = table_rows(-area.high, -area.low, most, 2 * most + 1)
    vectors = read.stop - read.start
    keys = _gathered_cost(config, area, vectors, area.queries)
    if not config.position["values"]:
        return keys
    sums = config.num_heads * area.queries * vectors
    return Cost(
        keys.flops + 2.0 * sums * config.v_dim,
        max(keys.bytes, 8 * sums + 16 * area.cells),
        keys.output,
    )


def _relative_logits_cost(config: LayerConfig, area: Area) -> Cost:
    size, vectors = int(config.position["size"]), int(config.position["distance"]) + 2
    read = table_rows(area.low, area.high, 1, vectors)
    products = area.queries * (read.stop - read.start) * config.score_heads
    states, bias = config.score_heads * area.queries * size, 4 * config.score_heads * area.cells
    held = products + states + size * vectors
    return Cost(2.0 * products * size, 4 * held + 8 * area.cells + bias, bias)


def _relative_logits_tables(config: LayerConfig, area: Area) -> Cost:
    states = config.score_heads * area.queries * int(config.position["size"])
    return Cost(
        2.0 * config.d_model * states,
        12 * states if config.position["clip"] else 4 * states,
        4 * states,
    )


def _transformer_xl_cost(config: LayerConfig, area: Area) -> Cost:
    met = _gathered_cost(config, area, area.high - area.low + 1, area.queries)
    key_bias = 2.0 * config.score_heads * area.keys * config.qk_dim
    return Cost(met.flops + key_bias, max(met.bytes, 3 * met.output), met.output)


def _transformer_xl_tables(config: LayerConfig, area: Area) -> Cost:
    vectors, wide = area.high - area.low + 1, config.score_heads * config.qk_dim
    return Cost(
        2.0 * vectors * config.d_model * wide,
        4 * vectors * max(wide + config.d_model, 6 * config.d_model),
        4 * vectors * wide,
    )


def _deberta_cost(config: LayerConfig, area: Area) -> Cost:
    most = int(config.position["distance"])
    read = table_rows(area.low, area.high, most, 2 * most)
    met = _gathered_cost(config, area, read.stop - read.start, area.queries + area.keys)
    return Cost(met.flops, max(met.bytes, 4 * met.output), met.output)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "none",
        "None",
        build=lambda config: Position(),
        latex=r"x_i",
        meaning="Attention does not see the order: if the inputs are permuted, "
        "the outputs are permuted in the same way.",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        short="x",
    ),
    Entry(
        "sinusoidal",
        "Sinusoidal",
        build=lambda config: Sinusoidal(config.d_model, **config.position.kwargs),
        latex=r"x_i + \left[\sin\tfrac{i}{b^{2m/C}},\ \cos\tfrac{i}{b^{2m/C}}\right]_m",
        meaning="Sine and cosine waves of growing wavelength are added to the input.",
        paper="Vaswani et al.",
        year=2017,
        url="https://arxiv.org/abs/1706.03762",
        params=(BASE,),
        short="x + waves",
        enters="x",
    ),
    Entry(
        "learned",
        "Learned",
        build=lambda config: Learned(config.d_model, **config.position.kwargs),
        latex=r"x_i + P_i",
        meaning="A learned vector for each position, up to a largest length, is added to the input.",
        paper="Gehring et al.",
        year=2017,
        url="https://arxiv.org/abs/1705.03122",
        params=(
            Param(
                "max_len",
                "Longest length",
                default=512,
                low=1,
                high=8192,
                step=1,
                meaning="number of positions in the table",
            ),
        ),
        short="x + P[i]",
        enters="x",
        traits=frozenset({"longest"}),
    ),
    Entry(
        "alibi",
        "ALiBi",
        build=lambda config: Alibi(config.score_heads),
        latex=r"-m_h\,|i - j|,\quad m_h = 2^{-8(h+1)/H}",
        meaning="A penalty that grows linearly with the distance is subtracted from each score. Each head has its slope.",
        paper="Press et al.",
        year=2022,
        url="https://arxiv.org/abs/2108.12409",
        short="− m·|i−j|",
        enters="scores",
        # distances in whole numbers, then a bias
        cost=lambda config, area: bias_cost(config, area, 8 * area.cells, 8 * area.cells),
    ),
    Entry(
        "t5",
        "T5 buckets",
        build=lambda config: T5(config.d_model, config.score_heads, **config.position.kwargs),
        latex=r"b_h[\mathrm{bucket}(j - i)]",
        meaning="Each head learns a bias for each short distance, and one for each range of long distances. The ranges "
        "grow with the distance.",
        paper="Raffel et al.",
        year=2020,
        url="https://arxiv.org/abs/1910.10683",
        params=(
            Param(
                "buckets",
                "Buckets",
                default=32,
                low=4,
                high=256,
                step=2,
                meaning="number of learned biases for each head",
            ),
            Param(
                "max_distance",
                "Farthest distance",
                default=128,
                low=2,
                high=4096,
                step=1,
                meaning="distance from which all share one bucket",
            ),
            Param(
                "bidirectional",
                "Both directions",
                default=True,
                meaning="whether half of the buckets are for keys after the query; off in the decoder of T5",
            ),
        ),
        short="+ b[bucket(j−i)]",
        enters="scores",
        refuse=_refuse_t5,
        # buckets through logarithms, in matrices of T × S, then a bias
        cost=lambda config, area: bias_cost(config, area, 8 * area.cells, 32 * area.cells),
    ),
    Entry(
        "kerple",
        "KERPLE",
        build=lambda config: Kerple(config.score_heads, **config.position.kwargs),
        latex=r"-r_1 \log(1 + r_2\,|i - j|)\quad\text{or}\quad -r_1\,|i - j|^{r_2}",
        meaning="A learned penalty, a logarithm or a power of the distance, is subtracted from each score.",
        paper="Chi et al.",
        year=2022,
        url="https://arxiv.org/abs/2205.09921",
        params=(
            Param(
                "kernel",
                "Kernel",
                default="log",
                choices=("log", "power"),
                labels=("Logarithm", "Power"),
                meaning="shape of the penalty: r₁ log(1 + r₂ distance), or r₁ distance to the power r₂",
            ),
        ),
        short="− kernel(|i−j|)",
        enters="scores",
        # distances, and two matrices a head in the last step
        cost=lambda config, area: bias_cost(config, area, 4 * area.cells, 16 * area.cells, 2),
    ),
    Entry(
        "fire",
        "FIRE",
        build=lambda config: Fire(config.score_heads, **config.position.kwargs),
        latex=r"f_\theta\!\left(\frac{\psi(|i - j|)}{\psi(\max(i, L))}\right)_h,\quad \psi(x) = \log(c\,x + 1)",
        meaning="A small network computes the bias from the distance divided by the query’s position, so its input stays "
        "between 0 and 1 in longer texts.",
        paper="Li et al.",
        year=2024,
        url="https://arxiv.org/abs/2310.04418",
        params=(
            Param(
                "hidden",
                "Hidden size",
                default=32,
                low=1,
                high=256,
                step=1,
                meaning="width of the network",
            ),
            Param(
                "threshold",
                "Threshold L",
                default=512.0,
                low=1.0,
                high=65536.0,
                step=1.0,
                meaning="position up to which all queries share one denominator; its initial value, as it is learned",
            ),
        ),
        short="+ f(ψ|i−j| / ψ(i))",
        enters="scores",
        cost=_fire_cost,
    ),
    Entry(
        "shaw",
        "Relative (Shaw)",
        build=lambda config: Shaw(config.qk_dim, config.v_dim, **config.position.kwargs),
        latex=r"\frac{q_i^\top a^K_c}{\sqrt{D}},\quad o_i \mathrel{+}= \sum_j w_{ij}\,a^V_c,\quad c = "
        r"\mathrm{clip}(j-i,\,\pm K)",
        meaning="Each distance, up to a largest one, has a learned vector that is added to the key, and another that is "
        "added to the value.",
        paper="Shaw et al.",
        year=2018,
        url="https://arxiv.org/abs/1803.02155",
        params=(
            Param(
                "distance",
                "Farthest distance",
                default=16,
                low=1,
                high=512,
                step=1,
                meaning="distance K; larger distances share the last vector",
            ),
            Param(
                "values",
                "Value term",
                default=True,
                meaning="whether a vector for the distance is also added to the value",
            ),
        ),
        short="q·a[j−i]/√D",
        enters="scores",
        traits=frozenset({"values", "reads q"}),
        cost=_shaw_cost,
    ),
    Entry(
        "relative_logits",
        "Relative logits",
        build=lambda config: RelativeLogits(
            config.d_model, config.score_heads, **config.position.kwargs
        ),
        latex=r"r_i^\top P_{i-j}\ \text{for}\ 0 \le i - j < E,\ \text{else}\ 0,\quad r_i = W_h\, x_i",
        meaning="Each query mixes a few learned profiles over the distance into a bias of its own: what a token is decides "
        "how far back its head reads. Keys farther away get none.",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling",
        params=(
            Param(
                "size",
                "Profiles",
                default=16,
                low=1,
                high=256,
                step=1,
                meaning="number R of profiles that each query mixes, the same for all heads",
            ),
            Param(
                "distance",
                "Farthest distance",
                default=64,
                low=1,
                high=4096,
                step=1,
                meaning="number E of distances that have a bias, from 0 on",
            ),
            Param(
                "clip",
                "Clip",
                default=0.0,
                low=0.0,
                high=100.0,
                step=0.5,
                meaning="largest root mean square of the mixing numbers, after learned gains; 0 for neither, 2 in Inkling 2",
            ),
        ),
        short="+ r[i]·P[i−j]",
        enters="scores",
        cost=_relative_logits_cost,
        tables=_relative_logits_tables,
    ),
    Entry(
        "transformer_xl",
        "Transformer-XL",
        build=lambda config: TransformerXL(
            config.d_model, config.score_heads, config.qk_dim, **config.position.kwargs
        ),
        latex=r"\frac{u_h^\top k_j + (q_i + v_h)^\top W_r\, r_{i-j}}{\sqrt{D}}",
        meaning="Queries are also compared with sinusoids of the distance, and each head has two learned vectors: one for "
        "content, one for distance.",
        paper="Dai et al.",
        year=2019,
        url="https://arxiv.org/abs/1901.02860",
        params=(BASE,),
        short="(u·k + (q+v)·r[i−j])/√D",
        enters="scores",
        traits=frozenset({"reads q"}),
        cost=_transformer_xl_cost,
        tables=_transformer_xl_tables,
    ),
    Entry(
        "deberta",
        "Disentangled (DeBERTa)",
        build=lambda config: Deberta(
            config.d_model, config.score_heads, config.qk_dim, **config.position.kwargs
        ),
        latex=r"\frac{q_i^\top k_j + q_i^\top K^r_{\mathrm{clip}(i-j)} + k_j^\top Q^r_{\mathrm{clip}(i-j)}}{\sqrt{3D}}",
        meaning="The score has three terms: query with key, query with distance, and key with distance. Their sum is "
        "divided by √(3D).",
        paper="He et al.",
        year=2021,
        url="https://arxiv.org/abs/2006.03654",
        params=(
            Param(
                "distance",
                "Farthest distance",
                default=128,
                low=1,
                high=512,
                step=1,
                meaning="distance k; larger distances share the last vectors",
            ),
        ),
        short="(qk + q·K[i−j] + k·Q[i−j])/√3D",
        enters="scores",
        traits=frozenset({"adjusts", "reads q"}),
        cost=_deberta_cost,
        tables=lambda config, area: (
            Cost(4.0 * config.d_model, 8, 8)
            * (2 * int(config.position["distance"]) * config.score_heads * config.qk_dim)
        ),
    ),
)
