"""Two texts, two models: attention held against attention, head by head and token by token."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError
from core.interpret import map_transform as difference, patching
from core.interpret.evidence import Question
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, model_inputs, reject_if
from core.pretrained.finetune import name_of
from core.pretrained.finetune_run import config_of, result
from core.runs.runs import LISTED, Run, list_runs

# Sentences and figures of the page.


SIDES = {
    "texts": ("Text A", "Text B"),
    "models": ("Model A", "Model B"),
    "untrained": ("Trained", "Untrained"),
}
MODES = {"texts": "Two texts", "models": "Two models", "untrained": "Trained and untrained"}


def fact_text(comparison: difference.Comparison, head: difference.HeadChange) -> str:
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads
    names = [f"{side.name[0].lower()}{side.name[1:]}" for side in sides]
    if sides[0].name == "Trained":
        names = [f"the {name} model" for name in names]
    changed = [lab.plain(name) for name in pair.keys if " / " in name] * names[0].startswith("text")
    out = (
        f"The texts differ in **{', '.join(changed[:3])}{' …' * (len(changed) > 3)}**. "
        if changed
        else ""
    )
    median = float(np.median([item.moved for item in heads]))
    out += (
        f"From {names[0]} to {names[1]}, head **{head.name}** (layer {head.number}, head {head.head}) moves "
        f"**{lab.number(head.moved)}** of its weight to other tokens; the median head {lab.number(median)}."
        if comparison.in_place
        else f"Head **{head.name}** of A is most like head **{head.other}** of B: they put "
        f"**{lab.number(1 - head.moved)}** of their weight on the same tokens; the median head {lab.number(1 - median)}."
    )
    if (cell := difference.most_different_cell(pair, head)) is None:
        return out
    first, second = (lab.share_text(weights[cell]) for weights, _ in difference.maps_of(pair, head))
    return (
        f"{out} In it, :primary[**{lab.plain(pair.queries[cell[0]])}**] puts **{first}** of its weight on "
        f"“{lab.plain(pair.keys[cell[1]])}” in {names[0]} and **{second}** in {names[1]}."
    )


def conditions(comparison: difference.Comparison, mode: str) -> str:
    pair, sides = comparison.pair, comparison.sides
    shared, rows = sum(None not in both for both in pair.rows), len(pair.rows)
    holds = {
        lab.plain(
            f"{sides[0].note} and {sides[1].note}" if mode == "models" else pair.first.source
        ): True,
        f"{shared} of {rows} rows are in both and are compared": True,
        "the models split words differently, so pieces are merged into words: summed over keys, "
        "averaged over queries": comparison.merged,
        "words that differ are paired by position": any(
            " / " in name and difference.NOTHING not in name for name in (*pair.queries, *pair.keys)
        ),
        "a token that is absent on one side is hatched there": shared < rows,
    }
    more = {
        " The position of a head means nothing across two models, so each head of A is compared with the most "
        "similar head of B.": not comparison.in_place,
        " Untrained weights are drawn as the model's family draws them before training.": mode
        == "untrained",
    }
    return "; ".join(filter(holds.get, holds)) + "." + "".join(filter(more.get, more))


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
    lab.Move(
        "Another word to copy",
        _texts("induction", "induction", "the old king saw the old", "the old queen saw the old"),
        "The last “old” is followed by what followed it before. Only the state at the word that differs carries the "
        "answer, until the heads of the last layer move it to the end.",
    ),
    lab.Move(
        "A word that is not repeated",
        _texts("induction", "induction", "the old king saw the old", "the young king saw the old"),
        "In text B the last word occurs only once, so nothing can be copied. The attention of layer 0 brings the "
        "answer back at “king”: it tells each word which word came before it. Layer 1 then finds “king”.",
    ),
    lab.Move(
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
    lab.Move(
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
    lab.Move(
        "Singular or plural",
        _texts("names", "names", "the dogs near the tree", "the dog near the tree"),
        "Another head, of layer 0, brings back most: at the word before the verb it attends to the subject and passes "
        "over the noun between them.",
    ),
    lab.Move(
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
    lab.Move(
        "One word of a sentence",
        _texts("all-MiniLM-L6-v2", "", "The cat sat on the mat.", "The dog sat on the mat."),
        "An embedding has no answer; the cosine with the embedding of text A is brought back instead. No single head "
        "does it: a sentence’s embedding is the mean of all its tokens.",
    ),
)


def patched(
    pair: patching.TextPair,
    direction: patching.Direction,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
    best: Sequence[tuple[patching.LayerKey, int, float]],
    names: Mapping[patching.LayerKey, str],
    agree: float | None,
) -> str:
    quantity = (
        "The cosine with the embedding of text A"
        if pair.clean.id is None
        else f"The logit of **{lab.plain(str(pair.clean.word))}** minus that of **{lab.plain(str(pair.clean.other))}**"
    )
    key, head, value = best[0]
    back = direction == "denoise"
    whole = (max if back else min)(effects, key=lambda one: effects[one].attention)
    one, every = (
        lab.percent(each if back else 1 - each) for each in (value, effects[whole].attention)
    )
    agrees = (
        ""
        if agree is None
        else f" Estimates from one gradient correlate with the heads’ effects by {lab.number(agree)}."
    )
    return (
        f"{quantity} is **{lab.signed(pair.clean.value)}** for text A and **{lab.signed(pair.corrupted.value)}** for text B. "
        f"{'From A into B' if back else 'From B into A'}, head **{names[key]}·H{head}** "
        f"{'brings back' if back else 'takes away'} **{one}** of the difference, and all heads of {names[whole]} "
        f"together **{every}**.{agrees}"
    )


# The controls: what is compared, the second side, the kind of attention, how heads are paired, and the head.


HEAD = "two_models:head"
FOLLOWS = "two_models:follows"  # the text B that was not written by a person
OLD_EXAMPLE = ", kept"  # the end of an example's name in older links
SECOND = {
    "writer": "When Mary and John went to the shop, Mary gave a book to",
    "numbers": "nine thousand three hundred and twelve ; forty-eight",
    "induction": "the old king walked to the dark house . the old king walked to the dark",
    "only-attention": "the cold river and the dark house . we saw the dark",
    "names": "when ann and ben went to the shop , ann gave the book to",
    "": "The animal didn't cross the street because it was too wide.",
}
FINE_TUNED = "Fine-tuned: "
EXAMPLE = "example"
MIN_SCALE = 0.01  # of the heads' grid: rounding alone is not drawn dark
RELATED = {  # the first model to compare with
    "writer": lab.EMBEDDED.name,  # which reads all of its words
    "names": "writer",
    "induction": "only-attention",
    "only-attention": "induction",
}
NOTE_SIGNS = 34  # of a text under a map


class Controls(lab.Fields, page="two_models"):
    mode = lab.Segmented[str](
        "Compare",
        lambda values: {**MODES, "texts": values.two},
        help="One model on two inputs, two models on one text, or a model and its untrained copy.",
        also={"wrap": True},
    )
    seed = lab.Number(
        "Seed of the untrained weights", 0, 0, 9999, help="Each seed gives other random weights."
    )
    model = lab.Select[str](
        "Model B",
        lambda values: list(values.models),
        key=lambda values: f"model:{values.ref.name}",
        hidden=True,
        old=lambda text, values: text.replace(OLD_EXAMPLE, f", {EXAMPLE}"),
        help="Also lists the models of the hub that were loaded in the field above.",
    )
    picture = lab.Select[str](
        "Picture B",
        lambda values: values.pictures,
        lambda values: values.pictures[:2][-1],
        help="The picture that is compared with the one above.",
    )
    text = lab.Text(
        "Text B",
        lambda values: values.usual,
        key=lambda values: f"text:{values.ref.name}",
        help="Words that both texts share are aligned; the others are shown side by side.",
    )
    kind = lab.Segmented(
        "Attention",
        lambda values: {kind: name for kind, name in lab.KINDS.items() if kind in values.kinds},
        lambda values: values.kinds[0],
        key=lambda values: f"kind:{len(values.kinds)}",
        help=lab.KIND_HELP,
        also={"label_visibility": "collapsed"},
    ).optional(lambda values: len(values.kinds) > 1)
    nearest = lab.Toggle(
        "Compare with the most similar head",
        # The heads of a fine-tuned model keep their positions.
        lambda values: not values.second.note.startswith(FINE_TUNED),
        help="Off: with the head at the same position, for a model that was trained from the other.",
    )
    direction = lab.Segmented[patching.Direction](
        "Direction",
        {
            "denoise": "Bring back: from A into B",
            "noise": "Take away: from B into A",
        },
        help="From A into B shows what is enough to bring A’s answer back; from B into A shows what A cannot do "
        "without.",
        also={"wrap": True},
    )


def draw_sides(
    choice: lab.ModelChoice, mode: str, into: st.delta_generator.DeltaGenerator
) -> tuple[lab.ModelRef, ModelInputs, tuple[difference.Side, difference.Side]]:
    """Draw the control of the second side; returns its model, its inputs, and what both sides read.

    PretrainedError where this model cannot be compared so.
    """
    model, ref, inputs, own = choice.model, choice.ref, choice.inputs, choice.reading
    names, notes = SIDES[mode], (model.name, "")
    if mode == "untrained":
        seed = int(Controls.draw("seed", into=into).seed)
        if (
            own.target is not None
        ):  # both decoders get the output of the trained one as their target
            inputs = replace(
                inputs,
                target=str(model.tokenizer.decode(list(own.target.ids), skip_special_tokens=True)),
            )
            own = lab.reading_of(ref, inputs)
        ref, notes = replace(ref, seed=seed), (model.name, f"seed {seed}")
    elif mode == "models":
        reject_if(
            not model.reads_text,
            f"{ref.name} reads a {model.reads}, and two models are compared on "
            "one text. Compare it trained and untrained, or choose a model that reads text.",
        )
        name, ref = _second_model(ref, into)
        reject_if(
            not (other := lab.load_model(ref)).reads_text,
            f"{name} reads a {other.reads}, and this compares two models on one text. Choose one "
            "that reads text.",
        )
        lab.say_notes(other, into)
        inputs, notes = replace(inputs, target=None), (model.name, name)
    elif model.reads == "picture":
        name = Controls.draw(
            "picture",
            into=into,
            pictures=list(
                model_inputs.pictures(int(getattr(model.model.config, "num_channels", 3)))
            ),
        ).picture
        inputs = ModelInputs(picture=model_inputs.picture(name))
        names, notes = ("Picture A", "Picture B"), ("", "")
    else:
        reject_if(
            model.reads == "sound",
            f"{ref.name} reads sound; compare it trained and untrained.",
        )
        text = _second_text(ref, inputs.text, into)
        notes = shorten(inputs.text), shorten(text)
        inputs = replace(inputs, text=text, target=None)
    first, second = map(difference.Side, names, notes, (own, lab.reading_of(ref, inputs)))
    return ref, inputs, (first, second)


def _second_text(ref: lab.ModelRef, first: str, into: st.delta_generator.DeltaGenerator) -> str:
    """Text B: until a person writes one, the example beside the model's own text A, else text A, to be changed."""
    state, key = st.session_state, Controls.text.key_of(Controls(ref=ref))
    example = first == model_inputs.text_of(ref.name)
    usual = SECOND.get(ref.name, SECOND[""]) if example else first
    if key in state and state[key] == state.get(FOLLOWS):
        state[key] = usual
    state[FOLLOWS] = usual
    text = Controls.draw("text", into=into, ref=ref, usual=usual).text
    if text == first:
        into.caption("Text B is text A so far: change a word.")
    return text


def _second_model(
    ref: lab.ModelRef, into: st.delta_generator.DeltaGenerator
) -> tuple[str, lab.ModelRef]:
    """Those that were fine-tuned from this model come first, other fine-tuned ones last."""
    runs = [
        run for run in reversed(list_runs(latest=LISTED)) if run.job == "finetune" and result(run)
    ][:5]
    tuned = [pair for run in (*runs, *lab.FINE_TUNED.values()) if (pair := _fine_tuned(run))]
    own, others = (
        {name: one for base, name, one in tuned if (base == ref) is mine} for mine in (True, False)
    )
    models = (
        own
        | {
            one.written: one
            for one in sorted(
                (*lab.local_models(), *map(lab.parse_model, lab.downloaded_models())),
                key=lambda one: one.name != RELATED.get(ref.name),
            )
            if one != ref and (one.source == "hub" or lab.load_model(one).reads_text)
        }
        | others
    )
    name = Controls.draw("model", into=into, models=models, ref=ref).model
    return name, models[name]


def _fine_tuned(run: Run) -> tuple[lab.ModelRef, str, lab.ModelRef] | None:
    """A run's base model, the name and the reference of the fine-tuned one; None while there is none."""
    with suppress(ConfigError):
        if ref := lab.load_fine_tune(run).tuned:
            base = config_of(run).model
            name = run.name if run.metadata().get("name") else f"{run.id[9:11]}:{run.id[11:13]}"
            shown = EXAMPLE if run in lab.FINE_TUNED.values() else name
            return lab.base_model(base), f"{FINE_TUNED}{name_of(base)}, {shown}", ref
    return None


def shorten(text: str) -> str:
    """The end of a text, where two texts mostly differ."""
    return text if len(text) <= NOTE_SIGNS else f"…{text[1 - NOTE_SIGNS :]}"


# What the page computes as Python.


MERGE = """from core.interpret.map_transform import transform_trace
from core.interpret.map_transform import token_transform


def of_words(reading, kind):
    trace = reading.trace.of(kind)  # pieces of a word are merged, since two models share only words
    return transform_trace(trace, token_transform(trace, *reading.lines(kind), words=True))

"""


def script(
    choice: lab.ModelChoice,
    mode: str,
    ref: lab.ModelRef,
    inputs: ModelInputs,
    comparison: difference.Comparison,
    head: difference.HeadChange,
) -> lab.Script:
    pair, own = comparison.pair, inputs if mode == "untrained" else choice.inputs
    if mode == "untrained":
        imports, name, made = {"from core.pretrained.load import untrained"}, "random", "inputs"
        load = f"random = untrained(model, seed={ref.seed})\n"
    else:
        imports, made = lab.inputs_lines(ref, inputs)
        name, load = "model", ""
        if mode == "models":
            name = "second_model"
            more, line = lab.model_lines(ref, name)
            imports, load = imports | more, f"{line}\n"
    merge, read = "", "{}.trace.of({!r})"
    if comparison.merged:
        merge, read = (
            MERGE,
            "of_words({}, {!r})",
        )
    one, two = (
        read.format(name, trace.map(0).kind)
        for name, trace in (("reading", pair.first), ("other", pair.second))
    )
    partner = (
        "changes(in_place=True)  # each beside the head of the same position"
        if comparison.in_place
        else "changes(in_place=False)  # each beside the most similar head"
    )
    first, last = (weights for weights, _ in difference.maps_of(pair, head))
    return lab.Script(
        (
            lab.model_cell(choice.ref, own),
            lab.Cell(
                {
                    "texts": "The same model on the other input.",
                    "models": "The other model on the same text.",
                    "untrained": "The same model with random weights.",
                }[mode],
                f"{lab.import_block(imports)}\n\n{load}other = read({name}, {made})",
            ),
            lab.Cell(
                "The tokens of both aligned, and how far every head moved, beside its partner.",
                f"""
import numpy as np

from core.interpret.map_transform import Aligned
{merge}
one, two = {one}, {two}
pair = Aligned.of(one, two)
heads = pair.{partner}
moved = np.array([each.moved for each in heads])  # share of the weight on other tokens
print("most apart:", max(heads, key=lambda each: each.moved).name, "median:", np.median(moved))
""",
                """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": each.number, "head": each.head, "moved": each.moved} for each in heads])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:O", color="moved:Q")
""",
                "two_models:grid",
            ),
            lab.Cell(
                "One head in both, and their difference.",
                f"""
head = next(each for each in heads if (each.layer, each.head) == {(head.layer, head.head)})
first, _ = pair.on_grid(0, head.layer, head.head)  # (T, S) on the aligned tokens
second, _ = pair.on_grid(1, *head.to)
print(head.name, "and", head.other, head.moved)
""",
                """
from dashboard.show import show_maps

show_maps({"first": first, "second": second, "second - first": second - first}, pair.queries, pair.keys)
""",
                f"two_models:maps:{comparison.kind}",
            ),
        ),
        {
            "moved": np.array([one.moved for one in comparison.heads]),
            "[each.difference for each in heads]": np.array(
                [one.difference for one in comparison.heads]
            ),
            "first": first,
            "second": last,
            "second - first": last - first,
            "head.moved": np.array(head.moved),
        },
    )


def patch_script(
    choice: lab.ModelChoice,
    second: ModelInputs,
    answers: Sequence[int | None],
    direction: patching.Direction,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
    estimates: Mapping[patching.LayerKey, np.ndarray],
) -> lab.Script:
    imports, made = lab.inputs_lines(choice.ref, second)
    for name, value in zip(("output", "contrast"), answers, strict=True):
        made += "" if value is None else f", {name}={value}"
    names = ("estimate_heads", "pair_of", "patch_source", "ranked")
    every = effects.values()
    results = {
        "[share for *_, share in best]": np.array(
            [one[-1] for one in patching.ranked(effects, direction)]
        ),
        **{
            f"np.concatenate([one.{name} for one in effects.values()])": np.concatenate(
                [getattr(one, name) for one in every]
            )
            for name in ("heads", "residual")
        },
        "[one.attention for one in effects.values()]": np.array([one.attention for one in every]),
    }
    if estimates:
        results["np.concatenate(list(estimates.values()))"] = np.concatenate(
            list(estimates.values())
        )
    return lab.Script(
        (
            lab.Cell(
                "Each part of one text's run, put into the other's: 0 is the answer to the second text, 1 that to the "
                "first.",
                f"""
{lab.import_block(imports | {f"from core.interpret.patching import {name}" for name in names})}

texts = pair_of(model, inputs, {made})
source = patch_source(texts, {direction!r})
effects = {{key: source.effect(key) for key in source.calls}}  # by (kind, layer)
estimates = estimate_heads(source)  # of heads, to first order
best = ranked(effects, {direction!r})  # (kind, layer), head, share
print(*best[:6], sep="\\n")
""",
                """
import altair as alt
import pandas as pd

cells = pd.DataFrame([{"layer": str(key), "head": index, "share": share} for key, index, share in best])
alt.Chart(cells).mark_rect().encode(x="head:O", y="layer:N", color="share:Q")
""",
                "two_models:patch:heads",
            ),
        ),
        results,
    )


# The section on patching: which part of one text's run, put into the other's, brings the answer back.


def section(choice: lab.ModelChoice, second: ModelInputs) -> None:
    st.markdown("## Which part carries the difference?")
    lab.caption(
        "One part of the model’s run on one text is put into its run on the other. 0 is the answer to text B, 1 that "
        "to text A: a part that changes the answer carries the difference. Parts that work against one another bring "
        "back less together."
    )
    model, ref = choice.model, choice.ref
    answers: list[int | None] = [None, None]
    with lab.input_errors():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            direction: patching.Direction = Controls.draw("direction", into=lab.HERE).direction
            if model.head != "none":
                answers = [
                    lab.output_field(
                        ref,
                        lab.baseline_of(ref, Question(inputs)),
                        f"Answer of text {side}",
                        f"answer:{side}",
                    )
                    for side, inputs in (("A", choice.inputs), ("B", second))
                ]
        about = ref, choice.inputs, second, tuple(answers), direction
        source = patching.with_model(lab.study_of(patching.patch_texts, *about), model)
        effects = lab.measure_with_progress(
            "two_models:patch", about, tuple(source.names), source.effect, "layers"
        )
        if effects:
            lab.add_script(
                partial(
                    patch_script, choice, second, answers, direction, effects, source.estimates
                ),
                "patching",
            )
            with lab.picture("two_models"):
                _draw_effects(ref, source, effects, direction)
            if choice.reading.note:  # such as which layers hold no attention
                lab.caption(lab.plain(choice.reading.note))
    lab.try_this("two_models", PAIRS)
    lab.details(
        "How parts are patched: source",
        partial(
            lab.sources,
            "",
            patching.pair_of,
            patching.patch_source,
            patching.PatchSource.effect,
            patching.estimate_heads,
        ),
        "two_models:patching",
    )


def _draw_effects(
    ref: lab.ModelRef,
    source: patching.PatchSource,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
    direction: patching.Direction,
) -> None:
    pair, estimates = source.pair, source.estimates
    names = {key: source.names[key] for key in effects}
    best = patching.ranked(effects, direction)
    heads, states = list[Recovered](), list[Recovered]()
    for key, effect in effects.items():
        layer = names[key]
        heads += [(layer, f"{at}", one, f"{layer}·H{at}") for at, one in enumerate(effect.heads)]
        heads.append((layer, "all", effect.attention, f"all heads of {layer}"))
        if effect.feed_forward is not None:
            heads.append((layer, "FF", effect.feed_forward, f"feed-forward of {layer}"))
        line = pair.clean.target if key[0] == "causal" and pair.clean.target else pair.clean.source
        states += [
            (layer, f"{at} {line.tokens[at]}", one, f"after {layer}, at {line.tokens[at]}")
            for at, one in enumerate(effect.residual)
        ]

    def pick(layer_name: str, head: int) -> None:
        kind, layer = next(key for key, name in names.items() if name == layer_name)
        lab.choose_head(ref, kind, (layer, head))
        lab.write_pair("head", (layer, head))

    lab.fact(patched(pair, direction, effects, best, names, patching.agreement(effects, estimates)))
    left, right = st.columns(2, gap="medium")
    inner = [column for _, column, *_ in heads if column == "FF"][:1]
    with left:
        lab.paragraph(
            "**Each head, all heads of a layer, and its feed-forward network (FF)**"
            if inner
            else "**Each head, and all heads of a layer**"
        )
        _grid(
            "heads",
            "What each patched part recovers of the answer",
            pick,
            heads,
            [*map(str, range(max(len(each.heads) for each in effects.values()))), "all", *inner],
            (names[best[0][0]], str(best[0][1])),
            "part",
            direction,
        )
    with right:
        lab.paragraph("**The state after each layer, at one token**")
        if states:
            _grid(
                "tokens",
                "What the residual stream at each token recovers of the answer",
                None,
                states,
                list(dict.fromkeys(column for _, column, *_ in states)),
                max(states, key=lambda cell: abs(float(cell[2]) - (direction == "noise")))[:2],
                "state",
                direction,
            )
        else:
            st.caption(
                "The layers of this model are one module, so their states cannot be told apart."
            )
    rows = [
        [
            f"{names[key]}·H{head}",
            lab.number(value),
            lab.number(float(estimates[key][head])) if key in estimates else "–",
        ]
        for key, head, value in best[:6]
    ]
    lab.details(
        f"The {len(rows)} heads with the largest effect, and their estimates",
        partial(
            lab.table,
            ["head", "measured", "estimate"],
            rows,
            caption="Heads with the largest effect",
        ),
        "two_models:patched",
    )


Recovered = tuple[str, str, float, str]  # layer, column, what the part recovers, and its name


def _grid(
    key: str,
    alt: str,
    pick: Callable[[str, int], object] | None,
    cells: Sequence[Recovered],
    columns: Sequence[str],
    picked: tuple[str, str],
    part: str,
    direction: patching.Direction,
) -> None:
    lab.effect_chart(
        f"two_models:patch:{key}",
        alt,
        pick,
        [
            {
                "layer": layer,
                "head": column,
                "change": float(value) - (direction == "noise"),
                "name": name,
                "by": lab.number(float(value)),
            }
            for layer, column, value, name in cells
        ],
        list(dict.fromkeys(layer for layer, *_ in cells)),
        columns,
        picked,
        title="brought back" if direction == "denoise" else "taken away",
        across="head" if part == "part" else "token",
        tips=(("name", part), ("by", "recovered")),
    )


# The page Two texts, two models: every head by how far it is apart, one head in both, and their difference.


def page() -> None:
    lab.title(
        "Two texts, two models",
        "Change a word of the text, or the model, and see which heads change.",
    )
    choice = lab.choose_model(needs=("model",), usual=lab.WRITES)
    if choice is not None:
        lab.fragment_unless_measuring(partial(_view, choice))
    lab.details(
        "How heads are compared: definitions and source",
        partial(
            lab.sources,
            r"""Tokens are aligned by the longest sequences that both texts share (Ratcliff and Obershelp, 1988).
The difference of two heads is the total variation between their rows, averaged:

$$
\mathrm{difference}(A, B) = \frac{1}{T}\sum_{i=1}^{T}\Big(1 - \sum_{j} \min(a_{ij}, b_{ij})\Big)
$$

A head that changed need not matter for the answer: the page Why this answer switches heads off to test it. On the changes by
fine-tuning see [Kovaleva 2019](https://arxiv.org/abs/1908.08593); on the difference between trained and random queries
and keys [Trockman 2023](https://arxiv.org/abs/2305.09828).""",
            difference.align,
            difference.Aligned.changes,
        ),
        "two_models:how",
    )


def _view(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        model, (left, right) = choice.model, st.columns([1.4, 1.6], vertical_alignment="bottom")
        mode = Controls.draw(
            "mode",
            into=left,
            two={"picture": "Two pictures", "sound": "Two sounds"}.get(model.reads, MODES["texts"]),
        ).mode
        ref, inputs, sides = draw_sides(choice, mode, right)
        if sides[1].reading.cut and sides[1].reading.cut != choice.reading.cut:
            st.warning(lab.plain(sides[1].reading.cut), icon=":material/content_cut:")
        for side in sides:
            if any((line := side.reading.source).unknown):
                lab.caption(f"{side.name}: {line.count}.")
        with st.container(
            horizontal=True, gap="medium", vertical_alignment="center", key="two_models:align"
        ):
            both = difference.kinds(*sides)
            compared = partial(
                lab.shared,
                _compared,
                tuple((side.name, side.note) for side in sides),
                ((choice.ref, inputs if mode == "untrained" else choice.inputs), (ref, inputs)),
                Controls.draw("kind", into=lab.HERE, kinds=both).kind or both[0],
            )
            comparison = compared(False)
            in_place = comparison.pair.same_shape
            if in_place and mode == "models":
                in_place = not Controls.draw("nearest", into=lab.HERE, second=sides[1]).nearest
        if in_place:
            comparison = compared(True)
        pair = comparison.pair
        by_pair = {(item.layer, item.head): item for item in comparison.heads}
        picked = lab.link_head(
            "two_models",
            (choice.ref, mode),
            choice.ref,
            {at: (comparison.kind, at) for at in by_pair},
            next(iter(by_pair)),
        )
        head = by_pair[picked]
        lab.add_script(partial(script, choice, mode, ref, inputs, comparison, head))
        _heads_apart(comparison, head)
        pin = lab.read_linked(
            "two_models",
            "pin",
            (len(pair.queries), len(pair.keys)),
            (choice.ref, choice.inputs, mode, ref, inputs, comparison.kind),
        )
        with _maps(comparison, head, pin):
            st.caption(conditions(comparison, mode))
        if mode == "texts" and model.reads_text:
            section(choice, replace(choice.inputs, text=inputs.text))


def _compared(
    names: Sequence[tuple[str, str]],
    read: Sequence[tuple[lab.ModelRef, ModelInputs]],
    kind: Kind,
    in_place: bool,
) -> difference.Comparison:
    """Both sides, by name and note, and by model and inputs."""
    first, second = (
        difference.Side(*name, lab.reading_of(*one)) for name, one in zip(names, read, strict=True)
    )
    pair, merged = difference.align_sides((first, second), kind)
    return difference.Comparison((first, second), pair, merged, in_place)


def _heads_apart(comparison: difference.Comparison, head: difference.HeadChange) -> None:
    heads = comparison.heads
    left, right = st.columns([0.38, 0.62], gap="medium")  # a phone shows the finding first
    numbers = {f"L{item.number}": item.layer for item in heads}
    # Of heads that have no common position, how alike they are
    shown = {item.name: item.moved if comparison.in_place else 1 - item.moved for item in heads}
    measure = "weight moved" if comparison.in_place else "weight on the same tokens"
    largest = max(shown.values())

    with left:
        lab.fact(fact_text(comparison, head))
        with st.container(horizontal=True):
            _figures(comparison)
    with right:
        lab.head_field(
            {item.name: (item.layer, item.head) for item in heads},
            (head.layer, head.head),
            HEAD,
            order=f", sorted by {measure}",
        )
        lab.effect_chart(
            "two_models:grid",
            f"The {measure} of each of {len(heads)} heads; the largest is that of {heads[0].name}",
            lambda layer, one: lab.write_pair("head", (numbers[layer], one)),
            [
                {
                    "layer": f"L{item.number}",
                    "head": str(item.head),
                    "change": shown[item.name],
                    "name": item.name,
                    "to": item.name if comparison.in_place else item.other,
                    "by": lab.number(shown[item.name]),
                }
                for item in heads
            ],
            [f"L{one}" for one in sorted({item.number for item in heads})],
            [str(one) for one in range(max(item.head for item in heads) + 1)],
            (f"L{head.number}", str(head.head)),
            title=f"{measure}, largest: {lab.number(largest)}",
            tips=(("name", "head"), ("to", "compared with"), ("by", measure)),
            has_sign=False,
            largest=max(largest, MIN_SCALE),
            more={"to": "compared with"},
        )


def _figures(comparison: difference.Comparison) -> None:
    heads = comparison.heads
    moved = [item.moved for item in heads]
    for name, value, meaning in (
        (
            "Overlap",
            lab.number(1 - float(np.mean(moved))),
            "The share of the weight on the same tokens, the mean of all heads; 1 where nothing differs.",
        ),
        (
            "Mean difference",
            lab.number(float(np.mean([item.difference for item in heads]))),
            "The mean absolute difference of a weight, over all cells of all heads.",
        ),
        (
            "Heads that differ by 0.25",
            f"{sum(change >= 0.25 for change in comparison.largest_changes)} of {len(heads)}",
            "Heads in which one weight at least differs by a quarter or more, between tokens that both sides have.",
        ),
    ):
        st.metric(name, value, help=meaning, width="content")


def _maps(
    comparison: difference.Comparison, head: difference.HeadChange, pin: lab.Pair | None
) -> st.delta_generator.DeltaGenerator:
    """Draw both maps, and the second minus the first where both have a token; returns the room beside that."""
    pair, sides, heads = comparison.pair, comparison.sides, comparison.heads

    def tiles(head: difference.HeadChange) -> list[lab.Tile]:
        maps, names = difference.maps_of(pair, head), (head.name, head.other)
        return [
            lab.Tile(
                f"{side.name}, {name}", side.note, weights, None if allowed.all() else allowed, at
            )
            for at, (side, name, (weights, allowed)) in enumerate(
                zip(sides, names, maps, strict=True)
            )
        ]

    first, second = shown = tiles(head)
    frames = None
    if lab.fits(len(heads), shown):
        frames = lab.Frames(
            HEAD, heads.index(head), list(map(tiles, heads)), [h.name for h in heads]
        )
    row, column = difference.most_different_cell(pair, head) or (None, None)
    common: Any = {
        "link": "two_models:pin",
        "pin": pin,
        "query": row,
        "column": column,
        "reads": lab.READS[comparison.kind],
        "height": 380,
        "absent": "absent",
    }
    lab.multiples(
        shown,
        pair.queries,
        pair.keys,
        key=f"two_models:maps:{comparison.kind}",
        frames=frames,
        fact=f"Head {head.name} of {sides[0].name} and {head.other} of {sides[1].name}",
        **common,
    )
    left, right = st.columns([0.42, 0.58], gap="medium")
    both = np.logical_and(*(allowed for _, allowed in difference.maps_of(pair, head)))
    mask = None if both.all() else both
    with left:
        lab.write_linked(
            "two_models",
            "pin",
            lab.difference_map(
                lab.Tile(second.name, "", second.weights, mask),
                lab.Tile(first.name, "", first.weights, mask),
                pair.queries,
                pair.keys,
                key=f"two_models:apart:{comparison.kind}",
                fact=f"{second.name} minus {first.name}",
                **common,
            ),
        )
    return right
