"""Two texts, two models: attention held against attention, head by head and token by token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import map_transform as difference, patching
from core.interpret.evidence import Baseline, Question
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, model_inputs, read, reject_if
from dashboard.draw import two_models as draw


def tries() -> tuple[lab.Move, ...]:
    """The pairs of texts, as the session has them."""
    return tuple(
        lab.Move(
            title,
            lab.model_state(model, first)
            | Controls.state(
                mode="texts", text=second, ref=lab.parse_model(model), direction="denoise"
            ),
            about,
        )
        for title, model, first, second, about in draw.PAIRS
    )


# The controls: what is compared, the second side, the kind of attention, how heads are paired, and the head.


HEAD = "two_models:head"
OLD_EXAMPLE = ", kept"  # the end of an example's name in older links
FINE_TUNED = "Fine-tuned: "


class Controls(lab.Fields, page="two_models"):
    two: str  # of texts, pictures or sounds
    ref: lab.ModelRef
    models: dict[str, lab.ModelRef]
    pictures: tuple[str, ...]
    usual: str
    kinds: list[Kind]
    second: draw.Side

    mode = lab.Segmented[str](
        "Compare",
        lambda c: {**draw.MODES, "texts": c.two},
        help="One model on two inputs, two models on one text, or a model and its untrained copy.",
        also={"wrap": True},
    )
    seed = lab.Number(
        "Seed of the untrained weights", 0, 0, 9999, help="Each seed gives other random weights."
    )
    model = lab.Select[str](
        "Model B",
        lambda c: list(c.models),
        key=lambda c: f"model:{c.ref.name}",
        hidden=True,
        old=lambda text, values: text.replace(OLD_EXAMPLE, ", example"),
        help="Also lists the models of the hub that were loaded in the field above.",
    )
    picture = lab.Select[str](
        "Picture B",
        lambda c: c.pictures,
        lambda c: c.pictures[:2][-1],
        help="The picture that is compared with the one above.",
    )
    text = lab.Text(
        "Text B",
        lambda c: c.usual,
        key=lambda c: f"text:{c.ref.name}",
        help="Words that both texts share are aligned; the others are shown side by side.",
    )
    kind = lab.Segmented(
        "Attention",
        lambda c: {kind: name for kind, name in lab.KINDS.items() if kind in c.kinds},
        lambda c: c.kinds[0],
        key=lambda c: f"kind:{len(c.kinds)}",
        help=lab.KIND_HELP,
        also={"label_visibility": "collapsed"},
    ).optional(lambda c: len(c.kinds) > 1)
    nearest = lab.Toggle(
        "Compare with the most similar head",
        # The heads of a fine-tuned model keep their positions.
        lambda c: not c.second.note.startswith(FINE_TUNED),
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
    baseline: Baseline
    answer_a = lab.OutputField("Answer of text A", part="answer:A")
    answer_b = lab.OutputField("Answer of text B", part="answer:B")
    head = lab.HeadField(None)
    pin = lab.CellField("pin")
    follows = lab.SessionValue("")  # the text B that was not written by a person


Read = tuple[lab.ModelRef, ModelInputs]
Effects = Mapping[patching.LayerKey, patching.LayerEffect]


def draw_sides(
    choice: lab.ModelChoice, mode: str, into: lab.Place
) -> tuple[Read, Read, tuple[draw.Side, draw.Side]]:
    """Draw the control of the second side; returns the models and inputs of both, and what they read.

    PretrainedError where this model cannot be compared so.
    """
    model, ref, inputs, own = choice.model, choice.ref, choice.inputs, choice.inputs
    names, notes = draw.SIDES[mode], (model.name, "")
    if mode == "untrained":
        seed = int(Controls.draw("seed", into=into).seed)
        # both decoders get the output of the trained one as their target
        if (target := choice.reading.target) is not None:
            written = str(model.tokenizer.decode(list(target.ids), skip_special_tokens=True))
            own = inputs = replace(inputs, target=written)
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
        name = Controls.draw("picture", into=into, pictures=lab.pictures_for(model)).picture
        inputs = ModelInputs(picture=model_inputs.picture(name))
        names, notes = ("Picture A", "Picture B"), ("", "")
    else:
        reject_if(
            model.reads == "sound",
            f"{ref.name} reads sound; compare it trained and untrained.",
        )
        text = _second_text(ref, inputs.text, into)
        notes = draw.shorten(inputs.text), draw.shorten(text)
        inputs = replace(inputs, text=text, target=None)
    both = (choice.ref, own), (ref, inputs)
    first, second = map(draw.Side, names, notes, (lab.reading_of(*each) for each in both))
    return *both, (first, second)


def _second_text(ref: lab.ModelRef, first: str, into: lab.Place) -> str:
    """Text B: until a person writes one, the example beside the model's own text A, else text A, to be changed."""
    written = lab.SessionValue("", Controls.text.key_of(Controls(ref=ref)))
    example = first == model_inputs.text_of(ref.name)
    usual = draw.SECOND.get(ref.name, draw.SECOND[""]) if example else first
    # not in the session, it comes from the link
    if written.is_set and written.value == Controls.follows.value:
        written.value = usual
    Controls.follows.value = usual
    text = Controls.draw("text", into=into, ref=ref, usual=usual).text
    if text == first:
        into.caption("Text B is text A so far: change a word.")
    return text


def _second_model(ref: lab.ModelRef, into: lab.Place) -> tuple[str, lab.ModelRef]:
    """Those that were fine-tuned from this model come first, other fine-tuned ones last."""
    tuned = lab.tuned_models()
    own, others = (
        {f"{FINE_TUNED}{name}": one for base, name, one in tuned if (base == ref) is mine}
        for mine in (True, False)
    )
    models = (
        own
        | {
            one.written: one
            for one in sorted(
                (*lab.local_models(), *map(lab.parse_model, lab.downloaded_models())),
                key=lambda one: one.name != draw.RELATED.get(ref.name),
            )
            if one != ref and (one.source == "hub" or lab.load_model(one).reads_text)
        }
        | others
    )
    name = Controls.draw("model", into=into, models=models, ref=ref).model
    return name, models[name]


# The section on patching: which part of one text's run, put into the other's, brings the answer back.


def section(
    choice: lab.ModelChoice, second: ModelInputs
) -> tuple[patching.PatchSource | None, list[lab.Cell]]:
    """Draw the section; returns the patched run and the cell of its effects, none where there are none."""
    st.markdown("## Which part carries the difference?")
    lab.caption(
        "One part of the model’s run on one text is put into its run on the other. 0 is the answer to text B, 1 that "
        "to text A: a part that changes the answer carries the difference. Parts that work against one another bring "
        "back less together."
    )
    model, ref = choice.model, choice.ref
    answers: list[int | None] = [None, None]
    texts, cells = None, list[lab.Cell]()
    with lab.input_errors():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            direction: patching.Direction = Controls.draw("direction", into=lab.HERE).direction
            if model.head != "none":
                baselines = [lab.baseline_of(ref, Question(one)) for one in (choice.inputs, second)]
                answers = [
                    Controls.draw(name, into=lab.HERE, ref=ref, baseline=baseline)[name]
                    for name, baseline in zip(("answer_a", "answer_b"), baselines, strict=True)
                ]
        about = ref, choice.inputs, second, tuple(answers), direction
        studied = lab.study_of(patching.patch_texts, *about)
        source = patching.with_model(studied, model)
        effects = lab.measure_with_progress(
            "two_models:patch", about, tuple(source.names), source.effect, "layers"
        )
        if effects:
            texts, cells = studied, [draw.effects_cell(source, direction, effects)]
            with lab.picture("two_models"):
                _draw_effects(ref, source, effects, direction)
    lab.try_this("two_models", tries())
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
    return texts, cells


def _draw_effects(
    ref: lab.ModelRef, source: patching.PatchSource, effects: Effects, direction: patching.Direction
) -> None:
    pair, estimates = source.pair, source.estimates
    names = {key: source.names[key] for key in effects}
    best = patching.ranked(effects, direction)
    heads, states = draw.recovered(source, effects)

    def pick(layer_name: str, head: int) -> None:
        kind, layer = next(key for key, name in names.items() if name == layer_name)
        lab.choose_head(ref, kind, (layer, head))
        lab.write_pair("head", (layer, head))

    lab.fact(
        draw.patched_text(
            pair, direction, effects, best, names, patching.agreement(effects, estimates)
        )
    )
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
            [*map(str, range(max(len(one.heads) for one in effects.values()))), "all", *inner],
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
    rows, columns = draw.ranked_rows(best[:6], names, estimates), ["head", "measured", "estimate"]
    lab.details(
        f"The {len(rows)} heads with the largest effect, and their estimates",
        partial(lab.table, columns, rows, caption="Heads with the largest effect"),
        "two_models:patched",
    )


def _grid(
    key: str,
    alt: str,
    pick: Callable[[str, int], object] | None,
    cells: Sequence[draw.Recovered],
    columns: Sequence[str],
    picked: tuple[str, str],
    part: str,
    direction: patching.Direction,
) -> None:
    lab.effect_chart(
        f"two_models:patch:{key}",
        alt,
        pick,
        draw.recovered_rows(cells, direction),
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
        partial(lab.sources, draw.HOW, difference.align, difference.Aligned.changes),
        "two_models:how",
    )


def _view(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        model, (left, right) = choice.model, st.columns([1.4, 1.6], vertical_alignment="bottom")
        two = draw.TWO.get(model.reads, draw.MODES["texts"])
        mode = Controls.draw("mode", into=left, two=two).mode
        first, second, sides = draw_sides(choice, mode, right)
        if sides[1].reading.cut and sides[1].reading.cut != choice.reading.cut:
            st.warning(lab.plain(sides[1].reading.cut), icon=":material/content_cut:")
        for side in sides:
            if any((line := side.reading.source).unknown):
                lab.caption(f"{side.name}: {line.count}.")
        with st.container(
            horizontal=True, gap="medium", vertical_alignment="center", key="two_models:align"
        ):
            both = difference.kinds(*(side.reading for side in sides))
            kind = Controls.draw("kind", into=lab.HERE, kinds=both).kind or both[0]
            given = lab.Call(read, first), lab.Call(read, second), kind, mode == "models"
            comparison = lab.study_of(difference.compare, *given, False)
            in_place = comparison.pair.same_shape
            if in_place and mode == "models":
                in_place = not Controls.draw("nearest", into=lab.HERE, second=sides[1]).nearest
        if in_place:
            comparison = lab.study_of(difference.compare, *given, True)
        pair = comparison.pair
        by_pair = {(item.layer, item.head): item for item in comparison.heads}
        picked = Controls.head.shown(
            (choice.ref, mode),
            choice.ref,
            {at: (comparison.kind, at) for at in by_pair},
            next(iter(by_pair)),
        )
        head = by_pair[picked]
        _heads_apart(sides, comparison, head)
        pin = Controls.pin.pinned(
            (len(pair.queries), len(pair.keys)),
            (choice.ref, choice.inputs, mode, *second, comparison.kind),
        )
        with _maps(sides, comparison, head, pin):
            notes = dict.fromkeys(side.reading.note for side in sides)
            about = draw.conditions(sides, comparison, mode)
            st.caption(" ".join([about, *map(lab.plain, filter(None, notes))]))
        texts, cells = None, draw.cells(comparison, head)
        if mode == "texts" and model.reads_text:
            texts, more = section(choice, replace(choice.inputs, text=second[1].text))
            cells += more
        results: dict[str, Any] = {} if texts is None else {"texts": texts}
        first_reading, other = (side.reading for side in sides)
        lab.as_python(
            reading=first_reading, other=other, comparison=comparison, **results, also=cells
        )


def _heads_apart(
    sides: Sequence[draw.Side], comparison: difference.Comparison, head: difference.HeadChange
) -> None:
    heads = comparison.heads
    left, right = st.columns([0.38, 0.62], gap="medium")  # a phone shows the finding first
    numbers = {f"L{item.number}": item.layer for item in heads}
    measure = "weight moved" if comparison.in_place else "weight on the same tokens"
    rows = draw.head_rows(comparison)
    largest = max(float(row["change"]) for row in rows)
    with left:
        lab.fact(draw.fact_text(sides, comparison, head))
        with (
            lab.settings_panel("The whole comparison in numbers"),
            st.container(horizontal=True),
        ):
            for name, value, meaning in draw.figures(comparison):
                st.metric(name, value, help=meaning, width="content")
    with right:
        Controls.head.draw(
            {item.name: (item.layer, item.head) for item in heads},
            (head.layer, head.head),
            HEAD,
            order=f", sorted by {measure}",
        )
        lab.effect_chart(
            "two_models:grid",
            f"The {measure} of each of {len(heads)} heads; the largest is that of {heads[0].name}",
            lambda layer, one: lab.write_pair("head", (numbers[layer], one)),
            rows,
            [f"L{one}" for one in sorted({item.number for item in heads})],
            [str(one) for one in range(max(item.head for item in heads) + 1)],
            (f"L{head.number}", str(head.head)),
            title=f"{measure}, mean of all queries, largest: {lab.number(largest)}",
            tips=(("name", "head"), ("to", "compared with"), ("by", measure)),
            has_sign=False,
            largest=max(largest, 0.01),  # rounding alone is not drawn dark
            more={"to": "compared with"},
        )


def _maps(
    sides: Sequence[draw.Side],
    comparison: difference.Comparison,
    head: difference.HeadChange,
    pin: lab.Pair | None,
) -> lab.Place:
    """Draw both maps, and the second minus the first where both have a token; returns the room beside that."""
    pair, heads = comparison.pair, comparison.heads

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
        # the rows of a layer without softmax are not held against uniform ones
        "noun": "value" if pair.first.map(head.layer).state else "weight",
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
        Controls.pin.pin(
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
