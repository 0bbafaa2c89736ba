"""The size ladder: what a larger model gains, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

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
from core.claims.experiment import TEXT_BITS, Trained, fewest_seconds, trained
from core.claims.results import Results, SeedValues
from core.claims.sources import VASWANI, at
from core.entries import Param
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig

SIZES = {
    "64 wide, 4 heads, 2 layers": (64, 4, 2),
    "128 wide, 8 heads, 3 layers": (128, 8, 3),
    "256 wide, 16 heads, 4 layers": (256, 16, 4),
}
SMALL, MIDDLE, LARGE = SIZES
BITS, ACCURACY = "Bits a character", "Accuracy of the next character"
LEARNED = Learned(BITS, high=TEXT_BITS, unit="positive")
PARAMETERS, LATENCY = "Parameters", "CPU seconds for a window"
MATTERS = 0.02  # bits a character
ROUNDS = 9


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """A model of that size after the same steps: bits and accuracy on unseen text, parameters, seconds of a window."""
    width, heads, layers = SIZES[condition]
    steps = int(settings["steps"])
    model = ModelConfig.transformer(
        width, heads, layers, kind="decoder", norm="pre", position="rope"
    )
    config = RunConfig(
        TaskConfig.of("topics", length=32),
        model,
        steps=steps,
        batch_size=16,
        learning_rate=1e-3,
        warmup=steps // 10,
        record_every=steps,
        decode_every=2,
        held_out=50,
    )
    result = trained(config, seed, stop)
    yield BITS, result.bits, None
    yield ACCURACY, result.last.letters or 0.0, None
    yield PARAMETERS, result.parameters, None
    yield LATENCY, latency(result), None


@torch.no_grad()
def latency(result: Trained) -> float:
    """The CPU seconds of a forward pass of one window."""
    batch = result.task.collate(result.task.held_out(1))
    return fewest_seconds(lambda: result.model(batch.source, batch.source_mask), ROUNDS)


def _gain(smaller: str, larger: str, seed: SeedValues) -> float:
    return seed.one(smaller, BITS) - seed.one(larger, BITS)


def _ratio(measure: str, seed: SeedValues) -> float:
    return seed.one(LARGE, measure) / seed.one(SMALL, measure)


def _answer(results: Results) -> int:
    means = [results.mean(condition, BITS) for condition in SIZES]
    return means.index(min(means))


LADDER = Claim(
    key="ladder",
    name="The size ladder",
    subject="Cost",
    statement="Bigger models are better: each step up the ladder of sizes predicts better, for many times the "
    "parameters and some times the seconds.",
    source=at(VASWANI, "section 6.2 and table 3"),
    refutation="After equal steps a step up the ladder wins less than 0.02 bits a character; or the largest model has "
    "less than 10 times the parameters of the smallest; or its latency is more than half as many times "
    "longer as it has parameters.",
    guess=Pick(
        "Three sizes learn the same text for the same number of steps. Which one predicts best?",
        tuple(SIZES),
        _answer,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            80,
            20,
            1000,
            20,
            meaning="how long each model learns the text",
        ),
    ),
    conditions=lambda settings: tuple(SIZES),
    measure=measure,
    parts=(
        Part(
            "128 wide is better than 64.",
            lambda seed: _gain(SMALL, MIDDLE, seed),
            "bits a character won",
            low=MATTERS,
            learned=LEARNED,
        ),
        Part(
            "256 wide is better than 128.",
            lambda seed: _gain(MIDDLE, LARGE, seed),
            "bits a character won",
            low=MATTERS,
            learned=LEARNED,
        ),
        Part(
            "The largest has many times the parameters.",
            lambda seed: _ratio(PARAMETERS, seed),
            "parameters of the largest over the smallest",
            low=10.0,
            unit="times",
        ),
        Part(
            "Its latency grows far less.",
            lambda seed: _ratio(LATENCY, seed) / _ratio(PARAMETERS, seed),
            "times the latency over times the parameters",
            high=0.5,
            unit="times",
        ),
    ),
    figures=(
        Figure("Bits a character of unseen text", BITS, unit="positive"),
        Figure("Accuracy of the next character", ACCURACY, unit="share"),
        Figure("Parameters", PARAMETERS, unit="positive", log="y"),
        Figure("CPU seconds for a window of 32 characters", LATENCY, unit="positive", log="y"),
    ),
    limits="Equal steps, not equal seconds: in the seconds of the largest model the smallest one takes many more "
    "steps. One rate for all sizes (0.001), one text, and a training far from its end.",
    tried="A pilot with one seed and 20 steps, 9 s of a core: 5.32, 4.66 and 4.35 bits, 81 thousand to 2.2 million "
    "parameters, 1.5 to 5.7 ms a window. Then 80 steps, for five seeds within about 90 s of a core.",
    published=(
        Published(
            "table 3, rows C, the base and the big model",
            VASWANI.url,
            ("Model", "Perplexity", "BLEU", "Million parameters"),
            (
                ("2 layers", "6.11", "23.7", "36"),
                ("256 wide", "5.75", "24.5", "28"),
                ("base: 6 layers, 512 wide", "4.92", "25.8", "65"),
                ("1,024 wide", "4.66", "26.0", "168"),
                ("big: 1,024 wide, 16 heads, three times the steps", "4.33", "26.4", "213"),
            ),
            "English to German, development set newstest2013.",
        ),
    ),
    timed=True,
    scope="in models of d_model 64 to 256 with 2 to 4 layers that read characters",
)
