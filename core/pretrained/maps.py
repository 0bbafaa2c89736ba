"""The maps of attention that a pass returned, whatever form a family gives them; and why some have none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy
from core.pretrained.attention_recorder import (
    AttentionRecorder,
    bool_mask,
    is_lower_triangular,
    numbers_by_layer,
    other_layers,
    state_note,
)
from core.pretrained.base import (
    WITHOUT_WEIGHTS,
    Line,
    Pretrained,
    PretrainedError,
    Reading,
    reject_if,
)
from core.pretrained.forward import model_that_reads

# Families without a matrix between tokens, and why; tests/pretrained/test_attention_recorder.py builds each of them.
WINDOWS = "its layers attend within separate windows"
NO_MATRIX: dict[str, str] = {
    **WITHOUT_WEIGHTS,
    "funnel": "it pools tokens between layers, so later maps are between groups of tokens",
    **dict.fromkeys(("swin", "swinv2", "maskformer-swin", "donut-swin", "swin2sr"), WINDOWS),
    "yoso": "it approximates attention by hashing and computes no weights",
    "mra": "it computes blocks at several resolutions and no whole matrix of weights",
    "nystromformer": "it approximates attention with a few landmarks and computes no whole matrix of weights",
    "focalnet": "it uses sums over the neighbourhood of each patch instead of attention",
    "vit_mae": "it leaves out most patches at random",
    "eomt": "it adds queries of its own to the patches",
    "eomt_dinov3": "it adds queries of its own to the patches",
    **dict.fromkeys(
        ("sew", "sew-d"), "it combines several parts of the sound into one before attention"
    ),
    **dict.fromkeys(
        ("t5gemma2", "t5gemma2_decoder"),
        "its decoder attends to its own tokens and the encoder's in one softmax, which no single kind of map holds",
    ),
    "perceiver": "its layers attend from learned vectors, not from tokens",
    "levit": "its layers do not return their weights",
    "mobilevitv2": "it gives each patch one weight for all queries, so there is no matrix",
    "canine": "it attends within blocks of characters, and between groups of four of them",
    "reformer": "it attends within chunks and among tokens with the same hash",
}

KINDS: tuple[Kind, ...] = ("self", "causal", "cross")
SINK = "sink"
MAX_SUM = 1.01  # of a row of weights, with what rounding adds
RETURNED: tuple[tuple[str, Kind], ...] = (
    ("encoder_attentions", "self"),
    ("decoder_attentions", "causal"),
    ("cross_attentions", "cross"),
)
One = tuple[Kind, Tensor, Tensor | None, str]


def maps_of(
    pretrained: Pretrained, output: Any, recorder: AttentionRecorder, reading: Reading
) -> tuple[AttentionMap, ...]:
    """Every map of a forward pass: self-attention first, then causal, then cross, each in the order of its layers.

    PretrainedError when the model returned none, or maps that are not between the tokens it was given.
    """
    layers: list[One] = [
        (call.kind, call.weights, call.mask, call.state) for call in recorder.calls
    ]
    recorded = {kind for kind, *_ in layers}
    layers += [one for one in _returned(output) if one[0] not in recorded]
    if not layers:
        returned = [
            one
            for name in ("attentions", *(name for name, _ in RETURNED))
            for one in getattr(output, name, None) or ()
            if isinstance(one, Tensor)
        ]
        why = NO_MATRIX.get(str(pretrained.model.config.model_type)) or (
            f"it returned numbers of the shape {' × '.join(map(str, returned[0].shape))} instead of heads × rows × columns"
            if returned
            else "none of its layers called the attention of the library, and it returned no weights"
        )
        raise PretrainedError(
            f"{pretrained.name} has no attention to draw: {why}. {model_that_reads(pretrained)}"
        )
    numbers = numbers_by_layer(pretrained.model, recorder.calls)
    return tuple(
        _map(pretrained, reading, kind, layer, numbers.get((kind, layer), layer), *one)
        for kind in KINDS
        for layer, one in enumerate(one[1:] for one in layers if one[0] == kind)
    )


def _map(pretrained: Pretrained, reading: Reading, kind: Kind, layer: int, number: int, weights: Tensor,
         mask: Tensor | None, state: str) -> AttentionMap:  # fmt: skip
    rows, columns = reading.lines(kind)
    if (size := tuple(weights.shape[-2:])) != (len(rows), len(columns)):
        why = NO_MATRIX.get(
            str(pretrained.model.config.model_type),
            "they are not between the tokens that it was given",
        )
        raise PretrainedError(
            f"{pretrained.name} returned maps of {size[0]} × {size[1]} for {len(rows)} × {len(columns)} tokens: {why}, so "
            f"they are not drawn. {model_that_reads(pretrained)}"
        )
    reject_if(
        not pretrained.recordable
        and (bool((weights < 0).any()) or float(weights.sum(-1).max()) > MAX_SUM),
        f"{pretrained.name} returned numbers that are not weights: some are below 0, or rows sum to more than 1. "
        "Take a model that returns the output of its softmax, such as BERT.",
    )
    allowed = allowed_of(mask, weights.shape[-1])
    if mask is None and kind == "causal":
        allowed = torch.ones(1, *weights.shape[-2:], dtype=torch.bool).tril()
    may = None if allowed is None or bool(allowed.all()) else to_numpy(allowed)
    values = to_numpy(weights[0])
    item = AttentionMap(kind, layer, values, rows.tokens, columns.tokens, may, number, state)
    reject_if(
        # A masked row may hold NaN; the last one is never masked, and sees what a mask made of NaN hides.
        not np.isfinite(item.weights.sum())
        and not np.isfinite([*item.weights[:, -1].flat, *item.weights[item.visible]]).all(),
        f"{pretrained.name} computes weights that are no numbers in {item.layer_name}, as of states that are too large "
        "for 32 bits. Take another checkpoint.",
    )
    return item


def allowed_of(mask: Tensor | None, keys: int) -> Bool[Tensor, "... S"] | None:
    """The mask of the first batch item as bool, True = may attend."""
    return None if mask is None else bool_mask(mask[0, ..., :keys].detach())


def _returned(output: Any) -> Iterator[One]:
    if banded := [
        name for name in ("encoder_global_attentions", "global_attentions") if hasattr(output, name)
    ]:
        own, far = (
            _all(output, "encoder_attentions") or _all(output, "attentions"),
            _all(output, banded[0]),
        )
        yield from (
            ("self", *unpacked(one[0], far[layer][0, :, : one.shape[2]] if far else None), "")
            for layer, one in enumerate(own)
        )
    for name, kind in RETURNED[bool(banded) :]:
        yield from (
            ("self", *unblocked(one[0], output.encoder_last_hidden_state.shape[1]), "")
            for one in _all(output, name, 5)
            if one.shape[-1] == 3 * one.shape[-2]
        )
        yield from ((kind, one, None, "") for one in _all(output, name))
    if not banded and (alone := _all(output, "attentions")):
        causal = all(map(is_lower_triangular, alone))
        yield from (("causal" if causal else "self", one, None, "") for one in alone)


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
        sink = (1 - item.weights.sum(-1, keepdims=True)).clip(0, 0 if item.state else 1)
        mask = item.mask
        more = None if mask is None else np.concatenate([mask, np.ones_like(mask[..., :1])], -1)
        maps.append(
            replace(
                item,
                weights=np.concatenate([item.weights, sink], -1),
                keys=(*item.keys, SINK),
                mask=more,
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
    notes: list[str | None] = []
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
        calls = [call for call in recorder.calls if call.kind == kind]
        notes += [other_layers(pretrained.model, calls), state_note(pretrained.model, calls)]
    return " ".join(filter(None, notes)) or None


def has_sinks(recorder: AttentionRecorder) -> bool:
    return any(
        hasattr(call.module, name) for call in recorder.calls for name in ("sinks", "sink_proj")
    )
