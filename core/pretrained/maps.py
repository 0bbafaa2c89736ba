"""The weights that a forward pass left behind, as maps whose rows and columns are the tokens of the reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.pretrained.base import Line, Pretrained, PretrainedError, Reading
from core.pretrained.watch import Watch
from core.trace import AttentionMap, AttentionTrace, Kind

KINDS: tuple[Kind, ...] = ("self", "causal", "cross")
SINK = "sink"
MOST_SUM = 1.01  # of a row of weights, with what rounding adds
One = tuple[Kind, Tensor, Tensor | None]


def maps_of(pretrained: Pretrained, output: Any, watch: Watch, reading: Reading) -> tuple[AttentionMap, ...]:
    """Every map of a forward pass: self-attention first, then causal, then cross, each in the order of its layers.

    PretrainedError when the model returned none, or maps that are not between the tokens it was given.
    """
    found = _found(output, watch)
    if not found:
        raise PretrainedError(f"{pretrained.name} returned no attention: its layers mix tokens in another way. Take a "
                              "model whose layers attend, such as BERT or GPT-2.")
    return tuple(_map(pretrained, reading, kind, layer, weights, mask) for kind in KINDS
                 for layer, (weights, mask) in enumerate([one[1:] for one in found if one[0] == kind]))


def weights_of(output: Any, watch: Watch) -> dict[Kind, list[Tensor]]:
    """The weights (B, H, T, S) of each layer by kind: those that were watched, else those that the model returned."""
    found = _found(output, watch)
    return {kind: [weights for of, weights, _ in found if of == kind] for kind in KINDS}


def _found(output: Any, watch: Watch) -> list[One]:
    return [(seen.kind, seen.weights, seen.mask) for seen in watch.seen] or list(_returned(output))


def _map(pretrained: Pretrained, reading: Reading, kind: Kind, layer: int, weights: Tensor,
         mask: Tensor | None) -> AttentionMap:  # fmt: skip
    rows, columns = reading.lines(kind)
    if weights.shape[-2:] != (len(rows), len(columns)):
        raise PretrainedError(
            f"{pretrained.name} returned maps of {weights.shape[-2]} × {weights.shape[-1]} for {len(rows)} × "
            f"{len(columns)} tokens: it attends between windows or pools of tokens, which are not drawn here. Take a "
            "model that attends between tokens, such as BERT, GPT-2 or ViT.")
    if not pretrained.watched and (bool((weights < 0).any()) or float(weights.sum(-1).max()) > MOST_SUM):
        raise PretrainedError(f"{pretrained.name} returned numbers that are no weights: some are below 0, or rows sum "
                              "to more than 1. Take a model that returns what its softmax gave, such as BERT.")
    allowed = allowed_of(mask, weights.shape[-1])
    if mask is None and kind == "causal":
        allowed = torch.ones(1, *weights.shape[-2:], dtype=torch.bool).tril()
    may = None if allowed is None or bool(allowed.all()) else allowed.numpy()
    return AttentionMap(kind, layer, weights[0].detach().float().numpy(), rows.tokens, columns.tokens, may)


def allowed_of(mask: Tensor | None, keys: int) -> Bool[Tensor, "... S"] | None:
    """Where a mask of the first text, added to the scores or bool, lets a query see a key."""
    if mask is None:
        return None
    mask = mask[0, ..., :keys].detach()
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _returned(output: Any) -> Iterator[One]:
    """The attentions of a model that is not called through `watch`, as it returned them."""
    if own := _all(output, "encoder_attentions") or _all(output, "attentions"):
        banded = [name for name in ("encoder_global_attentions", "global_attentions") if hasattr(output, name)]
        causal = all(one.shape[-1] > 1 and not bool(one.triu(1).any()) for one in own)
        if banded:
            far = _all(output, banded[0])
            yield from (("self", *unpacked(one[0], far[layer][0, :, :one.shape[2]] if far else None))
                        for layer, one in enumerate(own))
        else:
            yield from (("causal" if causal else "self", one, None) for one in own)
    yield from (("causal", one, None) for one in _all(output, "decoder_attentions"))
    yield from (("cross", one, None) for one in _all(output, "cross_attentions"))


def _all(output: Any, name: str) -> list[Tensor]:
    return [one for one in getattr(output, name, None) or () if isinstance(one, Tensor) and one.ndim == 4]


def unpacked(band: Float[Tensor, "H T band"], far: Float[Tensor, "H T X"] | None
             ) -> tuple[Float[Tensor, "1 H T T"], Bool[Tensor, "1 1 T T"]]:  # fmt: skip
    """Longformer's band as the matrix it stands for, and where that matrix can be other than zero.

    A row of the band holds the weights of the X tokens that all see, then those of the 2·w + 1 tokens around its own.
    `far` holds what those X tokens themselves give to all. Beltagy et al. 2020, section 3.1.
    """
    length = band.shape[1]
    count = 0 if far is None else far.shape[-1]
    near = band[..., count:]
    window = near.shape[-1] // 2
    away = torch.arange(length)[None] - torch.arange(length)[:, None]
    inside = away.abs() <= window
    weights = near.gather(-1, (away + window).clamp(0, 2 * window).expand(len(near), -1, -1)) * inside
    if far is not None:
        # The first X tokens see all: that is where every head of the family that has such tokens puts them.
        weights[..., :count] = band[..., :count]
        weights[:, :count] = far.mT
        inside[:count] = inside[:, :count] = True
    return weights[None], inside[None, None]


def with_sink(trace: AttentionTrace) -> AttentionTrace:
    """The same maps with one key more, `sink`: what each row gave to no token. For models that learned a sink."""
    return AttentionTrace(tuple(map(_with_sink, trace.maps)), trace.source)


def _with_sink(item: AttentionMap) -> AttentionMap:
    rest = (1 - item.weights.sum(-1, keepdims=True)).clip(0, 1)
    mask = item.mask
    if mask is not None:
        mask = np.concatenate([mask, np.ones((*mask.shape[:-1], 1), bool)], -1)
    return AttentionMap(item.kind, item.layer, np.concatenate([item.weights, rest], -1), item.queries,
                        (*item.keys, SINK), mask)


def sink_line(line: Line) -> Line:
    """The keys of such a map: the sink stands after all of them, and is no token of the text."""
    return replace(line, ids=(*line.ids, -1), tokens=(*line.tokens, SINK), special=(*line.special, True),
                   word=(*line.word, None), segment=(*line.segment, line.segment[-1]))


def note_of(watch: Watch) -> str | None:
    """What a reader must know of these maps before reading them, where there is something."""
    modules = [seen.module for seen in watch.seen]
    if has_sinks(watch):
        return ("A learned sink, which is no token, takes a part of each row, so that its tokens share less than 1. "
                f"Where all heads are drawn it is the last column, {SINK}.")
    if modules and hasattr(modules[0], "lambda_init"):
        half = watch.seen[0].weights.shape[1] // 2
        return (f"Heads are pairs here: of the weights of head h, the model subtracts a learned share of those of "
                f"head h + {half}. Each map is drawn as it was before that.")
    return None


def has_sinks(watch: Watch) -> bool:
    return any(hasattr(seen.module, "sinks") for seen in watch.seen)
