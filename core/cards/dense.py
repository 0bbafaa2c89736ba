"""Models whose layers all attend to the whole text: GPT-2, BERT, T5, Llama 2 and 3, Qwen3, OLMo 2, and SmolLM3."""

from __future__ import annotations

from typing import Any

from core.attention import AttentionConfig, Choice
from core.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack

DEFAULTS = "the defaults of its class in transformers"
_GPT2 = AttentionConfig(768, 12, position=Choice.of("learned", max_len=1024), mask="causal")
_BERT = AttentionConfig(768, 12, position=Choice.of("learned", max_len=512), mask="padding")
_PLAIN_T5 = Choice.of("multi_head", bias=False, head_dim=64)
_ONE_TABLE = Extra(
    "Bias table shared", -32 * 8, "all layers of a stack add the table of the first", False
)


def _t5(bidirectional: bool, first: bool) -> AttentionLayer:
    position = Choice.of("t5", buckets=32, max_distance=128, bidirectional=bidirectional)
    config = AttentionConfig(
        512,
        8,
        _PLAIN_T5,
        score="dot",
        position=position,
        mask="padding" if bidirectional else "causal",
    )
    return AttentionLayer(
        "both directions" if bidirectional else "causal", config, () if first else (_ONE_TABLE,)
    )


def _t5_blocks() -> tuple[Block, ...]:
    """Six blocks that read, and six that write and attend to those."""
    wide = FeedForward(2048, gated=False)
    cross = AttentionLayer(
        "to the input", AttentionConfig(512, 8, _PLAIN_T5, score="dot", mask="padding")
    )
    read = [Block(_t5(True, first=layer == 0), wide, 2 * 512) for layer in range(6)]
    written = [Block(_t5(False, first=layer == 0), wide, 3 * 512, cross) for layer in range(6)]
    return (*read, *written)


def llama_block(
    d_model: int,
    heads: int,
    projection: Choice,
    width: int,
    position: Choice | str = "rope",
    **axes: Any,
) -> Block:
    """RMSNorm, attention with rotary positions, RMSNorm, SwiGLU: the block that most open models are built of."""
    config = AttentionConfig(d_model, heads, projection, position=position, mask="causal", **axes)
    return Block(AttentionLayer("full", config), FeedForward(width), 2 * d_model)


def final_norm(d_model: int) -> tuple[Extra, ...]:
    return (Extra("Final norm", d_model, "before the output map", False),)


_LLAMA3 = Choice.of("llama3_rope", base=500_000.0, factor=8.0, original=8192)
_OLMO2 = llama_block(
    4096,
    32,
    Choice.of("multi_head", bias=False),
    11008,
    Choice.of("rope", base=500_000.0),
    score="qk_norm",
)
_WIDE_NORM = Extra(
    "QK-norm over all heads", 2 * (4096 - 128), "one norm over all 32 heads, not over each", False
)
_SMOLLM3 = Choice.of("grouped_query", kv_heads=4, bias=False)
_ROTATED = llama_block(2048, 16, _SMOLLM3, 11008, Choice.of("rope", base=2_000_000.0))
_PLAIN = llama_block(2048, 16, _SMOLLM3, 11008, "none")

GPT2 = ModelCard(
    "gpt2",
    "GPT-2",
    2019,
    "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
    "openai-community/gpt2",
    DEFAULTS,
    "One decoder, trained on web text alone, does many tasks without being trained for them.",
    768,
    50257,
    stack(
        (Block(AttentionLayer("full", _GPT2), FeedForward(3072, gated=False, bias=True), 4 * 768),),
        12,
    ),
    tied=True,
    extras=(
        Extra(
            "Position embeddings", 1024 * 768, "a learned vector for each of 1,024 positions", False
        ),
        Extra("Final norm", 2 * 768, "before the output map", False),
    ),
)
BERT = ModelCard(
    "bert",
    "BERT base",
    2018,
    "https://arxiv.org/abs/1810.04805",
    "google-bert/bert-base-uncased",
    DEFAULTS,
    "Every token attends to both sides, and the model learns to fill in hidden words.",
    768,
    30522,
    stack(
        (
            Block(
                AttentionLayer("both directions", _BERT),
                FeedForward(3072, gated=False, bias=True),
                4 * 768,
            ),
        ),
        12,
    ),
    tied=True,
    head=False,
    stores=False,
    extras=(
        Extra(
            "Position embeddings", 512 * 768, "a learned vector for each of 512 positions", False
        ),
        Extra("Segment embeddings", 2 * 768, "one vector for each of two sentences", False),
        Extra(
            "Norm of the embeddings",
            2 * 768,
            "after words, positions and segments are added",
            False,
        ),
        Extra(
            "Pooler",
            768 * 769,
            "a layer that reads the first token, for a class of the text",
            False,
        ),
    ),
    remark="Without the head that fills in words.",
)
T5 = ModelCard(
    "t5",
    "T5 small",
    2019,
    "https://arxiv.org/abs/1910.10683",
    "google-t5/t5-small",
    DEFAULTS,
    "Encoder and decoder read and write every task as text, and a learned number for each distance gives the order.",
    512,
    32128,
    _t5_blocks(),
    tied=True,
    encoder_blocks=6,
    extras=(Extra("Final norms", 2 * 512, "after each of the two stacks", False),),
    remark="Cache and FLOPs of one token read and one token written, with as many read as written.",
)
LLAMA2 = ModelCard(
    "llama2",
    "Llama 2 7B",
    2023,
    "https://arxiv.org/abs/2307.09288",
    "meta-llama/Llama-2-7b-hf",
    DEFAULTS,
    "RMSNorm, SwiGLU and rotary positions without biases: the block that most open models have taken over.",
    4096,
    32000,
    stack((llama_block(4096, 32, Choice.of("multi_head", bias=False), 11008),), 32),
    extras=final_norm(4096),
)
LLAMA3 = ModelCard(
    "llama3",
    "Llama 3.1 8B",
    2024,
    "https://arxiv.org/abs/2407.21783",
    "meta-llama/Llama-3.1-8B",
    "its config.json, in a copy found in public code",
    "Four query heads share a head of keys and values, and slow rotations are stretched to read 128k tokens.",
    4096,
    128256,
    stack(
        (
            llama_block(
                4096, 32, Choice.of("grouped_query", kv_heads=8, bias=False), 14336, _LLAMA3
            ),
        ),
        32,
    ),
    extras=final_norm(4096),
)
QWEN3 = ModelCard(
    "qwen3",
    "Qwen3 8B",
    2025,
    "https://arxiv.org/abs/2505.09388",
    "Qwen/Qwen3-8B",
    "its config.json",
    "A norm on the queries and keys of each head replaces the biases of earlier Qwen models.",
    4096,
    151936,
    stack(
        (
            llama_block(
                4096,
                32,
                Choice.of("grouped_query", kv_heads=8, bias=False, head_dim=128),
                12288,
                Choice.of("rope", base=1_000_000.0),
                score="qk_norm",
            ),
        ),
        36,
    ),
    extras=final_norm(4096),
)
OLMO2 = ModelCard(
    "olmo2",
    "OLMo 2 7B",
    2024,
    "https://arxiv.org/abs/2501.00656",
    "allenai/OLMo-2-1124-7B",
    "its config.json",
    "The norm stands after each sublayer, inside the residual path, and queries and keys are normalized.",
    4096,
    100352,
    stack(
        (
            Block(
                AttentionLayer("full", _OLMO2.attention.config, (_WIDE_NORM,)),
                FeedForward(11008),
                2 * 4096,
            ),
        ),
        32,
    ),
    extras=final_norm(4096),
)
SMOLLM3 = ModelCard(
    "smollm3",
    "SmolLM3 3B",
    2025,
    "https://huggingface.co/blog/smollm3",
    "HuggingFaceTB/SmolLM3-3B",
    DEFAULTS,
    "Every fourth layer has no positions at all, which helps with texts longer than those of training.",
    2048,
    128256,
    stack(
        (
            _ROTATED,
            _ROTATED,
            _ROTATED,
            Block(
                AttentionLayer("without positions", _PLAIN.attention.config),
                FeedForward(11008),
                2 * 2048,
            ),
        ),
        36,
    ),
    pattern=4,
    tied=True,
    extras=final_norm(2048),
)

DENSE = (GPT2, BERT, T5, LLAMA2, LLAMA3, QWEN3, OLMO2, SMOLLM3)
