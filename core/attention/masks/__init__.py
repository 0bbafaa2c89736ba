"""Masks: which query i may attend to which key j, True = may attend; and, or, not compose them."""

from __future__ import annotations

from operator import and_, or_

import torch
from jaxtyping import Bool
from torch import Tensor

from core.attention.base import Mask, ScoreBlock
from core.attention.masks import content, patterns
from core.attention.masks.patterns import Combined, Inverted
from core.entries import (
    Area,
    Axis,
    Choice,
    ConfigError,
    Cost,
    Entry,
    LayerConfig,
    complete,
    find,
    refuse_if,
)

_COMPOSE = "Composition of masks, cell by cell."


def _cost(config: LayerConfig, area: Area) -> Cost:
    """The sum of the parts' FLOPs; the bytes of the largest part and of two joined masks."""
    parts = [
        find(MASKS, "mask", part.key).cost(config.with_(mask=part), area)
        for part in config.mask.parts
    ]
    output = max(part.output for part in parts)
    return Cost(
        sum(part.flops for part in parts), max(part.bytes for part in parts) + 2 * output, output
    )


COMPOSED: tuple[Entry, ...] = (
    Entry(
        "and",
        "And",
        build=lambda config, parts: Combined(parts, and_),
        latex=r"m_1 \wedge m_2",
        meaning="A cell is allowed where every part allows it. " + _COMPOSE,
        paper="",
        year=2017,
        cost=_cost,
    ),
    Entry(
        "or",
        "Or",
        build=lambda config, parts: Combined(parts, or_),
        latex=r"m_1 \vee m_2",
        meaning="A cell is allowed where at least one part allows it. " + _COMPOSE,
        paper="",
        year=2017,
        cost=_cost,
    ),
    Entry(
        "not",
        "Not",
        build=lambda config, parts: Inverted(parts[0]),
        latex=r"\neg m",
        meaning="A cell is allowed where the part forbids it. " + _COMPOSE,
        paper="",
        year=2017,
        cost=_cost,
    ),
)

# build(config or None, parts, **params) -> Mask.
MASKS = Axis(
    *patterns.ENTRIES,
    *content.ENTRIES,
    *COMPOSED,
    order="none causal padding local causal_local dilated strided block chunked prefix document "
    "tree shared_prefix block_diffusion neighborhood global_window bigbird moba lightning "
    "block_max block_mean block_gated local_m local_p formula drawn and or not",
)
COMPOSITIONS = tuple(item.key for item in COMPOSED)  # the masks that are made of other masks
_TAKES = {
    "and": (1, "one or more parts"),
    "or": (1, "one or more parts"),
    "not": (1, "exactly one part"),
}


def check_parts(choice: Choice) -> None:
    """ConfigError when a composition has too few or too many parts, or one that it cannot contain."""
    least, takes = _TAKES.get(choice.key, (0, "no parts"))
    count = len(choice.parts)
    refuse_if(
        count < least or (count > least and choice.key not in ("and", "or")),
        f"mask = {choice.key} takes {takes}; got {count}.",
        axes=("mask",),
    )
    for part in choice.parts:
        check_parts(part)
        reweighs = [one for one in part.walk() if "reweighs" in find(MASKS, "mask", one.key).traits]
        if choice.key != "and" and reweighs:
            bad = reweighs[0].key
            raise ConfigError(
                f"mask = {choice.key} only combines allowed cells, and its part {bad} also multiplies "
                "the weights",
                f"mask = and with {bad}",
                axes=("mask",),
                mask="local",
            )


def make_mask(choice: Choice, config: LayerConfig | None = None) -> Mask:
    """The mask of a choice; one with weights needs the config for its sizes."""
    check_parts(choice)
    item = find(MASKS, "mask", choice.key)
    refuse_if(
        config is None and "learned" in item.traits,
        f"mask = {choice.key} has weights, whose sizes come from an AttentionConfig",
        "Attention(config)",
        mask="causal_local",
    )
    return item.build(
        config, tuple(make_mask(part, config) for part in choice.parts), **choice.kwargs
    )


def build_mask(
    choice: Choice,
    num_queries: int,
    num_keys: int,
    *,
    key_mask: Bool[Tensor, "B S"] | None = None,
    offset: int = 0,
    num_heads: int = 1,
    device: torch.device | str = "cpu",
) -> Tensor | None:
    """The mask of a choice as a matrix, bool, broadcastable to (B, H, T, S); None where every key is visible.

    True = may attend. `offset` is the position of query 0 among the keys: 0 aligns causal masks top-left, S − T
    bottom-right (a cache). ConfigError for a mask that reads content (local_p, moba), which has no matrix without it.
    """
    block = ScoreBlock.whole(
        num_queries, num_keys, num_heads=num_heads, offset=offset, key_mask=key_mask, device=device
    )
    if choice.key == "none":
        return block.key_mask
    allowed = make_mask(complete(choice, MASKS, "mask"))(block)
    return allowed if block.key_mask is None else allowed & block.key_mask
