"""Evidence: beside the weights what a head writes, its gradient, rollout and flow, and what the answer loses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import evidence, trace as flow
from core.pretrained import HeadSet, ModelInputs, PretrainedError, Reading, display_names, with_sink
from core.ranks import kendall
from dashboard.draw import evidence as draw

WITHOUT_HEADS, WITHOUT_TOKENS = "evidence:heads", "evidence:tokens"  # names of measurements
QUANTITIES: dict[str, evidence.Quantity | None] = {
    "automatic": None,
    "probability": "probability",
    "logit": "logit",
    "logit difference": "difference",
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
        "The difference of two logits leaves out what changes all of them. Automatic: the probability, or "
        "the logit where the most likely has more than 0.95.",
        also=lambda c: {"width": lab.room(170)},
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

    @property
    def key(self) -> tuple[lab.ModelRef, evidence.Question]:
        """What measurements belong to."""
        return self.ref, self.question

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
    elif model.head != "none":
        with st.popover("What is measured", icon=":material/tune:"):
            if model.head == "masked":
                word = Controls.draw("word", into=lab.HERE, choice=choice).word
                question = evidence.Question(choice.masked(word))
            elif model.head not in ("classify", "span"):
                own = (
                    lab.baseline_of(ref, question).answer.position
                    if model.head == "label"
                    else None
                )
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
                contrast = drawn.contrast
                question = replace(question, contrast=contrast)
    same = question.inputs == choice.inputs
    reading = choice.reading if same else lab.reading_of(ref, question.inputs)
    return Case(ref, reading, question, lab.baseline_of(ref, question))


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


def section(case: Case, baseline: evidence.Baseline) -> tuple[flow.Head, Answers]:
    """Draw the section; returns the picked head, and the answers without it and what else is off."""
    todo = evidence.head_sets(case.reading.trace)
    effects = lab.measure_with_progress(
        WITHOUT_HEADS,
        case.key,
        todo,
        lambda off: evidence.ablate_heads(baseline, off),
        "heads and layers",
    )
    alone = dict(
        sorted(
            {
                (list(case.layers).index((kind, layer)), head): effect
                for (kind, layer, head), effect in evidence.single_heads(effects).items()
            }.items(),
            key=lambda item: -abs(item[1].change),
        )
    )
    picked = _head(case, next(iter(alone)))
    # A phone shows them in this order
    left, right, last = st.columns([0.29, 0.43, 0.28], gap="medium")
    with right:
        _grid(case, baseline, effects, list(alone), picked)
    count, shown = len(case.heads), min(draw.TABLE_ROWS, len(alone))
    of = f" of the {len(alone)} measured so far, out of {count}"
    if len(alone) == count:
        of = ""
        with left:
            lab.fact(draw.heads_fact(case.heads, baseline, alone, picked))
    with panel("What the head contributes, and other heads", False):
        answers = _without(case, baseline, picked, effects, last)
        lab.chart_title(
            f"The {shown} heads that change the answer most{of}" if shown > 1 else f"The head{of}"
        )
        _ranking(case, baseline, alone)
    return picked, answers


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
    baseline: evidence.Baseline,
    effects: Mapping[HeadSet, evidence.Effect],
    ranked: list[flow.Head],
    picked: flow.Head,
) -> None:
    layers = list(case.layers.values())
    rows = draw.effect_rows(case.layers, effects, ranked, len(case.heads), baseline)
    st.markdown(
        "**Without each head**",
        help="One forward pass per head, in which its output is zero. The last column is the whole layer. A head that "
        "changes nothing by itself may be one of several that do the same. The numbers are changes of what is "
        "measured: a logit or a cosine has no unit. Those below 8 % of the largest are not written.",
    )
    lab.effect_chart(
        "evidence:grid",
        "What the answer loses without each head",
        lambda layer, head: lab.write_pair("head", (layers.index(layer), head)),
        rows,
        layers,
        [*map(str, range(max(len(item.weights) for item in case.maps))), draw.LAYER],
        (layers[picked[0]], str(picked[1])),
        largest=max(abs(row["change"]) for row in rows),
        more={"answer": "answer", "rank": "rank"},
    )
    lab.caption("“all”: the whole layer.")


def _without(
    case: Case,
    baseline: evidence.Baseline,
    picked: flow.Head,
    effects: Mapping[HeadSet, evidence.Effect],
    place: lab.Place,
) -> Answers:
    """Draw the answers without the picked head and those that a person adds to it, at a place, and what is measured."""
    name = case.heads[picked]
    options = {
        f"all of {layer}": frozenset({(*about, None)}) for about, layer in case.layers.items()
    } | {name: frozenset({case.ids[head]}) for head, name in case.heads.items()}
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
    alone: HeadSet = options[name]
    off: HeadSet = alone.union(*(options[other] for other in others))
    answers = lab.answer_study(evidence.answers_without, *case.key, off)
    words = lab.distinct(
        display_names(
            baseline.pretrained, baseline.answer, [id for id in answers if id is not None]
        )
    ) or ["similarity"]
    logits = baseline.id is not None and baseline.quantity != "probability"
    lab.draw_chart(
        chart,
        draw.before_after(
            draw.answer_rows(words, answers),
            words,
            lab.Ink.of(lab.theme()),
            logits,
        ),
        key="evidence:bars",
        alt="The likeliest tokens with and without the picked head",
    )
    st.caption(draw.measured_text(baseline))
    if others:
        added = sum(effects[one].change for head in off if (one := frozenset({head})) in effects)
        effect = effects.get(off) or evidence.ablate_heads(baseline, off)
        place.caption(
            lab.plain(
                f"Off: {', '.join([name, *others])}. Together they change the answer by "
                f"{lab.signed(effect.change)}; one at a time, their changes sum to {lab.signed(added)}."
            )
        )
    even = lab.answer_study(evidence.make_heads_uniform, *case.key, alone)
    without = effects.get(alone) or evidence.ablate_heads(baseline, alone)
    lab.paragraph(draw.even_fact(baseline, name, even, without))
    return answers


def _ranking(
    case: Case, baseline: evidence.Baseline, alone: Mapping[flow.Head, evidence.Effect]
) -> None:
    columns = draw.ranking(case.heads, case.sharp, case.estimates, baseline, alone)
    lab.table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        caption="Heads by the change of the answer without them",
        markers=False,
    )
    which = "The measured"
    if len(alone) == len(case.heads):
        which = "All"
        lab.caption(draw.sharpness_text(case.heads, case.sharp, case.estimates, alone))
    st.download_button(
        f"{which} {len(alone)} heads, CSV",
        lambda: draw.heads_csv(case.ids, case.sharp, case.estimates, alone),
        "heads.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )


# The second figure: one head on the same tokens by every measure.


KEY = "evidence:maps"
MAX_DRAWN = 640  # tokens up to which whole maps are drawn side by side


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
        lab.table(
            ["ρ", *(draw.NAMES[name] for name in measures.maps)],
            draw.agreement_rows(measures),
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
    case: Case, head: flow.Head, row: int, measures: evidence.HeadMaps, answers: Answers
) -> None:
    item, stories, results = case.maps[head[0]], list[lab.Cell](), dict[str, Any]()
    if answers:
        results["answers"] = answers
    if (baseline := case.baseline) is not None:
        value = {"baseline.value": baseline.value}
        words = "The answer of the whole model."
        stories.append(
            lab.Cell(words, 'print(baseline.word or "cosine", baseline.value)\n', results=value)
        )
    if answers:
        effects = lab.measurements(WITHOUT_HEADS, case.key)
        todo = evidence.head_sets(case.reading.trace)
        changes = {}
        if all(one in effects for one in todo):
            changes = {"changes": np.array([effects[one].change for one in todo])}
        stories.append(replace(draw.EVERY, results=changes))
    hidden = lab.measurements(WITHOUT_TOKENS, case.key)
    tokens = range(len(case.reading.source.tokens))
    if baseline is not None and all(token in hidden for token in tokens):
        changed = np.array([hidden[token].change for token in tokens])
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
        np.array([one.change for one in effects.values()]),
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
        if case.reading.note:
            st.caption(lab.plain(case.reading.note))
        baseline = case.baseline
        answers: Answers = {}
        if baseline is not None and baseline.pretrained.recordable:
            head, answers = section(case, baseline)
        else:
            st.caption(
                "Only the weights are known here, so the page shows only what follows from them: rollout and flow."
            )
            head = _head(case, next(iter(case.heads)))
            _head_field(case, head)
        cell = evidence.default_cell(case.maps[head[0]], head[1], case.contributions, baseline)
        measures = maps_section(case, head, cell)
        if baseline is not None:
            with panel(
                "Is attention an explanation? Which tokens the answer depends on",
                Controls.strip.in_link,
            ):
                answer = st.container()  # before the orders that it is read from
                tested = tokens_section(case, baseline)
                with answer:
                    lab.paragraph(draw.can_tell(*tested))
        as_python(case, head, cell[0], measures, answers)
        lab.caption(
            draw.conditions(
                case.reading.trace.source,
                case.reading.source.count,
                baseline is not None,
                bool(answers),
                len(case.reading.trace.kinds) > 1,
            )
        )
