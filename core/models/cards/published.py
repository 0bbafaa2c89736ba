"""The published models whose cards there are: five by hand, the others from their configs, in published.json."""

import json
from pathlib import Path

from core.attention import AttentionConfig, Choice
from core.models.cards.base import AttentionLayer, Block, Extra, FeedForward, ModelCard, stack

TABLE = Path(__file__).with_suffix(".json")
DEFAULTS = "the defaults of its class in transformers"


# The models whose layers are not those of a decoder in the library: encoders, T5, GPT-2's joined map, and RetNet.


_PLAIN_T5 = Choice.of("multi_head", bias=False, head_dim=64)
_ONE_TABLE = Extra(
    "Bias table shared", -32 * 8, "all layers of a stack add the table of the first", False
)


def _t5(bidirectional: bool, first: bool) -> AttentionLayer:
    config = AttentionConfig(
        512,
        8,
        _PLAIN_T5,
        score="dot",
        position=Choice.of("t5", buckets=32, max_distance=128, bidirectional=bidirectional),
        mask="padding" if bidirectional else "causal",
    )
    return AttentionLayer(
        "both directions" if bidirectional else "causal", config, () if first else (_ONE_TABLE,)
    )


def final_norm(d_model: int) -> tuple[Extra, ...]:
    return (Extra("Final norm", d_model, "before the output map", False),)


_MODERN = Choice.of("multi_head", bias=False)
_BOTH = AttentionLayer(
    "full",
    AttentionConfig(768, 12, _MODERN, position=Choice.of("rope", base=160_000.0), mask="padding"),
)
_NEARBY = AttentionLayer(
    "64 on each side",
    AttentionConfig(768, 12, _MODERN, position="rope", mask=Choice.of("local", window=64)),
)


_RETENTION = AttentionLayer(
    "retention",
    AttentionConfig(
        4096,
        16,
        Choice.of("gated", bias=False, head_dim=256),
        position=Choice.of("rope", layout="interleaved"),
        mask="causal",
        kernel=Choice.of("retention", decay="retnet"),
    ),
    (
        Extra(
            "Wider values",
            3 * 4096 * (6912 - 4096),
            "values, gate and last map have 432 numbers a head, not 256",
        ),
    ),
    state=16 * 256 * 432,
)
BY_HAND: tuple[ModelCard, ...] = (
    ModelCard(
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
                    AttentionLayer(
                        "both directions",
                        AttentionConfig(
                            768, 12, position=Choice.of("learned", max_len=512), mask="padding"
                        ),
                    ),
                    FeedForward.dense(768, 3072, gated=False, bias=True),
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
                "Position embeddings",
                512 * 768,
                "a learned vector for each of 512 positions",
                False,
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
    ),
    ModelCard(
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
            (
                Block(
                    AttentionLayer(
                        "full",
                        AttentionConfig(
                            768, 12, position=Choice.of("learned", max_len=1024), mask="causal"
                        ),
                    ),
                    FeedForward.dense(768, 3072, gated=False, bias=True),
                    4 * 768,
                ),
            ),
            12,
        ),
        tied=True,
        extras=(
            Extra(
                "Position embeddings",
                1024 * 768,
                "a learned vector for each of 1,024 positions",
                False,
            ),
            Extra("Final norm", 2 * 768, "before the output map", False),
        ),
    ),
    ModelCard(
        "t5",
        "T5 small",
        2019,
        "https://arxiv.org/abs/1910.10683",
        "google-t5/t5-small",
        DEFAULTS,
        "Encoder and decoder read and write every task as text, and a learned number for each distance gives the order.",
        512,
        32128,
        (
            *(
                Block(_t5(True, layer == 0), FeedForward.dense(512, 2048, gated=False), 2 * 512)
                for layer in range(6)
            ),
            *(
                Block(
                    _t5(False, layer == 0),
                    FeedForward.dense(512, 2048, gated=False),
                    3 * 512,
                    AttentionLayer(
                        "to the input",
                        AttentionConfig(512, 8, _PLAIN_T5, score="dot", mask="padding"),
                    ),
                )
                for layer in range(6)
            ),
        ),
        tied=True,
        encoder_blocks=6,
        extras=(Extra("Final norms", 2 * 512, "after each of the two stacks", False),),
        remark="Cache and FLOPs of one token read and one token written, with as many read as written.",
    ),
    ModelCard(
        "retnet",
        "RetNet 7B",
        2023,
        "https://arxiv.org/abs/2307.08621",
        "retnet_7b of the authors' torchscale",
        "the architecture of that name in the authors' code",
        "No softmax: the past fades at a fixed pace in each head, so that one state replaces the cache.",
        4096,
        0,
        stack((Block(_RETENTION, FeedForward.dense(4096, 6912), 2 * 4096),), 32),
        extras=final_norm(4096),
        remark="Without word embeddings and output map: no vocabulary is published with these sizes.",
    ),
    ModelCard(
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
            Block(_BOTH, FeedForward.dense(768, 1152), 768),
            *stack(
                tuple(
                    Block(layer, FeedForward.dense(768, 1152), 2 * 768)
                    for layer in (_NEARBY, _NEARBY, _BOTH)
                ),
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
    ),
)


def read_table() -> tuple[ModelCard, ...]:
    """The cards of published.json, which `python -m core.pretrained.cards` writes from its configs."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(ModelCard.from_json(row["card"]) for row in rows if "card" in row)


CARDS = tuple(sorted((*BY_HAND, *read_table()), key=lambda one: one.year))
