"""Greedy decoding of 256 tokens with the cache, beside the whole text again for each token: the same tokens.

Decoder only, 4 layers, pre-norm, one thread, processor time, both in inference mode as `core.models.decoding` is; by
projection, since each stores another cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import Row, median_ratio, rounds
from core.models import ModelConfig, Shape, build_model
from core.models.base import Seq2Seq

WIDTH, HEADS, LAYERS, INNER, WORDS, PROMPT, TOKENS = 256, 4, 4, 1024, 256, 8, 256
PROJECTIONS = ("multi_head", "multi_query", "latent")


def model_of(projection: str) -> Seq2Seq:
    torch.manual_seed(0)
    config = ModelConfig.transformer(
        WIDTH,
        HEADS,
        LAYERS,
        INNER,
        kind="decoder",
        norm="pre",
        projection=projection,
        position="none" if projection == "latent" else "rope",
    )
    model = build_model(config, Shape(WORDS, WORDS, PROMPT + TOKENS, one_vocabulary=True)).eval()
    assert isinstance(model, Seq2Seq)
    return model


@torch.inference_mode()
def with_cache(model: Seq2Seq, prompt: Tensor) -> Tensor:
    """The likeliest tokens; each step computes one token and reads the cache."""
    tokens, memory = (
        prompt,
        model.encode(prompt[:, :-1], torch.ones_like(prompt[:, :-1], dtype=torch.bool)),
    )
    state = model.start(memory)
    for _ in range(TOKENS):
        logits, state, _ = model.step(memory, state, tokens[:, -1])
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    return tokens


@torch.inference_mode()
def without_cache(model: Seq2Seq, prompt: Tensor) -> Tensor:
    """The same tokens; each step computes the whole text."""
    tokens = prompt
    for _ in range(TOKENS):
        logits = model(tokens, torch.ones_like(tokens, dtype=torch.bool)).logits[:, -1]
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    return tokens


def rows(count: int = 5) -> list[Row]:
    """A row for each projection: tokens a second, and how many times as fast the cache makes them."""
    torch.set_num_threads(1)
    return [_row(projection, count) for projection in PROJECTIONS]


def _row(projection: str, count: int) -> Row:
    model, prompt = (
        model_of(projection),
        torch.randint(WORDS, (1, PROMPT), generator=torch.Generator().manual_seed(1)),
    )
    ways: dict[str, Callable[[], object]] = {
        "cache": lambda: with_cache(model, prompt),
        "again": lambda: without_cache(model, prompt),
    }
    if not torch.equal(with_cache(model, prompt), without_cache(model, prompt)):
        raise RuntimeError(f"{projection}: the tokens differ with and without the cache.")
    results = rounds(ways, count)
    speed = {
        name: f"{TOKENS / statistics.median(times):.0f} tokens/s" for name, times in results.items()
    }
    return Row(
        f"decoding {TOKENS} tokens, {projection}",
        "the whole text again",
        speed["cache"],
        speed["again"],
        median_ratio(results["again"], results["cache"]),
        "≥ 5 ×",
    )
