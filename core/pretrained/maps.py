"""The weights of a forward pass as attention maps between the tokens of the reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.pretrained import error_messages
from core.pretrained.attention_recorder import AttentionRecorder, bool_mask
from core.pretrained.base import Line, Pretrained, PretrainedError, Reading
from core.pretrained.layers import numbers_by_layer, other_layers
from core.trace import AttentionMap, AttentionTrace, Kind, to_numpy

KINDS: tuple[Kind, ...] = ("self", "causal", "cross")
SINK = "sink"
MOST_SUM = 1.01  # of a row of weights, with what rounding adds
RETURNED: tuple[tuple[str, Kind], ...] = (
    ("encoder_attentions", "self"),
    ("decoder_attentions", "causal"),
    ("cross_attentions", "cross"),
)
One = tuple[Kind, Tensor, Tensor | None]


def maps_of(
    pretrained: Pretrained, output: Any, recorder: AttentionRecorder, reading: Reading
) -> tuple[AttentionMap, ...]:
    """Every map of a forward pass: self-attention first, then causal, then cross, each in the order of its layers.

    PretrainedError when the model returned none, or maps that are not between the tokens it was given.
    """
    layers = _all_layers(output, recorder)
    if not layers:
        fields = ("attentions", *(name for name, _ in RETURNED))
        returned = [
            one
            for name in fields
            for one in getattr(output, name, None) or ()
            if isinstance(one, Tensor)
        ]
        raise PretrainedError(
            error_messages.no_maps(pretrained, [tuple(one.shape) for one in returned])
        )
    maps, numbers = [], numbers_by_layer(pretrained.model, recorder.calls)
    for kind in KINDS:
        maps += [
            _map(pretrained, reading, kind, layer, numbers.get((kind, layer), layer), *one)
            for layer, one in enumerate(one[1:] for one in layers if one[0] == kind)
        ]
    return tuple(maps)


def weights_of(output: Any, recorder: AttentionRecorder) -> dict[Kind, list[Tensor]]:
    """The weights (B, H, T, S) of each layer by kind: recorded ones, else those that the model returned."""
    layers = _all_layers(output, recorder)
    return {kind: [weights for of, weights, _ in layers if of == kind] for kind in KINDS}


def _all_layers(output: Any, recorder: AttentionRecorder) -> list[One]:
    """The recorded layers, and for kinds that were not recorded the returned ones."""
    call = [(call.kind, call.weights, call.mask) for call in recorder.calls]
    kinds = {kind for kind, *_ in call}
    return call + [one for one in _returned(output) if one[0] not in kinds]


def _map(pretrained: Pretrained, reading: Reading, kind: Kind, layer: int, number: int, weights: Tensor,
         mask: Tensor | None) -> AttentionMap:  # fmt: skip
    rows, columns = reading.lines(kind)
    if weights.shape[-2:] != (len(rows), len(columns)):
        raise PretrainedError(
            error_messages.other_size(
                pretrained, tuple(weights.shape[-2:]), (len(rows), len(columns))
            )
        )
    if not pretrained.recordable and (
        bool((weights < 0).any()) or float(weights.sum(-1).max()) > MOST_SUM
    ):
        raise PretrainedError(error_messages.no_weights(pretrained))
    allowed = allowed_of(mask, weights.shape[-1])
    if mask is None and kind == "causal":
        allowed = torch.ones(1, *weights.shape[-2:], dtype=torch.bool).tril()
    may = None if allowed is None or bool(allowed.all()) else to_numpy(allowed)
    return AttentionMap(kind, layer, to_numpy(weights[0]), rows.tokens, columns.tokens, may, number)


def allowed_of(mask: Tensor | None, keys: int) -> Bool[Tensor, "... S"] | None:
    """The mask of the first batch item as bool, True = may attend."""
    return None if mask is None else bool_mask(mask[0, ..., :keys].detach())


def _returned(output: Any) -> Iterator[One]:
    """The attentions that a model returned itself, by kind."""
    if banded := [
        name for name in ("encoder_global_attentions", "global_attentions") if hasattr(output, name)
    ]:
        own, far = (
            _all(output, "encoder_attentions") or _all(output, "attentions"),
            _all(output, banded[0]),
        )
        yield from (
            ("self", *unpacked(one[0], far[layer][0, :, : one.shape[2]] if far else None))
            for layer, one in enumerate(own)
        )
    for name, kind in RETURNED[bool(banded) :]:
        yield from (
            ("self", *unblocked(one[0], output.encoder_last_hidden_state.shape[1]))
            for one in _all(output, name, 5)
            if one.shape[-1] == 3 * one.shape[-2]
        )
        yield from ((kind, one, None) for one in _all(output, name))
    if not banded and (alone := _all(output, "attentions")):
        causal = all(one.shape[-1] > 1 and not bool(one.triu(1).any()) for one in alone)
        yield from (("causal" if causal else "self", one, None) for one in alone)


def _all(output: Any, name: str, axes: int = 4) -> list[Tensor]:
    return [
        one
        for one in getattr(output, name, None) or ()
        if isinstance(one, Tensor) and one.ndim == axes
    ]


def unpacked(band: Float[Tensor, "H T band"], far: Float[Tensor, "H T X"] | None
             ) -> tuple[Float[Tensor, "1 H T T"], Bool[Tensor, "1 1 T T"]]:  # fmt: skip
    """Longformer's banded weights as a full matrix, and its mask.

    A row of the band holds the weights of the X tokens that all see, then those of the 2·w + 1 tokens around its own.
    `far` holds what those X tokens themselves give to all. Beltagy et al. 2020, section 3.1.
    """
    length = band.shape[1]
    count = 0 if far is None else far.shape[-1]
    near = band[..., count:]
    window = near.shape[-1] // 2
    away = torch.arange(length)[None] - torch.arange(length)[:, None]
    inside = away.abs() <= window
    weights = (
        near.gather(-1, (away + window).clamp(0, 2 * window).expand(len(near), -1, -1)) * inside
    )
    if far is not None:
        # The first X tokens see all: that is where every head of the family that has such tokens puts them.
        weights[..., :count] = band[..., :count]
        weights[:, :count] = far.mT
        inside[:count] = inside[:, :count] = True
    return weights[None], inside[None, None]


def unblocked(blocks: Float[Tensor, "N H L three_L"], length: int
              ) -> tuple[Float[Tensor, "1 H T T"], Bool[Tensor, "1 1 T T"]]:  # fmt: skip
    """LongT5's block weights as a full matrix over T tokens, and its mask.

    Each of N blocks of L rows meets the keys of the block before, its own and the next. Guo et al. 2022, section 3.1.1.
    """
    count, heads, size, _ = blocks.shape
    matrix = blocks.new_zeros(heads, count * size, (count + 2) * size)
    for index, block in enumerate(blocks):
        matrix[:, index * size : (index + 1) * size, index * size : (index + 3) * size] = block
    positions = torch.arange(length, device=blocks.device)
    inside = (positions[None] - positions[:, None]).abs() < size
    return matrix[None, :, :length, size : size + length], inside[None, None]


def with_sink(trace: AttentionTrace) -> AttentionTrace:
    """The maps with one more key, `sink`: the weight that each row gave to no token. For models with a learned sink."""
    maps = []
    for item in trace.maps:
        sink = (1 - item.weights.sum(-1, keepdims=True)).clip(0, 1)
        mask = item.mask
        if mask is not None:
            mask = np.concatenate([mask, np.ones((*mask.shape[:-1], 1), bool)], -1)
        maps.append(
            replace(
                item,
                weights=np.concatenate([item.weights, sink], -1),
                keys=(*item.keys, SINK),
                mask=mask,
            )
        )
    return AttentionTrace(tuple(maps), trace.source)


def sink_line(line: Line) -> Line:
    """The keys of such a map: the sink comes last and is a special token."""
    return replace(
        line,
        ids=(*line.ids, -1),
        tokens=(*line.tokens, SINK),
        special=(*line.special, True),
        word=(*line.word, None),
        segment=(*line.segment, line.segment[-1]),
    )


def note_of(
    pretrained: Pretrained, recorder: AttentionRecorder, kinds: Sequence[Kind]
) -> str | None:
    """Notes that explain maps of these kinds; None where there are none."""
    notes = []
    if has_sinks(recorder):
        notes.append(
            "A learned sink, which is not a token, gets part of the weight of each row, so the weights on "
            f"tokens sum to less than 1. In the view of all heads it is the last column, {SINK}."
        )
    elif recorder.calls and hasattr(recorder.calls[0].module, "lambda_init"):
        half = recorder.calls[0].weights.shape[1] // 2
        notes.append(
            f"Heads are pairs here: the model subtracts a learned share of the weights of head h + {half} "
            "from those of head h. Each map shows the weights before that."
        )
    if pretrained.model.config.is_encoder_decoder and "self" not in kinds:
        notes.append(
            "The maps of the encoder are not drawn: its rows also attend to summaries of many tokens, so it "
            "returns no matrix over tokens."
        )
    for kind in KINDS:
        names = [call.name for call in recorder.calls if call.kind == kind]
        notes += [sentence for sentence in (other_layers(pretrained.model, names),) if sentence]
    return " ".join(notes) or None


def has_sinks(recorder: AttentionRecorder) -> bool:
    return any(
        hasattr(call.module, name) for call in recorder.calls for name in ("sinks", "sink_proj")
    )
