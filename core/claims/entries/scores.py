"""Additive and multiplicative scores: which is faster, and which learns better at small and at large sizes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

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
from core.claims.sources import BRITZ, BRITZ_SIZES
from core.entries import Param
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig

DOT, SCALED, ADDITIVE = "dot product", "dot product / √d", "additive"
SCORES = {DOT: "dot", SCALED: "scaled_dot", ADDITIVE: "additive"}
LOSS, TIME, IN_TIME = (
    "Loss after equal steps",
    "Processor milliseconds a step",
    "Loss after equal seconds",
)
SIZES = (16, 128)
LARGE = SIZES[-1]


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """The loss after equal steps and a step's time at two sizes, and the loss after equal seconds at the larger."""
    steps = int(settings["steps"])
    for size in SIZES:
        model = ModelConfig.recurrent(size, SCORES[condition])
        config = RunConfig(
            TaskConfig.of("reverse", length=10),
            model,
            steps=steps,
            batch_size=32,
            learning_rate=5e-3,
            record_every=steps,
            schedule="constant",
            decode_every=1_000,
        )
        started = time.process_time()  # what else the machine does must not count
        last = trained(config, seed, stop).last
        milliseconds = 1e3 * (time.process_time() - started)
        yield LOSS, last.loss or 0.0, size
        yield TIME, milliseconds / steps, size
    in_time = replace(
        config, steps=20 * steps, trained=float(settings["seconds"]), record_every=20 * steps
    )
    yield IN_TIME, trained(in_time, seed, stop).last.loss or 0.0, None


def learned(measured: str, size: int | None = None) -> Learned:
    """The letters are reversed but for one in a hundred or so."""
    return Learned(measured, high=0.05, x=size, unit="positive")


def _ratio(measured: str, first: str, second: str, size: int, seed: SeedValues) -> float:
    return seed.one(first, measured, size) / seed.one(second, measured, size)


def _answer(results: Results) -> int:
    dot, additive = (results.mean(condition, TIME, LARGE) for condition in (DOT, ADDITIVE))
    return 0 if additive < 1.1 * dot else 1 if additive < 2 * dot else 2


SCORES_CLAIM = Claim(
    key="scores",
    name="Additive or multiplicative",
    subject="Scores",
    statement="Additive and multiplicative scores do equally well at small sizes; the dot product is faster, and "
    "without scaling it falls behind the additive score at large sizes.",
    source=BRITZ,
    refutation="At size 16 the losses differ by more than a quarter; a step with the additive score takes less than "
    "1.1 of one with the dot product at size 128; the unscaled dot product's loss at size 128 is less than "
    "1.1 of the additive score's; scaling does not bring it within a quarter; after equal seconds the "
    "scaled dot product is not ahead.",
    guess=Pick(
        "At size 128, how much longer does a training step with the additive score take?",
        ("Less than a tenth longer", "Up to twice as long", "More than twice as long"),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            150,
            50,
            2000,
            50,
            meaning="how long each model learns to reverse",
        ),
        Param(
            "seconds",
            "Equal seconds",
            2.0,
            0.5,
            60.0,
            0.5,
            meaning="how long each model of size 128 trains where seconds are equal",
        ),
    ),
    conditions=lambda settings: (DOT, SCALED, ADDITIVE),
    measure=measure,
    parts=(
        Part(
            "At size 16 both do equally well.",
            lambda seed: _ratio(LOSS, DOT, ADDITIVE, SIZES[0], seed),
            "loss dot over additive",
            0.75,
            1.25,
            unit="times",
            learned=learned(LOSS, SIZES[0]),
        ),
        Part(
            "The dot product is faster.",
            lambda seed: _ratio(TIME, ADDITIVE, DOT, LARGE, seed),
            "time of a step, additive over dot, at size 128",
            low=1.1,
            unit="times",
        ),
        Part(
            "Unscaled, the dot product falls behind at size 128.",
            lambda seed: _ratio(LOSS, DOT, ADDITIVE, LARGE, seed),
            "loss dot over additive",
            low=1.1,
            unit="times",
            learned=learned(LOSS, LARGE),
        ),
        Part(
            "Scaled, it keeps up.",
            lambda seed: _ratio(LOSS, SCALED, ADDITIVE, LARGE, seed),
            "loss scaled over additive",
            high=1.25,
            unit="times",
            learned=learned(LOSS, LARGE),
        ),
        Part(
            "After equal seconds the scaled dot product is ahead.",
            lambda seed: seed.one(SCALED, IN_TIME) / seed.one(ADDITIVE, IN_TIME),
            "loss scaled over additive",
            high=1.0,
            unit="times",
            learned=learned(IN_TIME),
        ),
    ),
    figures=(
        Figure("Loss after equal steps, by size", LOSS, "d", "positive", "x"),
        Figure("Processor milliseconds a step, by size", TIME, "d", "positive", "x"),
        Figure("Loss after equal seconds at d = 128", IN_TIME, unit="positive"),
    ),
    limits="A recurrent model that reverses ten letters: the cells, not the scores, take most of a step. Real "
    "translation is not tried. The seconds are those of one processor.",
    tried="A pilot with 2 seeds and 50 steps, to see that it runs: the unscaled dot product was ahead at 128. "
    "The first result timed steps by the clock (1.41 [1.35, 1.47] times); a second run on a busy machine could "
    "not tell. Steps are timed by the processor now, with the measuring at their end.",
    published=(
        BRITZ_SIZES,
        Published(
            "Luong et al. 2015, table 4",
            "https://arxiv.org/abs/1508.04025",
            ("Attention", "Score", "Perplexity", "BLEU"),
            (
                ("to all words", "by location", "6.4", "18.1"),
                ("to all words", "dot", "6.1", "18.6"),
                ("to all words", "general", "6.1", "17.3"),
                ("window at the same place", "general", "6.2", "18.6"),
                ("window at a predicted place", "dot", "6.6", "18.0"),
                ("window at a predicted place", "general", "5.9", "19"),
            ),
            "English to German, newstest2014, before unknown words are replaced.",
        ),
    ),
    timed=True,
    scope="in recurrent models of d_model 16 and 128 that reverse ten letters",
)
