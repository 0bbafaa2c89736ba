"""Label smoothing, dropout and warm-up: what each does to a small Transformer that translates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp

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
from core.claims.sources import VASWANI, at
from core.entries import Param
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig

BASE, SMOOTHED, DROPPED, COLD = "neither", "label smoothing 0.1", "dropout 0.1", "no warm-up"
PERPLEXITY, BLEU, ACCURACY = "Validation perplexity", "BLEU", "Exact match"
LEARNED = Learned(BLEU, 95.0, conditions=(BASE,), unit="score")
PAIRS = 2_000  # few enough that a model can learn them by heart


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """Perplexity, BLEU and exact match of a Transformer that translates numbers, with one thing changed."""
    steps, smoothing = int(settings["steps"]), 0.1 if condition == SMOOTHED else 0.0
    model = ModelConfig.transformer(
        48,
        4,
        1,
        d_ff=96,
        position="sinusoidal",
        norm="post",
        dropout=0.1 if condition == DROPPED else 0.0,
    )
    config = RunConfig(
        TaskConfig.of("numbers", numbers=2, max_source=14, train_pairs=PAIRS),
        model,
        steps=steps,
        learning_rate=4e-3,
        warmup=0 if condition == COLD else steps // 10,
        record_every=steps,
        schedule="inverse_sqrt",
        label_smoothing=smoothing,
        weight_decay=0.0,
    )
    last = trained(replace(config, held_out=100), seed, stop).last
    yield PERPLEXITY, exp(last.loss or 0.0), None
    yield BLEU, last.bleu or 0.0, None
    yield ACCURACY, last.exact or 0.0, None


def _difference(condition: str, measured: str, seed: SeedValues) -> float:
    return seed.one(condition, measured) - seed.one(BASE, measured)


def _ratio(condition: str, seed: SeedValues) -> float:
    return seed.one(condition, PERPLEXITY) / seed.one(BASE, PERPLEXITY)


def _answer(results: Results) -> int:
    worse, better = (
        results.mean(SMOOTHED, measured) > results.mean(BASE, measured)
        for measured in (PERPLEXITY, BLEU)
    )
    return 0 if worse and better else 1 if better else 2 if worse else 3


REGULARIZATION = Claim(
    key="regularization",
    name="Label smoothing, dropout, warm-up",
    subject="Training",
    statement="Label smoothing hurts perplexity and helps BLEU; dropout avoids over-fitting; a Transformer needs "
    "warm-up.",
    source=at(VASWANI, "sections 5.3, 5.4 and 6.2"),
    refutation="Smoothing changes the perplexity by a factor below 1.02 or the BLEU by less than +0.5; dropout does "
    "not lower the perplexity to 0.98 of what it is; without warm-up the perplexity is less than 1.02 of "
    "that with it.",
    guess=Pick(
        "Label smoothing 0.1 is switched on. What happens to the validation perplexity and to BLEU?",
        (
            "Perplexity gets worse, BLEU better",
            "Both get better",
            "Both get worse",
            "Perplexity gets better, BLEU worse",
        ),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            1000,
            50,
            5000,
            50,
            meaning="how long each model learns to translate",
        ),
    ),
    conditions=lambda settings: (BASE, SMOOTHED, DROPPED, COLD),
    measure=measure,
    parts=(
        Part(
            "Label smoothing hurts perplexity.",
            lambda seed: _ratio(SMOOTHED, seed),
            "perplexity with over without",
            low=1.02,
            unit="times",
            learned=LEARNED,
        ),
        Part(
            "Label smoothing helps BLEU.",
            lambda seed: _difference(SMOOTHED, BLEU, seed),
            "change of BLEU",
            low=0.5,
            unit="score gain",
            resolution=0.1,
            learned=LEARNED,
            room=lambda seed: 100 - seed.one(BASE, BLEU),
        ),
        Part(
            "Dropout lowers the validation perplexity.",
            lambda seed: _ratio(DROPPED, seed),
            "perplexity with over without",
            high=0.98,
            unit="times",
            learned=LEARNED,
        ),
        Part(
            "Without warm-up the perplexity is worse.",
            lambda seed: _ratio(COLD, seed),
            "perplexity without over with",
            low=1.02,
            unit="times",
            learned=LEARNED,
        ),
    ),
    figures=(
        Figure("Validation perplexity", PERPLEXITY, unit="positive", log="x"),
        Figure("BLEU", BLEU, unit="score"),
        Figure("Exact match", ACCURACY, unit="share"),
    ),
    limits="A post-norm model of one layer, 2,000 pairs of numbers and a few hundred steps: far from the 4.5 million "
    "sentences and 100,000 steps of the paper. Over-fitting needs time that this run does not have.",
    tried="A pilot with 2 seeds and 50 steps, to see that it runs: too early for any of it to show. "
    "The first result had 250 steps and 5 seeds, in which not all models had learned, so that it measured "
    "who learns sooner. The steps were raised to 1,000, and a criterion of learning was added; the bounds stay.",
    published=(
        Published(
            "table 3, rows D and the base model",
            VASWANI.url,
            ("Dropout", "Label smoothing", "Perplexity", "BLEU"),
            (
                ("0.1", "0.1", "4.92", "25.8"),
                ("0", "0.1", "5.77", "24.6"),
                ("0.2", "0.1", "4.95", "25.5"),
                ("0.1", "0", "4.67", "25.3"),
                ("0.1", "0.2", "5.47", "25.7"),
            ),
            "English to German, development set newstest2013. No figure is without warm-up.",
        ),
    ),
    scope="in models of d_model 48 with 1 layer that translate numbers",
)
