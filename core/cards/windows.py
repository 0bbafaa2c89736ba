"""Models in which some layers attend to a window: Mistral, Gemma 2 and 3, Llama 4, gpt-oss, and ModernBERT."""

from __future__ import annotations

from typing import Any

from core.attention import AttentionConfig, Choice
from core.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack
from core.cards.dense import DEFAULTS, final_norm


def _window(keys: int) -> Choice:
    """A query attends to itself and to the keys before it, so many in all."""
    return Choice.of("causal_local", lookback=keys - 1)


def _two(
    d_model: int,
    heads: int,
    projection: Choice,
    keys: int,
    positions: tuple[Choice, Choice],
    **axes: Any,
) -> tuple[AttentionLayer, AttentionLayer]:
    """A layer that attends to a window and one that attends to the whole text, with positions in the same order."""
    near, far = (
        AttentionConfig(d_model, heads, projection, position=position, mask=mask, **axes)
        for mask, position in zip((_window(keys), Choice("causal")), positions, strict=True)
    )
    return AttentionLayer(f"window of {keys:,}", near), AttentionLayer("full", far)


_MISTRAL = AttentionConfig(
    4096,
    32,
    Choice.of("grouped_query", kv_heads=8, bias=False),
    position="rope",
    mask=_window(4096),
)
_ROPE = Choice("rope")
_NEAR2, _FAR2 = _two(
    2304,
    8,
    Choice.of("grouped_query", kv_heads=4, bias=False, head_dim=256),
    4096,
    (_ROPE, _ROPE),
    normalizer=Choice.of("softcap", cap=50.0),
)
_NEAR3, _FAR3 = _two(
    3840,
    16,
    Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=256),
    1024,
    (_ROPE, Choice.of("linear_rope", base=1_000_000.0, factor=8.0)),
    score="qk_norm",
)
_YARN = Choice.of("yarn", factor=32.0, original=4096, base=150_000.0)
_NEAR_OSS, _FAR_OSS = _two(
    2880,
    64,
    Choice.of("grouped_query", kv_heads=8, bias=True, head_dim=64),
    128,
    (_YARN, _YARN),
    normalizer="sink",
)
_GROUPED4 = Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128)
_CHUNK4 = AttentionLayer(
    "chunks of 8,192",
    AttentionConfig(
        5120,
        40,
        _GROUPED4,
        position=Choice.of("rope", base=500_000.0, layout="interleaved"),
        mask=Choice.of("chunked", size=8192),
    ),
)
_WHOLE4 = AttentionLayer(
    "without positions",
    AttentionConfig(
        5120,
        40,
        _GROUPED4,
        position=Choice.of("position_temperature", growth=0.1, step=8192),
        mask="causal",
    ),
)
_MODERN = Choice.of("multi_head", bias=False)
_BOTH = AttentionLayer(
    "full",
    AttentionConfig(768, 12, _MODERN, position=Choice.of("rope", base=160_000.0), mask="padding"),
)
_NEARBY = AttentionLayer(
    "64 on each side",
    AttentionConfig(768, 12, _MODERN, position="rope", mask=Choice.of("local", window=64)),
)

MISTRAL = ModelCard(
    "mistral",
    "Mistral 7B",
    2023,
    "https://arxiv.org/abs/2310.06825",
    "mistralai/Mistral-7B-v0.1",
    DEFAULTS,
    "Each layer attends to the last 4,096 tokens only, so the cache stops growing there; layers above reach further.",
    4096,
    32000,
    stack((Block(AttentionLayer("window of 4,096", _MISTRAL), FeedForward(14336), 2 * 4096),), 32),
    extras=final_norm(4096),
)
GEMMA2 = ModelCard(
    "gemma2",
    "Gemma 2 2B",
    2024,
    "https://arxiv.org/abs/2408.00118",
    "google/gemma-2-2b",
    DEFAULTS,
    "Every second layer attends to a window, and scores are kept between −50 and 50.",
    2304,
    256000,
    stack(tuple(Block(layer, FeedForward(9216), 4 * 2304) for layer in (_NEAR2, _FAR2)), 26),
    pattern=2,
    tied=True,
    extras=final_norm(2304),
)
GEMMA3 = ModelCard(
    "gemma3",
    "Gemma 3 12B",
    2025,
    "https://arxiv.org/abs/2503.19786",
    "google/gemma-3-12b-pt",
    "the config.json of its text model, in a copy without the image encoder",
    "Five of six layers attend to 1,024 tokens, so only the sixth has a cache that grows with the text.",
    3840,
    262208,
    stack(
        tuple(Block(layer, FeedForward(15360), 4 * 3840) for layer in (*5 * (_NEAR3,), _FAR3)), 48
    ),
    pattern=6,
    tied=True,
    extras=final_norm(3840),
    remark="Without the encoder of images.",
)
GPT_OSS = ModelCard(
    "gpt_oss",
    "gpt-oss 120B",
    2025,
    "https://arxiv.org/abs/2508.10925",
    "openai/gpt-oss-120b",
    DEFAULTS,
    "A learned sink in each head takes weight that no token should get, and every second layer sees 128 tokens.",
    2880,
    201088,
    stack(
        tuple(
            Block(layer, FeedForward(2880, bias=True, experts=128, used=4), 2 * 2880)
            for layer in (_NEAR_OSS, _FAR_OSS)
        ),
        36,
    ),
    pattern=2,
    extras=final_norm(2880),
)
LLAMA4 = ModelCard(
    "llama4",
    "Llama 4 Scout",
    2025,
    "https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
    "meta-llama/Llama-4-Scout-17B-16E",
    DEFAULTS,
    "Three of four layers attend within chunks of 8,192 tokens; the fourth attends to all, without positions.",
    5120,
    202048,
    stack(
        tuple(
            Block(layer, FeedForward(8192, experts=16, used=1, shared=8192), 2 * 5120)
            for layer in (*3 * (_CHUNK4,), _WHOLE4)
        ),
        48,
    ),
    pattern=4,
    extras=final_norm(5120),
    remark="Without the encoder of images, and without the QK-norm of the layers with positions, which learns nothing.",
)
MODERNBERT = ModelCard(
    "modernbert",
    "ModernBERT base",
    2024,
    "https://arxiv.org/abs/2412.13663",
    "answerdotai/ModernBERT-base",
    DEFAULTS,
    "An encoder with rotary positions, in which two of three layers attend to 64 tokens on each side.",
    768,
    50368,
    (
        Block(_BOTH, FeedForward(1152), 768),
        *stack(
            tuple(Block(layer, FeedForward(1152), 2 * 768) for layer in (_NEARBY, _NEARBY, _BOTH)),
            21,
        ),
    ),
    pattern=3,
    tied=True,
    head=False,
    stores=False,
    extras=(
        *final_norm(768),
        Extra("Norm of the embeddings", 768, "in place of the first layer's own", False),
    ),
    remark="Without the head that fills in words.",
)

WINDOW = (MISTRAL, GEMMA2, GEMMA3, GPT_OSS, LLAMA4, MODERNBERT)
