"""Pretrained models: the sentences of one row, of all heads and of the conditions, and the picture under a map."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.interpret.activations import Part
from core.interpret.map_transform import Sentences, TraceView, even, single_tokens
from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    Head,
    Similar,
    breadth,
    entropy,
    previous_token,
    strongest,
)
from core.pretrained import ModelInputs, Reading
from dashboard.draw.attention_view import (
    MIN_NEGATIVE,
    THUMB_PIXELS,
    Blocks,
    Patches,
    otherwise,
)
from dashboard.draw.components import Cell
from dashboard.draw.figures import SIGNED, WEIGHTS, Theme, colours_at
from dashboard.draw.formats import number, plain, share_text

SENTENCES: dict[Sentences, str] = {
    "all": "All",
    "ab": "A → B",
    "ba": "B → A",
    "aa": "within A",
    "bb": "within B",
}


def patches_of(view: TraceView, inputs: ModelInputs) -> Patches | None:
    """The picture and its patches, where all of these are keys or queries of the map, or both, in order."""
    lines = (view.columns, view.transform.columns), (view.rows, view.transform.rows)
    sides = [(len(line), line.grid, shown) for line, shown in lines if line.grid]
    if inputs.picture is None or not sides:
        return None
    size, grid, shown = sides[0]
    patches = single_tokens(size)[-grid[0] * grid[1] :]
    first = len(shown) - len(patches)
    if any(shown[first:] != patches for *_, shown in sides):
        return None
    return Patches(inputs.picture.numpy(), *grid, first, queries=view.columns.grid is None)


def called(tokens: tuple[str, ...], index: int) -> str:
    return plain(
        tokens[index] if tokens.count(tokens[index]) == 1 else f"{tokens[index]} ({index})"
    )


def head_fact(
    trace: AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None
) -> str:
    item = trace.map(layer)
    weights, keys = item.weights[head, row], item.keys
    order = [int(j) for j in np.argsort(-np.abs(weights), kind="stable")]
    first = order[0] if pinned is None else pinned
    also = "".join(
        f" and {share_text(weights[j])} from {called(keys, j)}"
        for j in [j for j in order if j != first][:1]
    )
    return (
        f"In head **{trace.name((layer, head))}**, :primary[**{called(item.queries, row)}**] takes "
        f"**{share_text(weights[first])}** from **{called(keys, first)}**{also}; {otherwise(item, head, row)}."
    )


def layer_text(item: AttentionMap) -> str:
    """What a layer reads, over all its heads and rows: the token itself, the one before, and the rest, by size."""
    size = len(item.queries)
    own = float(np.diagonal(item.shares, 0, 1, 2).mean())
    before = float(previous_token(item.shares).mean()) * (size - 1) / size
    uniform = float(np.mean([even(item, row) for row in range(size)]))
    return (
        f"Over all heads and rows, {item.layer_name} reads {share_text(own)} of its weight, by size, at the token itself, "
        f"{share_text(before)} at the one before and {share_text(max(0.0, 1 - own - before))} at others; even weights "
        f"would put {share_text(uniform)} on the token itself."
    )


def rivals_text(
    trace: AttentionTrace, layer: int, head: int, row: int, pinned: int | None = None
) -> str:
    """How many other heads put as much weight on the cell of `head_fact`, by size, and which puts most."""
    weights = np.abs(trace.map(layer).weights[head, row])
    first = int(weights.argmax()) if pinned is None else pinned
    others = [
        (float(abs(other.weights[h, row, first])), index, h)
        for index, other in enumerate(trace.maps)
        for h in range(len(other.weights))
        if (index, h) != (layer, head)
    ]
    if not others:
        return "The model has no other head."
    value, *best = max(others)
    best_head, count = f"{trace.name((best[0], best[1]))} with {number(value)}", len(others)
    stronger = sum(other >= float(weights[first]) for other, *_ in others)
    if weights[first] < 0.005:
        return f"The head that takes most from it is {best_head}."
    if stronger:
        return (
            f"{stronger} of {count} other head{'s' * (count != 1)} take{'s' * (stronger == 1)} at least as much from it; "
            f"the largest is {best_head}."
        )
    return (
        f"None of the other {count} heads takes as much from it; the next largest is {best_head}."
    )


def pins_fact(item: AttentionMap, head: int, pins: tuple[tuple[int, int], ...]) -> str:
    if len(pins) < 2:
        return ""
    text = "; ".join(
        f"{called(item.queries, i)} → {called(item.keys, j)} **{share_text(item.weights[head, i, j])}**"
        for i, j in reversed(pins[:-1])
    )
    return f"Also pinned: {text}."


def similar_text(trace: AttentionTrace, head: Head, others: Similar) -> str:
    """The head most like one, and what half of the others have in common with it."""
    (best, share), half = others[0], others[len(others) // 2][1]
    return (
        f"Most like {trace.name(head)} on this text is {trace.name(best)}: {share_text(share)} of their weight lies on the "
        f"same keys; half of the {len(others)} other heads have {share_text(half)} or less in common with it."
    )


def similar_cell(head: Head, others: Similar) -> Cell:
    return Cell(
        "The other heads by what their maps have in common with this one.",
        f"""
from core.interpret.trace import similar_heads

similar = similar_heads(trace, {head})
for other, share in similar[:5]:
    print(trace.name(other), round(share, 3))
""",
        results={"[share for _, share in similar[:5]]": [share for _, share in others[:5]]},
    )


def thumbnail(weights: np.ndarray, theme: Theme) -> np.ndarray:
    """A map (T, S) as RGB uint8, of about 120 pixels across, its largest weight darkest; negative ones purple."""
    if blocks := Blocks.of((len(weights), weights.shape[1]), None, THUMB_PIXELS):
        weights = blocks.weights(weights, None, "max")
    most = max(float(np.abs(weights).max()), 1e-9)
    signed = bool(weights.min() < MIN_NEGATIVE)
    shares = (weights / most + 1) / 2 if signed else weights / most
    rgb = colours_at((SIGNED if signed else WEIGHTS)[theme], shares)
    times = max(1, 120 // max(weights.shape))
    return rgb.round().astype(np.uint8).repeat(times, 0).repeat(times, 1)


def all_heads_fact(view: TraceView) -> str:
    """The head with most weight on the previous token, or, without an order, the sharpest one."""
    item = view.trace.map(0)
    if item.kind != "cross" and view.rows.grid is None and len(item.queries) == len(item.keys) >= 3:
        layer, head, value = strongest(view.trace, previous_token)
        share = float(np.mean([even(item, row) for row in range(1, len(item.queries))]))
        return (
            f"Of all heads, {view.trace.name((layer, head))} takes most from the previous token of this text, "
            f"{share_text(value)}; uniform attention would take {share_text(share)}."
        )
    if len(item.keys) < 2:
        return "With a single key, every weight is 1."
    layer, head, value = strongest(view.trace, lambda weights: 1 - breadth(weights))
    count = float(np.exp(entropy(view.trace.map(layer).shares[head : head + 1]).mean()))
    return (
        f"Of all heads, {view.trace.name((layer, head))} is the most focused: its rows use about "
        f"{number(count)} of {len(item.keys)} keys (e^entropy); uniform attention uses all."
    )


def conditions(reading: Reading, view: TraceView, options: Mapping[str, Any]) -> str:
    """Of what the maps are, and what `options`, those of `view_of`, changed in them."""
    counts = view.rows.count
    rows = "Each row of a softmax" if any(item.state for item in view.trace.maps) else "Each row"
    if view.rows is not view.columns:
        counts = f"rows: {counts}; columns: {view.columns.count}"
    hidden = len(view.columns) - sum(map(len, view.transform.columns))
    sinks = "Sinks are hidden." if hidden else "No key is a sink here."
    sentences = SENTENCES[options.get("sentences", "all")]
    parts = (
        (True, f"{plain(reading.trace.source)}, {counts}."),
        (
            "words" in options,
            "Pieces of a word are merged: summed over keys, averaged over queries.",
        ),
        ("sentences" in options, f"Sentences: {sentences} only."),
        ("sinks" in options, sinks),
        ("special" in options, "Special tokens are hidden."),
        (
            view.hides,
            f"{rows} is divided by what is left of it, so the weights shown are larger than the model's own.",
        ),
        (reading.note, plain(reading.note or "")),
        (
            view.rows.grid or view.columns.grid,
            "A patch is named by its row and its column, from 0: 2,1 is in row 2, column 1.",
        ),
        (True, "A weight shows where a head attends, not what the head does with the value there."),
    )
    return " ".join(sentence for holds, sentence in parts if holds)


PARTS: dict[Part, str] = {
    "resid": "Residual stream (resid)",
    "q": "Queries (q)",
    "k": "Keys (k)",
    "v": "Values (v)",
    "out": "Outputs of heads (out)",
}
ACTIVATIONS = (
    "The metadata of the file say which model, weights, text and tokens these are, of which module each tensor is, and "
    "what its axes are. To make it and read it back, after the first cells of this page as Python:"
)


def activations_code(name: str, parts: Sequence[Part], **given: object) -> str:
    """Python that writes the same file from `model` and `inputs`, and reads it back; `given` as in `activations_file`."""
    options = "".join(f", {key}={value!r}" for key, value in given.items() if value)
    return f"""from pathlib import Path

from safetensors import safe_open
from core.interpret.activations import activations_file

data = activations_file(model, inputs, {list(parts)}{options})
Path("{name}.safetensors").write_bytes(data)
with safe_open("{name}.safetensors", "pt") as file:
    print(file.metadata(), {{key: file.get_tensor(key).shape for key in file.keys()}})
"""
