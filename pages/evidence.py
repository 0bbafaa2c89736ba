"""Evidence: beside the weights what a head writes, its gradient, rollout and flow, and what the answer loses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import evidence, trace as flow
from core.pretrained import (
    NO_HEADS,
    HeadSet,
    ModelInputs,
    PretrainedError,
    Reading,
    display_names,
    with_sink,
)
from core.ranks import kendall

# The controls: the position that answers, the masked word, and which output is followed, as what quantity.


WITHOUT_HEADS, WITHOUT_TOKENS = "evidence:heads", "evidence:tokens"  # names of measurements
QUANTITIES: dict[str, evidence.Quantity | None] = {
    "automatic": None,
    "probability": "probability",
    "logit": "logit",
    "logit difference": "difference",
}


class Controls(lab.Fields, page="evidence"):
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
        also=lambda values: {"width": lab.room(170)},
    )
    off = lab.MultiSelect[str](
        "Switched off as well",
        options=lambda values: values.heads,
        key=lambda values: f"off:{values.model}",
        help="Heads and layers that are switched off together with the picked head.",
    )


def controls_of(
    ref: lab.ModelRef,
    reading: Reading,
    question: evidence.Question,
    baseline: evidence.Baseline | None,
) -> lab.Values:
    """The model, its reading, the question, and the answer to it; None for arrays without a model.

    Also the `maps`, with a column for a learned sink, how `sharp` their heads are, the names of `layers` and `heads`,
    the `ids` of heads, and the `key` of what is measured.
    """
    maps = (with_sink(reading.trace) if reading.sinks else reading.trace).maps
    layers = flow.layer_names({(item.kind, item.layer): item.layer_number for item in maps})
    ids = {
        (row, head): (item.kind, item.layer, head)
        for row, item in enumerate(maps)
        for head in range(len(item.weights))
    }
    return lab.Values(
        ref=ref,
        reading=reading,
        question=question,
        baseline=baseline,
        maps=maps,
        sharp=evidence.sharpness(maps),
        layers=layers,
        ids=ids,
        heads={at: f"{layers[kind, layer]}·H{head}" for at, (kind, layer, head) in ids.items()},
        key=(ref, question),
    )


def draw_controls(choice: lab.ModelChoice) -> lab.Values:
    model, ref, question = choice.pretrained, choice.ref, evidence.Question(choice.inputs)
    if model is None:
        return controls_of(ref, choice.reading, question, None)
    if model.head == "none" and model.reads == "text":
        question = replace(
            question, against=Controls.draw("against", into=lab.HERE).against.strip()
        )
    elif model.head != "none":
        with st.popover("What is measured", icon=":material/tune:"):
            if model.head == "masked":
                question = evidence.Question(lab.masked_inputs("evidence", choice))
            elif model.head not in ("classify", "span"):
                own = (
                    lab.baseline_of(ref, question).answer.position
                    if model.head == "label"
                    else None
                )
                question = replace(
                    question, position=lab.position_field("evidence", choice.reading, own)
                )
            baseline = lab.baseline_of(ref, question)
            noun = baseline.answer.output.split()[0].capitalize()
            output = lab.output_field(ref, baseline, f"{noun} to measure")
            if output is not None and output != baseline.id:
                baseline = lab.baseline_of(ref, replace(question, output=output))
            question = replace(
                question,
                output=output,
                quantity=QUANTITIES[Controls.draw("quantity", into=lab.HERE).quantity],
            )
            if question.quantity == "difference":
                question = replace(
                    question,
                    contrast=lab.output_field(ref, baseline, "Minus the logit of", "contrast"),
                )
    return controls_of(
        ref,
        choice.reading
        if question.inputs == choice.inputs
        else lab.reading_of(ref, question.inputs),
        question,
        lab.baseline_of(ref, question),
    )


# What is measured of the answer, for all sessions.


def contributions_of(controls: lab.Values) -> evidence.Contributions:
    if controls.baseline is None:
        return evidence.Contributions({}, {})
    return lab.answer_study(evidence.measure_contributions, *controls.key)


def _scores(ref: lab.ModelRef, question: evidence.Question) -> dict[str, np.ndarray]:
    return evidence.token_scores(
        lab.baseline_of(ref, question),
        lab.reading_of(ref, question.inputs).trace,
        lab.answer_study(evidence.measure_contributions, ref, question),
    )


def estimates_of(controls: lab.Values) -> dict[flow.Head, float]:
    return evidence.gradient_estimates(controls.maps, contributions_of(controls))


def _flow(ref: lab.ModelRef, inputs: ModelInputs, row: int, query: int | None) -> evidence.Flow:
    return evidence.flow_map(lab.reading_of(ref, inputs).trace, row, query)


def flow_query(item: flow.AttentionMap, query: int) -> tuple[int | None, ...]:
    """The one query to which the flow is computed, None for all; of more than 160 tokens none at all."""
    longest = max(len(item.queries), len(item.keys))
    return () if longest > 160 else (None if longest <= 48 else query,)


# The page's Vega-Lite figure of an answer with heads on and off.


def before_after(
    rows: Sequence[lab.Spec], words: Sequence[str], ink: lab.Ink, logits: bool = False
) -> lab.Spec:
    """Three marks a word, by WAYS: bars from 0, or of logits, whose 0 means nothing, points; rows hold word, of, p."""
    low, high = min(row["p"] for row in rows), max(row["p"] for row in rows)
    room = 0.3 * ((high - low) or 1.0)  # for the number behind the mark
    domain = [low - 0.2 * room, high + room] if logits else [min(0, low), 1.25 * max(0.01, high)]
    return lab.bar_figure(
        [row | {"end": max(row["p"], domain[0] if logits else 0)} for row in rows],
        "word",
        words,
        "p",
        ink,
        domain=domain,
        height={"step": 15},
        colour=lab.series_encoding("of", evidence.WAYS, [ink.quiet, ink.series[0], ink.pick])
        | {
            "sort": list(evidence.WAYS),
            "legend": {
                "title": None,
                "orient": "top",
                "labelColor": ink.quiet,
                "labelFontSize": 12,
                "offset": 2,
                "symbolType": "square",
            },
        },
        tips=[
            lab.text_tip("word", "answer"),
            lab.text_tip("of", "heads"),
            lab.text_tip("text", "value"),
        ],
        mark={"type": "point", "filled": True, "size": 60, "opacity": 1} if logits else None,
        offset={"field": "of", "sort": list(evidence.WAYS)},
        dx=8 if logits else 4,
    ) | lab.table_columns(
        {"word": "answer", "of": "heads", "p": "logit" if logits else "probability"}
    )


# The page's sentences and its CSV.


NAMES = {
    "weights": "Weights",
    "written": "Written",
    "gradient": "Gradient",
    "rollout": "Rollout",
    "flow": "Flow",
}
NOTES = {
    "weights": "α of this head",
    "written": "‖α·v·W_O‖, share of its row",
    "gradient": "α · ∂answer/∂α, share of the largest",
    "rollout": "all heads, product over layers",
    "flow": "all heads, maximum flow",
}
SPOKEN = {
    "written": "what heads write",
    "gradient": "the gradient",
    "rollout": "rollout",
    "flow": "flow",
}


MEANINGS = {
    "weights": "mean of all heads",
    "written": "what all heads write",
    "gradient": "α·∂answer/∂α, all heads",
    "rollout": "product over layers",
    "flow": "maximum flow",
}


def target_text(baseline: evidence.Baseline) -> str:
    if baseline.word is None:
        other = "the other sentence" if baseline.question.against else "itself"
        return f"the similarity with {other}"
    is_answer = baseline.is_top and baseline.answer.kind != "class"
    kind = "answer" if is_answer else baseline.answer.output.split()[0]
    name = f"{kind} **{lab.plain(baseline.word)}**"
    if baseline.other is not None:
        return f"the logit of the {name} minus that of **{lab.plain(baseline.other)}**"
    return f"the {baseline.quantity} of the {name}"


def moves(before: float, after: float) -> str:
    """ "falls from a to b" or "rises from a to b"; by how much, where both have the same text."""
    verb, first, last = (
        "falls" if after < before else "rises",
        lab.number(before),
        lab.number(after),
    )
    if first == last:
        return f"{verb} by **{lab.number(abs(after - before))}** from **{first}**"
    return f"{verb} from **{first}** to **{last}**"


def heads_fact(
    controls: lab.Values,
    baseline: evidence.Baseline,
    alone: Mapping[flow.Head, evidence.Effect],
    picked: flow.Head,
) -> str:
    names, ranked = controls.heads, list(alone)
    first = ranked[0]
    shown = (
        f":primary[**{lab.plain(names[first])}**]"
        if first == picked
        else f"**{lab.plain(names[first])}**"
    )
    without, target, then = alone[first], target_text(baseline), ""
    if without.id not in (None, baseline.id) and baseline.is_top:
        (word,) = display_names(baseline.pretrained, baseline.answer, [without.id])
        then = f" the model answers **{lab.plain(word)}** instead of **{lab.plain(baseline.word or '')}**."
        target = target.replace("the ", "The ", 1)
    if baseline.quantity == "logit":
        target = target.replace("logit of", "logit (score before the softmax) of", 1)
    text = f"Without {shown},{then} {target} {moves(baseline.value, without.value)}, " + (
        f"the largest change of {len(ranked)} heads. " if len(ranked) > 1 else "its only head. "
    )
    if picked != first:
        text += (
            f"Without :primary[**{lab.plain(names[picked])}**] it is {lab.number(alone[picked].value)}, the change of rank "
            f"{ranked.index(picked) + 1}{answer_then(baseline, alone[picked])}. "
        )
    return text


def answer_then(baseline: evidence.Baseline, effect: evidence.Effect) -> str:
    """What the model answers without a head, after the rest of a sentence; nothing where it has no likeliest answer."""
    if effect.id is None or not baseline.is_top:
        return ""
    (word,) = display_names(baseline.pretrained, baseline.answer, [effect.id])
    return f", and the model {'still ' if effect.id == baseline.id else ''}answers **{lab.plain(word)}**"


def sharpness_text(controls: lab.Values, alone: Mapping[flow.Head, evidence.Effect]) -> str:
    sharp, estimates = controls.sharp, estimates_of(controls)
    sharpest = max(sharp, key=sharp.__getitem__)
    rank = list(alone).index(sharpest)
    text = (
        f"The sharpest head, **{lab.plain(controls.heads[sharpest])}** with a mean largest weight of "
        f"{lab.number(sharp[sharpest])}, is {f'number {rank + 1}' if rank else 'first'}: "
        f"{lab.signed(alone[sharpest].change)}."
    )
    by_weight, by_slope = evidence.rank_agreement(alone, sharp, estimates)
    if by_weight is None:
        return text
    slope = (
        ""
        if by_slope is None
        else f"; those by estimated and by measured change with {lab.signed(by_slope)}. The estimate, by the "
        "gradient, is minus the sum of α·∂answer/∂α over a head’s weights"
    )
    return (
        f"{text} Over all heads, the ranks by sharpness and by change agree with ρ = "
        f"{lab.signed(by_weight)}{slope}."
    )


def cell_fact(
    head: str, pair: tuple[str, str], measures: evidence.HeadMaps, row: int, column: int
) -> str:
    values = {name: float(each[row, column]) for name, each in measures.maps.items()}
    (query, key), weight, lengths = map(lab.plain, pair), values["weights"], measures.lengths
    text = f"In **{lab.plain(head)}**, :primary[**{query}**] puts **{lab.share_text(weight)}** of its weight on **{key}**"
    if lengths is not None and column < lengths.shape[1]:
        share = values["written"]
        but = "but only" if share < weight - 0.02 else "and"
        text += f", {but} **{lab.share_text(share)}** of what it writes comes from there"
        if abs(share - weight) > 0.02:
            text += (
                f": v·W_O has length {lab.number(float(lengths[row, column]))} there and "
                f"{lab.number(float(lengths[row].mean()))} on average"
            )
    if "gradient" in values:
        largest = np.abs(measures.maps["gradient"]).max() or 1.0
        text += (
            f"; by the gradient, this weight adds {lab.signed(values['gradient'])} to the answer, in the map "
            f"{lab.number(values['gradient'] / largest)} of the largest"
        )
    flowing = f", and at most {lab.number(values['flow'])} can flow" if "flow" in values else ""
    return (
        f"{text}. Over all paths through attention and residuals, {lab.number(values['rollout'])} of {query} comes "
        f"from {key}{flowing}."
    )


def heads_csv(controls: lab.Values, changes: Mapping[flow.Head, evidence.Effect]) -> bytes:
    estimates = estimates_of(controls)
    return lab.picture_files.csv_file(
        "kind layer head answer change gradient_estimate largest_weight".split(),
        [
            [
                *controls.ids[head],
                *(
                    "" if one is None else f"{one:.8g}"
                    for one in (
                        effect.value,
                        effect.change,
                        estimates.get(head),
                        controls.sharp[head],
                    )
                ),
            ]
            for head, effect in changes.items()
        ],
    )


def tokens_fact(
    tokens: Sequence[str],
    lost: Sequence[float],
    first: Mapping[str, int],
    agree: Mapping[str, float | None],
) -> str:
    needed, named = max(range(len(lost)), key=lambda index: abs(lost[index])), first["weights"]
    text = (
        f"Hiding :primary[**{lab.plain(tokens[needed])}**] changes the answer most, by **{lab.signed(lost[needed])}**. "
        + (
            f"The weights rank {lab.plain(tokens[named])} first as well"
            if named == needed
            else f"The weights rank **{lab.plain(tokens[named])}** first, but hiding it changes the answer by "
            f"{lab.signed(lost[named])}"
        )
    )
    known = {name: tau for name, tau in agree.items() if tau is not None}
    if "weights" not in known:
        return f"{text}."
    best = max(known, key=known.__getitem__)
    return (
        f"{text}; over all {len(tokens)} tokens their order agrees with the measured one with τ = "
        f"**{lab.signed(known['weights'])}**"
        + (
            ", the most of all measures."
            if best == "weights"
            else f". The order by {SPOKEN[best]} agrees most, with {lab.signed(known[best])}."
        )
    )


VERDICTS = (  # up to which share of the change of the head that is off, uniform weights change the answer
    (
        -0.1,
        "So where this head attends matters: with uniform weights the answer changes in the other direction.",
    ),
    (
        0.1,
        "So what the head writes matters here, and where it attends hardly does: other weights would "
        "give nearly the same answer.",
    ),
    (
        0.95,
        "So {share} of the head's contribution is where it attends; the rest is what it writes in any case.",
    ),
    (
        1.05,
        "So this head contributes by where it attends: with uniform weights its contribution is lost.",
    ),
    (
        math.inf,
        "So this head contributes by where it attends: uniform weights change the answer more than "
        "switching the head off.",
    ),
)


def even_fact(
    baseline: evidence.Baseline, head: str, even: evidence.Effect, off: evidence.Effect
) -> str:
    says = "The head changes nothing, so its weights change nothing either."
    if abs(off.change) >= 1e-6:
        share = even.change / off.change
        says = next(verdict for limit, verdict in VERDICTS if share < limit)
        says = says.format(share=lab.percent(share))
    return (
        f"**Other weights, the same answer?** With uniform weights, as Wiegreffe and Pinter test it, {lab.plain(head)} "
        f"gives {lab.number(even.value)} instead of {lab.number(baseline.value)}; switched off it gives "
        f"{lab.number(off.value)}. {says}"
    )


CAN_TELL = (
    "**What weights can and cannot tell.** Jain and Wallace (“Attention is not Explanation”, 2019) found that weights "
    "often order tokens differently from gradients and from leaving words out, and that other weights can give the "
    "same answer. Wiegreffe and Pinter (“Attention is not not Explanation”, 2019) reply that other weights are a fair "
    "test only if a whole model is trained to have them, and that such models learn less from them: a weight is one "
    "explanation of an answer, if not the only one. "
)


SIDES = (  # from the τ on: what the weights show, and whether their first token needs a word
    (0.6, "so here the weights show well which tokens matter, but not how much", False),
    (0.2, "so here they show in part which tokens matter", True),
    (-math.inf, "so here they show little of which tokens matter", True),
)


def can_tell(agree: Mapping[str, float | None] | None, same_first: bool) -> str:
    """The two papers, and this text between them; `same_first`: the weights put the most needed token first."""
    if agree is None:
        return CAN_TELL
    if (tau := agree.get("weights")) is None:
        return f"{CAN_TELL}Here there are too few tokens, or nothing changes, so neither can be tested."
    side, less = next((words, less) for limit, words, less in SIDES if tau >= limit)
    though = ", though they rank the one that matters most first" if same_first and less else ""
    return (
        f"{CAN_TELL}On your text the order by weight agrees with the measured one with τ = {lab.signed(tau)} (1: the "
        f"same order, 0: no relation), {side}{though}."
    )


# The first figure: what the answer loses without each head, and the answer with several of them off.


LAYER = "all"  # the column of whole layers


def panel(label: str, opened: bool) -> Any:
    """An expander of what comes after the first sight; open from a link that points into it."""
    name = f"evidence:open:{label}"
    return lab.settings_panel(label, opened=st.session_state.setdefault(name, opened))


Answers = Mapping[int | None, Mapping[str, float]]  # values by WAYS
TABLE_ROWS = 6


def section(
    controls: lab.Values, baseline: evidence.Baseline
) -> tuple[flow.Head, HeadSet, Answers]:
    """Draw the section; the picked head, all heads that are off, and the answers then."""
    todo = evidence.head_sets(controls.reading.trace)
    effects = lab.measure_with_progress(
        WITHOUT_HEADS,
        controls.key,
        todo,
        lambda off: evidence.ablate_heads(baseline, off),
        "heads and layers",
    )
    alone = dict(
        sorted(
            {
                (list(controls.layers).index((kind, layer)), head): effect
                for (kind, layer, head), effect in evidence.single_heads(effects).items()
            }.items(),
            key=lambda item: -abs(item[1].change),
        )
    )
    picked = _head(controls, next(iter(alone)))
    # A phone shows them in this order
    left, right, last = st.columns([0.29, 0.43, 0.28], gap="medium")
    with right:
        _grid(controls, baseline, effects, list(alone), picked)
    count, shown = len(controls.heads), min(TABLE_ROWS, len(alone))
    of = f" of the {len(alone)} measured so far, out of {count}"
    if len(alone) == count:
        of = ""
        with left:
            lab.fact(heads_fact(controls, baseline, alone, picked))
    with panel("What the head contributes, and other heads", False):
        off, answers = _without(controls, baseline, picked, effects, last)
        lab.chart_title(
            f"The {shown} heads that change the answer most{of}" if shown > 1 else f"The head{of}"
        )
        _ranking(controls, baseline, alone)
    return picked, off, answers


def _head(controls: lab.Values, default: flow.Head) -> flow.Head:
    return lab.link_head(
        "evidence",
        controls.ref,
        controls.ref,
        {at: (kind, (layer, head)) for at, (kind, layer, head) in controls.ids.items()},
        default,
    )


def _head_field(controls: lab.Values, picked: flow.Head) -> None:
    lab.head_field(
        {name: head for head, name in controls.heads.items()},
        picked,
        f"evidence:head:{controls.ref.name}",
    )


def _grid(
    controls: lab.Values,
    baseline: evidence.Baseline,
    effects: Mapping[HeadSet, evidence.Effect],
    ranked: list[flow.Head],
    picked: flow.Head,
) -> None:
    layers, rows = list(controls.layers.values()), list[lab.Spec]()
    ranks = {head: rank for rank, head in enumerate(ranked, 1)}
    measured = "" if len(ranked) == len(controls.heads) else " measured"
    for off, effect in effects.items():
        ((kind, layer, head),) = off
        name = controls.layers[kind, layer]
        cell = {"head": LAYER, "name": f"all of {name}", "share": "a whole layer"}
        if head is not None:
            rank = f"{ranks[layers.index(name), head]} of {len(ranked)}{measured}"
            cell = {"head": str(head), "name": f"{name}·H{head}", "share": rank}
        rows.append(
            cell
            | {
                "layer": name,
                "change": effect.change,
                "by": lab.signed(effect.change),
                "answer": effect.value,
                "rank": None if head is None else ranks[layers.index(name), head],
                "now": f"{lab.number(effect.value)} instead of {lab.number(baseline.value)}",
            }
        )
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
        [*map(str, range(max(len(item.weights) for item in controls.maps))), LAYER],
        (layers[picked[0]], str(picked[1])),
        largest=max(abs(row["change"]) for row in rows),
        more={"answer": "answer", "rank": "rank"},
    )
    lab.caption("“all”: the whole layer.")


def _without(
    controls: lab.Values,
    baseline: evidence.Baseline,
    picked: flow.Head,
    effects: Mapping[HeadSet, evidence.Effect],
    place: Any,
) -> tuple[HeadSet, Answers]:
    """Draw the answers without the picked head and those that a person adds to it, at a place, and what is measured.

    Returns all that is off, and the answers.
    """
    name = controls.heads[picked]
    options = {
        f"all of {layer}": frozenset({(*about, None)}) for about, layer in controls.layers.items()
    } | {name: frozenset({controls.ids[head]}) for head, name in controls.heads.items()}
    place.markdown(
        f"**{'The similarity' if baseline.id is None else 'The likeliest answers'}**",
        help="On: the whole model. Off: without the head. Uniform: the head gives the same weight to every key that "
        "it may attend to; it still writes its values, but no longer chooses among them.",
    )
    chart = place.container()
    with place.popover("Heads"):
        _head_field(controls, picked)
        others = Controls.draw(
            "off", into=lab.HERE, heads=list(options), model=controls.ref.name
        ).off
    others = [other for other in others if other != name]
    alone: HeadSet = options[name]
    off: HeadSet = alone.union(*(options[other] for other in others))
    answers = lab.answer_study(evidence.answers_without, *controls.key, off)
    words = lab.distinct(
        display_names(
            baseline.pretrained, baseline.answer, [id for id in answers if id is not None]
        )
    ) or ["similarity"]
    logits = baseline.id is not None and baseline.quantity != "probability"
    lab.draw_chart(
        chart,
        before_after(
            [
                {"word": word, "of": way, "p": value, "text": lab.number(value)}
                for word, by_way in zip(words, answers.values(), strict=True)
                for way, value in by_way.items()
            ],
            words,
            lab.Ink.of(lab.theme()),
            logits,
        ),
        key="evidence:bars",
        alt="The likeliest tokens with and without the picked head",
    )
    why = ""
    if logits and baseline.question.quantity is None:  # nobody chose the logit
        most = lab.number(float(evidence.quantity_values(baseline.answer, "probability").max()))
        why = (
            f" The most likely has a probability of {most}, which changes little so close to 1, so the logit is "
            "measured."
        )
    st.caption(f"The page measures {target_text(baseline)}.{why}")
    if others:
        added = sum(effects[one].change for head in off if (one := frozenset({head})) in effects)
        effect = effects.get(off) or evidence.ablate_heads(baseline, off)
        place.caption(
            lab.plain(
                f"Off: {', '.join([name, *others])}. Together they change the answer by "
                f"{lab.signed(effect.change)}; one at a time, their changes sum to {lab.signed(added)}."
            )
        )
    even = lab.answer_study(evidence.make_heads_uniform, *controls.key, alone)
    without = effects.get(alone) or evidence.ablate_heads(baseline, alone)
    lab.paragraph(even_fact(baseline, name, even, without))
    return off, answers


def _ranking(
    controls: lab.Values, baseline: evidence.Baseline, alone: Mapping[flow.Head, evidence.Effect]
) -> None:
    shown = dict(list(alone.items())[:TABLE_ROWS])
    columns: dict[str, Sequence[str]] = {
        "head": [controls.heads[head] for head in shown],
        "answer without it": [lab.number(effect.value) for effect in shown.values()],
        "change": [lab.signed(effect.change) for effect in shown.values()],
    }
    if ids := [effect.id for effect in shown.values() if effect.id is not None]:
        columns["prediction then"] = display_names(baseline.pretrained, baseline.answer, ids)
    if estimates := estimates_of(controls):
        columns["estimated change"] = [lab.signed(estimates[head]) for head in shown]
    columns["mean largest weight"] = [lab.number(controls.sharp[head]) for head in shown]
    lab.table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        caption="Heads by the change of the answer without them",
        markers=False,
    )
    which = "The measured"
    if len(alone) == len(controls.heads):
        which = "All"
        lab.caption(sharpness_text(controls, alone))
    st.download_button(
        f"{which} {len(alone)} heads, CSV",
        lambda: heads_csv(controls, alone),
        "heads.csv",
        "text/csv",
        on_click="ignore",
        icon=":material/download:",
    )


# The second figure: one head on the same tokens by every measure.


KEY = "evidence:maps"
MAX_DRAWN = 640  # tokens up to which whole maps are drawn side by side


def maps_section(controls: lab.Values, head: flow.Head, cell: lab.Pair) -> evidence.HeadMaps:
    item = controls.maps[head[0]]
    shape: lab.Pair = item.weights.shape[1:]  # type: ignore[assignment]
    pinned = lab.settle_pin(
        lab.stores(KEY, None)[0],
        KEY,
        lab.read_linked("evidence", "pin", shape, (controls.ref, controls.question.inputs)),
        shape,
    )
    lab.write_linked("evidence", "pin", pinned)
    row, column = pinned or cell
    flowing = next(
        (
            lab.shared(_flow, controls.ref, controls.question.inputs, head[0], query)
            for query in flow_query(item, row)
        ),
        None,
    )
    contributions = contributions_of(controls)
    measures = evidence.head_maps(controls.reading.trace, item, head[1], contributions, flowing)
    with panel(
        "Its weights beside other measures", pinned is not None or controls.baseline is None
    ):
        draw_measures(controls, head, (row, column), measures, pinned)
        if flowing is None:
            st.caption(f"Flow is left out: {max(shape)} tokens are too many for it here.")
        if contributions.out_of_memory:
            st.caption(
                "The gradient is left out: it needs more memory than this computer has free. Use a shorter text."
            )
        agreement(measures)
    return measures


def draw_measures(
    controls: lab.Values,
    head: flow.Head,
    cell: lab.Pair,
    measures: evidence.HeadMaps,
    pinned: lab.Pair | None,
) -> None:
    item, name, (row, column) = controls.maps[head[0]], controls.heads[head], cell
    lab.paragraph(f"**{name} on the same tokens**")
    if max(item.weights.shape) > MAX_DRAWN:
        sizes = [np.abs(each[row]) for each in measures.maps.values()]
        values = np.stack([size / (size.max() or 1.0) for size in sizes])
        note = "each measure from 0 to its largest value, without signs"
        lab.multiples(
            [lab.Tile(f"From {item.queries[row]}", note, values)],
            [NAMES[measure] for measure in measures.maps],
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
        visible = None if item.mask is None else item.visible[head[1]]
        tiles = {
            each: lab.Tile(NAMES[each], NOTES[each], values, visible, index)
            for index, (each, values) in enumerate(measures.maps.items())
        }
        if "flow" in tiles and (known := measures.known) is not None:
            known = np.pad(known, ((0, 0), (0, item.weights.shape[2] - known.shape[1])))
            note = f"{NOTES['flow']}; this row only"
            tiles["flow"] = replace(
                tiles["flow"], mask=known if visible is None else visible & known, note=note
            )
        if "gradient" in tiles:
            values = measures.maps["gradient"]
            tiles["gradient"] = replace(
                tiles["gradient"],
                weights=values / (np.abs(values).max() or 1.0),
                span=(-1.0, 1.0),
                signed=True,
            )
        lab.multiples(
            list(tiles.values()),
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
        cell_fact(
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
        st.latex(
            rf"\lVert \alpha\, v\, W_O\rVert = {lab.number(weight)} \times {lab.number(length)} = "
            rf"{lab.number(weight * length)}",
            width="content",
        )
        st.latex(
            rf"\tilde A = \prod_\ell \tfrac12\left(\bar A_\ell + I\right),\quad "
            rf"\tilde A_{{{row},{column}}} = {lab.number(rolled)}",
            width="content",
        )


def agreement(measures: evidence.HeadMaps) -> None:
    def text(one: str, other: str) -> str:
        ρ = evidence.key_agreement(measures, one, other)
        return "–" if ρ is None else lab.number(ρ) if other == one else lab.signed(ρ)

    lab.table(
        ["ρ", *(NAMES[name] for name in measures.maps)],
        [[NAMES[one], *(text(one, other) for other in measures.maps)] for one in measures.maps],
        markers=False,
        caption="Agreement of the order of the keys between measures, Spearman's ρ",
    )
    st.caption(
        "Spearman’s ρ between the orders of the keys by two measures, the mean over the rows; the gradient "
        "without its sign. 1 is the same order, 0 no relation."
    )


# What the page computes as Python.


EVERY = lab.Cell(
    "What the answer loses without each head, and without each layer: one forward pass each.",
    """
import numpy as np

from core.interpret.evidence import ablate_heads, head_sets

effects = {off: ablate_heads(baseline, off) for off in head_sets(reading.trace)}
changes = np.array([effect.change for effect in effects.values()])
(needed,) = list(effects)[abs(changes).argmax()]
print("largest change:", needed, changes[abs(changes).argmax()])
""",
    """
import altair as alt
import pandas as pd

rows = [{"layer": f"{kind} {layer}", "head": "all" if head is None else head, "change": effect.change}
        for off, effect in effects.items() for kind, layer, head in off]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="change:Q")
""",
    "evidence:grid",
)
HIDE = lab.Cell(
    "The tokens by each measure, and the change of the answer when each is hidden.",
    """
import numpy as np

from core.interpret.evidence import hide_token, token_scores
from core.ranks import kendall

scores = token_scores(baseline, reading.trace, contributions)
hidden = np.array([hide_token(baseline, token).change for token in range(len(baseline.source))])
for name, score in scores.items():
    print(f"{name}: first {reading.source.tokens[score.argmax()]}, tau with hiding {kendall(score, abs(hidden))}")
rows = np.stack([*scores.values(), abs(hidden)])
shares = rows / rows.max(-1, keepdims=True).clip(1e-30)  # of the largest
""",
    """
from dashboard.show import show_maps

show_maps({"Share of the largest": shares}, [*scores, "hidden"], reading.source.tokens)
""",
    "evidence:strip",
)


def script(
    controls: lab.Values,
    head: flow.Head,
    cell: lab.Pair,
    measures: evidence.HeadMaps,
    off: HeadSet,
    answers: Answers,
) -> lab.Script:
    baseline, item = controls.baseline, controls.maps[head[0]]
    cells = [lab.model_cell(controls.ref, None if baseline is None else controls.question.inputs)]
    results: dict[str, np.ndarray] = {}
    contributions = "Contributions({}, {})"
    if baseline is not None:
        contributions = "measure_contributions(baseline)"
        cells.append(lab.answer_cell(controls.question, "The answer of the whole model."))
        results["baseline.value"] = np.array(baseline.value)
    if answers:
        cells += [
            EVERY,
            lab.Cell(
                "The likeliest answers with all heads, with these heads uniform, and with them off.",
                f"""
from core.interpret.evidence import answers_without

off = frozenset({sorted(off, key=str)!r})  # (kind, layer, head); None is the whole layer
answers = answers_without(baseline, off)  # by token, with all heads on, these uniform, and off
for token, values in answers.items():
    print(token, values)
""",
            ),
        ]
        results["[list(values.values()) for values in answers.values()]"] = np.array(
            [list(each.values()) for each in answers.values()]
        )
        measured = lab.measurements(WITHOUT_HEADS, controls.key)
        todo = evidence.head_sets(controls.reading.trace)
        if all(one in measured for one in todo):
            results["changes"] = np.array([measured[one].change for one in todo])
    query = int(cell[0] if measures.known is None else measures.known.any(1).argmax())
    flowing = [f"flow_map(reading.trace, {head[0]}, {to})" for to in flow_query(item, query)]
    cells.append(
        lab.Cell(
            f"One head on the same tokens by each measure: {', '.join(measures.maps)}.",
            f"""
from core.interpret.evidence import {contributions.partition("(")[0]}, flow_map, head_maps
{"from core.pretrained.maps import with_sink" if controls.reading.sinks else ""}
contributions = {contributions}
item = {"with_sink(reading.trace)" if controls.reading.sinks else "reading.trace"}.maps[{head[0]}]
flowing = {flowing[0] if flowing else None}  # maximum flow to each query
measures = head_maps(reading.trace, item, {head[1]}, contributions, flowing)  # each (T, S)
""",
            f"""
from dashboard.show import show_maps

shown = {{name: values for name, values in measures.maps.items() if name != "gradient"}}
show_maps(shown, item.queries, item.keys, row={query})
""",
            KEY if max(item.weights.shape) <= MAX_DRAWN else "evidence:row",
        )
    )
    results |= {f"measures.maps[{name!r}]": values for name, values in measures.maps.items()}
    measured = lab.measurements(WITHOUT_TOKENS, controls.key)
    tokens = range(len(controls.reading.source.tokens))
    if baseline is not None and all(token in measured for token in tokens):
        cells.append(HIDE)
        changes = np.array([measured[token].change for token in tokens])
        scores = lab.shared(_scores, *controls.key)
        rows = np.stack([*scores.values(), np.abs(changes)])
        results |= {
            **{f"scores[{name!r}]": values for name, values in scores.items()},
            "hidden": changes,
            "shares": rows / rows.max(-1, keepdims=True).clip(1e-30),
        }
    return lab.Script(tuple(cells), results)


# The third figure: the tokens by every measure, and what the answer loses when each one is hidden.


HIDDEN = "Measured"


def tokens_section(
    controls: lab.Values, baseline: evidence.Baseline
) -> tuple[dict[str, float | None] | None, bool]:
    """Draw every measure as a row over the tokens, the measured changes last.

    Returns Kendall's τ of each measure with those (None where not every token was hidden), and whether the weights put
    the same token first.
    """
    tokens = controls.reading.source.tokens
    try:
        effects = lab.measure_with_progress(
            WITHOUT_TOKENS,
            controls.key,
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
        lab.shared(_scores, *controls.key),
    )
    agree = {name: kendall(values, np.abs(changes)) for name, values in measures.items()}
    first = {name: int(values.argmax()) for name, values in measures.items()}
    needed = int(np.abs(changes).argmax())
    # Measures × tokens; for a picture, the picture with the picked row over its patches
    names = [*(NAMES[name] for name in measures), HIDDEN]
    values = np.stack([row / (row.max() or 1.0) for row in (*measures.values(), np.abs(changes))])
    patches = lab.Patches.of(controls.question.inputs.picture, controls.reading.source)
    pin = lab.read_linked(
        "evidence", "strip", values.shape, (controls.ref, controls.question.inputs)
    )
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
    lab.write_linked("evidence", "strip", picked)
    words = lab.numbered(tokens)
    lab.fact(tokens_fact(words, changes.tolist(), first, agree))
    rows = [
        [
            NAMES[name],
            MEANINGS[name],
            words[first[name]],
            "–" if tau is None else lab.signed(tau),
        ]
        for name, tau in agree.items()
    ]
    lab.table(
        ["measure", "computed from", "ranks first", "τ"],
        [*rows, [HIDDEN, "the token hidden from every head", words[needed], ""]],
        caption="Measures of tokens, compared with hiding each",
        left=3,
        markers=False,
    )
    st.caption(
        "Kendall’s τ compares the order of the tokens by a measure with their order by how much the answer "
        "changes when each is hidden: 1 is the same order, 0 no relation, −1 the reverse."
        + (
            ""
            if "flow" in measures
            else f" Flow from {len(tokens)} tokens takes too long, so it is left out."
        )
    )
    return agree, first["weights"] == needed


# The page Evidence.


PAPERS = r"""**‖α·v·W\_O‖** — the length of the vector that a head writes at a query for one key.
[Kobayashi et al. 2020](https://arxiv.org/abs/2004.10102)

**Rollout and flow** — attention combined over the layers, with the residual as half of every step.
[Abnar and Zuidema 2020](https://arxiv.org/abs/2005.00928)

**Heads switched off** — what the answer loses without a head, and α·∂answer/∂α as its estimate.
[Michel et al. 2019](https://arxiv.org/abs/1905.10650)

**Weights as explanation** — how the order of words by weight agrees with gradients and with leaving words out.
[Jain and Wallace 2019](https://arxiv.org/abs/1902.10186)

**A reply** — when another set of weights is a fair comparison, and when it is not.
[Wiegreffe and Pinter 2019](https://arxiv.org/abs/1908.04626)"""


def page() -> None:
    lab.title(
        "Why this answer",
        "Press a cell to switch off its head, and read what the model answers then.",
    )
    choice = lab.choose_model(usual=lab.WRITES)
    if choice is not None:
        lab.fragment_unless_measuring(partial(_view, choice))
        lab.details(
            "Papers and source",
            partial(
                lab.sources,
                PAPERS,
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


def _view(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        controls = draw_controls(choice)
        if controls.reading.note:
            st.caption(lab.plain(controls.reading.note))
        baseline, off = controls.baseline, NO_HEADS
        answers: Answers = {}
        if baseline is not None and baseline.pretrained.recordable:
            head, off, answers = section(controls, baseline)
        else:
            st.caption(
                "Only the weights are known here, so the page shows only what follows from them: rollout and flow."
            )
            head = _head(controls, next(iter(controls.heads)))
            _head_field(controls, head)
        cell = evidence.default_cell(
            controls.maps[head[0]], head[1], contributions_of(controls), baseline
        )
        measures = maps_section(controls, head, cell)
        lab.add_script(partial(script, controls, head, cell, measures, off, answers))
        if baseline is not None:
            with panel("Which tokens the answer depends on", "strip" in st.query_params):
                lab.paragraph(can_tell(*tokens_section(controls, baseline)))
        trace = controls.reading.trace
        parts = {
            f"{lab.plain(trace.source)}, {controls.reading.source.count}": True,
            "; fp32, no dropout": baseline is not None,
            ", as uploaded": baseline is None,
            ", one forward pass per head": bool(answers),
            ".": True,
            " The paper on rollout and flow covers encoders only; here the decoder's steps follow the "
            "encoder's in one graph, and the part that reaches the source is shown.": len(
                trace.kinds
            )
            > 1,
        }
        lab.caption("".join(filter(parts.get, parts)))
