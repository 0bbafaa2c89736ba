"""Normalizers by the exponential: softmax, of capped scores or by length, and rows that may sum to less than 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from core.attention.basics import Normalizer, Softmax
from core.attention.normalizers.base import TEMPERATURE, matrices
from core.entries import Entry, Param

SUMS_TO_ONE, AT_MOST_ONE = frozenset({"sums to one"}), frozenset({"at most one"})


class Softcap(Softmax):
    """Softmax of c·tanh(s/c), so that no score leaves (−c, c). Gemma 2, section 2."""

    def __init__(self, temperature: float, cap: float) -> None:
        super().__init__(temperature)
        self.cap = cap

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:  # a hidden NaN in tanh gives a NaN gradient, since NaN · 0 is NaN
            scores = scores.masked_fill(~mask, 0.0)
        return super().prepare(self.cap * torch.tanh(scores / self.cap), mask)


class ScalableSoftmax(Softmax):
    """Softmax of c·log(n)·s with one learned c a head and n the number of keys seen. Nakanishi 2025.

    A softmax of n scores becomes flatter as n grows; the factor log n grows with it. The paper writes s for c.
    """

    def __init__(self, temperature: float, num_heads: int, start: float) -> None:
        super().__init__(temperature)
        self.factor = nn.Parameter(torch.full((num_heads,), start))

    def prepare(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:  # a hidden NaN would reach the gradient of c
            scores = scores.masked_fill(~mask, 0.0)
        factor = self.factor.to(scores.dtype)[:, None, None] * log_of_keys(scores, mask)
        return super().prepare(scores, mask) * factor


class SoftmaxWithSink(Normalizer):
    """e^s / (e^b + Σ e^s): a sink without a value takes a share, so that the keys' weights sum to less than 1."""

    def normalize(self, scores: Tensor) -> Tensor:
        total = torch.logaddexp(scores.logsumexp(-1, keepdim=True), self.sink_score(scores))
        return (scores - total).exp()

    def sink_score(self, scores: Tensor) -> Tensor:
        """The score b of the sink, broadcastable to (B, H, T, 1)."""
        raise NotImplementedError


class SoftmaxOne(SoftmaxWithSink):
    """e^s / (1 + Σ e^s), which is b = 0."""

    def sink_score(self, scores: Tensor) -> Tensor:
        return scores.new_zeros(())


class Sink(SoftmaxWithSink):
    """e^s / (e^b + Σ e^s) with one learned b a head. gpt-oss, section 2.1."""

    def __init__(self, temperature: float, num_heads: int, start: float) -> None:
        super().__init__(temperature)
        self.sink = nn.Parameter(torch.full((num_heads,), start))

    def sink_score(self, scores: Tensor) -> Tensor:
        return self.sink.to(scores.dtype)[:, None, None]


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


SOFTMAX = Entry(
    "softmax",
    "Softmax",
    lambda config: Softmax(**config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_m e^{s_{im}/\tau}}",
    "Weights are positive and each row sums to 1. A low temperature makes the largest weight larger.",
    "Bahdanau et al.",
    2014,
    "https://arxiv.org/abs/1409.0473",
    (TEMPERATURE,),
    "eˢ / Σ eˢ",
    traits=SUMS_TO_ONE | {"softmax"},
    cost=matrices(1, 2),
)

SOFTCAP = Entry(
    "softcap",
    "Softcap",
    lambda config: Softcap(**config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{b_{ij}/\tau}}{\sum_m e^{b_{im}/\tau}},\quad b_{ij} = c \tanh(s_{ij}/c)",
    "tanh limits every score to (−c, c), so one large score cannot take all the weight of a row.",
    "Gemma Team",
    2024,
    "https://arxiv.org/abs/2408.00118",
    (
        TEMPERATURE,
        Param(
            "cap", "Cap c", 50.0, 0.1, 1000.0, 0.1, meaning="limit c of the scores; 50 in Gemma 2"
        ),
    ),
    "softmax(c·tanh(s / c))",
    traits=SUMS_TO_ONE,
    cost=matrices(2, 3),
)

SCALABLE_SOFTMAX = Entry(
    "scalable_softmax",
    "Scalable softmax",
    lambda config: ScalableSoftmax(num_heads=config.score_heads, **config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{c_h \log(n_i)\, s_{ij}/\tau}}{\sum_m e^{c_h \log(n_i)\, s_{im}/\tau}}",
    "Scores are multiplied by the logarithm of the number n of keys that the query may attend to, and by a learned "
    "number of the head. So a softmax over many keys does not become flat.",
    "Nakanishi",
    2025,
    "https://arxiv.org/abs/2501.19399",
    (
        TEMPERATURE,
        Param(
            "start",
            "Initial factor",
            0.5,
            0.0,
            4.0,
            0.05,
            meaning="initial value of c in every head; with c·log n = 1 it is softmax",
        ),
    ),
    "softmax(c·log n·s)",
    traits=SUMS_TO_ONE,
    cost=matrices(2, 3),
)

SOFTMAX_ONE = Entry(
    "softmax_one",
    "Softmax-one",
    lambda config: SoftmaxOne(**config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{s_{ij}/\tau}}{1 + \sum_m e^{s_{im}/\tau}}",
    "An extra 1 in the denominator lets a row of low scores give almost no weight to any key.",
    "Miller",
    2023,
    "https://www.evanmiller.org/attention-is-off-by-one.html",
    (TEMPERATURE,),
    "eˢ / (1 + Σ eˢ)",
    traits=AT_MOST_ONE,
    cost=matrices(2, 3),
)

SINK = Entry(
    "sink",
    "Sink",
    lambda config: Sink(num_heads=config.score_heads, **config.normalizer.kwargs),
    r"w_{ij} = \frac{e^{s_{ij}/\tau}}{e^{b_h} + \sum_m e^{s_{im}/\tau}}",
    "Each head has a learned score, the sink, that competes with the keys. The sink has no value, so its weight goes "
    "to no key.",
    "OpenAI",
    2025,
    "https://arxiv.org/abs/2508.10925",
    (
        TEMPERATURE,
        Param(
            "start",
            "Initial sink",
            0.0,
            -20.0,
            20.0,
            0.5,
            meaning="initial value of b in every head",
        ),
    ),
    "eˢ / (eᵇ + Σ eˢ)",
    traits=AT_MOST_ONE,
    cost=matrices(2, 3),
)

SIGMOID = Entry(
    "sigmoid",
    "Sigmoid",
    lambda config: Sigmoid(**config.normalizer.kwargs),
    r"w_{ij} = \sigma(s_{ij}/\tau + b - \log S)",
    "Each weight depends on its own score alone, so keys do not compete and a row may have any sum. −log S, for the S "
    "keys that a query may attend to, makes the first sums about 1.",
    "Ramapuram et al.",
    2024,
    "https://arxiv.org/abs/2409.04431",
    (
        TEMPERATURE,
        Param(
            "bias", "Bias b", 0.0, -20.0, 20.0, 0.5, meaning="number that is added to every score"
        ),
        Param(
            "by_length",
            "− log S",
            True,
            meaning="whether the logarithm of the number of keys is subtracted",
        ),
    ),
    "σ(s + b − log S)",
    cost=matrices(2, 3),
)
