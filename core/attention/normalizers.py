"""Normalizers: how scores become weights, which are 0 wherever the mask lets nothing be seen."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from core.attention.base import Normalizer, ScoreBlock, linear
from core.entries import Area, Axis, Cost, Entry, LayerConfig, Param, refuse_if

# What the entries of all normalizers share: the parameter `temperature`, and the memory of their matrices.


TEMPERATURE = Param(
    "temperature",
    "Temperature",
    default=1.0,
    low=0.01,
    high=100.0,
    step=0.01,
    meaning="number τ that every score is divided by first",
)


def matrices(plain: float, masked: float) -> Callable[[LayerConfig, Area], Cost]:
    """The `cost` of an entry that holds so many matrices beside the scores, without and with a mask.

    A temperature other than 1 takes one more.
    """

    def cost(config: LayerConfig, area: Area) -> Cost:
        scores = 4.0 * config.score_heads * area.cells
        count = (masked if area.masked else plain) + (config.normalizer["temperature"] != 1.0)
        return Cost(0.0, count * scores + (area.cells if area.masked else 0), scores)

    return cost


# Normalizers by the exponential: softmax, of capped scores or by length, and rows that may sum to less than 1.


def without_hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with 0 for those that are masked: a hidden NaN or ∞ would reach a gradient, as NaN · 0 is NaN."""
    return scores if mask is None else scores.masked_fill(~mask, 0.0)


class Softmax(Normalizer):
    """e^(s/τ) / Σ e^(s/τ) over the visible keys."""

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)


class Softcap(Softmax):
    """Softmax of c·tanh(s/c), so that no score leaves (−c, c). Gemma 2, section 2."""

    def __init__(self, temperature: float, cap: float) -> None:
        super().__init__(temperature)
        self.cap = cap

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return super().prepare(self.cap * torch.tanh(without_hidden(scores, mask) / self.cap), mask)


class ScalableSoftmax(Softmax):
    """Softmax of c·log(n)·s with one learned c a head and n the number of keys seen. Nakanishi 2025.

    A softmax of n scores becomes flatter as n grows; the factor log n grows with it. The paper writes s for c. With
    `shift` the factor is c·log n + b, b learned from 1, so that with c = 0 a head is a softmax (Mistral Large 4).
    """

    def __init__(self, temperature: float, num_heads: int, start: float, shift: bool) -> None:
        super().__init__(temperature)
        self.factor = nn.Parameter(torch.full((num_heads,), start))
        self.shift = nn.Parameter(torch.ones(num_heads)) if shift else None

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        factor = self.factor.to(scores.dtype)[:, None, None] * log_of_keys(scores, mask)
        if self.shift is not None:
            factor = factor + self.shift.to(scores.dtype)[:, None, None]
        return super().prepare(without_hidden(scores, mask), mask) * factor


class Sink(Normalizer):
    """e^s / (e^b + Σ e^s): a sink without a value takes a share, so that the keys' weights sum to less than 1.

    b is learned, one number a head (gpt-oss, section 2.1), or 0 without heads (softmax-one).
    """

    def __init__(self, temperature: float, num_heads: int = 0, start: float = 0.0) -> None:
        super().__init__(temperature)
        self.sink = nn.Parameter(torch.full((num_heads,), start)) if num_heads else None

    def normalize(self, scores: Tensor) -> Tensor:
        b = scores.new_zeros(1) if self.sink is None else self.sink
        return beside_sink(b[:, None, None], scores)


def beside_sink(sink: Float[Tensor, "..."], scores: Float[Tensor, "B H T S"]) -> Tensor:
    """e^s / (e^sink + Σ e^s)."""
    total = torch.logaddexp(scores.logsumexp(-1, keepdim=True), sink.to(scores.dtype))
    return (scores - total).exp()


class QuerySink(Sink):
    """e^s / (e^(wᵀxᵢ) + Σ e^s): each query computes the score of its sink, with one w a head. Inkling 2 (2026).

    Called for scores alone, without the tokens that they are of, the sink is that of x = 0.
    """

    def __init__(self, temperature: float, d_model: int, num_heads: int) -> None:
        super().__init__(temperature)
        self.level = linear(d_model, num_heads)

    def at(self, block: ScoreBlock) -> Callable[[Tensor, Tensor | None], Tensor]:
        x = block.own(block.require("x", "normalizer = query_sink", normalizer="sink"))
        sink = self.level(x).mT[..., None]  # (B, H, T, 1)
        return partial(self.rows, normalize=partial(beside_sink, sink))


class Sigmoid(Normalizer):
    """σ(s + b − log S) of each cell alone; −log S makes rows sum to about 1 at first. Ramapuram 2024, section 3.

    S counts the keys that the query may see. The paper takes the sequence's length, which is the same without a mask;
    with one, a row would depend on padding, and on keys that a decoder has not read yet.
    """

    def __init__(self, temperature: float, bias: float, by_length: bool) -> None:
        super().__init__(temperature)
        self.bias, self.by_length = bias, by_length

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        shifted = super().prepare(scores, mask) + self.bias
        return shifted - log_of_keys(scores, mask) if self.by_length else shifted

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()


def log_of_keys(scores: Tensor, mask: Tensor | None) -> float | Tensor:
    """log of the number of keys that each query may see; 0 where it sees none."""
    keys = scores.shape[-1]
    if mask is None:
        return math.log(max(keys, 1))
    visible = mask.expand(*mask.shape[:-1], keys).sum(-1, keepdim=True)
    return visible.clamp(min=1).to(scores.dtype).log()


# Normalizers that give exact zeros: the α-entmax family, of which sparsemax is α = 2, and softmax of the k largest.


BLOCK = 2**17  # floats solved at a time: a block fits a core's cache, up to 3 × faster on long rows
MAX_STEPS = 40  # each step divides excess · slope by 4 or more, so 22 bring 1,024² below the precision of fp32


def solved_threshold(z: Tensor, power: float) -> Tensor:
    """τ with Σ max(z − τ, 0)^power = 1, by Newton's steps; z (rows, S) in [−1, 0], its largest 0.

    The sum is convex and falls with τ, so steps from below never pass the solution. By Jensen's inequality τ is at
    least mean(z) − S^(−1/power), and at least −1, where the largest z alone gives 1.
    """
    tau = (z.mean(-1, keepdim=True) - z.shape[-1] ** (-1.0 / power)).clamp_(min=-1.0)
    close = 8 * torch.finfo(z.dtype).eps
    gap, total = torch.empty_like(z), torch.empty_like(tau)
    for _ in range(MAX_STEPS):
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
        done = not torch.compiler.is_compiling() and not (excess > close).any()
        tau.addcdiv_(excess, slope, value=1.0 / power)
        if done:  # a NaN row counts as converged; a compiled graph takes every step
            break
    return tau


def sorted_threshold(z: Tensor, power: float) -> Tensor:
    """The same τ for power 1 or 2, in closed form from the k largest, for the right k. z (rows, S), its largest 0."""
    largest = z.sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    total = largest.cumsum(-1)
    if power == 1.0:
        # the right k has the largest (Σ z − 1) / k
        return (total - 1.0).div_(count).amax(-1, keepdim=True)
    inside = total.square().sub_(count * (largest.square().cumsum(-1) - 1.0))
    roots = total.sub_(inside.clamp_(min=0.0).sqrt_()).div_(count)
    return roots.masked_fill_(roots > largest, -1.0).amax(-1, keepdim=True)


class _Entmax(torch.autograd.Function):
    """∂w_j/∂s_m = g_j (1[j = m] − g_m / Σ g) with g = w^(2 − α). Peters 2019, proposition 2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, power: float) -> Tensor:
        """max((α − 1)s − τ, 0)^power with power = 1/(α − 1), over the last dimension."""
        z = (scores - scores.amax(-1, keepdim=True)).contiguous()
        # a score lower by 1 gets no weight
        z = (z if power == 1.0 else z.div_(power)).clamp_(min=-1.0)
        # a graph is one for all lengths; a GPU would wait
        whole = torch.compiler.is_compiling() or z.device.type != "cpu"
        if power in (1.0, 2.0) and whole:
            return z.sub_(sorted_threshold(z, power)).clamp_(min=0.0).pow_(power)
        rows = z.view(-1, z.shape[-1])
        for block in (rows,) if whole else rows.split(max(1, BLOCK // z.shape[-1])):
            block.sub_(solved_threshold(block, power)).clamp_(min=0.0).pow_(power)
        return z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.power = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        inner = weights.sign() if ctx.power == 1.0 else weights.pow(1.0 - 1.0 / ctx.power)
        out = grad * inner
        shared = out.sum(-1, keepdim=True).div_(inner.sum(-1, keepdim=True))
        return out.addcmul_(inner, shared, value=-1.0), None


class Entmax(Normalizer):
    """The α-entmax: argmax of ⟨w, s⟩ + Tsallis α-entropy on the simplex. Peters 2019, equation 10."""

    def __init__(self, temperature: float = 1.0, alpha: float = 2.0) -> None:
        super().__init__(temperature)
        self.alpha = alpha

    def normalize(self, scores: Tensor) -> Tensor:
        return cast(Tensor, _Entmax.apply(scores, 1.0 / (self.alpha - 1.0)))  # type: ignore[no-untyped-call]


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
    power = config.normalizer.key == "entmax" and config.normalizer["alpha"] not in (1.5, 2.0)
    solved = min(4 * config.score_heads * area.cells, 4 * BLOCK)
    return matrices(1, 2)(config, area) + Cost(bytes=(1 + power) * solved)


_PETERS: dict[str, Any] = dict(
    paper="Peters et al.", year=2019, url="https://arxiv.org/abs/1905.05702"
)


# Softpick: a softmax whose weights can be exactly 0, and whose row may sum to less than 1.


EPSILON = 1e-8  # in the denominator, as in the authors' code: a row of zeros gets weights of 0


class Softpick(Normalizer):
    """max(0, eˢ − 1) / (Σ |eˢ − 1| + ε) over the visible keys. Zuhri 2025.

    Both sides are divided by e^m before ε is added, m the largest score of a row or 0, so that nothing overflows. A
    negative score gets weight 0, but stays in the sum, so it has a gradient wherever another key has weight.
    """

    def normalize(self, scores: Tensor) -> Tensor:
        highest = scores.detach().amax(-1, keepdim=True).clamp(min=0.0)
        excess = (scores - highest).exp() - (-highest).exp()  # (eˢ − 1) / e^m
        # masked: not in the sum
        excess = excess.masked_fill(scores == torch.finfo(scores.dtype).min, 0.0)
        return excess.relu() / (excess.abs().sum(-1, keepdim=True) + EPSILON)


# Stick-breaking: each key takes a share of what the keys after it have left.


class StickBreaking(Normalizer):
    """σ(s_ij) ∏ (1 − σ(s_il)) over the visible keys l after j: from the last key back, each takes its share. Tan 2024.

    A share that no key takes goes to none, so a row sums to at most 1. Computed as a sum of logarithms. In the paper a
    query does not see its own token, which is a mask (formula `j < i`); under `causal` its own token breaks first.
    """

    def normalize(self, scores: Tensor) -> Tensor:
        # 0 where masked: such a key leaves the stick whole
        after = F.pad(F.logsigmoid(-scores), (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1)
        return (F.logsigmoid(scores) + after).exp()


def _ordered_keys(config: LayerConfig) -> None:
    """The `refuse` of a normalizer that reads the keys in their order: the cells of a grid have none."""
    for axis, grid, take in (
        ("mask", "neighborhood", "causal_local"),
        ("position", "grid_rope", "rope"),
    ):
        refuse_if(
            any(part.key == grid for part in getattr(config, axis).walk()),
            f"normalizer = {config.normalizer.key} goes through the keys in their order, and {axis} = {grid} is for "
            "a grid, which has none",
            axes=("normalizer", axis),
            normalizer="sigmoid",
            **{axis: take},
        )


# Taylor: a softmax whose exponential is its first three terms, which a state could sum up.


class Taylor(Normalizer):
    """(1 + s + s²/2) / Σ (1 + s + s²/2) over the visible keys, each of which is at least 1/2 before it is divided.

    Arora 2024. As a polynomial of q · k it is a product of features of q and of k, 1 + D + D² numbers, so
    that Based keeps a state of that size; here every cell is computed. Scores of padding are not in the sum.
    """

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        scores = super().prepare(without_hidden(scores, mask), mask)
        return 1 + scores + scores.square() / 2

    def normalize(self, scores: Tensor) -> Tensor:
        seen = scores.clamp(min=0.0)  # masked ones are the least number
        # any visible key gives a half or more
        return seen / seen.sum(-1, keepdim=True).clamp(min=0.25)


# The hardest normalizer: the largest score takes the whole row.


STRAIGHT_THROUGH, NONE = "straight_through", "none"


class Hard(Normalizer):
    """1 for the largest score of a row, shared by those that tie for it.

    Its gradient is zero wherever it is defined. "straight_through" takes that of the softmax instead, "none" gives
    queries and keys no gradient.
    """

    def __init__(self, temperature: float, gradient: str) -> None:
        super().__init__(temperature)
        self.gradient = gradient

    def normalize(self, scores: Tensor) -> Tensor:
        first = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
        hard = first / first.sum(-1, keepdim=True)
        if self.gradient == NONE:
            return hard
        soft = scores.softmax(-1)  # takes the gradient as if it had been returned. Bengio 2013
        return hard.detach() + (soft - soft.detach())


# Talking heads: heads exchange their scores before the softmax and their weights after it.


class TalkingHeads(Normalizer):
    """P_w softmax(P_l s), where both P (H, H) mix the H heads of a cell. Shazeer 2020.

    A masked score counts as 0 in the mix and a masked weight stays exactly 0, also where masks differ between heads. A
    row sums to what its row of P_w sums to, and weights may be negative. Before training each head is mixed with a
    share of the mean of all heads, so that rows sum to 1 at first.
    """

    def __init__(self, temperature: float, num_heads: int, mix: float) -> None:
        super().__init__(temperature)
        start = (1.0 - mix) * torch.eye(num_heads) + mix / num_heads
        self.before, self.after = nn.Parameter(start), nn.Parameter(start.clone())

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return mix_heads(super().prepare(without_hidden(scores, mask), mask), self.before)

    def normalize(self, scores: Tensor) -> Tensor:
        hidden = scores == torch.finfo(scores.dtype).min
        return mix_heads(scores.softmax(-1).masked_fill(hidden, 0.0), self.after)


def mix_heads(
    x: Float[Tensor, "B H T S"], matrix: Float[Tensor, "G H"]
) -> Float[Tensor, "B G T S"]:
    """Head g of the result is Σ_h matrix[g, h] · head h."""
    return torch.einsum("gh,bhts->bgts", matrix.to(x.dtype), x)


# build(config) -> Normalizer: module with forward(scores, mask) -> weights. None reads more than the keys that may be
# seen, so a kernel may leave the others out.
NORMALIZERS = Axis(
    Entry(
        "softmax",
        "Softmax",
        build=lambda config: Softmax(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_m e^{s_{im}/\tau}}",
        meaning="Weights are positive and each row sums to 1. A low temperature makes the largest weight larger.",
        paper="Bahdanau et al.",
        year=2014,
        url="https://arxiv.org/abs/1409.0473",
        params=(TEMPERATURE,),
        short="eˢ / Σ eˢ",
        traits=frozenset({"sums to one", "softmax"}),
        cost=matrices(1, 2),
    ),
    Entry(
        "softcap",
        "Softcap",
        build=lambda config: Softcap(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{e^{b_{ij}/\tau}}{\sum_m e^{b_{im}/\tau}},\quad b_{ij} = c \tanh(s_{ij}/c)",
        meaning="tanh limits every score to (−c, c), so one large score cannot take all the weight of a row.",
        paper="Gemma Team",
        year=2024,
        url="https://arxiv.org/abs/2408.00118",
        params=(
            TEMPERATURE,
            Param(
                "cap",
                "Cap c",
                default=50.0,
                low=0.1,
                high=1000.0,
                step=0.1,
                meaning="limit c of the scores; 50 in Gemma 2",
            ),
        ),
        short="softmax(c·tanh(s / c))",
        traits=frozenset({"sums to one"}),
        cost=matrices(2, 3),
    ),
    Entry(
        "scalable_softmax",
        "Scalable softmax",
        build=lambda config: ScalableSoftmax(
            num_heads=config.score_heads, **config.normalizer.kwargs
        ),
        latex=r"w_{ij} = \frac{e^{c_h \log(n_i)\, s_{ij}/\tau}}{\sum_m e^{c_h \log(n_i)\, s_{im}/\tau}}",
        meaning="Scores are multiplied by the logarithm of the number n of keys that the query may attend to, and by a "
        "learned number of the head. So a softmax over many keys does not become flat.",
        paper="Nakanishi",
        year=2025,
        url="https://arxiv.org/abs/2501.19399",
        params=(
            TEMPERATURE,
            Param(
                "start",
                "Initial factor",
                default=0.5,
                low=0.0,
                high=4.0,
                step=0.05,
                meaning="initial value of c in every head; with c·log n = 1 it is softmax",
            ),
            Param(
                "shift",
                "Learned shift",
                default=False,
                meaning="whether a learned number b of each head, 1 at first, is added to c·log n, as in Mistral Large 4",
            ),
        ),
        short="softmax(c·log n·s)",
        traits=frozenset({"sums to one"}),
        cost=matrices(2, 3),
    ),
    Entry(
        "softmax_one",
        "Softmax-one",
        build=lambda config: Sink(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{e^{s_{ij}/\tau}}{1 + \sum_m e^{s_{im}/\tau}}",
        meaning="An extra 1 in the denominator lets a row of low scores give almost no weight to any key.",
        paper="Miller",
        year=2023,
        url="https://www.evanmiller.org/attention-is-off-by-one.html",
        params=(TEMPERATURE,),
        short="eˢ / (1 + Σ eˢ)",
        traits=frozenset({"at most one"}),
        cost=matrices(2, 3),
    ),
    Entry(
        "sink",
        "Sink",
        build=lambda config: Sink(num_heads=config.score_heads, **config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{e^{s_{ij}/\tau}}{e^{b_h} + \sum_m e^{s_{im}/\tau}}",
        meaning="Each head has a learned score, the sink, that competes with the keys. The sink has no value, so its "
        "weight goes to no key.",
        paper="OpenAI",
        year=2025,
        url="https://arxiv.org/abs/2508.10925",
        params=(
            TEMPERATURE,
            Param(
                "start",
                "Initial sink",
                default=0.0,
                low=-20.0,
                high=20.0,
                step=0.5,
                meaning="initial value of b in every head",
            ),
        ),
        short="eˢ / (eᵇ + Σ eˢ)",
        traits=frozenset({"at most one"}),
        cost=matrices(2, 3),
    ),
    Entry(
        "query_sink",
        "Query sink",
        build=lambda config: QuerySink(
            d_model=config.d_model, num_heads=config.score_heads, **config.normalizer.kwargs
        ),
        latex=r"w_{ij} = \frac{e^{s_{ij}/\tau}}{e^{b_{hi}} + \sum_m e^{s_{im}/\tau}},\quad b_{hi} = w_h^\top x_i",
        meaning="Each query computes the score of its sink, so a token itself says how much of its attention goes to no key.",
        paper="Thinking Machines",
        year=2026,
        url="https://huggingface.co/docs/transformers/model_doc/inkling2",
        params=(TEMPERATURE,),
        short="eˢ / (e^(w·x) + Σ eˢ)",
        traits=frozenset({"at most one"}),
        cost=lambda config, area: (
            matrices(2, 3)(config, area)
            + Cost(2.0 * config.d_model * config.score_heads * area.queries)
        ),
    ),
    Entry(
        "sigmoid",
        "Sigmoid",
        build=lambda config: Sigmoid(**config.normalizer.kwargs),
        latex=r"w_{ij} = \sigma(s_{ij}/\tau + b - \log S)",
        meaning="Each weight depends on its own score alone, so keys do not compete and a row may have any sum. −log S, "
        "for the S keys that a query may attend to, makes the first sums about 1.",
        paper="Ramapuram et al.",
        year=2024,
        url="https://arxiv.org/abs/2409.04431",
        params=(
            TEMPERATURE,
            Param(
                "bias",
                "Bias b",
                default=0.0,
                low=-20.0,
                high=20.0,
                step=0.5,
                meaning="number that is added to every score",
            ),
            Param(
                "by_length",
                "− log S",
                default=True,
                meaning="whether the logarithm of the number of keys is subtracted",
            ),
        ),
        short="σ(s + b − log S)",
        cost=matrices(2, 3),
    ),
    Entry(
        "softpick",
        "Softpick",
        build=lambda config: Softpick(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{\max(0,\, e^{s_{ij}/\tau} - 1)}{\sum_m \lvert e^{s_{im}/\tau} - 1 \rvert}",
        meaning="A key with a negative score gets weight 0, and a row of negative scores gives no weight at all. So a head "
        "does not need a token that takes the weight it does not use.",
        paper="Zuhri et al.",
        year=2025,
        url="https://arxiv.org/abs/2504.20966",
        params=(TEMPERATURE,),
        short="max(0, eˢ − 1) / Σ |eˢ − 1|",
        traits=frozenset({"at most one"}),
        cost=matrices(3, 4),
    ),
    Entry(
        "stick_breaking",
        "Stick-breaking",
        build=lambda config: StickBreaking(**config.normalizer.kwargs),
        latex=r"w_{ij} = \sigma(s_{ij}/\tau) \prod_{l > j} \left(1 - \sigma(s_{il}/\tau)\right)",
        meaning="A stick of length 1 is broken from the last key that the query may attend to back to the first. Each key "
        "takes "
        "the share σ(s) of what is left, so near keys come first without any position. What is left at the end goes to "
        "no key.",
        paper="Tan et al.",
        year=2024,
        url="https://arxiv.org/abs/2410.17980",
        params=(TEMPERATURE,),
        short="σ(s) ∏ (1 − σ(s)) after j",
        traits=frozenset({"at most one", "reads order"}),
        cost=matrices(4, 5),
        refuse=_ordered_keys,
    ),
    Entry(
        "taylor",
        "Taylor",
        build=lambda config: Taylor(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{t(s_{ij}/\tau)}{\sum_m t(s_{im}/\tau)},\quad t(s) = 1 + s + s^2/2",
        meaning="The exponential of softmax is replaced by its first three terms. Weights never reach 0, and large scores "
        "weigh less. A kernel could compute the same with a state of one size, as Based does.",
        paper="Arora et al.",
        year=2024,
        url="https://arxiv.org/abs/2402.18668",
        params=(TEMPERATURE,),
        short="1 + s + s²/2, divided by its sum",
        traits=frozenset({"sums to one"}),
        cost=matrices(3, 4),
    ),
    Entry(
        "sparsemax",
        "Sparsemax",
        build=lambda config: Entmax(alpha=2.0, **config.normalizer.kwargs),
        latex=r"w_{ij} = \max(s_{ij}/\tau - t_i,\ 0),\quad \textstyle\sum_m w_{im} = 1",
        meaning="The weights are the nearest point of the simplex to the scores. Keys with a score below the row's "
        "threshold t get weight 0.",
        paper="Martins and Astudillo",
        year=2016,
        url="https://arxiv.org/abs/1602.02068",
        params=(TEMPERATURE,),
        short="max(s − t, 0)",
        traits=frozenset({"sums to one"}),
        cost=_cost,
    ),
    Entry(
        "entmax15",
        "Entmax 1.5",
        build=lambda config: Entmax(alpha=1.5, **config.normalizer.kwargs),
        latex=r"w_{ij} = \max\left(\tfrac{s_{ij}}{2\tau} - t_i,\ 0\right)^2,\quad \textstyle\sum_m w_{im} = 1",
        meaning="Half way between softmax and sparsemax: keys with low scores get weight 0, and weights fall smoothly to 0.",
        **_PETERS,
        params=(TEMPERATURE,),
        short="max(s/2 − t, 0)²",
        traits=frozenset({"sums to one"}),
        cost=_cost,
    ),
    Entry(
        "entmax",
        "Entmax α",
        build=lambda config: Entmax(**config.normalizer.kwargs),
        latex=r"w_{ij} = \max\left((\alpha - 1)\tfrac{s_{ij}}{\tau} - t_i,\ 0\right)^{1/(\alpha - 1)}"
        r",\quad \textstyle\sum_m w_{im} = 1",
        meaning="A family of normalizers: α near 1 gives softmax, α = 2 gives sparsemax, and a larger α gives more weights "
        "of 0.",
        **_PETERS,
        params=(
            TEMPERATURE,
            Param(
                "alpha",
                "α",
                default=1.25,
                low=1.05,
                high=2.0,
                step=0.05,
                meaning="how sparse the weights are: 1.5 is entmax 1.5, 2 is sparsemax",
            ),
        ),
        short="max((α − 1)s − t, 0)^(1/(α − 1))",
        traits=frozenset({"sums to one"}),
        cost=_cost,
    ),
    Entry(
        "top_k",
        "Top-k",
        build=lambda config: TopK(**config.normalizer.kwargs),
        latex=r"w_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_{m \in K_i} e^{s_{im}/\tau}} \text{ for } j \in K_i,\ \text{else } 0",
        meaning="Softmax of the k largest scores of each row. The other keys get weight 0 and no gradient. Scores equal to "
        "the k-th largest are included.",
        paper="Zhao et al.",
        year=2019,
        url="https://arxiv.org/abs/1912.11637",
        params=(
            TEMPERATURE,
            Param(
                "k",
                "k",
                default=4,
                low=1,
                high=512,
                step=1,
                meaning="number of keys in a row that get a weight",
            ),
        ),
        short="softmax of the k largest",
        traits=frozenset({"sums to one"}),
        cost=matrices(2, 3),
    ),
    Entry(
        "hard",
        "Hard",
        build=lambda config: Hard(**config.normalizer.kwargs),
        latex=r"w_{ij} = 1 \text{ for } j = \operatorname*{arg\,max}_m s_{im},\ \text{else } 0",
        meaning="The key with the largest score gets weight 1. The paper samples a key; here the most probable key is always "
        "taken. Training uses the gradient of a softmax with this temperature.",
        paper="Xu et al.",
        year=2015,
        url="https://arxiv.org/abs/1502.03044",
        params=(
            TEMPERATURE,
            Param(
                "gradient",
                "Gradient",
                default=STRAIGHT_THROUGH,
                choices=(STRAIGHT_THROUGH, NONE),
                meaning="whether scores get the gradient of a softmax, or none",
                labels=("Of the softmax (straight-through)", "None"),
            ),
        ),
        short="1 for the largest",
        traits=frozenset({"sums to one", "hard"}),
        # the straight-through gradient holds the softmax and a copy too
        cost=lambda config, area: matrices(
            *((2, 3) if config.normalizer["gradient"] == NONE else (4, 5))
        )(config, area),
    ),
    Entry(
        "talking_heads",
        "Talking heads",
        build=lambda config: TalkingHeads(num_heads=config.score_heads, **config.normalizer.kwargs),
        latex=r"w_{hij} = \sum_g P^w_{hg}\, \mathrm{softmax}_j\Big(\textstyle\sum_{g'} P^l_{gg'}\, s_{g'ij}/\tau\Big)",
        meaning="A learned matrix mixes the scores of all heads before the softmax, and another mixes their weights after "
        "it. A weight may be negative, and a row may have any sum.",
        paper="Shazeer et al.",
        year=2020,
        url="https://arxiv.org/abs/2003.02436",
        params=(
            TEMPERATURE,
            Param(
                "mix",
                "Initial mixing",
                default=0.25,
                low=0.0,
                high=1.0,
                step=0.05,
                meaning="share of the mean of all heads in each head before training; with 0 each head begins "
                "alone",
            ),
        ),
        short="P·softmax(P·s)",
        traits=frozenset({"mixes heads"}),
        # two products of H × H with all cells; one head is only multiplied by a number
        cost=lambda config, area: (
            matrices(3, 4)(config, area)
            + Cost(4.0 * config.score_heads**2 * area.cells * (config.score_heads > 1))
        ),
    ),
)
