"""Evidence: what the answer owes to each head, by six ways to take it away, and its weights beside other measures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError
from core.interpret import evidence, interventions, trace as flow
from core.interpret.corpus import CorpusConfig, has_training_data, inputs_of, shorten
from core.pretrained import (
    HeadSet,
    ModelInputs,
    Pretrained,
    PretrainedError,
    Reading,
    display_names,
    model_inputs,
    reject_if,
    with_sink,
)
from core.pretrained.finetune import LAB
from core.ranks import kendall
from dashboard.draw import evidence as draw

# Names of measurements
WITHOUT_HEADS, WITHOUT_TOKENS, MEANS = "evidence:heads", "evidence:tokens", "evidence:means"
TABLE = "evidence:ways"  # the panel of the table
MEAN_TEXTS = 30  # of a corpus: with all 300 the writer's effects change by at most 0.1 of 4.8
GROUP = 24  # heads that are measured between two looks at Stop
CORPORA = {
    "own": "The lab's sentences",
    "training": "Its training data",
    "texts": "Your own texts",
}
QUANTITIES: dict[str, evidence.Quantity | None] = {
    "automatic": None,
    "probability": "probability",
    "logit": "logit",
    "logit difference": "difference",
    "log-probability": "log-probability",
    "KL divergence": "kl",
}


class Controls(lab.Fields, page="evidence"):
    choice: lab.ModelChoice
    reading: Reading
    masked: int | None  # the position of a model that labels
    ref: lab.ModelRef
    baseline: evidence.Baseline
    heads: tuple[str, ...]  # and layers, by their names
    word = lab.masked_word("at")
    position = lab.answer_position()
    output = lab.OutputField(
        lambda c: f"{c.baseline.answer.output.split()[0].capitalize()} to measure"
    )
    contrast = lab.OutputField("Minus the logit of", part="contrast")
    head = lab.HeadField(None)
    model: str
    against = lab.Text(
        "Compared with the embedding of",
        "The exhausted creature stayed on its side of the road.",
        help="The page measures the cosine of both embeddings. Left empty, it measures the cosine with the "
        "text's own embedding, which is 1 until a head or a token is removed.",
    )
    quantity = lab.Select(
        "Measured as",
        options=QUANTITIES.keys(),
        help="A probability changes little near 0 and 1; a logit, the number before the softmax, still changes. "
        "The difference of two logits, the lead of the answer over a named other, leaves out what changes all of "
        "them. The KL divergence is of all answers from those of the full model. Automatic: the probability, or the "
        "logit where the most likely has more than 0.95.",
        also=lambda c: {"width": lab.room(170)},
    )
    ways: tuple[str, ...]
    way = lab.Segmented[str](
        "Without its information",
        lambda c: {way: interventions.BY_KEY[way].name for way in c.ways},
        "zero",
        help="Each way asks another question. "
        + "\n\n"
        + draw.asks(interventions.BY_KEY)
        + "\n\nAbove 0 the head helps the answer, by every way.",
        also={"wrap": True},
    )
    usual: str
    second = lab.Text(
        "Second text",
        lambda c: c.usual,
        key=lambda c: f"second:{c.model}",
        of=lambda c: c.usual,
        hidden=True,
        help="What a head writes on it is resampled, or gets what the head writes on the first text. A text that "
        "differs in one word asks for that difference.",
    )
    corpora: tuple[str, ...]
    corpus = lab.Select[str](
        "Mean over",
        lambda c: {name: CORPORA[name] for name in c.corpora},
        lambda c: c.corpora[0],
        of=lambda c: c.corpora,
        hidden=True,
        help=f"The mean output of a head is over all tokens of the first {MEAN_TEXTS} of these texts.",
    )
    lines = lab.Text("Your texts, one a line", lines=True, hidden=True).optional(
        lambda c: c.corpus == "texts"
    )
    pin, strip = lab.CellField("pin"), lab.CellField("strip")
    off = lab.MultiSelect[str](
        "Switched off as well",
        options=lambda c: c.heads,
        key=lambda c: f"off:{c.model}",
        help="Heads and layers that are switched off together with the picked head.",
    )


@dataclass(frozen=True, eq=False)
class Case:
    """The model, its reading, the question, and the answer to it; None for arrays without a model."""

    ref: lab.ModelRef
    reading: Reading
    question: evidence.Question
    baseline: evidence.Baseline | None
    way: str = "zero"
    ways: tuple[str, ...] = ()
    corpus: CorpusConfig | None = None  # of the mean; None where the model reads no text
    choice: lab.ModelChoice | None = None
    text: str = ""  # the second one
    word: int | None = None  # that is masked

    @property
    def key(self) -> tuple[lab.ModelRef, evidence.Question]:
        """What measurements belong to."""
        return self.ref, self.question

    @cached_property
    def second(self) -> evidence.Question:
        """The same question to the second text, in which the same word is masked; PretrainedError without that word."""
        assert self.choice is not None and self.baseline is not None
        own = replace(self.choice.inputs, text=self.text)
        inputs = replace(self.choice, inputs=own).masked(self.word)
        return interventions.second_question(self.baseline, inputs)

    @property
    def other(self) -> evidence.Baseline:
        """The answer to the second text."""
        reject_if(
            self.choice is None or self.text == self.choice.inputs.text,
            "The second text is the first one so far: change a word of it under “What is measured”.",
        )
        return lab.baseline_of(self.ref, self.second)

    @cached_property
    def maps(self) -> tuple[flow.AttentionMap, ...]:
        """With a column for a learned sink."""
        trace = self.reading.trace
        return (lab.computed(with_sink, trace) if self.reading.sinks else trace).maps

    @cached_property
    def layers(self) -> dict[tuple[str, int], str]:
        names = flow.layer_names({(item.kind, item.layer): item.layer_number for item in self.maps})
        return {(kind, layer): name for (kind, layer), name in names.items()}

    @cached_property
    def ids(self) -> dict[flow.Head, tuple[flow.Kind, int, int]]:
        return {
            (row, head): (item.kind, item.layer, head)
            for row, item in enumerate(self.maps)
            for head in range(len(item.weights))
        }

    @cached_property
    def heads(self) -> dict[flow.Head, str]:
        return {
            at: f"{self.layers[kind, layer]}·H{head}"
            for at, (kind, layer, head) in self.ids.items()
        }

    @cached_property
    def sharp(self) -> dict[flow.Head, float]:
        return evidence.sharpness(self.maps)

    @property
    def contributions(self) -> evidence.Contributions:
        if self.baseline is None:
            return lab.computed(evidence.Contributions, {}, {})
        return lab.answer_study(evidence.measure_contributions, *self.key)

    @property
    def estimates(self) -> dict[flow.Head, float]:
        return evidence.gradient_estimates(self.maps, self.contributions)


def draw_controls(choice: lab.ModelChoice) -> Case:
    model, ref, question = choice.pretrained, choice.ref, evidence.Question(choice.inputs)
    if model is None:
        return Case(ref, choice.reading, question, None)
    if model.head == "none" and model.reads == "text":
        question = replace(
            question, against=Controls.draw("against", into=lab.HERE).against.strip()
        )
    ways, word, way, second, corpus = ways_of(model), None, "zero", "", None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if ways:
            way = Controls.draw("way", into=lab.HERE, ways=ways).way
        needed = lab.SessionValue(False, TABLE).value, interventions.BY_KEY[way].needs
        holds = model.head != "none" or (model.reads_text and ways and needed != (False, "nothing"))
        with st.popover("What is measured", icon=":material/tune:") if holds else lab.HERE:
            if model.head == "masked":
                word = Controls.draw("word", into=lab.HERE, choice=choice).word
                question = evidence.Question(choice.masked(word))
            if model.head != "none":
                question = _draw_question(choice, model, question)
            if model.reads_text and ways:
                second, corpus = _draw_texts(choice, *needed)
    same = question.inputs == choice.inputs
    reading = choice.reading if same else lab.reading_of(ref, question.inputs)
    baseline = lab.baseline_of(ref, question)
    return Case(ref, reading, question, baseline, way, ways, corpus, choice, second, word)


def ways_of(model: Pretrained) -> tuple[str, ...]:
    """The ways to take a model's heads away: a mean and a second text are of texts, a direct term is of a token."""
    if not model.recordable:
        return ()
    without = set() if model.head in ("next", "masked", "seq2seq") else {"direct"}
    if not model.reads_text:
        without |= {way.key for way in interventions.WAYS if way.needs != "nothing"}
    return tuple(way for way in interventions.BY_KEY if way not in without)


def _draw_question(
    choice: lab.ModelChoice, model: Pretrained, question: evidence.Question
) -> evidence.Question:
    ref = choice.ref
    if model.head not in ("masked", "classify", "span"):
        own = lab.baseline_of(ref, question).answer.position if model.head == "label" else None
        given = {"reading": choice.reading, "masked": own}
        position = Controls.draw("position", into=lab.HERE, **given).position
        question = replace(question, position=position)
    baseline = lab.baseline_of(ref, question)
    output = Controls.draw("output", into=lab.HERE, ref=ref, baseline=baseline).output
    if output is not None and output != baseline.id:
        baseline = lab.baseline_of(ref, replace(question, output=output))
    question = replace(
        question,
        output=output,
        quantity=QUANTITIES[Controls.draw("quantity", into=lab.HERE).quantity],
    )
    if question.quantity == "difference":
        drawn = Controls.draw("contrast", into=lab.HERE, ref=ref, baseline=baseline)
        question = replace(question, contrast=drawn.contrast)
    return question


def _draw_texts(choice: lab.ModelChoice, table: bool, needs: str) -> tuple[str, CorpusConfig]:
    """The second text and the corpus of the mean; their controls are on the page where they change something."""
    name, text = choice.ref.name, choice.inputs.text
    example = text == model_inputs.text_of(name)
    trained = f"{LAB}{name}" if choice.ref.source == "lab" else ""
    trains = has_training_data(trained)
    given = {
        "model": name,
        "usual": draw.usual_second(name) if example else text,
        "corpora": ("training", "own", "texts") if trains else ("own", "texts"),
    }
    draw_or_read = Controls(**given).draw_or_read
    second = draw_or_read("second", opened=table or needs == "a second text").second
    drawn = draw_or_read("corpus", "lines", opened=table or needs == "a mean")
    lines = drawn.lines or ""
    return second, CorpusConfig(
        trained or "minilm", cast(Any, drawn.corpus), lines, count=MEAN_TEXTS
    )


# What is measured of the answer, for all sessions.


def _scores(ref: lab.ModelRef, question: evidence.Question) -> dict[str, np.ndarray]:
    return evidence.token_scores(
        lab.baseline_of(ref, question),
        lab.reading_of(ref, question.inputs).trace,
        lab.answer_study(evidence.measure_contributions, ref, question),
    )


def scores_of(case: Case) -> dict[str, np.ndarray]:
    return lab.shared(_scores, *case.key)


def _flow(ref: lab.ModelRef, inputs: ModelInputs, row: int, query: int | None) -> evidence.Flow:
    return evidence.flow_map(lab.reading_of(ref, inputs).trace, row, query)


def flow_of(case: Case, row: int, query: int) -> evidence.Flow | None:
    """The flow up to a map, to all queries or, of more than 48 tokens, to one; of more than 160 tokens none at all."""
    item = case.maps[row]
    longest = max(len(item.queries), len(item.keys))
    if longest > 160:
        return None
    to = None if longest <= 48 else query
    flowing = lab.shared(_flow, case.ref, case.question.inputs, row, to)
    return lab.recorded(evidence.flow_map, (case.reading.trace, row, to), flowing)


# The first figure: what the answer loses without each head, and the answer with several of them off.


def panel(label: str, opened: bool) -> lab.Place:
    """An expander of what comes after the first sight; open from a link that points into it."""
    first = lab.SessionValue(opened, f"evidence:open:{label}")
    first.value = first.value  # what it was when the page was opened
    return lab.settings_panel(label, opened=first.value)


Answers = Mapping[int | None, Mapping[str, float]]  # values by WAYS


def by_way(case: Case, way: str) -> Mapping[interventions.HeadKey, float]:
    """The effects of the heads that are measured so far; PretrainedError where they cannot be, by this way."""
    baseline, about, given = case.baseline, list[Any](case.key), dict[str, Any]()
    assert baseline is not None
    needs = interventions.BY_KEY[way].needs
    if needs == "a mean":
        with st.spinner("The texts of the mean are read."):  # the writer's take seconds
            texts, _ = lab.shared(inputs_of, case.corpus)
        short = shorten(baseline.pretrained)
        sums = lab.measure_with_progress(
            MEANS,
            (case.ref, case.corpus),
            range(len(texts)),
            lambda at: interventions.output_sums(short, texts[at]),
            "texts of the mean",
        )
        if len(sums) < len(texts):
            return {}
        given["means"] = interventions.mean_of(sums.values())
        about.append(case.corpus)
    elif needs == "a second text":
        given["other"] = case.other
        about.append(case.second)
    heads = tuple(case.ids.values())
    some_at_once = [heads[start : start + GROUP] for start in range(0, len(heads), GROUP)]
    measured = lab.measure_with_progress(
        f"evidence:by:{way}",
        tuple(about),
        [heads] if way == "direct" else some_at_once,
        lambda some: interventions.head_effects(baseline, way, some, **given),
        f"groups of {GROUP} heads",
    )
    return {head: effect for some in measured.values() for head, effect in some.items()}


def section(
    case: Case, baseline: evidence.Baseline
) -> tuple[flow.Head, Answers, Mapping[interventions.HeadKey, float]]:
    """Draw the section; returns the picked head, the answers without it and what else is off, and the effects."""
    todo = evidence.head_sets(case.reading.trace)
    zero = lab.measure_with_progress(
        WITHOUT_HEADS,
        case.key,
        todo,
        lambda off: evidence.ablate_heads(baseline, off),
        "heads and layers",
    )
    effects, before = zero, baseline.value
    # A phone shows them in this order
    left, right, last = st.columns([0.29, 0.43, 0.28], gap="medium")
    with right, lab.input_errors():
        if case.way != "zero":
            effects = {}
            if case.way == "patched":
                before = float(baseline.target_value(case.other.answer))
            effects = draw.way_effects(case.way, by_way(case, case.way), before)
    alone = _sorted(case, effects or zero)
    picked = _head(case, next(iter(alone)))
    count = len(case.heads)
    if effects:
        with right:
            _grid(case, before, effects, list(alone), picked)
        if len(alone) == count:
            with left:
                of_heads = case.heads, baseline, alone, picked
                lab.fact(
                    draw.heads_fact(*of_heads)
                    if case.way == "zero"
                    else draw.way_fact(case.way, *of_heads, before)
                )
    with panel("What the head contributes, and other heads", False):
        answers = _without(case, baseline, picked, zero, last)
        if len(alone) == count:
            alone = _sorted(case, zero)
            lab.caption(draw.sharpness_text(case.heads, case.sharp, case.estimates, alone))
    lab.details(
        "Each head by every way, and where they disagree",
        partial(_ways, case, picked, zero),
        TABLE,
    )
    by_head = {head: effect.drop for head, effect in evidence.single_heads(effects).items()}
    return picked, answers, by_head


def _sorted(
    case: Case, effects: Mapping[HeadSet, evidence.Effect]
) -> dict[flow.Head, evidence.Effect]:
    """The effects of single heads, the largest first."""
    at: dict[tuple[str, int, int], flow.Head] = {head: place for place, head in case.ids.items()}
    single = {at[head]: effect for head, effect in evidence.single_heads(effects).items()}
    return dict(sorted(single.items(), key=lambda item: -abs(item[1].drop)))


def _head(case: Case, default: flow.Head) -> flow.Head:
    return Controls.head.shown(
        case.ref,
        case.ref,
        {at: (kind, (layer, head)) for at, (kind, layer, head) in case.ids.items()},
        default,
    )


def _head_field(case: Case, picked: flow.Head) -> None:
    Controls.head.draw(
        {name: head for head, name in case.heads.items()},
        picked,
        f"evidence:head:{case.ref.name}",
    )


def _grid(
    case: Case,
    before: float,
    effects: Mapping[HeadSet, evidence.Effect],
    ranked: list[flow.Head],
    picked: flow.Head,
) -> None:
    layers = list(case.layers.values())
    rows = draw.effect_rows(case.layers, effects, ranked, len(case.heads), before)
    whole = [draw.LAYER] if case.way == "zero" else []
    st.markdown(
        f"**{draw.TITLES[case.way]}**",
        help=f"{interventions.BY_KEY[case.way].asks} Above 0 the head helps the answer; a head with no effect by itself "
        "may be one of several that do the same. The numbers are of what is measured: a logit or a cosine has no unit. "
        "Those below 8 % of the largest are not written.",
    )
    lab.effect_chart(
        "evidence:grid",
        "What the answer loses without each head",
        lambda layer, head: lab.write_pair("head", (layers.index(layer), head)),
        rows,
        layers,
        [*map(str, range(max(len(item.weights) for item in case.maps))), *whole],
        (layers[picked[0]], str(picked[1])),
        title="helps the answer by",
        tips=[("name", "head"), ("now", "answer"), ("by", "helps by"), ("share", "rank")],
        largest=max(abs(row["change"]) for row in rows),
        more={"answer": "answer", "rank": "rank"},
    )
    if whole:
        lab.caption("“all”: the whole layer.")
    elif case.way == "mean" and case.corpus is not None:
        texts, notes = lab.shared(inputs_of, case.corpus)
        source = CORPORA[case.corpus.source].lower()
        lab.caption(f"Mean over {lab.plural(len(texts), 'text')}: {source}. {' '.join(notes)}")
    elif interventions.BY_KEY[case.way].needs == "a second text":
        lab.caption(draw.second_text(case.text, lab.baseline_of(*case.key), case.other))


def _without(
    case: Case,
    baseline: evidence.Baseline,
    picked: flow.Head,
    effects: Mapping[HeadSet, evidence.Effect],
    place: lab.Place,
) -> Answers:
    """Draw what is measured, and at a place the answers without the picked head and those that a person adds to it.

    By other ways than zero and uniform there are no such answers.
    """
    name = case.heads[picked]
    options = {
        f"all of {layer}": frozenset({(*about, None)}) for about, layer in case.layers.items()
    } | {name: frozenset({case.ids[head]}) for head, name in case.heads.items()}
    alone: HeadSet = options[name]
    even = lab.answer_study(evidence.make_heads_uniform, *case.key, alone)
    without = effects.get(alone) or evidence.ablate_heads(baseline, alone)
    st.caption(draw.measured_text(baseline))
    lab.paragraph(draw.even_fact(baseline, name, even, without))
    if case.way not in ("zero", "uniform"):  # the chart is of these two
        with place:
            _head_field(case, picked)
        return {}
    place.markdown(
        f"**{'The similarity' if baseline.id is None else 'The likeliest answers'}**",
        help="On: the whole model. Off: without the head. Uniform: the head gives the same weight to every key that "
        "it may attend to; it still writes its values, but no longer chooses among them.",
    )
    chart = place.container()
    with place.popover("Heads"):
        _head_field(case, picked)
        others = Controls.draw("off", into=lab.HERE, heads=tuple(options), model=case.ref.name).off
    others = [other for other in others if other != name]
    off: HeadSet = alone.union(*(options[other] for other in others))
    answers = lab.answer_study(evidence.answers_without, *case.key, off)
    words = lab.distinct(
        display_names(
            baseline.pretrained, baseline.answer, [id for id in answers if id is not None]
        )
    ) or ["similarity"]
    lab.draw_chart(
        chart,
        draw.before_after(
            draw.answer_rows(words, answers),
            words,
            lab.Ink.of(lab.theme()),
            draw.unit_of(baseline),
        ),
        key="evidence:bars",
        alt="The likeliest tokens with and without the picked head",
    )
    if others:
        added = sum(effects[one].drop for head in off if (one := frozenset({head})) in effects)
        effect = effects.get(off) or evidence.ablate_heads(baseline, off)
        place.caption(
            lab.plain(
                f"Off: {', '.join([name, *others])}. Together they help the answer by "
                f"{lab.signed(effect.drop)}; one at a time, by {lab.signed(added)} in all."
            )
        )
    return answers


def _ways(case: Case, picked: flow.Head, zero: Mapping[HeadSet, evidence.Effect]) -> None:
    """The table of heads × ways, what each asks, and how far they agree."""
    measured, errors = dict[str, Mapping[interventions.HeadKey, float]](), dict[str, str]()
    for way in case.ways:
        try:
            measured[way] = (
                by_way(case, way)
                if way != "zero"
                else {head: effect.drop for head, effect in evidence.single_heads(zero).items()}
            )
        except (PretrainedError, ConfigError) as error:
            errors[way] = str(error)
    lab.paragraph(draw.disagreement(case.heads[picked], case.ids[picked], measured))
    table = case.ids, case.heads, measured, case.ids[picked], case.estimates, case.sharp
    columns = draw.ways_table(*table)
    lab.table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        caption="Heads by their effect on the answer, by every way",
        markers=False,
    )
    for way, why in errors.items():
        st.caption(lab.plain(f"{interventions.BY_KEY[way].name}: {why}"))
    lab.caption(
        "Above 0 a head helps the answer, by every way and in the same unit. Below, Spearman’s ρ between the orders of "
        "all heads: 1 is the same order, 0 no relation."
    )
    known = {way: effects for way, effects in measured.items() if effects}
    names = {way: interventions.BY_KEY[way].name for way in known}
    lab.table(
        ["ρ", *names.values()],
        draw.agreement_rows(
            names, lambda one, other: interventions.agreement(known[one], known[other])
        ),
        caption="Agreement of the order of the heads between ways, Spearman's ρ",
        markers=False,
    )
    lab.paragraph(draw.asks(known))
    st.download_button(
        f"All {len(case.heads)} heads, CSV",
        lambda: draw.heads_csv(case.ids, case.sharp, case.estimates, measured),
        "heads.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )


# The second figure: one head on the same tokens by every measure.


KEY = "evidence:maps"
MAX_DRAWN = 640  # tokens up to which whole maps are drawn side by side


def say_unknown(measures: Mapping[str, object], maps: tuple[flow.AttentionMap, ...]) -> None:
    """Name the measures that are left out, as layers without softmax whose channels have a matrix each have none."""
    missing = [draw.NAMES[name] for name in ("written", "gradient") if name not in measures]
    if missing and (states := dict.fromkeys(item.state for item in maps if item.state)):
        st.caption(f"{' and '.join(missing)}: not known of {' and '.join(states)}.")


def maps_section(case: Case, head: flow.Head, cell: lab.Pair) -> evidence.HeadMaps:
    item = case.maps[head[0]]
    shape: lab.Pair = item.weights.shape[1:]  # type: ignore[assignment]
    linked = Controls.pin.pinned(shape, (case.ref, case.question.inputs))
    pinned = Controls.pin.pin(lab.settle_pin(lab.stores(KEY, None)[0], KEY, linked, shape))
    row, column = pinned or cell
    flowing = flow_of(case, head[0], row)
    contributions = case.contributions
    measures = lab.computed(
        evidence.head_maps, case.reading.trace, item, head[1], contributions, flowing
    )
    with panel("Its weights beside other measures", pinned is not None or case.baseline is None):
        draw_measures(case, head, (row, column), measures, pinned)
        if flowing is None:
            st.caption(f"Flow is left out: {max(shape)} tokens are too many for it here.")
        if contributions.out_of_memory:
            st.caption(
                "The gradient is left out: it needs more memory than this computer has free. Use a shorter text."
            )
        say_unknown(measures.maps, (item,))
        names = {name: draw.NAMES[name] for name in measures.maps}
        lab.table(
            ["ρ", *names.values()],
            draw.agreement_rows(names, partial(evidence.key_agreement, measures)),
            markers=False,
            caption="Agreement of the order of the keys between measures, Spearman's ρ",
        )
        st.caption(
            "Spearman’s ρ between the orders of the keys by two measures, the mean over the rows; the gradient "
            "without its sign. 1 is the same order, 0 no relation."
        )
    return measures


def draw_measures(
    case: Case,
    head: flow.Head,
    cell: lab.Pair,
    measures: evidence.HeadMaps,
    pinned: lab.Pair | None,
) -> None:
    item, name, (row, column) = case.maps[head[0]], case.heads[head], cell
    lab.paragraph(f"**{name} on the same tokens**")
    if max(item.weights.shape) > MAX_DRAWN:
        sizes = [np.abs(each[row]) for each in measures.maps.values()]
        values = np.stack([size / (size.max() or 1.0) for size in sizes])
        note = "each measure from 0 to its largest value, without signs"
        lab.multiples(
            [lab.Tile(f"From {item.queries[row]}", note, values)],
            [draw.NAMES[measure] for measure in measures.maps],
            item.keys,
            key="evidence:row",
            query=0,
            column=column,
            noun="share",
            reads="measure (row) … key (column)",
            fact=f"One row of head {name}",
        )
        st.caption(
            f"{len(item.queries)} × {len(item.keys)} cells are too many to show side by side, so only row {row} is shown."
        )
    else:
        lab.multiples(
            draw.measure_tiles(measures, item, head[1]),
            item.queries,
            item.keys,
            key=KEY,
            query=row,
            column=column,
            height=320,
            pin=pinned,
            reads="output (row) … input (column)"
            if item.kind == "cross"
            else "query (row) … key (column)",
            noun="value",
            fact=f"Head {name} by {len(measures.maps)} measures",
        )
    lab.fact(
        draw.cell_fact(
            name,
            (lab.numbered(item.queries)[row], lab.numbered(item.keys)[column]),
            measures,
            row,
            column,
        )
    )
    if measures.lengths is not None and column < measures.lengths.shape[1]:
        weight, length, rolled = (
            float(values[row, column])
            for values in (measures.maps["weights"], measures.lengths, measures.maps["rollout"])
        )
        st.latex(draw.length_latex(weight, length), width="content")
        st.latex(draw.rollout_latex(row, column, rolled), width="content")


# What the page computes as Python.


def as_python(
    case: Case,
    head: flow.Head,
    row: int,
    measures: evidence.HeadMaps,
    answers: Answers,
    by_head: Mapping[interventions.HeadKey, float],
) -> None:
    item, stories, baseline = case.maps[head[0]], list[lab.Cell](), case.baseline
    results: dict[str, Any] = {"answers": answers} if answers else {}
    if baseline is not None:
        stories.append(
            lab.Cell(
                "The answer of the whole model.",
                'print(baseline.word or "cosine", baseline.value)\n',
                results={"baseline.value": baseline.value},
            )
        )
    if by_head:
        effects = lab.measurements(WITHOUT_HEADS, case.key)
        todo = evidence.head_sets(case.reading.trace)
        story, drops = draw.EVERY, dict[str, Any]()
        if case.way != "zero":
            second = interventions.BY_KEY[case.way].needs == "a second text"
            story = draw.way_cell(case.way, case.corpus, case.second if second else None)
            if len(by_head) == len(case.heads):
                drops = {"drops": np.array([by_head[head] for head in sorted(by_head)])}
        elif all(one in effects for one in todo):
            drops = {"drops": np.array([effects[one].drop for one in todo])}
        stories.append(replace(story, results=drops))
    hidden = lab.measurements(WITHOUT_TOKENS, case.key)
    tokens = range(len(case.reading.source.tokens))
    if baseline is not None and all(token in hidden for token in tokens):
        changed = np.array([hidden[token].drop for token in tokens])
        scores = scores_of(case)
        rows = np.stack([*scores.values(), np.abs(changed)])
        numbers = {f"scores[{name!r}]": values for name, values in scores.items()}
        shares = rows / rows.max(-1, keepdims=True).clip(1e-30)
        stories.append(replace(draw.HIDE, results={**numbers, "hidden": changed, "shares": shares}))
    query = int(row if measures.known is None else measures.known.any(1).argmax())
    maps = f"""
from dashboard.show import show_maps

shown = {{name: values for name, values in measures.maps.items() if name != "gradient"}}
show_maps(shown, item.queries, item.keys, row={query})
"""
    key = KEY if max(item.weights.shape) <= MAX_DRAWN else "evidence:row"
    lab.as_python(**results, item=item, measures=measures, draw={key: maps}, also=stories)


# The third figure: the tokens by every measure, and what the answer loses when each one is hidden.


def tokens_section(
    case: Case, baseline: evidence.Baseline
) -> tuple[dict[str, float | None] | None, bool]:
    """Draw every measure as a row over the tokens, the measured changes last.

    Returns Kendall's τ of each measure with those (None where not every token was hidden), and whether the weights put
    the same token first.
    """
    tokens = case.reading.source.tokens
    try:
        effects = lab.measure_with_progress(
            WITHOUT_TOKENS,
            case.key,
            range(len(tokens)),
            lambda token: evidence.hide_token(baseline, token),
            "tokens",
        )
    except PretrainedError as error:
        st.caption(lab.plain(str(error)))
        return None, False
    if len(effects) < len(tokens):
        return None, False
    changes, measures = (
        np.array([one.drop for one in effects.values()]),
        scores_of(case),
    )
    agree = {name: kendall(values, np.abs(changes)) for name, values in measures.items()}
    first = {name: int(values.argmax()) for name, values in measures.items()}
    needed = int(np.abs(changes).argmax())
    # Measures × tokens; for a picture, the picture with the picked row over its patches
    names = [*(draw.NAMES[name] for name in measures), draw.HIDDEN]
    values = np.stack([row / (row.max() or 1.0) for row in (*measures.values(), np.abs(changes))])
    patches = lab.Patches.of(case.question.inputs.picture, case.reading.source)
    shape = values.shape[0], values.shape[1]
    pin = Controls.strip.pinned(shape, (case.ref, case.question.inputs))
    if patches is not None:
        picked = lab.attention_view(
            flow.AttentionTrace(
                (
                    flow.AttentionMap(
                        "cross", 0, values[None].astype(np.float32), tuple(names), tokens
                    ),
                ),
                "measures",
            ),
            key="evidence:patches",
            query=len(names) - 1,
            pin=pin,
            patches=patches,
            title="Share of the largest",
            reads="measure (row) … patch (column)",
            fact=f"{len(names)} measures of {len(tokens)} patches",
        ).pin
    else:
        picked = lab.multiples(
            [lab.Tile("Share of the largest", "each row from 0 to its largest value", values)],
            names,
            tokens,
            pin=pin,
            key="evidence:strip",
            query=len(names) - 1,
            noun="share",
            reads="measure (row) … token (column)",
            fact=f"{len(names)} measures of {len(tokens)} tokens",
        )
    Controls.strip.pin(picked)
    words = lab.numbered(tokens)
    lab.fact(draw.tokens_fact(words, changes.tolist(), first, agree))
    lab.table(
        ["measure", "computed from", "ranks first", "τ"],
        draw.token_rows(words, first, agree, needed),
        caption="Measures of tokens, compared with hiding each",
        left=3,
        markers=False,
    )
    st.caption(draw.tau_note(len(tokens), "flow" in measures))
    say_unknown(measures, case.maps)
    return agree, first["weights"] == needed


# The page.


def page() -> None:
    lab.title(
        "Why this answer",
        "Press a cell to switch off its head, and read what the model answers then.",
    )
    choice = lab.choose_model(usual=lab.WRITES)
    if choice is not None:
        lab.fragment_unless_measuring(partial(explore, choice))
        lab.details(
            "Papers and source",
            partial(
                lab.sources,
                draw.PAPERS,
                evidence.ablate_heads,
                evidence.make_heads_uniform,
                interventions.head_effects,
                interventions.mean_outputs,
                evidence.hide_token,
                evidence.measure_contributions,
                evidence.value_norms,
                flow.rollout,
                flow.flow,
            ),
            "evidence:papers",
        )


def explore(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        case = draw_controls(choice)
        if case.baseline is None:
            st.caption(
                "Only the attention of this model is here, no answer of it: no head can be switched off. Its weights "
                "stand beside what follows from them alone."
            )
        baseline = case.baseline
        answers: Answers = {}
        by_head: Mapping[interventions.HeadKey, float] = {}
        if baseline is not None and baseline.pretrained.recordable:
            head, answers, by_head = section(case, baseline)
        else:
            st.caption(
                "Only the weights are known here, so the page shows only what follows from them: rollout and flow."
            )
            head = _head(case, next(iter(case.heads)))
            _head_field(case, head)
        cell = evidence.default_cell(case.maps[head[0]], head[1], case.contributions, baseline)
        measures = maps_section(case, head, cell)
        kind, *at = case.ids[head]
        lab.weight_link(choice, kind, (at[0], at[1]), Controls.pin.now.value or cell, ["why_key"])
        if baseline is not None:
            with panel(
                "Is attention an explanation? Which tokens the answer depends on",
                Controls.strip.in_link,
            ):
                answer = st.container()  # before the orders that it is read from
                tested = tokens_section(case, baseline)
                with answer:
                    lab.paragraph(draw.can_tell(*tested))
        as_python(case, head, cell[0], measures, answers, by_head)
        lab.caption(
            draw.conditions(
                case.reading.trace.source,
                case.reading.source.count,
                baseline is not None,
                bool(by_head),
                len(case.reading.trace.kinds) > 1,
                case.reading.note or "",
            )
        )
