"""Why a kernel cannot compute some choices, in words that name both and say what to take instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from core.entries import Choice, find
from core.layer_config import LayerConfig
from core.positions import POSITIONS

Reason = Callable[[Any], str | None]


def refuse_when(kernel: str, *reasons: Reason) -> Reason:
    """The `refuse` of a kernel's entry: the first reason that the config gives, with both names in it."""
    def refuse(config: LayerConfig) -> str | None:
        sentence = next((words for reason in reasons if (words := reason(config))), None)
        return sentence and f"kernel = {kernel} {sentence}, or kernel = exact."

    return refuse


def not_product(config: LayerConfig) -> str | None:
    return None if config.has("score", "product") else (
        f"computes dot products alone, not score = {config.score.key}; take score = scaled_dot")


def not_softmax(config: LayerConfig) -> str | None:
    return None if config.has("normalizer", "softmax") else (
        f"computes a softmax alone, not normalizer = {config.normalizer.key}; take normalizer = softmax")


def more_than_a_bias(config: LayerConfig) -> str | None:
    return None if not config.has("position", "adjusts") else (
        f"computes scores with a bias alone, and position = {config.position.key} does more; take position = alibi")


def adds_values(config: LayerConfig) -> str | None:
    return None if not config.has("position", "values") else (
        f"never holds the weights that position = {config.position.key} needs; take position = alibi")


def whole_rows(config: LayerConfig) -> str | None:
    return None if not config.has("position", "whole rows") else (
        f"meets some of the keys at a time, and position = {config.position.key} needs all; take position = alibi")


def enters_scores(config: LayerConfig) -> str | None:
    return None if find(POSITIONS, "position", config.position.key).enters != "scores" else (
        f"makes no scores for position = {config.position.key} to enter; take position = rope")


def multiplies_weights(config: LayerConfig) -> str | None:
    return None if not config.has("mask", "reweighs") else (
        f"keeps the softmax's own weights, which mask = {config.mask.key} multiplies; take mask = local")


def combines_heads(config: LayerConfig) -> str | None:
    return None if not config.has("projection", "folds") else (
        f"computes one softmax a head, and projection = {config.projection.key} subtracts two; take "
        "projection = multi_head")


def drops_weights(config: LayerConfig) -> str | None:
    return None if not config.dropout else (
        f"makes no weights that dropout = {config.dropout:g} could drop; take dropout = 0")


def mask_beyond(*keys: str) -> Reason:
    """Refuse a mask that is made of more than these."""
    def refuse(config: LayerConfig) -> str | None:
        return None if {part.key for part in joined(config.mask)} <= {*keys} else (
            f"has no scores for mask = {config.mask.key} to hide; take mask = {keys[0]}")

    return refuse


def joined(choice: Choice) -> Iterator[Choice]:
    """A mask, or the masks that an `and` is made of."""
    if choice.key == "and":
        for part in choice.parts:
            yield from joined(part)
    else:
        yield choice


# What F.scaled_dot_product_attention cannot do.
PLAIN = (not_product, not_softmax, more_than_a_bias, adds_values, multiplies_weights, combines_heads)
