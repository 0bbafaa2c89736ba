"""Model cards: published models, layer by layer, as configs of this lab; and the size of their caches.

Five cards are made by hand, the others from their configs, in published.json.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from core.attention import AttentionConfig, Choice
from core.models.cards.base import (
    KINDS as KINDS,
    AttentionLayer,
    Block,
    Extra,
    FeedForward,
    Kind as Kind,
    ModelCard,
    count_parameters as count_parameters,
    repeat_of as repeat_of,
    stack,
)

TABLE = Path(__file__).with_name("published.json")
DEFAULTS = "the defaults of its class in transformers"


# The models whose layers are not those of a decoder in the library: encoders, T5, GPT-2's joined map, and RetNet.


_PLAIN_T5 = Choice.of("multi_head", bias=False, head_dim=64)
_ONE_TABLE = Extra(
    "Bias table shared",
    -32 * 8,
    "all layers of a stack add the table of the first",
    multiplied=False,
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
        year=2018,
        url="https://arxiv.org/abs/1810.04805",
        checkpoint="google-bert/bert-base-uncased",
        source=DEFAULTS,
        different="Every token attends to both sides, and the model learns to fill in hidden words.",
        d_model=768,
        vocabulary=30522,
        blocks=stack(
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
                multiplied=False,
            ),
            Extra(
                "Segment embeddings",
                2 * 768,
                "one vector for each of two sentences",
                multiplied=False,
            ),
            Extra(
                "Norm of the embeddings",
                2 * 768,
                "after words, positions and segments are added",
                multiplied=False,
            ),
            Extra(
                "Pooler",
                768 * 769,
                "a layer that reads the first token, for a class of the text",
                multiplied=False,
            ),
        ),
        remark="Without the head that fills in words.",
    ),
    ModelCard(
        "gpt2",
        "GPT-2",
        year=2019,
        url="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
        checkpoint="openai-community/gpt2",
        source=DEFAULTS,
        different="One decoder, trained on web text alone, does many tasks without being trained for them.",
        d_model=768,
        vocabulary=50257,
        blocks=stack(
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
                multiplied=False,
            ),
            Extra("Final norm", 2 * 768, "before the output map", multiplied=False),
        ),
    ),
    ModelCard(
        "t5",
        "T5 small",
        year=2019,
        url="https://arxiv.org/abs/1910.10683",
        checkpoint="google-t5/t5-small",
        source=DEFAULTS,
        different="Encoder and decoder read and write every task as text, and a learned number for each distance gives the "
        "order.",
        d_model=512,
        vocabulary=32128,
        blocks=(
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
        extras=(Extra("Final norms", 2 * 512, "after each of the two stacks", multiplied=False),),
        remark="Cache and FLOPs of one token read and one token written, with as many read as written.",
    ),
    ModelCard(
        "retnet",
        "RetNet 7B",
        year=2023,
        url="https://arxiv.org/abs/2307.08621",
        checkpoint="retnet_7b of the authors' torchscale",
        source="the architecture of that name in the authors' code",
        different="No softmax: the past fades at a fixed pace in each head, so that one state replaces the cache.",
        d_model=4096,
        vocabulary=0,
        blocks=stack((Block(_RETENTION, FeedForward.dense(4096, 6912), 2 * 4096),), 32),
        extras=(Extra("Final norm", 4096, "before the output map", multiplied=False),),
        remark="Without word embeddings and output map: no vocabulary is published with these sizes.",
    ),
    ModelCard(
        "modernbert",
        "ModernBERT base",
        year=2024,
        url="https://arxiv.org/abs/2412.13663",
        checkpoint="answerdotai/ModernBERT-base",
        source=DEFAULTS,
        different="An encoder with rotary positions, in which two of three layers attend to 64 tokens on each side.",
        d_model=768,
        vocabulary=50368,
        blocks=(
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
            Extra("Final norm", 768, "before the output map", multiplied=False),
            Extra(
                "Norm of the embeddings", 768, "in place of the first layer's own", multiplied=False
            ),
        ),
        remark="Without the head that fills in words.",
    ),
)


# Those of the table are written there by `python -m core.pretrained.cards`, from its configs.
_READ = [
    ModelCard.from_json(row["card"])
    for row in json.loads(TABLE.read_text(encoding="utf-8"))
    if "card" in row
]
CARDS = tuple(sorted((*BY_HAND, *_READ), key=lambda one: one.year))


def card(key: str) -> ModelCard:
    """The card of a published model; KeyError lists the keys there are."""
    known = {one.key: one for one in CARDS}
    if key not in known:
        raise KeyError(f"{key} is no model card; expected one of {', '.join(known)}.")
    return known[key]


LENGTHS = tuple(2**power for power in range(10, 21))  # 1k to 1M tokens
SHORT, LONG = 8192, 131072


def cache(one: ModelCard, length: int) -> int | None:
    """Bytes of the cache of one sequence; None where nothing is stored or known, or a text of that length has no
    positions."""
    if not one.stores or not one.known or (one.longest and length > one.longest):
        return None
    return one.cache_bytes(length)


def curve(one: ModelCard) -> list[tuple[int, int]]:
    """Its cache's bytes at each length that it can have."""
    return [(length, size) for length in LENGTHS if (size := cache(one, length)) is not None]


def curves(one: ModelCard, beside: tuple[str, ...]) -> dict[str, list[tuple[int, int]]]:
    """Bytes of the cache of one sequence by its length, of a model and of those beside it that store something."""
    models = [one, *map(card, beside)]
    return {each.name: points for each in models if (points := curve(each))}


@dataclass(frozen=True)
class Figures:
    """What a model has and costs, in numbers of 2 bytes; None for what is not stored, not known, or has no positions."""

    parameters: int
    active: int  # those that a token uses
    token_bytes: int | None  # that a token adds until windows are full
    short: int | None  # bytes at SHORT tokens
    long: int | None  # bytes at LONG tokens
    read: int  # tokens that a token attends to where FLOPs are given: SHORT, or the longest text
    flops: int | None  # of such a token
    length: int  # LONG tokens, or the longest text
    size: int | None  # bytes at that length


def figures(one: ModelCard) -> Figures:
    """The parameters of a model, the bytes of its cache, and the FLOPs of a token."""
    read, length = (min(most, one.longest or most) for most in (SHORT, LONG))
    return Figures(
        one.parameters,
        one.active,
        one.token_bytes if one.stores and one.known else None,
        cache(one, SHORT),
        cache(one, LONG),
        read,
        one.flops(read) if one.known else None,
        length,
        cache(one, length),
    )


LATENT, ROTARY, WINDOW, GROUPS = 512, 64, 4096, 8


# Those whose layers all store alike.
MODELS = {
    key: card(key) for key in ("olmo2", "llama2", "llama3", "qwen3", "deepseek_v2") if CARDS[9:]
}


@dataclass(frozen=True)
class Form:
    """A way to store keys and values: its projection, and what bounds the tokens that it stores."""

    name: str
    projection: str
    window: int | None = None  # tokens stored at most
    state: bool = False  # one state for the whole text

    def config(self, model: ModelCard) -> AttentionConfig:
        """The layer with this projection at the model's sizes; nothing is built."""
        params = {
            "latent": {"latent": LATENT, "rope": ROTARY},
            "grouped_query": {"kv_heads": GROUPS},
            "keys_as_values": {"kv_heads": model.attention.num_heads},
        }.get(self.projection, {})
        size = model.attention.num_heads * model.attention.head_dim
        return AttentionConfig(
            size, model.attention.num_heads, Choice.of(self.projection, **params)
        )


FORMS = {
    "multi_head": Form("Multi-head", "multi_head"),
    "grouped_query": Form(f"Grouped-query ({GROUPS})", "grouped_query"),
    "multi_query": Form("Multi-query", "multi_query"),
    "latent": Form("Latent (MLA)", "latent"),
    "window": Form(f"Window of {WINDOW:,}", "multi_head", window=WINDOW),
    "keys_as_values": Form("Keys as values", "keys_as_values"),
    "linear": Form("Linear state", "multi_head", state=True),
}


def layer_numbers(model: ModelCard, form: Form, length: int) -> int:
    """Numbers that one layer stores of one sequence.

    A linear state is, for each head, the sum of k vᵀ (D × D) and the sum of k (D).
    """
    heads, size = model.attention.num_heads, model.attention.head_dim
    if form.state:
        return heads * size * (size + 1)
    return form.config(model).sizes.cache * min(length, form.window or length)


def cache_bytes(model: ModelCard, form: Form, length: int, number_bytes: int) -> int:
    """Bytes that all layers store of one sequence."""
    return len(model.layers) * layer_numbers(model, form, length) * number_bytes


def layer_flops(model: ModelCard, form: Form, length: int) -> int:
    """Operations of one layer's attention for one new token: q · k and weights · v, a multiply and an add each.

    The latent form scores and sums latents (absorbed matrices); a linear state is written and read, 2 D² each.
    """
    heads, size = model.attention.num_heads, model.attention.head_dim
    if form.state:
        return 4 * heads * size * (size + 1)
    per_key = 2 * LATENT + ROTARY if form.projection == "latent" else 2 * size
    return 2 * heads * per_key * min(length, form.window or length)


def intensity(model: ModelCard, form: Form, length: int, number_bytes: int) -> float:
    """Operations of attention for each byte of cache that is read, or of a state that is read and written."""
    moved = layer_numbers(model, form, length) * number_bytes * (2 if form.state else 1)
    return layer_flops(model, form, length) / moved


@dataclass(frozen=True)
class Step:
    """One decoding step of a batch: its operations, the bytes it reads, and the seconds that each takes."""

    flops: float
    weight_bytes: float
    cache_bytes: float
    computing: float
    reading: float

    @property
    def intensity(self) -> float:
        return self.flops / (self.weight_bytes + self.cache_bytes)

    @property
    def bound(self) -> str:
        """What takes longer: "memory" or "computing"."""
        return "memory" if self.reading > self.computing else "computing"


def decoding_step(
    model: ModelCard,
    form: Form,
    length: int,
    batch: int,
    number_bytes: int,
    bandwidth: float,
    speed: float,
) -> Step:
    """One new token for each of `batch` sequences, on a machine of `bandwidth` bytes and `speed` operations a second.

    A token takes 2 operations for each parameter that it uses. A batch reads each parameter once; of a model of experts
    at most those of all its tokens.
    """
    flops = batch * (2 * model.active + len(model.layers) * layer_flops(model, form, length))
    weights = min(model.parameters, model.active * batch) * number_bytes
    stored = batch * cache_bytes(model, form, length, number_bytes) * (2 if form.state else 1)
    return Step(flops, weights, stored, flops / speed, (weights + stored) / bandwidth)
