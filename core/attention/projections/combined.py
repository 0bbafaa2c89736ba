"""Projections that do more to heads: a gate, short convolutions, compression, and the difference of two maps."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from core.attention.base import (
    Extended,
    Heads,
    Projection,
    ScoreBlock,
    convolve,
    linear,
    merge_heads,
    repeat_heads,
    split_heads,
)
from core.attention.decoding import append
from core.attention.projections.multi_head import (
    BIAS,
    HEAD_SIZE,
    MAX_KV_HEADS,
    GroupedQuery,
    MultiHead,
    kv_sizes,
    refuse_uneven,
)
from core.entries import ConfigError, Cost, Entry, HeadSizes, LayerConfig, Param, refuse_if

# Gated attention (Qiu 2025): a gate from the query's own token on the output of each head.


class Gated(GroupedQuery):
    """σ(W_g x) ⊙ out before W_o: the query's own token says how much of each head passes. Qiu 2025, section 2.2.

    `grain` is "elementwise" (a gate for each of the H · D numbers) or "headwise" (one for each head).
    """

    def __init__(
        self, d_model: int, num_heads: int, kv_heads: int, bias: bool, grain: str, head_dim: int = 0
    ) -> None:
        super().__init__(d_model, num_heads, kv_heads, bias, head_dim)
        self.gate = linear(
            d_model, self.query.out_features if grain == "elementwise" else num_heads
        )

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        joined, gate = merge_heads(out), self.gate(x).sigmoid()
        if gate.shape[-1] != joined.shape[-1]:
            gate = repeat(gate, "b t h -> b t (h d)", d=out.shape[-1])
        return self.output(gate * joined)


# Projections that mix neighbouring tokens by short convolutions.


class Mixing(Projection):
    """q, k and v of a token read those before it; a subclass says in `carry` how. A decoder stores the last rows, too."""

    reads_key_mask = True
    name: str  # of the choice, for messages

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        context: Float[Tensor, "B S C"],
        offset: int = 0,
        key_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Heads:
        """ConfigError for another sequence."""
        if context is not x and 0 not in (x.shape[0], x.shape[1], context.shape[1]):
            raise ConfigError(
                f"projection = {self.name} mixes neighbouring tokens of one sequence",
                "self-attention",
                projection="multi_head",
            )
        queries, keys = x.shape[1], context.shape[1]
        q, k, v, _ = self.carry(
            context if keys else x, (), offset, key_mask=key_mask if keys else None
        )
        return q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]

    def extend(
        self, x: Float[Tensor, "B T C"], stored: tuple[Tensor, ...], offset: int, **given: Any
    ) -> Extended:
        q, k, v, last = self.carry(x, stored, offset, **given)
        k, v = append(stored[:2], (k, v))
        return q, k, v, (k, v, *last)


def rows_before(
    rows: Float[Tensor, "B T W"],
    stored: Float[Tensor, "B n W"] | None,
    count: int,
    real: Bool[Tensor, "B T"] | None,
) -> Float[Tensor, "B N W"]:
    """Rows of a map with the `count` rows before them, zeros before a text; rows of padding are zeros, as a bias would
    be seen by the tokens after it."""
    if real is not None:
        rows = rows.masked_fill(~real.unsqueeze(-1), 0.0)
    return F.pad(rows, (0, 0, count, 0)) if stored is None else torch.cat((stored, rows), dim=1)


# Short convolutions before linear attention, and a norm and a gate after it, as in Mamba-2, GLA and Gated DeltaNet.


EPSILON = 1e-5  # of the norm of each head's output
GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


class Convolved(Mixing, MultiHead):
    """SiLU of a causal depthwise convolution of x W_q, x W_k and x W_v; (RMSNorm(out) ⊙ g(x W_g)) W_o a head.

    Yang et al. 2024 (2412.06464), section 3.4. A decoder stores the last `width` − 1 rows of the three maps.
    """

    name = "short_conv"

    def __init__(self, d_model: int, num_heads: int, bias: bool, width: int, gate: str) -> None:
        super().__init__(d_model, num_heads, bias)
        bound = width**-0.5  # as nn.Conv1d's
        self.taps = nn.Parameter(torch.empty(width, 3 * d_model).uniform_(-bound, bound))
        self.gain = nn.Parameter(torch.ones(d_model // num_heads))
        self.passes = GATES.get(gate)
        self.gate: Any = linear(d_model, d_model) if self.passes else None

    def carry(
        self,
        x: Float[Tensor, "B T C"],
        stored: tuple[Tensor, ...],
        offset: int,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **_: Any,
    ) -> Extended:
        rows = torch.cat((self.query(x), self.key(x), self.value(x)), dim=-1)
        rows = rows_before(rows, stored[-1] if stored else None, len(self.taps) - 1, key_mask)
        mixed = F.silu(convolve(rows, self.taps))
        q, k, v = (split_heads(one, self.num_heads) for one in mixed.chunk(3, dim=-1))
        return q, k, v, (rows[:, x.shape[1] :],)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        out = merge_heads(F.rms_norm(out, out.shape[-1:], self.gain, EPSILON))
        return self.output(out if self.passes is None else out * self.passes(self.gate(x)))


# Compressed heads that convolutions mix (CCA, Figliolia 2025): what attends is smaller than the layer is wide.


class Compressed(Mixing):
    """H queries and G keys and values of D, all small: q and k are mixed with the tokens before them. Figliolia 2025.

    To [q; k] two convolutions are applied, one of each number (`width` tokens) and one within each head
    (`head_width`), both with a bias. Added to each query is the mean of itself and its key as they were, to each key
    the mean of these over its queries. Both then get length √D, and a key of each group a learned factor. Half of the
    numbers of the G values are of the token itself, the others of the one before it. As in ZAYA's code a decoder stores
    beside keys and values the last rows that the convolutions read, and the values that are still to come.
    """

    name = "compressed"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        kv_heads: int,
        width: int,
        head_width: int,
        head_dim: int,
    ) -> None:
        super().__init__()
        self.num_heads, self.kv_heads = num_heads, kv_heads
        size = head_dim or d_model // num_heads
        wide, narrow = num_heads * size, kv_heads * size
        self.query, self.key = linear(d_model, wide), linear(d_model, narrow)
        self.value = linear(d_model, narrow - narrow // 2)
        self.delayed_value = linear(d_model, narrow // 2)
        self.output = linear(wide, d_model)
        both, heads = wide + narrow, num_heads + kv_heads
        self.by_number = nn.Conv1d(both, both, width, groups=both)
        self.by_head = nn.Conv1d(both, both, head_width, groups=heads)
        self.before = width + head_width - 2
        self.factor = nn.Parameter(torch.ones(kv_heads, 1, 1))

    def carry(
        self,
        x: Float[Tensor, "B T C"],
        stored: tuple[Tensor, ...],
        offset: int,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **_: Any,
    ) -> Extended:
        length, wide = x.shape[1], self.query.out_features
        rows, delayed = stored[-2:] if stored else (None, None)
        rows = rows_before(
            torch.cat((self.query(x), self.key(x)), dim=-1), rows, self.before, key_mask
        )
        delayed = rows_before(self.delayed_value(x), delayed, 1, key_mask)
        mixed = self.by_head(self.by_number(rows.mT)).mT if length else rows[:, :0]
        q, k = rows[:, self.before :].split((wide, rows.shape[-1] - wide), dim=-1)
        q, k = split_heads(q, self.num_heads), split_heads(k, self.kv_heads)
        mean = (q + repeat_heads(k, self.num_heads)) / 2
        of_keys = mean.unflatten(1, (self.kv_heads, -1)).mean(2)
        q = mean + split_heads(mixed[..., :wide], self.num_heads)
        k = of_keys + split_heads(mixed[..., wide:], self.kv_heads)
        q, k = (F.normalize(one, dim=-1) * q.shape[-1] ** 0.5 for one in (q, k))
        v = split_heads(torch.cat((self.value(x), delayed[:, :length]), dim=-1), self.kv_heads)
        return q, k * self.factor, v, (rows[:, length:], delayed[:, length:])


# Convolutions of keys and values alone, whose taps the token itself may compute, as in Inkling 1 and 2.


VALUE_EPSILON = 1e-6  # of the norm of a value


class DynamicConvolution(Mixing, GroupedQuery):
    """k_j + Σ_w (c_w + d_jw) ⊙ k_(j−w) of x W_k, and v alike: d is computed from token j. Inkling 2 (2026).

    c has a tap for each channel, d = x W_d one for each head of keys and of values; with taps "fixed" (Inkling 1, and
    Inkling 2's layers with a window) there is no d. With `scaled` the sum is divided by the square root of its number
    of terms, and v brought to a root mean square of 1, as in Inkling 2. The gate is that of gated attention. A decoder
    stores the last `width` − 1 rows of x W_k and x W_v beside k and v.
    """

    name = "dynamic_conv"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        kv_heads: int,
        head_dim: int,
        width: int,
        taps: str,
        scaled: bool,
        gate: bool,
    ) -> None:
        super().__init__(d_model, num_heads, kv_heads, False, head_dim)
        rows, dynamic = 2 * self.key.out_features, taps == "dynamic"
        bound = 0.0 if dynamic else width**-0.5  # as nn.Conv1d's
        self.taps = nn.Parameter(torch.empty(width, rows).uniform_(-bound, bound))
        self.mix: Any = linear(d_model, 2 * kv_heads * width) if dynamic else None
        self.gate: Any = linear(d_model, self.query.out_features) if gate else None
        self.terms = width * (2 if dynamic else 1) + 1 if scaled else 0

    def carry(
        self,
        x: Float[Tensor, "B T C"],
        stored: tuple[Tensor, ...],
        offset: int,
        key_mask: Bool[Tensor, "B T"] | None = None,
        **_: Any,
    ) -> Extended:
        width, heads = len(self.taps), 2 * self.kv_heads
        own = torch.cat((self.key(x), self.value(x)), dim=-1)
        rows = rows_before(own, stored[-1] if stored else None, width - 1, key_mask)
        taps = rearrange(self.taps, "w (h d) -> w 1 1 h d", h=heads)
        near = rearrange(rows, "b t (h d) -> b t h d", h=heads)
        mixed = near[:, width - 1 :]
        if self.mix is not None:
            taps = taps + rearrange(self.mix(x), "b t (h w) -> w b t h 1", h=heads)
        for lag, tap in enumerate(taps):
            mixed = mixed + tap * near[:, width - 1 - lag : near.shape[1] - lag]
        if self.terms:
            mixed = mixed * self.terms**-0.5
        k, v = mixed.transpose(1, 2).chunk(2, dim=1)
        v = F.rms_norm(v, v.shape[-1:], eps=VALUE_EPSILON) if self.terms else v
        return self.queries(x), k, v, (rows[:, x.shape[1] :],)

    def merge(
        self, out: Float[Tensor, "B H T D"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        joined = merge_heads(out)
        return self.output(joined if self.gate is None else self.gate(x).sigmoid() * joined)


DIFFERENTIAL_EPSILON = 1e-5  # of the norm of each head's output, as in the paper's own code
INITIAL_STD = 0.1  # standard deviation of the vectors that make λ, at the start


def lambda_init(depth: int) -> float:
    """0.8 − 0.6·e^(−0.3(l − 1)) for layer l, counted from 1. Ye 2024, section 2.1."""
    return 0.8 - 0.6 * math.exp(-0.3 * (depth - 1))


class Differential(Projection):
    """(A₁ − λA₂)V in each of H heads, then RMSNorm a head, times 1 − λ_init. Ye 2024, equations 1 to 3.

    A head has two queries and two keys of D/2 dimensions, neighbours among the 2H heads that meet, and one value of D.
    λ = e^(λq₁·λk₁) − e^(λq₂·λk₂) + λ_init is learned, one for the layer.
    """

    def __init__(self, d_model: int, num_heads: int, bias: bool, depth: int) -> None:
        super().__init__()
        self.num_heads, self.start = num_heads, lambda_init(depth)
        self.query, self.key, self.value, self.output = (
            linear(d_model, d_model, bias) for _ in range(4)
        )
        half = d_model // num_heads // 2
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.randn(half) * INITIAL_STD) for _ in range(4)
        )

    def forward(
        self, x: Float[Tensor, "B T C"], context: Float[Tensor, "B S C"], offset: int = 0
    ) -> Heads:
        q, k = (
            split_heads(self.query(x), 2 * self.num_heads),
            split_heads(self.key(context), 2 * self.num_heads),
        )
        return q, k, split_heads(self.value(context), self.num_heads)

    def weight(self) -> Float[Tensor, ""]:
        """λ as it stands now."""
        first, second = (
            (self.lambda_q1 * self.lambda_k1).sum(),
            (self.lambda_q2 * self.lambda_k2).sum(),
        )
        return first.exp() - second.exp() + self.start

    def combine_heads(
        self, weights: Float[Tensor, "B Hs T S"], scores: Tensor, block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        first, second = rearrange(weights, "b (h two) t s -> two b h t s", two=2)
        return first - self.weight() * second

    def merge(
        self, out: Float[Tensor, "B H T E"], x: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        normed = F.rms_norm(out, out.shape[-1:], eps=DIFFERENTIAL_EPSILON)
        return self.output(merge_heads(normed * (1 - self.start)))


def _differential_refuse(config: LayerConfig) -> None:
    refuse_if(
        config.head_dim % 2,
        f"projection = differential halves each head for its two queries, but d_model = {config.d_model} with "
        f"num_heads = {config.num_heads} gives an odd head size = {config.head_dim}",
        "an even one",
        axes=("projection",),
        projection="multi_head",
    )


class DifferentialV2(GroupedQuery):
    """(A₁ − σ(λ_i) A₂)V in each of H heads, with λ = x W_λ, a number a token and head, and no norm. Ye 2026.

    A head has two queries of D dimensions, neighbours among the 2H that meet, which share keys and values of D.
    """

    def __init__(self, d_model: int, num_heads: int, kv_heads: int, bias: bool) -> None:
        super().__init__(d_model, num_heads, kv_heads, bias)
        self.query = linear(d_model, 2 * self.query.out_features, bias)
        self.share = linear(d_model, num_heads)  # W_λ

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B Hs T D"]:
        return split_heads(self.query(x), 2 * self.num_heads)

    def combine_heads(
        self, weights: Float[Tensor, "B Hs T S"], scores: Tensor, block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        x = block.require("x", "projection = differential_v2", projection="differential")
        share = self.share(block.own(x)).sigmoid().mT.unsqueeze(-1)  # (B, H, T, 1)
        return weights[:, ::2] - share * weights[:, 1::2]


# Parallax: a second query corrects the weights of the first (Zuo 2026).


class Parallax(GroupedQuery):
    """a_ij (1 + Σ_m a_im s′_im − s′_ij), a the softmax of q and s′ the scores of a second query W_r x. Zuo 2026.

    A key that the second query scores below the mean over a gains weight, and one above loses, so that weights may be
    negative and still sum to 1. With a′ the softmax of s′, which is the second map of each head, log a′ stands for s′:
    what all keys of a row share cancels. The two queries of a head are neighbours among the 2H that meet; both are
    scaled and rotated alike, while the paper's s′ has no 1/√D, which W_r makes up for.
    """

    def __init__(self, d_model: int, num_heads: int, kv_heads: int, bias: bool) -> None:
        super().__init__(d_model, num_heads, kv_heads, bias)
        self.probe = linear(d_model, self.query.out_features, bias)  # W_r

    def queries(self, x: Float[Tensor, "B T C"], offset: int = 0) -> Float[Tensor, "B Hs T D"]:
        return rearrange(
            [self.query(x), self.probe(x)], "two b t (h d) -> b (h two) t d", h=self.num_heads
        )

    def combine_heads(
        self,
        weights: Float[Tensor, "B Hs T S"],
        scores: Float[Tensor, "B Hs T S"],
        block: ScoreBlock,
    ) -> Float[Tensor, "B H T S"]:
        weights, probed = weights[:, ::2], scores[:, 1::2]
        probed = probed.masked_fill(weights == 0, 0.0)  # a hidden NaN would reach the mean
        mean = (weights * probed).sum(-1, keepdim=True)
        return torch.addcmul(weights * (1 + mean), weights, probed, value=-1)


def _parallax_refuse(config: LayerConfig) -> None:
    refuse_uneven(config, "key head", (0,))
    refuse_if(
        not (config.has("normalizer", "softmax") and config.normalizer["temperature"] == 1.0),
        "projection = parallax corrects the weights of a softmax by scores, at temperature 1, not those of "
        f"normalizer = {config.normalizer.key} with {dict(config.normalizer.params)}",
        axes=("projection", "normalizer"),
        normalizer="softmax",
        projection="differential",
    )
    refuse_if(
        config.has("mask", "reweighs"),
        f"projection = parallax corrects weights that sum to 1, and mask = {config.mask.key} multiplies them",
        axes=("projection", "mask"),
        mask="local",
        projection="differential",
    )


def _two_queries(config: LayerConfig) -> HeadSizes:
    """Two queries a head, which meet the same keys."""
    return replace(kv_sizes(config), score_heads=2 * config.num_heads)


KV_HEADS = Param(
    "kv_heads",
    "Key/value heads",
    default=0,
    low=0,
    high=MAX_KV_HEADS,
    step=1,
    meaning="number G of heads of keys and values, which divides the number of query heads; 0 for as many",
)
ENTRIES: tuple[Entry, ...] = (
    Entry(
        "gated",
        "Gated output",
        build=lambda config: Gated(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        latex=r"[\sigma(x_i W_g) \odot \mathrm{out}_i]\,W_o",
        meaning="A gate, computed from the query's token, multiplies the output of each head by numbers from 0 to 1.",
        paper="Qiu et al.",
        year=2025,
        url="https://arxiv.org/abs/2505.06708",
        params=(
            BIAS,
            Param(
                "grain",
                "Gate",
                default="elementwise",
                choices=("elementwise", "headwise"),
                labels=("each number", "each head"),
                meaning="whether each number of the output has a gate, or each head",
            ),
            KV_HEADS,
            HEAD_SIZE,
        ),
        short="q = x W_q, σ(x W_g) ⊙ out",
        traits=frozenset({"shares keys"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head", (0,)),
    ),
    Entry(
        "short_conv",
        "Short convolution, norm and gate",
        build=lambda config: Convolved(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"q_i = \mathrm{SiLU}\Big(\sum_w c_w \odot x_{i-w} W_q\Big),\ k,\, v\ \text{alike};\quad "
        r"[\mathrm{RMSNorm}(\mathrm{out}_i) \odot g(x_i W_g)]\,W_o",
        meaning="Queries, keys and values are mixed with those of the few tokens before them, so that one layer can "
        "compare a token with its neighbour. The output of each head is normalized, then multiplied by a gate.",
        paper="Yang et al.",
        year=2024,
        url="https://arxiv.org/abs/2412.06464",
        params=(
            Param(
                "bias",
                "Bias",
                default=False,
                meaning="whether the maps to queries, keys, values and output have a bias",
            ),
            Param(
                "width",
                "Width",
                default=4,
                low=1,
                high=16,
                step=1,
                meaning="tokens that a convolution reads, the token itself among them",
            ),
            Param(
                "gate",
                "Gate",
                default="silu",
                choices=("silu", "sigmoid", "none"),
                labels=("SiLU", "sigmoid", "none"),
                meaning="the function of the gate that multiplies the normalized output",
            ),
        ),
        short="conv of {width}, norm, gate",
        traits=frozenset({"one sequence"}),
    ),
    Entry(
        "compressed",
        "Compressed and convolved (CCA)",
        build=lambda config: Compressed(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"[q; k]_i = \mathrm{conv}\big([x W_q;\ x W_k]\big)_i + \mathrm{mean}(x_i W_q,\ x_i W_k),\quad "
        r"v_i = [x_i W_v;\ x_{i-1} W_v']",
        meaning="Attention takes place in heads smaller than the layer is wide, so it computes and stores less. Two short "
        "convolutions let queries and keys read the tokens before them, and half of each value is of the token before.",
        paper="Figliolia et al.",
        year=2025,
        url="https://arxiv.org/abs/2510.04476",
        params=(
            Param(
                "kv_heads",
                "Key/value heads",
                default=1,
                low=1,
                high=MAX_KV_HEADS,
                step=1,
                meaning="number G of heads of keys and values; it divides the number of query heads",
            ),
            Param(
                "width",
                "Width",
                default=2,
                low=1,
                high=16,
                step=1,
                meaning="tokens that the convolution of each number reads, the token itself among them",
            ),
            Param(
                "head_width",
                "Width in a head",
                default=2,
                low=1,
                high=16,
                step=1,
                meaning="tokens that the convolution within each head reads, the token itself among them",
            ),
            HEAD_SIZE,
        ),
        short="conv of q and k, {kv_heads} heads of k, v",
        traits=frozenset({"one sequence"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head", (1,)),
    ),
    Entry(
        "dynamic_conv",
        "Dynamic convolution of keys and values",
        build=lambda config: DynamicConvolution(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        latex=r"k_j = \kappa_j + \sum_w (c_w + d_{jw}) \odot \kappa_{j-w},\quad \kappa_j = x_j W_k,\quad d_j = x_j W_d;\quad "
        r"v_j\ \text{alike}",
        meaning="Keys and values are mixed with those of the few tokens before them, and each token computes how. Inkling "
        "2 also brings values to one length, and a gate of the query's token multiplies the output.",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling2",
        params=(
            KV_HEADS,
            HEAD_SIZE,
            Param(
                "width",
                "Width",
                default=4,
                low=1,
                high=16,
                step=1,
                meaning="tokens that a convolution reads, the token itself among them",
            ),
            Param(
                "taps",
                "Taps",
                default="dynamic",
                choices=("dynamic", "fixed"),
                labels=("learned, and more from the token", "learned"),
                meaning="whether each token adds numbers of its own to the learned taps",
            ),
            Param(
                "scaled",
                "Scaled",
                default=True,
                meaning="whether the sum is divided by the root of its number of terms, and values are normalized",
            ),
            Param(
                "gate", "Gate", default=True, meaning="whether a sigmoid gate multiplies the output"
            ),
        ),
        short="{taps} conv of k, v",
        traits=frozenset({"one sequence"}),
        sizes=kv_sizes,
        refuse=lambda config: refuse_uneven(config, "key head", (0,)),
    ),
    Entry(
        "differential",
        "Differential",
        build=lambda config: Differential(
            config.d_model, config.num_heads, **config.projection.kwargs
        ),
        latex=r"(A_1 - \lambda A_2)\,V,\quad \lambda = e^{\lambda_{q_1} \cdot \lambda_{k_1}} - e^{\lambda_{q_2} \cdot "
        r"\lambda_{k_2}} + \lambda_0",
        meaning="Each head subtracts one attention map from another, so weights that both maps share cancel. Weights may be "
        "negative.",
        paper="Ye et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.05258",
        params=(
            BIAS,
            Param(
                "depth",
                "Layer",
                default=1,
                low=1,
                high=1000,
                step=1,
                meaning="number l of the layer, from 1; λ₀ grows with it from 0.2 to 0.8",
            ),
        ),
        short="A₁ − λA₂",
        traits=frozenset({"folds"}),
        sizes=lambda config: HeadSizes(  # as many keys, half the values
            2 * config.num_heads,
            config.head_dim // 2,
            config.head_dim,
            2 * config.num_heads,
            cached=2 * config.d_model,
        ),
        refuse=_differential_refuse,
    ),
    Entry(
        "differential_v2",
        "Differential, version 2",
        build=lambda config: DifferentialV2(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        latex=r"(A_1 - \sigma(\lambda_i)\, A_2)\,V,\quad \lambda_i = x_i W_\lambda",
        meaning="Each head subtracts one attention map from another over the same keys, by a share that each token sets "
        "for each head. Weights may be negative.",
        paper="Ye et al.",
        year=2026,
        url="https://github.com/microsoft/unilm/tree/master/Diff-Transformer/Diff-Transformer-V2",
        params=(BIAS, KV_HEADS),
        short="A₁ − σ(λ)A₂",
        traits=frozenset({"folds", "shares keys"}),
        sizes=_two_queries,
        cost=lambda config, area: Cost(2.0 * config.d_model * config.num_heads * area.queries),
        refuse=lambda config: refuse_uneven(config, "key head", (0,)),
    ),
    Entry(
        "parallax",
        "Parallax",
        build=lambda config: Parallax(
            config.d_model,
            config.num_heads,
            **config.projection.kwargs | {"kv_heads": config.kv_heads},
        ),
        latex=r"a_1 \left(1 + \textstyle\sum_m a_{1m} \log a_{2m} - \log a_2\right),\quad "
        r"a_1 = \mathrm{softmax}(q^\top k),\ a_2 = \mathrm{softmax}(r^\top k),\ r = x W_r",
        meaning="A second query corrects the softmax of the first: where it scores a key higher than the first map's mean, "
        "the key loses weight. Weights may be negative, and each row sums to 1.",
        paper="Zuo et al.",
        year=2026,
        url="https://arxiv.org/abs/2605.29157",
        params=(BIAS, KV_HEADS),
        short="a₁ (1 + Σ a₁ log a₂ − log a₂)",
        traits=frozenset({"folds", "shares keys"}),
        sizes=_two_queries,
        # the second query's scores, without those that are masked
        cost=lambda config, area: Cost(bytes=4.0 * config.num_heads * area.cells),
        refuse=_parallax_refuse,
    ),
)
