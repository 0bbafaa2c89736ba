"""The two sides that are compared: two texts of one model, two models on one text, or a model before it learned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.difference import Aligned
from core.entries import ConfigError
from core.finetune.models import name_of
from core.finetune.run import config_of, is_fine_tune, result
from core.map_transform import MapTransform, group_by_word, transform_map
from core.pretrained import ModelInputs, Pretrained, PretrainedError, Reading, read
from core.pretrained.untrained import untrained
from core.trace import AttentionTrace, Kind
from core.training.runs import Run, list_runs
from dashboard.runtime.cache import model, shared
from dashboard.runtime.fine_tune_data import EXAMPLE_RUNS, load_fine_tune
from dashboard.widgets.fine_tuned_models import after, before
from dashboard.widgets.model_picker import ModelChoice, ModelRef, load_model, local_models, reading_of
from dashboard.widgets.model_picker.models import parse_model
from dashboard.widgets.model_picker.resolve import downloaded_models

MOST_CELLS = 512 * 512 * 2  # of a pair of maps that is still drawn cell by cell
TUNED = "Fine-tuned: "
LATEST = 5


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two: what it is called, and what it read."""

    name: str
    note: str
    reading: Reading


def second_text(chosen: ModelChoice, text: str) -> tuple[Side, Side]:
    given = replace(chosen.inputs, text=text, target=None)
    return (Side("Text A", short(chosen.inputs.text), chosen.reading),
            Side("Text B", short(text), reading_of(chosen.ref, given)))


def second_picture(chosen: ModelChoice, given: ModelInputs) -> tuple[Side, Side]:
    return Side("Picture A", "", chosen.reading), Side("Picture B", "", reading_of(chosen.ref, given))


def second_model(chosen: ModelChoice, ref: ModelRef, name: str) -> tuple[Side, Side]:
    """PretrainedError when the other model takes something else."""
    other = load_model(ref)
    assert chosen.pretrained is not None
    if other.reads not in ("text", "pair"):
        raise PretrainedError(f"{name} reads a {other.reads}, and this compares two models on one text. Take one that "
                              "reads text.")
    return (Side("Model A", chosen.pretrained.name, chosen.reading),
            Side("Model B", name, reading_of(ref, replace(chosen.inputs, target=None))))


def with_untrained(chosen: ModelChoice, seed: int) -> tuple[Side, Side]:
    """The model, and one of its config with weights drawn by the seed; a decoder is given what the trained one said."""
    assert chosen.pretrained is not None
    given = chosen.inputs
    if chosen.reading.target is not None:
        target = chosen.pretrained.tokenizer.decode(list(chosen.reading.target.ids), skip_special_tokens=True)
        given = replace(given, target=str(target))
    return (Side("Trained", chosen.pretrained.name, reading_of(chosen.ref, given)),
            Side("Untrained", f"seed {seed}", shared(_read_untrained, chosen.ref, seed, given)))


def _read_untrained(ref: ModelRef, seed: int, given: ModelInputs) -> Reading:
    return read(model(_untrained, ref, seed), given)


def _untrained(ref: ModelRef, seed: int) -> Pretrained:
    return untrained(load_model(ref), seed)


def others(chosen: ModelChoice) -> dict[str, ModelRef]:
    """The models that can stand beside this one, by name: first those that were fine-tuned from it."""
    runs = [run for run in reversed(list_runs()) if is_fine_tune(run) and result(run)][:LATEST]
    tuned = [pair for run in (*runs, *EXAMPLE_RUNS.values()) if (pair := _tuned(run)) is not None]
    own = {name: ref for base, name, ref in tuned if base == chosen.ref}
    rest = {name: ref for base, name, ref in tuned if base != chosen.ref}
    here = {ref.name: ref for ref in local_models() if load_model(ref).reads in ("text", "pair")}
    here |= {name: parse_model(name) for name in downloaded_models()}
    here.pop(chosen.ref.written, None)
    return {**own, **here, **rest}


def _tuned(run: Run) -> tuple[ModelRef, str, ModelRef] | None:
    """What a run began with, what it is called, and the model that it ended with; None while there is none."""
    ref = after(load_fine_tune(run))
    try:
        config = config_of(run)
    except ConfigError:
        return None
    if ref is None:
        return None
    base = name_of(config.model)
    called = run.name if run.metadata().get("name") else f"{run.id[9:11]}:{run.id[11:13]}"
    return before(config.model), f"{TUNED}{base}, {'kept' if run in EXAMPLE_RUNS.values() else called}", ref


def kinds(first: Side, second: Side) -> list[Kind]:
    """The kinds of attention that both have; where they share none, the first of the first one."""
    both = [kind for kind in first.reading.trace.kinds if kind in second.reading.trace.kinds]
    order: list[Kind] = [kind for kind in ("cross", "self", "causal") if kind in both]  # type: ignore[misc]
    return order or list(first.reading.trace.kinds[:1])


def align_sides(first: Side, second: Side, kind: Kind) -> tuple[Aligned, bool]:
    """Both traces of a kind with their tokens aligned, and whether pieces were merged into words for that.

    Where two models cut a text in different ways, words are what they share. PretrainedError when it is too long.
    """
    other = kind if kind in second.reading.trace.kinds else second.reading.trace.kinds[0]
    one, two = _of(first, kind), _of(second, other)
    pieces = first.name == "Model A" and one.map(0).keys != two.map(0).keys
    if pieces:
        one, two = _words(first, kind, one), _words(second, other, two)
    pair = Aligned.of(one, two)
    if len(pair.rows.pairs) * len(pair.columns.pairs) > MOST_CELLS:
        raise PretrainedError(f"Side by side these texts have {len(pair.rows.pairs):,} × {len(pair.columns.pairs):,} "
                              "places; at most 512 × 1,024 are drawn. Take shorter ones.")
    return pair, pieces


def _of(side: Side, kind: Kind) -> AttentionTrace:
    return side.reading.trace.of(kind)


def _words(side: Side, kind: Kind, trace: AttentionTrace) -> AttentionTrace:
    rows, columns = side.reading.lines(kind)
    lens = MapTransform(group_by_word(rows.word), group_by_word(columns.word))
    return AttentionTrace(tuple(transform_map(item, lens) for item in trace.maps), trace.source)


def short(text: str, most: int = 34) -> str:
    """The end of a text, where two of them mostly differ."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
