"""The weights of a forward pass as attention maps between the tokens of the reading."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from core.entries import quote
from core.interpret.trace import AttentionMap, AttentionTrace, Kind, to_numpy
from core.pretrained.attention_recorder import (
    AttentionRecorder,
    bool_mask,
    numbers_by_layer,
    other_layers,
)
from core.pretrained.base import (
    Line,
    Pretrained,
    PretrainedError,
    Reading,
    first_line,
    reject_if,
    text_config,
)

# Messages that explain why a model cannot be read or drawn.


# Families without a matrix between tokens, and why; tests/pretrained/test_attention_recorder.py builds each of them.
POOLS = "it pools tokens between layers, so later maps are between groups of tokens"
WINDOWS = "its layers attend within separate windows"
NO_MATRIX: dict[str, str] = {
    "funnel": POOLS,
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
    "perceiver": "its layers attend from learned vectors, not from tokens",
    "levit": "its layers do not return their weights",
    "mobilevitv2": "it gives each patch one weight for all queries, so there is no matrix",
    "canine": "it attends within blocks of characters, and between groups of four of them",
    "reformer": "it attends within chunks and among tokens with the same hash",
}
# Inputs of a forward pass, by the library's names.
INPUTS: dict[str, str] = {
    "pixel_values": "pictures", "pixel_values_videos": "videos", "flattened_patches": "pictures cut into patches",
    "input_features": "sound", "input_values": "sound", "audio_values": "sound", "audio_input_ids": "sound",
    "bbox": "the position of each word on a page", "xpath_tags_seq": "the position of each word in a web page",
    "spatial_shapes": "the number of patches of each picture", "grid_thw": "the number of patches of each picture",
    "image_grid_thw": "the number of patches of each picture",
    "aspect_ratio_ids": "the shape of each picture", "pixel_position_ids": "the position of each patch",
    "past_values": "series of numbers", "context": "series of numbers",
    "states": "states, actions and returns of a game", "actions": "actions of a robot", "action_embeds": "actions",
    "hidden_states": "the states of another model", "inputs_embeds": "the states of another model",
    "query_embeds": "learned queries", "encoder_hidden_states": "the states of an encoder",
    "context_hidden_states": "the states of another model", "visual_feats": "the regions of a picture",
    "prompt_pixel_values": "pictures as examples", "patch_ids": "groups of bytes", "patch_embeds": "groups of bytes",
    "image_embeds_position_mask": "the position of a picture in the text", "target_sizes": "the size of each picture",
    "task_inputs": "a task in words", "table_ids": "a table",
    "point_coords": "points", "input_points": "points",
}  # fmt: skip
OTHER_FORM = {
    "spatial_shapes",
    "grid_thw",
    "image_grid_thw",
    "pixel_position_ids",
}  # beside patches, not a picture
LACKS = re.compile(
    r"NoneType|specif|provid|missing|required|is None|cannot be `None`|not-None|must be given"
)
STATES = (
    "inputs_embeds",
    "hidden_states",
    "encoder_hidden_states",
)  # what most models can be given, and none needs
READS = {
    "text": "a text",
    "pair": "a text and its target",
    "picture": "one picture",
    "sound": "a sound",
}
SUCH = {
    "text": "BERT or GPT-2",
    "pair": "T5 or BART",
    "picture": "ViT or DINOv2",
    "sound": "Whisper",
}


def not_taken(pretrained: Pretrained, batch: Mapping[str, Any], error: Exception) -> str:
    """Why a forward pass failed: the inputs that it needs and was not given, else its own words.

    The signature of the model's `forward` says what it needs and what else it can read.
    """
    name, reads, message = pretrained.name, pretrained.reads, str(error)
    takes = inspect.signature(pretrained.model.forward).parameters
    needs = [
        key
        for key, one in takes.items()
        if one.default is one.empty
        and key not in batch
        and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    what, lacks = READS[reads], "which this page does not have"
    books = getattr(text_config(pretrained.model), "num_codebooks", None) or 1
    ids = next((key for key in ("decoder_input_ids", "input_ids") if key in takes), None)
    more = [
        key
        for key in takes
        if key in INPUTS and key not in batch and (key not in STATES or f"`{key}`" in message)
    ]
    if pretrained.model.forward.__name__ == "_forward_unimplemented":
        why = "has no forward pass; only its parts have one"
    elif reads in ("text", "pair") and books > 1 and ids:
        codes = f"the codes of {books} codebooks at each step ({ids})"
        why = f"does not read {what}: it takes {codes}, {lacks}"
    elif needs and not batch.keys() & takes.keys():
        why = f"does not read {what}: it takes {_words(needs)}, {lacks}"
    elif needs:
        why = f"does not read {what} alone: it also needs {_words(needs)}, {lacks}"
    elif more and (LACKS.search(message) or OTHER_FORM & set(more)):
        why = f"cannot read {what} alone: it also reads {_words(more)}, {lacks}"
    else:
        why = f"does not take {what}: it fails with {quote(first_line(error))}"
    return f"{name} {why}. {_take(pretrained)}"


def _take(pretrained: Pretrained) -> str:
    return f"Take a model that reads {READS[pretrained.reads]}, such as {SUCH[pretrained.reads]}."


def _words(keys: Sequence[str]) -> str:
    """Inputs in words, each with its own name."""
    meant: dict[str, list[str]] = {}
    for key in keys:
        meant.setdefault(INPUTS.get(key, ""), []).append(key)
    return ", ".join(
        f"{what} ({', '.join(names)})" if what else ", ".join(names)
        for what, names in meant.items()
    )


KINDS: tuple[Kind, ...] = ("self", "causal", "cross")
SINK = "sink"
MAX_SUM = 1.01  # of a row of weights, with what rounding adds
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
    layers: list[One] = [(call.kind, call.weights, call.mask) for call in recorder.calls]
    recorded = {kind for kind, *_ in layers}
    layers += [one for one in _returned(output) if one[0] not in recorded]
    if not layers:
        fields = ("attentions", *(name for name, _ in RETURNED))
        returned = [
            one
            for name in fields
            for one in getattr(output, name, None) or ()
            if isinstance(one, Tensor)
        ]
        why = NO_MATRIX.get(str(pretrained.model.config.model_type)) or (
            f"it returned numbers of the shape {' × '.join(map(str, returned[0].shape))} instead of heads × rows × columns"
            if returned
            else "none of its layers called the attention of the library, and it returned no weights"
        )
        raise PretrainedError(
            f"{pretrained.name} has no attention to draw: {why}. {_take(pretrained)}"
        )
    numbers = numbers_by_layer(pretrained.model, recorder.calls)
    return tuple(
        _map(pretrained, reading, kind, layer, numbers.get((kind, layer), layer), *one)
        for kind in KINDS
        for layer, one in enumerate(one[1:] for one in layers if one[0] == kind)
    )


def _map(pretrained: Pretrained, reading: Reading, kind: Kind, layer: int, number: int, weights: Tensor,
         mask: Tensor | None) -> AttentionMap:  # fmt: skip
    rows, columns = reading.lines(kind)
    if weights.shape[-2:] != (len(rows), len(columns)):
        height, width = weights.shape[-2:]
        family = str(pretrained.model.config.model_type)
        why = NO_MATRIX.get(family, "they are not between the tokens that it was given")
        raise PretrainedError(
            f"{pretrained.name} returned maps of {height} × {width} for {len(rows)} × {len(columns)} tokens: {why}, so "
            f"they are not drawn. {_take(pretrained)}"
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
