"""Attention sinks: most weight on the first token, and what softmax-one, a learned sink and a gate change."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from core.attention import Attention
from core.claims.base import (
    Claim,
    ClaimSettings,
    Figure,
    Learned,
    Number,
    Part,
    Pick,
    Published,
    Stop,
)
from core.claims.experiment import trained
from core.claims.results import Results, SeedValues
from core.claims.sources import XIAO
from core.entries import Param
from core.masks.patterns import Mask, causal
from core.models import Model, ModelConfig
from core.score_block import ScoreBlock
from core.tasks import Batch, TaskConfig
from core.training.config import RunConfig

LENGTH, ITEMS = 32, 200
SOFTMAX, ONE, SINK, GATED = "softmax", "softmax-one", "learned sink", "gated output"
CHOICES: dict[str, dict[str, str]] = {
    SOFTMAX: {},
    ONE: {"normalizer": "softmax_one"},
    SINK: {"normalizer": "sink"},
    GATED: {"projection": "gated"},
}
WEIGHT, LOSS, HIDDEN = (
    "Weight on the first token",
    "Validation loss",
    "Loss added by hiding the first token",
)
LEARNED = Learned(LOSS, high=3.2, conditions=(SOFTMAX,), unit="positive")


class WithoutFirst(Mask):
    """Causal, and the first token is visible to itself alone."""

    def forward(self, block: ScoreBlock) -> Tensor:
        return causal(block) & ((block.j > 0) | (block.i == 0))


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The weight on the first token of the head that gives it most, the loss, and the loss without that token."""
    model = variant(
        ModelConfig.transformer(64, 4, 2, kind="decoder", norm="pre", position="rope"), condition
    )
    steps = int(settings["steps"])
    config = RunConfig(
        TaskConfig.of("repeats", length=LENGTH, passage=10, gap=4),
        model,
        steps=steps,
        batch_size=16,
        warmup=20,
        record_every=steps,
        held_out=1,
        watch=1,
    )
    whole = trained(config, seed, stop)
    batch = whole.task.collate(whole.task.held_out(ITEMS))
    yield WEIGHT, weight_on_first(whole.model, batch), None
    yield LOSS, loss(whole.model, batch), None
    yield HIDDEN, loss(without_first(whole.model), batch) - loss(whole.model, batch), None


def variant(plain: ModelConfig, condition: str) -> ModelConfig:
    """The model with that condition's normalizer or projection in every layer."""
    return plain.with_attentions(lambda attention: attention.with_(**CHOICES[condition]))


@torch.no_grad()
def weight_on_first(model: Model, batch: Batch) -> float:
    """The mean weight that the later half of a line gives its first token, in the head where it is largest."""
    maps = model(batch.source, batch.source_mask, record=True).maps["causal"]
    half = batch.source.shape[1] // 2
    return max(
        float(weight) for steps in maps for weight in steps.weights[:, :, half:, 0].mean((0, 2))
    )


@torch.no_grad()
def loss(model: Model, batch: Batch) -> float:
    """The mean cross-entropy in nats, computed by the exact kernel."""
    logits = model(batch.source, batch.source_mask, record=True).logits
    return float(F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten()))


def without_first(model: Model) -> Model:
    """A copy of the model whose layers cannot attend to the first token."""
    model = deepcopy(model)
    for layer in (part for part in model.modules() if isinstance(part, Attention)):
        layer.mask = WithoutFirst()
    return model


def _left(condition: str, seed: SeedValues) -> float:
    return seed.one(condition, WEIGHT) / seed.one(SOFTMAX, WEIGHT)


def _answer(results: Results) -> int:
    mean = results.mean(SOFTMAX, WEIGHT)
    return 0 if mean < 0.2 else 1 if mean < 0.5 else 2


SINKS = Claim(
    key="sinks",
    name="Attention sinks",
    subject="What attention shows",
    statement="Heads that have nothing to read give most of their weight to the first token, which the model needs for "
    "that; softmax-one, a learned sink or a gated output take it away.",
    source=XIAO,
    refutation="With softmax, no head gives the first token half of its weight on average; or hiding that token adds "
    "less than 0.1 nats to the loss; or softmax-one, a learned sink or a gated output leaves more than half "
    "of that weight.",
    guess=Pick(
        "Lines begin with a mark that says nothing of what follows. How much of its weight does some head give "
        "to it, on average over the later half of a line?",
        ("Less than a fifth", "A fifth to a half", "More than half"),
        _answer,
    ),
    settings=(
        Param("steps", "Training steps", 1500, 50, 5000, 50, meaning="how long each model learns"),
    ),
    conditions=lambda settings: tuple(CHOICES),
    measure=measure,
    parts=(
        Part(
            "With softmax the first token takes most of a head's weight.",
            lambda seed: seed.one(SOFTMAX, WEIGHT),
            "weight on the first token",
            low=0.5,
            unit="share",
            resolution=0.005,
            learned=LEARNED,
        ),
        Part(
            "The model needs that token.",
            lambda seed: seed.one(SOFTMAX, HIDDEN),
            "nats added by hiding it",
            low=0.1,
            learned=LEARNED,
        ),
        *(
            Part(
                f"{name} takes the weight away.",
                partial(_left, condition),
                "weight on the first token, of that of softmax",
                high=0.5,
                unit="times",
                learned=LEARNED,
            )
            for condition, name in (
                (ONE, "Softmax-one"),
                (SINK, "A learned sink"),
                (GATED, "A gated output"),
            )
        ),
    ),
    figures=(
        Figure("Weight on the first token, of the head that gives most", WEIGHT, unit="share"),
        Figure("Loss added by hiding the first token, in nats", HIDDEN),
        Figure("Validation loss", LOSS, unit="positive"),
    ),
    limits="Two layers, lines of random words with repeated passages, and a start mark before every line; large models "
    "make sinks of whatever comes first. Hiding the token is not what a window does, which drops other tokens, "
    "too. The head with most weight is chosen on the lines that it is measured on.",
    tried="One pilot after the rule was written: one seed, 60 steps, lines of 48 words: losses of 5.17, a weight of "
    "0.18 (softmax), 0.17 (softmax-one and learned sink) and 0.08 (gate), too early for a sink. Lines were made "
    "shorter, so that more steps fit. The first result had 400 steps and 5 seeds, before the passages were "
    "learned: 0.035 [0.031, 0.039] of the weight on the first token, which loses 0.068 [0.056, 0.080] nats when "
    "hidden. A pilot of one seed with 1,500 learned them (loss 2.88, after 4.68 at 500) and had 0.065 (softmax) "
    "and 0.072 (gate). The steps were raised to 1,500, the rule stays.",
    published=(
        Published(
            "table 1",
            "https://arxiv.org/abs/2309.17453",
            ("cache", "perplexity"),
            (
                ("1,024 latest", "5,158.07"),
                ("4 first and 1,020 latest", "5.40"),
                ("4 line ends and 1,020 latest", "5.60"),
            ),
            "Llama-2-13B on the first book of PG19, 65,000 tokens.",
        ),
        Published(
            "table 2",
            "https://arxiv.org/abs/2309.17453",
            ("first tokens in the cache", "Llama-2-7B", "Falcon-7B"),
            (
                ("0", "3,359.95", "17.90"),
                ("1", "11.88", "12.12"),
                ("2", "10.51", "12.12"),
                ("4", "9.59", "12.12"),
                ("8", "9.54", "12.12"),
            ),
            "Perplexity on 400,000 tokens of PG19, with caches of 4,096 and 2,048 tokens.",
        ),
        Published(
            "Qiu et al. 2025",
            "https://arxiv.org/abs/2505.06708",
            ("model", "weight on the first token"),
            (("without a gate", "46.7 %"), ("gated output", "4.8 %")),
            "The mean of a trained language model.",
        ),
    ),
    scope="in models of d_model 64 with 2 layers",
)
