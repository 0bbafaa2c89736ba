"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.interpret.map_transform import HeadChange
from core.interpret.patching import Direction, LayerEffect, LayerKey, ranked
from core.pretrained import ModelInputs
from dashboard.draw.scripts import Cell, Script
from dashboard.views.two_models.compute import Comparison, untrained_inputs
from dashboard.views.two_models.controls import Controls
from dashboard.widgets.model_picker import ModelChoice
from dashboard.widgets.model_picker.code import import_block, inputs_lines, model_cell, model_lines

OTHER = {
    "texts": "The same model on the other input.",
    "models": "The other model on the same text.",
    "untrained": "The same model with random weights.",
}
HEADS = "The tokens of both aligned, and how far every head moved, beside its partner."
HEAD = "One head in both, and their difference."
PATCHED = (
    "Each part of one text's run, put into the other's: 0 is the answer to the second text, 1 that to the "
    "first."
)


def script(
    choice: ModelChoice, controls: Controls, comparison: Comparison, head: HeadChange
) -> Script:
    """Both readings, every head's change, and the picked head's two maps."""
    kind, other_kind = (
        trace.map(0).kind for trace in (comparison.pair.first, comparison.pair.second)
    )
    inputs = untrained_inputs(choice) if controls.mode == "untrained" else choice.inputs
    partner = (
        "in_place()  # each beside the head of the same position"
        if comparison.in_place
        else "nearest()  # each beside the most similar head"
    )
    heads = f"""
import numpy as np

from core.interpret.map_transform import Aligned
{_merge(comparison)}
one, two = {_trace("reading", kind, comparison)}, {_trace("other", other_kind, comparison)}
pair = Aligned.of(one, two)
heads = pair.{partner}
moved = np.array([each.moved for each in heads])  # share of the weight on other tokens
print("most apart:", max(heads, key=lambda each: each.moved).name, "median:", np.median(moved))
"""
    maps = f"""
head = next(each for each in heads if (each.layer, each.head) == {(head.layer, head.head)})
first, _ = pair.on_grid(0, head.layer, head.head)  # (T, S) on the aligned tokens
second, _ = pair.on_grid(1, *head.to)
print(head.name, "and", head.other, head.moved)
"""
    draw = """
from core.show import show_maps

show_maps({"first": first, "second": second, "second - first": second - first}, pair.queries, pair.keys)
"""
    results = {
        "moved": np.array([one.moved for one in comparison.heads]),
        "[each.difference for each in heads]": np.array(
            [one.difference for one in comparison.heads]
        ),
        "first": comparison.pair.on_grid(0, head.layer, head.head)[0],
        "second": comparison.pair.on_grid(1, *head.to)[0],
        "second - first": comparison.pair.on_grid(1, *head.to)[0]
        - comparison.pair.on_grid(0, head.layer, head.head)[0],
        "head.moved": np.array(head.moved),
    }
    return Script(
        (
            model_cell(choice.ref, inputs),
            Cell(OTHER[controls.mode], _other(choice, controls, inputs)),
            Cell(HEADS, heads, _CHART, "two_models:grid"),
            Cell(HEAD, maps, draw, f"two_models:maps:{kind}"),
        ),
        results,
    )


def _other(choice: ModelChoice, controls: Controls, inputs: ModelInputs) -> str:
    """The reading of the second side."""
    second = controls.second
    if isinstance(second, int):
        return f"""
from core.pretrained.load import untrained

random = untrained(model, seed={second})
other = read(random, inputs)
"""
    if isinstance(second, tuple):
        imports, load = model_lines(second[1], "second_model")
        more, made = inputs_lines(second[1], replace(inputs, target=None))
        return f"{import_block(imports | more)}\n\n{load}\nother = read(second_model, {made})"
    second = (
        second if second.picture is not None else replace(inputs, text=second.text, target=None)
    )
    imports, made = inputs_lines(choice.ref, second)
    return f"{import_block(imports)}\n\nother = read(model, {made})"


def _merge(comparison: Comparison) -> str:
    return (
        ""
        if not comparison.merged
        else """from core.interpret.map_transform import transform_trace
from core.interpret.map_transform import token_transform


def of_words(reading, kind):
    trace = reading.trace.of(kind)  # pieces of a word are merged, since two models share only words
    return transform_trace(trace, token_transform(trace, *reading.lines(kind), words=True))

"""
    )


def _trace(reading: str, kind: str, comparison: Comparison) -> str:
    return (
        f"of_words({reading}, {kind!r})" if comparison.merged else f"{reading}.trace.of({kind!r})"
    )


def patch_script(
    choice: ModelChoice,
    second: ModelInputs,
    answers: Sequence[int | None],
    direction: Direction,
    effects: Mapping[LayerKey, LayerEffect],
    estimates: Mapping[LayerKey, np.ndarray],
) -> Script:
    """What each part of the layers that were patched recovers of the answer."""
    imports, made = inputs_lines(choice.ref, second)
    more = "".join(
        f", {name}={value}"
        for name, value in zip(("output", "contrast"), answers, strict=True)
        if value is not None
    )
    code = f"""
{
        import_block(
            imports
            | {
                f"from core.interpret.patching import {name}"
                for name in ("estimate_heads", "pair_of", "patch_source", "ranked")
            }
        )
    }

texts = pair_of(model, inputs, {made}{more})
source = patch_source(texts, {direction!r})
effects = {{key: source.effect(key) for key in source.calls}}  # by (kind, layer)
estimates = estimate_heads(source)  # of heads, to first order
best = ranked(effects, {direction!r})  # (kind, layer), head, share
print(*best[:6], sep="\\n")
"""
    results = {
        "[share for *_, share in best]": np.array(
            [share for *_, share in ranked(effects, direction)]
        )
    }
    for name in ("heads", "residual"):
        results[f"np.concatenate([one.{name} for one in effects.values()])"] = np.concatenate(
            [getattr(one, name) for one in effects.values()]
        )
    results["[one.attention for one in effects.values()]"] = np.array(
        [one.attention for one in effects.values()]
    )
    if estimates:
        results["np.concatenate(list(estimates.values()))"] = np.concatenate(
            list(estimates.values())
        )
    return Script((Cell(PATCHED, code, _PATCH_CHART, "two_models:patch:heads"),), results)


_CHART = """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": each.number, "head": each.head, "moved": each.moved} for each in heads])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:O", color="moved:Q")
"""
_PATCH_CHART = """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": str(key), "head": index, "share": share} for key, index, share in best])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:N", color="share:Q")
"""
