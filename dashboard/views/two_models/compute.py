"""Compare two texts of one model, two models on one text, or a model with its untrained copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from core.entries import ConfigError
from core.interpret.map_transform import (
    Aligned,
    HeadChange,
    MapTransform,
    group_by_word,
    transform_map,
)
from core.interpret.trace import AttentionTrace, Kind
from core.pretrained import ModelInputs, Pretrained, PretrainedError, Reading, read
from core.pretrained.finetune import name_of
from core.pretrained.finetune_run import config_of, is_fine_tune, result
from core.pretrained.load import untrained
from core.runs.runs import LISTED, Run, list_runs
from dashboard.runtime.fine_tune_data import EXAMPLE_RUNS, load_fine_tune
from dashboard.server.cache import model, shared
from dashboard.ui.fine_tuned_models import after, before
from dashboard.widgets.model_picker import (
    ModelChoice,
    ModelRef,
    load_model,
    local_models,
    reading_of,
)
from dashboard.widgets.model_picker.models import parse_model
from dashboard.widgets.model_picker.resolve import downloaded_models

MOST_CELLS = 512 * 512 * 2  # of a pair of maps that is still drawn cell by cell
FINE_TUNED = "Fine-tuned: "
EXAMPLE = "example"
LATEST = 5
NOTE_SIGNS = 34  # of a text under a map


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two sides: its name, a note on it, and its reading."""

    name: str
    note: str
    reading: Reading


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both sides, their aligned traces, and every head with its partner, the largest difference first.

    `merged`: pieces were merged into words. `in_place`: the partner is the head of the same position, else the nearest.
    """

    sides: tuple[Side, Side]
    pair: Aligned
    merged: bool
    in_place: bool

    @cached_property
    def heads(self) -> list[HeadChange]:
        return self.pair.in_place() if self.in_place else self.pair.nearest()


def read_sides(
    choice: ModelChoice, second: int | tuple[str, ModelRef] | ModelInputs
) -> tuple[Side, Side]:
    """Read both sides; `second` is a seed of untrained weights, a named model, a picture or a text."""
    if isinstance(second, int):
        return _with_untrained(choice, second)
    if isinstance(second, tuple):
        return _with_model(choice, *second)
    if second.picture is not None:
        return Side("Picture A", "", choice.reading), Side(
            "Picture B", "", reading_of(choice.ref, second)
        )
    inputs = replace(choice.inputs, text=second.text, target=None)
    return (
        Side("Text A", shorten(choice.inputs.text), choice.reading),
        Side("Text B", shorten(second.text), reading_of(choice.ref, inputs)),
    )


def _with_model(choice: ModelChoice, name: str, ref: ModelRef) -> tuple[Side, Side]:
    """PretrainedError when the other model reads no text."""
    other = load_model(ref)
    assert choice.pretrained is not None
    if not other.reads_text:
        raise PretrainedError(
            f"{name} reads a {other.reads}, and this compares two models on one text. Choose one "
            "that reads text."
        )
    return (
        Side("Model A", choice.pretrained.name, choice.reading),
        Side("Model B", name, reading_of(ref, replace(choice.inputs, target=None))),
    )


def _with_untrained(choice: ModelChoice, seed: int) -> tuple[Side, Side]:
    """The model and a copy with random weights."""
    assert choice.pretrained is not None
    inputs = untrained_inputs(choice)
    return (
        Side("Trained", choice.pretrained.name, reading_of(choice.ref, inputs)),
        Side("Untrained", f"seed {seed}", shared(_read_untrained, choice.ref, seed, inputs)),
    )


def untrained_inputs(choice: ModelChoice) -> ModelInputs:
    """The inputs of a model and its untrained copy: both decoders get the output of the trained one as their target."""
    assert choice.pretrained is not None
    if choice.reading.target is None:
        return choice.inputs
    target = choice.pretrained.tokenizer.decode(
        list(choice.reading.target.ids), skip_special_tokens=True
    )
    return replace(choice.inputs, target=str(target))


def _read_untrained(ref: ModelRef, seed: int, inputs: ModelInputs) -> Reading:
    return read(model(_untrained, ref, seed), inputs)


def _untrained(ref: ModelRef, seed: int) -> Pretrained:
    return untrained(load_model(ref), seed)


def second_models(choice: ModelChoice) -> dict[str, ModelRef]:
    """The models to compare with, by name: first those that were fine-tuned from this one."""
    runs = [run for run in reversed(list_runs(latest=LISTED)) if is_fine_tune(run) and result(run)][
        :LATEST
    ]
    tuned = [
        pair for run in (*runs, *EXAMPLE_RUNS.values()) if (pair := _fine_tuned(run)) is not None
    ]
    own = {name: ref for base, name, ref in tuned if base == choice.ref}
    others = {name: ref for base, name, ref in tuned if base != choice.ref}
    here = {ref.name: ref for ref in local_models() if load_model(ref).reads_text}
    here |= {name: parse_model(name) for name in downloaded_models()}
    here.pop(choice.ref.written, None)
    return {**own, **here, **others}


def _fine_tuned(run: Run) -> tuple[ModelRef, str, ModelRef] | None:
    """A run's base model, the name and the reference of the fine-tuned one; None while there is none."""
    ref = after(load_fine_tune(run))
    try:
        config = config_of(run)
    except ConfigError:
        return None
    if ref is None:
        return None
    base = name_of(config.model)
    name = run.name if run.metadata().get("name") else f"{run.id[9:11]}:{run.id[11:13]}"
    return (
        before(config.model),
        f"{FINE_TUNED}{base}, {EXAMPLE if run in EXAMPLE_RUNS.values() else name}",
        ref,
    )


def kinds(first: Side, second: Side) -> list[Kind]:
    """The kinds of attention that both have; where they share none, the first of the first one."""
    both = [kind for kind in first.reading.trace.kinds if kind in second.reading.trace.kinds]
    order: list[Kind] = [kind for kind in ("cross", "self", "causal") if kind in both]  # type: ignore[misc]
    return order or list(first.reading.trace.kinds[:1])


def align_sides(sides: tuple[Side, Side], kind: Kind) -> tuple[Aligned, bool]:
    """Both traces of a kind aligned, and whether pieces were merged into words (two models share only words).

    PretrainedError when the texts are too long.
    """
    first, second = sides
    second_kind = kind if kind in second.reading.trace.kinds else second.reading.trace.kinds[0]
    one, two = first.reading.trace.of(kind), second.reading.trace.of(second_kind)
    merged = first.name == "Model A" and one.map(0).keys != two.map(0).keys
    if merged:
        one, two = _words(first, kind, one), _words(second, second_kind, two)
    pair = Aligned.of(one, two)
    if len(pair.rows.pairs) * len(pair.columns.pairs) > MOST_CELLS:
        raise PretrainedError(
            f"Side by side these texts have {len(pair.rows.pairs):,} × {len(pair.columns.pairs):,} "
            "cells; at most 512 × 1,024 are drawn. Use shorter texts."
        )
    return pair, merged


def _words(side: Side, kind: Kind, trace: AttentionTrace) -> AttentionTrace:
    rows, columns = side.reading.lines(kind)
    transform = MapTransform(group_by_word(rows.word), group_by_word(columns.word))
    return AttentionTrace(
        tuple(transform_map(item, transform) for item in trace.maps), trace.source
    )


def shorten(text: str) -> str:
    """The end of a text, where two texts mostly differ."""
    return text if len(text) <= NOTE_SIGNS else f"…{text[1 - NOTE_SIGNS :]}"
