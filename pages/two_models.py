"""Two models, two texts: attention held against attention, head by head and token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from core.entries import ConfigError
from core.interpret import map_transform as difference, patching
from core.interpret.map_transform import NOTHING, HeadChange
from core.interpret.patching import Direction, LayerEffect, LayerKey, TextPair, ranked
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, PretrainedError, example_inputs
from core.pretrained.answers import Answer, output_id
from core.pretrained.finetune import name_of
from core.pretrained.finetune_run import config_of, result
from core.runs.runs import LISTED, Run, list_runs
from core.studies.two_models import (
    Answers,
    Comparison,
    Side,
    align_sides,
    kinds,
    likely_outputs,
    most_different_cell,
    patch_texts,
)
from dashboard.draw.attention_view import READS
from dashboard.draw.formats import cell, number, percent, plain, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.multiples import Frames, Tile, difference_map, fits, multiples
from dashboard.draw.page_exports import Cell, Script, add_script
from dashboard.draw.palette import PAGE, Ink, Theme, colour_scale
from dashboard.draw.vega import PICKED, Spec, axis_style, layer, picking_grid
from dashboard.ui.fields import HERE, Fields, Number, Segmented, Select, Text, Toggle
from dashboard.ui.fine_tuned import EXAMPLE_RUNS, after, before, load_fine_tune
from dashboard.ui.links import BOUND, Pair, read_linked, read_pair, write_linked, write_pair
from dashboard.ui.model_picker import (
    KIND_HELP,
    KINDS,
    ModelChoice,
    choose_head,
    choose_model,
    current_head_of,
    downloaded_models,
    head_field,
    input_errors,
)
from dashboard.ui.models import (
    ModelRef,
    import_block,
    inputs_lines,
    load_model,
    local_models,
    model_cell,
    model_lines,
    one_thread,
    parse_model,
    reading_of,
    study_of,
)
from dashboard.ui.panels import (
    Move,
    caption,
    details,
    draw_chart,
    fact,
    next_page,
    paragraph,
    picture,
    pressed_point,
    room,
    sources,
    table,
    theme,
    title,
    try_this,
)
from dashboard.ui.progress import fragment_unless_measuring, measure_with_progress

# Sentences and figures of the page.


MODES = {"texts": "Two texts", "models": "Two models", "untrained": "Trained and untrained"}


def fact_text(comparison: Comparison, head: HeadChange) -> str:
    """The difference of the picked head, the median of all heads, and the cell that differs most."""
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads
    usual = float(np.median([item.moved for item in heads]))
    if comparison.in_place:
        out = f"Head **{head.name}** puts **{number(head.moved)}** of its weight on other tokens"
    else:
        out = (
            f"Head **{head.name}** of A and the most similar head of B, **{head.other}**, put "
            f"**{number(head.moved)}** of their weight on different tokens"
        )
    out += f"; the median of {len(heads)} heads is {number(usual)}."
    cell = most_different_cell(pair, head)
    if cell is None:
        return out
    (first, _), (second, _) = pair.on_grid(0, head.layer, head.head), pair.on_grid(1, *head.to)
    row, column = cell
    query, key = plain(pair.queries[row]), plain(pair.keys[column])
    sides_text = [
        f"the {side.name.lower()} model"
        if side.name in ("Trained", "Untrained")
        else side.name[0].lower() + side.name[1:]
        for side in sides
    ]
    return (
        f"{out} In it, :primary[**{query}**] puts **{number(first[row, column])}** of its weight on **{key}** in "
        f"{sides_text[0]} and **{number(second[row, column])}** in {sides_text[1]}."
    )


def figures(heads: Sequence[HeadChange]) -> list[tuple[str, str, str]]:
    """Name, number and meaning of the three summary figures."""
    moved = [item.moved for item in heads]
    return [
        (
            "Overlap",
            number(1 - float(np.mean(moved))),
            "The share of the weight on the same tokens, the mean of "
            "all heads; 1 where nothing differs.",
        ),
        (
            "Mean difference",
            number(float(np.mean([item.difference for item in heads]))),
            "The mean absolute difference of a weight, over all cells of all heads.",
        ),
        (
            "Heads that differ",
            f"{sum(one >= 0.25 for one in moved)} of {len(moved)}",
            "Heads with at least a quarter of their weight on other tokens.",
        ),
    ]


def conditions(comparison: Comparison, mode: str) -> str:
    """The conditions under which the numbers hold."""
    pair, sides = comparison.pair, comparison.sides
    shared, rows = len(pair.rows.both), len(pair.rows.pairs)
    models = f"{sides[0].note} and {sides[1].note}" if mode == "models" else pair.first.source
    out = [plain(models), f"{shared} of {rows} rows are in both and are compared"]
    if comparison.merged:
        out.append(
            "the models split words differently, so pieces are merged into words: summed over keys, "
            "averaged over queries"
        )
    if any(" / " in name and NOTHING not in name for name in (*pair.queries, *pair.keys)):
        out.append("words that differ are paired by position")
    if shared < rows:
        out.append("a token that is absent on one side is hatched there")
    text = "; ".join(out) + "."
    if not comparison.in_place:
        text += (
            " The position of a head means nothing across two models, so each head of A is compared with the most "
            "similar head of B."
        )
    if mode == "untrained":
        text += " Untrained weights are drawn as the model's family draws them before training."
    return text


DIRECTIONS: dict[Direction, str] = {
    "denoise": "Bring back: from A into B",
    "noise": "Take away: from B into A",
}
SCALE = {"denoise": "brought back", "noise": "taken away"}


def _texts(model: str, language: str, first: str, second: str) -> dict[str, str]:
    """The session's values for two texts of a model; `language` is that of its examples ("": English)."""
    return {
        "inside:model": model,
        "inside:language": language,
        "inside:text": first,
        "two_models:mode": "texts",
        f"two_models:text:{model}": second,
    }


PAIRS = (
    Move(
        "Another word to copy",
        _texts("induction", "induction", "the old king saw the old", "the old queen saw the old"),
        "The last “old” is followed by what followed it before. Only the state at the word that differs carries the "
        "answer, until the heads of the last layer move it to the end.",
    ),
    Move(
        "A word that is not repeated",
        _texts("induction", "induction", "the old king saw the old", "the young king saw the old"),
        "In text B the last word occurs only once, so nothing can be copied. The attention of layer 0 brings the "
        "answer back at “king”: it tells each word which word came before it. Layer 1 then finds “king”.",
    ),
    Move(
        "Which word came before",
        _texts(
            "only-attention",
            "only-attention",
            "the dark river and the cold house . we saw the dark",
            "the cold river and the dark house . we saw the dark",
        ),
        "“dark” and “cold” are swapped, so only what came before “river” and “house” differs. One head of layer 0, "
        "which attends to the word before, brings back most; the heads of layer 1 share the rest. What a head can do "
        "names the same heads by their weights alone.",
    ),
    Move(
        "Which of two names",
        _texts(
            "names",
            "names",
            "when ann and ben went to the shop , ben gave the book to",
            "when ann and ben went to the shop , ann gave the book to",
        ),
        "Only who gives differs. One head of layer 1 brings back all of the difference: it attends to the name that "
        "gives, and lowers it. The heads of layer 0 raise both names, in both texts.",
    ),
    Move(
        "Singular or plural",
        _texts("names", "names", "the dogs near the tree", "the dog near the tree"),
        "Another head, of layer 0, brings back most: at the word before the verb it attends to the subject and passes "
        "over the noun between them.",
    ),
    Move(
        "One number",
        _texts(
            "numbers",
            "numbers",
            "nine thousand three hundred and twelve",
            "nine thousand four hundred and twelve",
        ),
        "The answer is the first word of the two translations that differs. In the encoder the state at the changed "
        "word carries all of it; cross-attention moves it to the decoder.",
    ),
    Move(
        "One word of a sentence",
        _texts("all-MiniLM-L6-v2", "", "The cat sat on the mat.", "The dog sat on the mat."),
        "An embedding has no answer; the cosine with the embedding of text A is brought back instead. No single head "
        "does it: a sentence’s embedding is the mean of all its tokens.",
    ),
)


def share(value: float) -> str:
    """What a part recovers, as a number without a unit: 1 is all of the difference."""
    return signed(value) if value < 0 else number(value)


def patched(
    pair: TextPair,
    direction: str,
    effects: Mapping[LayerKey, LayerEffect],
    best: Sequence[tuple[LayerKey, int, float]],
    names: Mapping[LayerKey, str],
    agree: float | None,
) -> str:
    """The two runs, the head and the layer with the largest effect, and how well one gradient foretells the heads."""
    quantity = (
        "The cosine with the embedding of text A"
        if pair.clean.id is None
        else f"The logit of **{plain(str(pair.clean.word))}** minus that of **{plain(str(pair.clean.other))}**"
    )
    out = f"{quantity} is **{signed(pair.clean.value)}** for text A and **{signed(pair.corrupted.value)}** for text B. "
    key, head, value = best[0]
    whole = (max if direction == "denoise" else min)(
        effects, key=lambda one: effects[one].attention
    )
    attention = effects[whole].attention
    if direction == "denoise":
        out += (
            f"From A into B, head **{names[key]}·H{head}** brings back **{percent(value)}** of the difference, and "
            f"all heads of {names[whole]} together **{percent(attention)}**."
        )
    else:
        out += (
            f"From B into A, head **{names[key]}·H{head}** takes away **{percent(1 - value)}** of the difference, "
            f"and all heads of {names[whole]} together **{percent(1 - attention)}**."
        )
    return (
        out
        if agree is None
        else f"{out} Estimates from one gradient correlate with the heads’ effects by "
        f"{number(agree)}."
    )


# The controls: what is compared, the second side, the kind of attention, how heads are paired, and the head.


GRID, HEAD = "two_models:grid", "two_models:head"
OLD_EXAMPLE = ", kept"  # the end of an example's name in older links
SECOND = {
    "numbers": "nine thousand three hundred and twelve ; forty-eight",
    "induction": "the old king walked to the dark house . the old king walked to the dark",
    "only-attention": "the cold river and the dark house . we saw the dark",
    "names": "when ann and ben went to the shop , ann gave the book to",
    "": "The animal didn't cross the street because it was too wide.",
}
FINE_TUNED = "Fine-tuned: "
EXAMPLE = "example"
LATEST = 5  # fine-tunes listed
NOTE_SIGNS = 34  # of a text under a map
Second = (
    int | tuple[str, ModelRef] | ModelInputs
)  # a seed of untrained weights, a named model, or inputs
FIELDS = Fields(
    "two_models",
    mode=Segmented(
        "Compare",
        lambda values: {**MODES, "texts": values.two},
        help="One model on two inputs, two models on one text, or a model and its untrained copy.",
        also={"wrap": True},
    ),
    seed=Number(
        "Seed of the untrained weights", 0, 0, 9999, help="Each seed gives other random weights."
    ),
    model=Select(
        "Model B",
        lambda values: list(values.models),
        key=lambda values: f"model:{values.ref.name}",
        help="Also lists the models of the hub that were loaded in the field above.",
    ),
    picture=Select(
        "Picture B",
        lambda values: values.pictures,
        lambda values: values.pictures[:2][-1],
        help="The picture that is compared with the one above.",
    ),
    text=Text(
        "Text B",
        lambda values: SECOND.get(values.ref.name, SECOND[""]),
        key=lambda values: f"text:{values.ref.name}",
        help="Words that both texts share are aligned; the others are shown side by side.",
    ),
    kind=Segmented(
        "Attention",
        lambda values: {kind: name for kind, name in KINDS.items() if kind in values.kinds},
        lambda values: values.kinds[0],
        key=lambda values: f"kind:{len(values.kinds)}",
        when=lambda values: len(values.kinds) > 1,
        help=KIND_HELP,
        also={"label_visibility": "collapsed"},
    ),
    nearest=Toggle(
        "Compare with the most similar head",
        # The heads of a fine-tuned model keep their positions.
        lambda values: not values.second.note.startswith(FINE_TUNED),
        help="Off: with the head at the same position, for a model that was trained from the other.",
    ),
    direction=Segmented(
        "Direction",
        DIRECTIONS,
        help="From A into B shows what is enough to bring A’s answer back; from B into A shows what A cannot do "
        "without.",
        also={"wrap": True},
    ),
)


def draw_second(choice: ModelChoice, mode: str) -> Second:
    """Draw the control of the second side; PretrainedError where this model cannot be compared so."""
    model, ref = choice.pretrained, choice.ref
    assert model is not None
    if mode == "untrained":
        return int(FIELDS.draw("seed", into=HERE).seed)
    if mode == "models" and not model.reads_text:
        raise PretrainedError(
            f"{ref.name} reads a {model.reads}, and two models are compared on "
            "one text. Compare it trained and untrained, or choose a model that reads text."
        )
    if mode == "models":
        latest = reversed(list_runs(latest=LISTED))
        runs = [run for run in latest if run.job == "finetune" and result(run)][:LATEST]
        tuned = [pair for run in (*runs, *EXAMPLE_RUNS.values()) if (pair := _fine_tuned(run))]
        here = {one.name: one for one in local_models() if load_model(one).reads_text}
        here |= {name: parse_model(name) for name in downloaded_models()}
        here.pop(ref.written, None)
        models = {name: one for base, name, one in tuned if base == ref} | here
        models |= {name: one for base, name, one in tuned if base != ref}
        key = FIELDS.key("model", {"ref": ref})
        link = st.query_params.get(key, "")
        linked = f"{link.removesuffix(OLD_EXAMPLE)}, {EXAMPLE}"
        if linked in models and link.endswith(OLD_EXAMPLE):
            st.session_state[key] = linked
        name = FIELDS.draw("model", into=HERE, models=models, ref=ref).model
        return name, models[name]
    if model.reads == "picture":
        channels = int(getattr(model.model.config, "num_channels", 3))
        pictures = list(example_inputs.pictures(channels))
        name = FIELDS.draw("picture", into=HERE, pictures=pictures).picture
        return ModelInputs(picture=example_inputs.picture(name))
    if model.reads == "sound":
        raise PretrainedError(f"{ref.name} reads sound; compare it trained and untrained.")
    return ModelInputs(FIELDS.draw("text", into=HERE, ref=ref).text)


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


# The two sides.


def read_sides(choice: ModelChoice, second: Second) -> tuple[Side, Side]:
    """Read both sides; `second` is a seed of untrained weights, a named model, a picture or a text."""
    assert choice.pretrained is not None
    if isinstance(second, int):
        inputs = untrained_inputs(choice)
        return (
            Side("Trained", choice.pretrained.name, reading_of(choice.ref, inputs)),
            Side(
                "Untrained", f"seed {second}", reading_of(replace(choice.ref, seed=second), inputs)
            ),
        )
    if isinstance(second, tuple):
        name, ref = second
        if not (other := load_model(ref)).reads_text:
            raise PretrainedError(
                f"{name} reads a {other.reads}, and this compares two models on one text. Choose one "
                "that reads text."
            )
        return (
            Side("Model A", choice.pretrained.name, choice.reading),
            Side("Model B", name, reading_of(ref, replace(choice.inputs, target=None))),
        )
    if second.picture is not None:
        return Side("Picture A", "", choice.reading), Side(
            "Picture B", "", reading_of(choice.ref, second)
        )
    inputs = replace(choice.inputs, text=second.text, target=None)
    return (
        Side("Text A", shorten(choice.inputs.text), choice.reading),
        Side("Text B", shorten(second.text), reading_of(choice.ref, inputs)),
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


def shorten(text: str) -> str:
    """The end of a text, where two texts mostly differ."""
    return text if len(text) <= NOTE_SIGNS else f"…{text[1 - NOTE_SIGNS :]}"


def current_head(heads: Sequence[HeadChange], ref: ModelRef, mode: str, kind: Kind) -> HeadChange:
    """The head of the link, else the one picked on another page, else the first in rank."""
    if st.session_state.setdefault("two_models:of", (ref, mode)) != (ref, mode):
        st.session_state["two_models:of"] = ref, mode
        write_pair("head", None)  # another comparison is about other heads
    by_index = {(item.layer, item.head): item for item in heads}
    shape = max(layer for layer, _ in by_index) + 1, max(head for _, head in by_index) + 1
    linked, error = read_pair("head", shape)
    if error:
        st.warning(error)
    if linked in by_index:
        choose_head(ref, kind, linked)
        return by_index[linked]
    stored = current_head_of(ref, kind, shape)
    if stored in by_index:
        write_pair("head", stored)
        return by_index[stored]
    return heads[0]


def _choose(head: HeadChange, ref: ModelRef, kind: Kind) -> None:
    choose_head(ref, kind, (head.layer, head.head))
    write_pair("head", (head.layer, head.head))


# What the page computes as Python.


OTHER = {
    "texts": "The same model on the other input.",
    "models": "The other model on the same text.",
    "untrained": "The same model with random weights.",
}
HEADS = "The tokens of both aligned, and how far every head moved, beside its partner."
SCRIPT_HEAD = "One head in both, and their difference."
PATCHED = (
    "Each part of one text's run, put into the other's: 0 is the answer to the second text, 1 that to the "
    "first."
)


def script(
    choice: ModelChoice, mode: str, second: Second, comparison: Comparison, head: HeadChange
) -> Script:
    """Both readings, every head's change, and the picked head's two maps."""
    kind, other_kind = (
        trace.map(0).kind for trace in (comparison.pair.first, comparison.pair.second)
    )
    inputs = untrained_inputs(choice) if mode == "untrained" else choice.inputs
    partner = (
        "in_place()  # each beside the head of the same position"
        if comparison.in_place
        else "nearest()  # each beside the most similar head"
    )
    merge = (
        ""
        if not comparison.merged
        else """from core.interpret.map_transform import transform_trace
from core.interpret.map_transform import token_transform


def of_words(reading, kind):
    trace = reading.trace.of(kind)  # pieces of a word are merged, since two models share only words
    return transform_trace(trace, token_transform(trace, *reading.lines(kind), words=True))

"""
    )
    heads = f"""
import numpy as np

from core.interpret.map_transform import Aligned
{merge}
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
            Cell(OTHER[mode], _other(choice, second, inputs)),
            Cell(HEADS, heads, _CHART, "two_models:grid"),
            Cell(SCRIPT_HEAD, maps, draw, f"two_models:maps:{kind}"),
        ),
        results,
    )


def _other(choice: ModelChoice, second: Second, inputs: ModelInputs) -> str:
    """The reading of the second side."""
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


# The section on patching: which part of one text's run, put into the other's, brings the answer back.


PATCHING_HEADS, TOKENS = "two_models:patch:heads", "two_models:patch:tokens"
PARTS = {"all": "all heads", "FF": "feed-forward"}  # the columns after the heads
WHOLE, INNER = PARTS
LIKELIEST = "the most likely"
ROWS = 6
LayerNames = dict[LayerKey, str]


def section(choice: ModelChoice, second: ModelInputs) -> None:
    """Draw the section for the two texts of the page; what cannot be patched is said."""
    st.markdown("## Which part carries the difference?")
    caption(
        "Text A and text B get different answers. One part of a model’s run on one text is put into its run on the "
        "other: if the answer changes back, that part carries the difference. 0 is the answer to text B, 1 that to "
        "text A."
    )
    model = choice.pretrained
    assert model is not None
    try:
        with one_thread():
            answers, direction = _controls(choice, second)
            about = (choice.ref, choice.inputs, second, answers, direction)
            prepared = study_of(patch_texts, *about)
            source = prepared.at(model)
            effects = measure_with_progress(
                "two_models:patch", about, tuple(prepared.names), source.effect, "layers"
            )
    except PretrainedError as error:
        st.info(plain(str(error)))
    else:
        if effects:
            add_script(
                partial(
                    patch_script, choice, second, answers, direction, effects, prepared.estimates
                ),
                "patching",
            )
            with picture("two_models"):
                measured = {key: prepared.names[key] for key in effects}
                # Draw layers × heads and layers × tokens, and say which heads carry most
                estimates = prepared.estimates
                best = patching.ranked(effects, direction)
                has_inner = any(effect.feed_forward is not None for effect in effects.values())
                fact(
                    patched(
                        source.pair,
                        direction,
                        effects,
                        best,
                        measured,
                        patching.agreement(effects, estimates),
                    )
                )
                left, right = st.columns(2, gap="medium")
                with left:
                    paragraph(
                        "**Each head, all heads of a layer, and its feed-forward network (FF)**"
                        if has_inner
                        else "**Each head, and all heads of a layer**"
                    )
                    _heads(choice.ref, effects, measured, best, direction)
                with right:
                    paragraph("**The state after each layer, at one token**")
                    _tokens(source.pair, effects, measured, direction)
                rows = [
                    [
                        f"{measured[key]}·H{head}",
                        share(value),
                        share(float(estimates[key][head])) if key in estimates else "–",
                    ]
                    for key, head, value in best[:ROWS]
                ]
                details(
                    f"The {len(rows)} heads with the largest effect, and their estimates",
                    partial(
                        table,
                        ["head", "measured", "estimate"],
                        rows,
                        caption="Heads with the largest effect",
                    ),
                    "two_models:patched",
                )
    try_this("two_models", PAIRS)
    functions = (
        patching.pair_of,
        patching.patch_source,
        patching.PatchSource.effect,
        patching.estimate_heads,
    )
    details(
        "How parts are patched: source", partial(sources, "", *functions), "two_models:patching"
    )


def _controls(choice: ModelChoice, second: ModelInputs) -> tuple[Answers, Direction]:
    """Draw the two answers and the direction; PretrainedError for a text that has no answer."""
    model = choice.pretrained
    assert model is not None
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        direction: Direction = FIELDS.draw("direction", into=HERE).direction
    sides = [study_of(likely_outputs, choice.ref, inputs) for inputs in (choice.inputs, second)]
    if model.head == "none":
        return (None, None), direction
    first, other = (
        _answer(row, choice.ref, name, *side) for name, side in zip("AB", sides, strict=True)
    )
    return (first, other), direction


def _answer(
    row: st.delta_generator.DeltaGenerator,
    ref: ModelRef,
    side: str,
    answer: Answer,
    names: tuple[str, ...],
) -> int | None:
    """Draw the field of one answer; None for the likeliest of its text."""
    with row:
        name = st.selectbox(
            f"Answer of text {side}",
            [LIKELIEST, *names],
            accept_new_options=True,
            width=room(200),
            key=f"two_models:answer:{side}:{ref.name}",
            **BOUND,
            help="One of the two answers whose logits are compared. You can type another one.",
        )
    return None if name in (None, LIKELIEST) else output_id(load_model(ref), answer, str(name))


def _heads(
    ref: ModelRef,
    effects: Mapping[LayerKey, LayerEffect],
    names: Mapping[LayerKey, str],
    best: list[tuple[LayerKey, int, float]],
    direction: Direction,
) -> None:
    rows, most = [], max(len(effect.heads) for effect in effects.values())
    for key, effect in effects.items():
        cells = {
            **{str(head): float(value) for head, value in enumerate(effect.heads)},
            WHOLE: effect.attention,
        }
        if effect.feed_forward is not None:
            cells[INNER] = effect.feed_forward
        rows += [
            _cell(
                names[key],
                column,
                value,
                f"{names[key]}·H{column}"
                if column.isdecimal()
                else f"{PARTS[column]} of {names[key]}",
                direction,
            )
            for column, value in cells.items()
        ]
    has_inner = any(effect.feed_forward is not None for effect in effects.values())
    columns = [*map(str, range(most)), WHOLE, *([INNER] if has_inner else [])]
    picked = (names[best[0][0]], str(best[0][1]))
    keys = {name: key for key, name in names.items()}
    draw_chart(
        st,
        effect_grid(
            rows,
            list(names.values()),
            columns,
            picked,
            theme(),
            title=SCALE[direction],
            tips=(("name", "part"), ("by", "recovered")),
        ),
        key=PATCHING_HEADS,
        on_select=lambda: _pick(ref, keys),
        selection_mode=[PICKED],
        alt="What each patched part recovers of the answer",
    )


def _cell(
    layer: str, column: str, value: float, name: str, direction: Direction
) -> dict[str, object]:
    """A cell by what the part changes: what it brings back, or takes away."""
    return {
        "layer": layer,
        "head": column,
        "change": value if direction == "denoise" else value - 1,
        "name": name,
        "by": share(value),
    }


def _pick(ref: ModelRef, keys: Mapping[str, LayerKey]) -> None:
    """The pressed head becomes the page's head, whose attention in both texts is drawn above."""
    point = pressed_point(PATCHING_HEADS)
    if point and str(point["head"]).isdecimal():
        kind: Kind
        kind, layer = keys[point["layer"]]
        choose_head(ref, kind, (layer, int(point["head"])))
        st.query_params["head"] = f"{layer}.{point['head']}"


def _tokens(
    pair: TextPair,
    effects: Mapping[LayerKey, LayerEffect],
    names: Mapping[LayerKey, str],
    direction: Direction,
) -> None:
    rows, columns = [], dict[str, None]()
    for key, effect in effects.items():
        line = pair.clean.target if key[0] == "causal" and pair.clean.target else pair.clean.source
        for token, value in enumerate(effect.residual):
            column = f"{token} {line.tokens[token]}"
            columns[column] = None
            rows.append(
                _cell(
                    names[key],
                    column,
                    float(value),
                    f"after {names[key]}, at {line.tokens[token]}",
                    direction,
                )
            )
    if not rows:
        st.caption("The layers of this model are one module, so their states cannot be told apart.")
        return
    largest = max(rows, key=lambda row: abs(float(str(row["change"]))))
    layers = [name for key, name in names.items() if len(effects[key].residual)]
    draw_chart(
        st,
        effect_grid(
            rows,
            layers,
            list(columns),
            (str(largest["layer"]), str(largest["head"])),
            theme(),
            title=SCALE[direction],
            across="token",
            tips=(("name", "state"), ("by", "recovered")),
        ),
        key=TOKENS,
        alt="What the residual stream at each token recovers of the answer",
    )


# The page Two models, two texts: every head by how far it is apart, one head in both, and their difference.


TALL = 24  # pixels of a row
MAX_NUMBERS = 16  # heads in a layer, beyond which cells hold no numbers

LINK = "two_models:pin"
DEFINITIONS = r"""Tokens are aligned by the longest sequences that both texts share (Ratcliff and Obershelp, 1988).
The difference of two heads is the total variation between their rows, averaged:

$$
\mathrm{difference}(A, B) = \frac{1}{T}\sum_{i=1}^{T}\Big(1 - \sum_{j} \min(a_{ij}, b_{ij})\Big)
$$

A head that changed need not matter for the answer: the page Evidence switches heads off to test it. On the changes by
fine-tuning see [Kovaleva 2019](https://arxiv.org/abs/1908.08593); on the difference between trained and random queries
and keys [Trockman 2023](https://arxiv.org/abs/2305.09828)."""
HIGH = 380
ABSENT = "absent"


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Two models, two texts",
        "Compare attention head by head: change a word, take another model, or the same model untrained.",
    )
    choice = choose_model(needs=("model",))
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
    details(
        "How heads are compared: definitions and source",
        partial(sources, DEFINITIONS, difference.align, difference.weight_moved),
        "two_models:how",
    )
    next_page("two_models")


def _view(choice: ModelChoice) -> None:
    """Draw the controls and all that they change."""
    with input_errors():
        _comparison(choice)


def _comparison(choice: ModelChoice) -> None:
    row = st.columns([1.4, 1.6], vertical_alignment="bottom")
    two = {"picture": "Two pictures", "sound": "Two sounds"}.get(
        choice.pretrained.reads if choice.pretrained else "", MODES["texts"]
    )
    mode = FIELDS.draw("mode", into=row[0], two=two).mode
    with row[1]:
        second = draw_second(choice, mode)
    sides = read_sides(choice, second)
    if sides[1].reading.cut and sides[1].reading.cut != choice.reading.cut:
        st.warning(plain(sides[1].reading.cut), icon=":material/content_cut:")
    with st.container(
        horizontal=True, gap="medium", vertical_alignment="center", key="two_models:align"
    ):
        both = kinds(*sides)
        drawn = FIELDS.draw("kind", into=HERE, kinds=both).kind or both[0]
        pair, merged = align_sides(sides, drawn)
        in_place = pair.same_shape
        if in_place and mode == "models":
            in_place = not FIELDS.draw("nearest", into=HERE, second=sides[1]).nearest
    comparison = Comparison(sides, pair, merged, in_place)
    head = current_head(comparison.heads, choice.ref, mode, pair.first.map(0).kind)
    add_script(partial(script, choice, mode, second, comparison, head))
    of = choice.ref, choice.inputs, mode, second, pair.first.map(0).kind
    pin = read_linked("two_models", "pin", (len(pair.queries), len(pair.keys)), of)
    heads, kind = comparison.heads, comparison.pair.first.map(0).kind
    left, right = st.columns([0.64, 0.36], gap="medium", vertical_alignment="top")

    def pick_pressed() -> None:
        point = pressed_point(GRID)
        for item in heads:
            if point and item.name == point["name"]:
                _choose(item, choice.ref, kind)

    with left:
        head_field(
            {item.name: item for item in heads},
            head,
            lambda item: _choose(item, choice.ref, kind),
            HEAD,
            order=", sorted by their difference",
        )
        draw_chart(
            st,
            apart(heads, head, comparison.in_place, theme()),
            key=GRID,
            selection_mode=[PICKED],
            on_select=pick_pressed,
            alt=f"The difference of each of {len(heads)} heads; the largest is that of {heads[0].name}",
        )
    with right:
        for name, value, meaning in figures(heads):
            st.metric(name, value, help=meaning)
    _maps(comparison, head, pin)
    left, right = st.columns([0.42, 0.58], gap="medium")
    with left:
        write_linked("two_models", "pin", _difference(comparison, head, pin))
    with right:
        fact(fact_text(comparison, head))
        st.caption(conditions(comparison, mode))
    if (
        isinstance(second, ModelInputs)
        and choice.pretrained is not None
        and choice.pretrained.reads_text
    ):
        section(choice, replace(choice.inputs, text=second.text))


def _tiles(comparison: Comparison, head: HeadChange) -> list[Tile]:
    tiles = []
    indices, names = ((head.layer, head.head), head.to), (head.name, head.other)
    for which, side in enumerate(comparison.sides):
        weights, allowed = comparison.pair.on_grid(which, *indices[which])
        name = f"{side.name}, {names[which]}"
        tiles.append(Tile(name, side.note, weights, None if allowed.all() else allowed, which))
    return tiles


def _maps(comparison: Comparison, head: HeadChange, pin: Pair | None) -> None:
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads
    kind = pair.first.map(0).kind
    row, column = most_different_cell(pair, head) or (None, None)
    tiles, frames = _tiles(comparison, head), None
    if fits(len(heads), tiles):
        frames = Frames(
            HEAD,
            heads.index(head),
            [_tiles(comparison, each) for each in heads],
            [each.name for each in heads],
        )
    multiples(
        tiles,
        pair.queries,
        pair.keys,
        key=f"two_models:maps:{kind}",
        link=LINK,
        pin=pin,
        frames=frames,
        query=row,
        column=column,
        reads=READS[kind],
        height=HIGH,
        absent=ABSENT,
        fact=f"Head {head.name} of {sides[0].name} and {head.other} of {sides[1].name}",
    )


def _difference(comparison: Comparison, head: HeadChange, pin: Pair | None) -> Pair | None:
    """Draw the second map minus the first, where both have a token; returns the pinned cell."""
    pair = comparison.pair
    first, second = _tiles(comparison, head)
    both = (pair.on_grid(0, head.layer, head.head)[1]) & (pair.on_grid(1, *head.to)[1])
    mask = None if both.all() else both
    row, column = most_different_cell(pair, head) or (None, None)
    return difference_map(
        Tile(second.name, "", second.weights, mask),
        Tile(first.name, "", first.weights, mask),
        pair.queries,
        pair.keys,
        key=f"two_models:apart:{pair.first.map(0).kind}",
        link=LINK,
        height=HIGH,
        query=row,
        column=column,
        pin=pin,
        reads=READS[pair.first.map(0).kind],
        absent=ABSENT,
        fact=f"{second.name} minus {first.name}",
    )


# Layers × heads by how far each head is apart, as a Vega-Lite figure; makes no st call.


def apart(heads: Sequence[HeadChange], picked: HeadChange, in_place: bool, theme: Theme) -> Spec:
    """A cell a head of the first reading, in blue ink from 0 (the same) to 1 (nothing shared); a click picks one."""
    ink = Ink.of(theme)
    numbers = sorted({item.number for item in heads})
    across = max(item.head for item in heads) + 1
    rows = [
        {
            "layer": item.number,
            "head": item.head,
            "moved": item.moved,
            "name": item.name,
            "to": item.name if in_place else item.other,
            "text": number(item.moved),
            "short": cell(number(item.moved)),
        }
        for item in heads
    ]
    at = {
        "x": _band("head", list(range(across)), ink, "top"),
        "y": _band("layer", numbers, ink, "left"),
    }
    colour = {
        "field": "moved",
        "type": "quantitative",
        "scale": {"range": colour_scale(theme), "domain": [0, 1]},
        "legend": {
            "title": "share of the weight on other tokens",
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "gradientThickness": 8,
            "tickCount": 2,
            "labelColor": ink.quiet,
            "titleColor": ink.quiet,
            "titleFontWeight": "normal",
            "titleLimit": 300,
        },
    }
    tips = [
        {"field": name, "title": title}
        for name, title in (("name", "head"), ("to", "compared with"), ("text", "difference"))
    ]
    layers = [
        layer("rect", rows, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None)
    ]
    if across <= MAX_NUMBERS:
        text = {
            "condition": {"test": "datum.moved > 0.45", "value": PAGE[theme]},
            "value": ink.text,
        }
        layers.append(
            layer(
                "text",
                rows,
                {**at, "text": {"field": "short"}, "color": text},
                fontSize=11,
                tooltip=False,
            )
        )
    return picking_grid(
        layers, {"layer": picked.number, "head": picked.head}, at, ink, TALL, ["name"]
    )


def _band(name: str, values: Sequence[int], ink: Ink, orient: str) -> Spec:
    return {
        "field": name,
        "type": "ordinal",
        "title": name if orient == "top" else None,
        "scale": {"domain": list(values), "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "orient": orient,
            "labelAngle": 0,
            "titleAnchor": "start",
            "titlePadding": 2,
        },
    }
