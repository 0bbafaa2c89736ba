"""The recipe of a small model with the pattern of layers of a published one."""

from __future__ import annotations

from dataclasses import replace

from core.cards import ModelCard
from core.tasks import TaskConfig, make_task
from core.training.config import RunConfig, recommended

HEADS = 4


def card_recipe(card: ModelCard) -> RunConfig:
    """A run in which every attention of the card's pattern occurs: with few heads, short windows, and pre-norm.

    An encoder classifies sentences by language, an encoder–decoder reverses letters, a decoder recalls pairs.
    """
    task, kind = (
        ("reverse", "transformer")
        if card.encoder_blocks
        else (("recall", "decoder") if card.stores else ("language", "classifier"))
    )
    base = recommended(make_task(TaskConfig.of(task)), kind)
    first, *following = (
        config.with_(dropout=base.model.dropout) for config in card.small(base.model.d_model, HEADS)
    )
    pool = (
        "mean" if kind == "classifier" else base.model.pool
    )  # a class token sees nothing through a window
    model = replace(
        base.model,
        num_heads=HEADS,
        attention=first,
        following=tuple(following),
        norm="pre",
        pool=pool,
        layers=max(base.model.layers, card.pattern),
    )
    return replace(base, model=model)
