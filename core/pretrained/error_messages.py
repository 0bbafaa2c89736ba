"""Messages that explain why a model cannot be read or drawn."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.entries import quote
from core.pretrained.base import Pretrained, first_line, text_config

# Families without a matrix between tokens, and why; tests/pretrained/test_architectures.py builds each of them.
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
    name, reads = pretrained.name, pretrained.reads
    takes = inspect.signature(pretrained.model.forward).parameters
    if pretrained.model.forward.__name__ == "_forward_unimplemented":
        return f"{name} has no forward pass; only its parts have one. {_take(pretrained)}"
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
    if reads in ("text", "pair") and books > 1 and ids:
        return (
            f"{name} does not read {what}: it takes the codes of {books} codebooks at each step ({ids}), {lacks}. "
            f"{_take(pretrained)}"
        )
    if needs and not batch.keys() & takes.keys():
        return (
            f"{name} does not read {what}: it takes {_words(needs)}, {lacks}. {_take(pretrained)}"
        )
    if needs:
        return f"{name} does not read {what} alone: it also needs {_words(needs)}, {lacks}. {_take(pretrained)}"
    message = str(error)
    more = [
        key
        for key in takes
        if key in INPUTS and key not in batch and (key not in STATES or f"`{key}`" in message)
    ]
    if more and (LACKS.search(message) or OTHER_FORM & set(more)):
        return f"{name} cannot read {what} alone: it also reads {_words(more)}, {lacks}. {_take(pretrained)}"
    return f"{name} does not take {what}: it fails with {quote(first_line(error))}. {_take(pretrained)}"


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


def no_maps(pretrained: Pretrained, shapes: Sequence[tuple[int, ...]]) -> str:
    """Why there is no map at all: nothing came back, or nothing between tokens."""
    family = str(pretrained.model.config.model_type)
    why = NO_MATRIX.get(family) or (
        f"it returned numbers of the shape {' × '.join(map(str, shapes[0]))} instead of heads × rows × columns"
        if shapes
        else "none of its layers called the attention of the library, and it returned no weights"
    )
    return f"{pretrained.name} has no attention to draw: {why}. {_take(pretrained)}"


def other_size(pretrained: Pretrained, size: tuple[int, ...], lines: tuple[int, int]) -> str:
    """Why maps of one size do not stand for the tokens of another."""
    family = str(pretrained.model.config.model_type)
    why = NO_MATRIX.get(family, "they are not between the tokens that it was given")
    return (
        f"{pretrained.name} returned maps of {size[0]} × {size[1]} for {lines[0]} × {lines[1]} tokens: {why}, so "
        f"they are not drawn. {_take(pretrained)}"
    )


def no_weights(pretrained: Pretrained) -> str:
    """Why numbers that are no weights are not drawn as such."""
    return (
        f"{pretrained.name} returned numbers that are not weights: some are below 0, or rows sum to more than 1. "
        "Take a model that returns the output of its softmax, such as BERT."
    )
