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


# The controls: what is compared, the second side, the kind of attention, how heads are paired, and the head.


HEAD = "two_models:head"
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
MIN_SCALE = 0.01  # of the heads' grid: rounding alone is not drawn dark
RELATED = {  # the first model to compare with
    "writer": lab.EMBEDDED.name,  # which reads all of its words
    "names": "writer",
    "induction": "only-attention",
    "only-attention": "induction",
}


class Controls(lab.Fields, page="two_models"):
    two: str  # of texts, pictures or sounds
    ref: lab.ModelRef
    models: dict[str, lab.ModelRef]
    pictures: list[str]
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


def draw_sides(
    choice: lab.ModelChoice, mode: str, into: st.delta_generator.DeltaGenerator
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
        notes = draw.shorten(inputs.text), draw.shorten(text)
        inputs = replace(inputs, text=text, target=None)
    both = (choice.ref, own), (ref, inputs)
    first, second = map(draw.Side, names, notes, (lab.reading_of(*each) for each in both))
    return *both, (first, second)


def _second_text(ref: lab.ModelRef, first: str, into: st.delta_generator.DeltaGenerator) -> str:
    """Text B: until a person writes one, the example beside the model's own text A, else text A, to be changed."""
    written = lab.SessionValue("", Controls.text.key_of(Controls(ref=ref)))
    example = first == model_inputs.text_of(ref.name)
    usual = SECOND.get(ref.name, SECOND[""]) if example else first
    # not in the session, it comes from the link
    if written.is_set and written.value == Controls.follows.value:
        written.value = usual
    Controls.follows.value = usual
    text = Controls.draw("text", into=into, ref=ref, usual=usual).text
    if text == first:
        into.caption("Text B is text A so far: change a word.")
    return text


def _second_model(
    ref: lab.ModelRef, into: st.delta_generator.DeltaGenerator
) -> tuple[str, lab.ModelRef]:
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
                key=lambda one: one.name != RELATED.get(ref.name),
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
                answers = [
                    Controls.draw(
                        name,
                        into=lab.HERE,
                        ref=ref,
                        baseline=lab.baseline_of(ref, Question(inputs)),
                    )[name]
                    for name, inputs in (("answer_a", choice.inputs), ("answer_b", second))
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
    return texts, cells


def _draw_effects(
    ref: lab.ModelRef,
    source: patching.PatchSource,
    effects: Mapping[patching.LayerKey, patching.LayerEffect],
    direction: patching.Direction,
) -> None:
    pair, estimates = source.pair, source.estimates
    names = {key: source.names[key] for key in effects}
    best = patching.ranked(effects, direction)
    heads, states = list[draw.Recovered](), list[draw.Recovered]()
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
        two = {"picture": "Two pictures", "sound": "Two sounds"}.get(
            model.reads, draw.MODES["texts"]
        )
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
            st.caption(draw.conditions(sides, comparison, mode))
        texts, cells = None, draw.cells(comparison, head)
        if mode == "texts" and model.reads_text:
            texts, more = section(choice, replace(choice.inputs, text=second[1].text))
            cells += more
        results: dict[str, Any] = {"reading": sides[0].reading, "other": sides[1].reading}
        results["comparison"] = comparison
        if texts is not None:
            results["texts"] = texts
        lab.as_python(**results, also=cells)


def _heads_apart(
    sides: Sequence[draw.Side], comparison: difference.Comparison, head: difference.HeadChange
) -> None:
    heads = comparison.heads
    left, right = st.columns([0.38, 0.62], gap="medium")  # a phone shows the finding first
    numbers = {f"L{item.number}": item.layer for item in heads}
    # Of heads that have no common position, how alike they are
    shown = {item.name: item.moved if comparison.in_place else 1 - item.moved for item in heads}
    measure = "weight moved" if comparison.in_place else "weight on the same tokens"
    largest = max(shown.values())

    with left:
        lab.fact(draw.fact_text(sides, comparison, head))
        with st.container(horizontal=True):
            _figures(comparison)
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
    sides: Sequence[draw.Side],
    comparison: difference.Comparison,
    head: difference.HeadChange,
    pin: lab.Pair | None,
) -> st.delta_generator.DeltaGenerator:
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
