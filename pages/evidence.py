"""Evidence: beside the weights what a head writes, its gradient, rollout and flow, and what the answer loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import streamlit as st

from core.interpret import evidence, trace as flow
from core.interpret.evidence import (
    Baseline,
    Contributions,
    Effect,
    Quantity,
    Question,
    ablate_heads,
    head_sets,
    hide_token,
    make_heads_uniform,
    measure_contributions,
    single_heads,
    token_scores,
)
from core.interpret.trace import AttentionMap, AttentionTrace, Head, Kind
from core.pretrained import ModelInputs, PretrainedError, Reading
from core.pretrained.answers import display_names
from core.pretrained.attention_recorder import NO_HEADS, HeadSet
from core.pretrained.maps import with_sink
from core.ranks import kendall
from core.studies import evidence as study
from core.studies.evidence import WAYS, HeadMaps, key_agreement, sharpness
from dashboard.draw.attention_view import Pair, Patches, attention_view, settle_pin, stores
from dashboard.draw.formats import distinct, number, percent, plain, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.multiples import Tile, multiples
from dashboard.draw.page_exports import Cell, Script, add_script
from dashboard.draw.palette import Ink
from dashboard.draw.vega import PICKED, Spec, axis_style, figure
from dashboard.server.cache import measurements, shared
from dashboard.ui.links import BOUND, read_linked, read_pair, write_linked, write_pair
from dashboard.ui.model_picker import (
    ModelChoice,
    choose_head,
    choose_model,
    current_head,
    head_field as draw_head_field,
    input_errors,
    masked_inputs,
    output_field,
    position_field,
)
from dashboard.ui.models import (
    ModelRef,
    answer_study,
    baseline_of,
    model_cell,
    one_thread,
    question_code,
    reading_of,
)
from dashboard.ui.panels import (
    caption,
    details,
    draw_chart,
    fact,
    next_page,
    paragraph,
    pressed_point,
    room,
    source_panel,
    table,
    theme,
    title,
)
from dashboard.ui.progress import fragment_unless_measuring, measure_with_progress

# The controls: the position that answers, the masked word, and which output is followed, as what quantity.


T = TypeVar("T")
WITHOUT_HEADS, WITHOUT_TOKENS = "evidence:heads", "evidence:tokens"  # names of measurements
WHOLE_FLOW = (
    48  # tokens up to which the flow to every row is computed; beyond, to the picked row alone
)
MAX_FLOW = 160
SHORT = 128  # tokens up to which a second thread costs a forward pass more than it saves
AGAINST = "The exhausted creature stayed on its side of the road."
KINDS: dict[str, str] = {"self": "encoder", "causal": "decoder", "cross": "cross"}
QUANTITIES: dict[str, Quantity | None] = {
    "automatic": None,
    "probability": "probability",
    "logit": "logit",
    "logit difference": "difference",
}


@dataclass(frozen=True, eq=False)
class Controls:
    """The model, its reading, the question, and the answer to it; None for arrays without a model."""

    ref: ModelRef
    reading: Reading
    question: Question
    baseline: Baseline | None

    @cached_property
    def maps(self) -> tuple[AttentionMap, ...]:
        """The maps, with a column for a learned sink."""
        return (with_sink(self.reading.trace) if self.reading.sinks else self.reading.trace).maps

    @cached_property
    def layers(self) -> dict[tuple[str, int], str]:
        """The name of each layer by kind and number, in the order of the maps."""
        mixed = len(self.reading.trace.kinds) > 1  # then a layer's number alone does not name it
        return {
            (item.kind, item.layer): f"{KINDS[item.kind]} " * mixed + item.layer_name
            for item in self.maps
        }

    @cached_property
    def heads(self) -> dict[Head, str]:
        """The name of each head."""
        return {
            (row, head): f"{layer}·H{head}"
            for row, (item, layer) in enumerate(zip(self.maps, self.layers.values(), strict=True))
            for head in range(len(item.weights))
        }

    @property
    def recordable(self) -> bool:
        """Whether heads can be switched off."""
        return self.baseline is not None and self.baseline.pretrained.recordable

    def head_id(self, head: Head) -> tuple[Kind, int, int]:
        item = self.maps[head[0]]
        return item.kind, item.layer, head[1]

    def row_of(self, kind: str, layer: int) -> int:
        """The index of a layer among the trace's maps."""
        return list(self.layers).index((kind, layer))

    @property
    def key(self) -> tuple[ModelRef, Question]:
        return self.ref, self.question

    @property
    def contributions(self) -> Contributions:
        """Norms and gradients of the question; shared by all sessions."""
        if self.baseline is None:
            return Contributions({}, {})
        return answer_study(measure_contributions, *self.key)

    @property
    def scores(self) -> dict[str, np.ndarray]:
        """The score of each token of the source by each measure."""
        return shared(_scores, *self.key)


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the controls and answer the question; PretrainedError if this model cannot answer it."""
    model, ref, inputs = choice.pretrained, choice.ref, choice.inputs
    if model is None:
        return Controls(ref, choice.reading, Question(inputs), None)
    if model.head == "none":
        against = ""
        if model.reads == "text":
            against = st.text_input(
                "Compared with the embedding of",
                AGAINST,
                key="evidence:against",
                **BOUND,
                help="The page measures the cosine of both embeddings. Left empty, it measures the cosine with the "
                "text's own embedding, which is 1 until a head or a token is removed.",
            )
        question = Question(inputs, against=(against or "").strip())
    else:
        with st.container(horizontal=True, vertical_alignment="top", key="evidence:question"):
            if model.head == "masked":
                question = Question(masked_inputs("evidence", choice))
            elif model.head == "classify":
                question = Question(inputs)
            else:
                question = Question(inputs, position_field("evidence", choice.reading))
            question = _output_fields(ref, question)
    reading = choice.reading if question.inputs == inputs else reading_of(ref, question.inputs)
    return Controls(ref, reading, question, baseline_of(ref, question))


def _output_fields(ref: ModelRef, question: Question) -> Question:
    """Draw the fields of the output and its quantity; returns the question with both."""
    baseline = baseline_of(ref, question)
    noun = "Class" if baseline.answer.kind == "class" else "Token"
    output = output_field("evidence", ref, baseline, f"{noun} to measure")
    if output is not None and output != baseline.id:
        baseline = baseline_of(ref, replace(question, output=output))
    name = st.selectbox(
        "Measured as",
        list(QUANTITIES),
        key="evidence:quantity",
        width=room(170),
        **BOUND,
        help=(
            "A probability changes little near 0 and 1; a logit, the number before the softmax, still changes. The "
            "difference of two logits leaves out what changes all of them. Automatic: the probability, or the logit where "
            "the most likely has more than 0.95."
        ),
    )
    quantity = QUANTITIES[str(name)]
    contrast = None
    if quantity == "difference":
        contrast = output_field("evidence", ref, baseline, "Minus the logit of", "contrast")
    return replace(question, output=output, quantity=quantity, contrast=contrast)


# What is measured of the answer, for all sessions.


def _scores(ref: ModelRef, question: Question) -> dict[str, np.ndarray]:
    contributions = answer_study(measure_contributions, ref, question)
    trace = reading_of(ref, question.inputs).trace
    return token_scores(baseline_of(ref, question), trace, contributions)


def _flow(ref: ModelRef, inputs: ModelInputs, row: int, query: int | None) -> study.Flow:
    return study.flow_map(reading_of(ref, inputs).trace, row, query)


def flow_query(item: AttentionMap, query: int) -> tuple[int | None, ...]:
    """To which query the flow is computed, None for all, as the one argument; of a very long text none at all."""
    longest = max(len(item.queries), len(item.keys))
    return () if longest > MAX_FLOW else (None if longest <= WHOLE_FLOW else query,)


def default_cell(controls: Controls, head: Head) -> tuple[int, int]:
    item = controls.maps[head[0]]
    return study.default_cell(item, head[1], controls.contributions, controls.baseline)


def gradient_estimates(controls: Controls) -> dict[Head, float]:
    return study.gradient_estimates(controls.maps, controls.contributions)


def answers_without(controls: Controls, baseline: Baseline, off: HeadSet) -> dict[Any, Any]:
    """The value of each of the likeliest answers (their ids) by WAYS; of an embedding, its similarity."""
    return _once("without", controls, off, lambda: study.answers_without(baseline, off))


def _once(name: str, controls: Controls, heads: HeadSet, measure: Callable[[], T]) -> T:
    values: dict[HeadSet, T] = measurements(f"evidence:{name}", controls.key)
    if heads not in values:
        values[heads] = measure()
    return values[heads]


# The page's Vega-Lite figure of an answer with heads on and off.


def before_after(
    rows: Sequence[Spec], words: Sequence[str], ink: Ink, logits: bool = False
) -> Spec:
    """Three marks a word, by WAYS: bars from 0, or of logits, whose 0 means nothing, points; rows hold word, of, p."""
    y = {
        "field": "word",
        "type": "nominal",
        "sort": list(words),
        "title": None,
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "labelFontSize": 13,
            "labelLimit": 130,
            "grid": False,
        },
    }
    low, high = min(row["p"] for row in rows), max(row["p"] for row in rows)
    room = 0.3 * ((high - low) or 1.0)  # for the number behind the mark
    domain = [low - 0.2 * room, high + room] if logits else [min(0, low), 1.25 * max(0.01, high)]
    x = {
        "field": "p",
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": domain, "zero": False},
    }
    base = {"y": y, "x": x, "yOffset": {"field": "of", "sort": list(WAYS)}}
    key = {
        "title": None,
        "orient": "top",
        "labelColor": ink.quiet,
        "labelFontSize": 12,
        "offset": 2,
        "symbolType": "square",
    }
    colour = {
        "field": "of",
        "type": "nominal",
        "sort": list(WAYS),
        "legend": key,
        "scale": {"domain": list(WAYS), "range": [ink.quiet, ink.series[0], ink.pick]},
    }
    tips = [
        {"field": "word", "title": "answer"},
        {"field": "of", "title": "heads"},
        {"field": "text", "title": "value"},
    ]
    data = {"values": [row | {"end": max(row["p"], domain[0] if logits else 0)} for row in rows]}
    mark = (
        {"type": "point", "filled": True, "size": 60, "opacity": 1}
        if logits
        else {"type": "bar", "cornerRadius": 2}
    )
    number = {**base, "x": {**x, "field": "end"}, "text": {"field": "text"}}
    return figure(
        [
            {"data": data, "mark": mark, "encoding": {**base, "color": colour, "tooltip": tips}},
            {
                "data": data,
                "encoding": number,
                "mark": {
                    "type": "text",
                    "align": "left",
                    "dx": 8 if logits else 4,
                    "fontSize": 12,
                    "color": ink.quiet,
                },
            },
        ],
        {"step": 15},
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


def target_text(baseline: Baseline) -> str:
    """What the page measures, in a few words."""
    if baseline.word is None:
        return (
            "the similarity with the other sentence"
            if baseline.question.against
            else "the similarity with itself"
        )
    kind = "class" if baseline.answer.kind == "class" else "answer" if baseline.is_top else "token"
    name = f"{kind} **{plain(baseline.word)}**"
    if baseline.other is not None:
        return f"the logit of the {name} minus that of **{plain(baseline.other)}**"
    return f"the {baseline.quantity} of the {name}"


def why_logit(baseline: Baseline) -> str:
    """Why the logit is measured where nobody chose it; empty elsewhere."""
    if (
        baseline.question.quantity is not None
        or baseline.quantity != "logit"
        or baseline.answer.probabilities is None
    ):
        return ""
    most = number(float(baseline.answer.probabilities.max()))
    return (
        f" The most likely has a probability of {most}, which changes little so close to 1, so the logit is "
        "measured."
    )


def moves(before: float, after: float) -> str:
    """ "falls from a to b" or "rises from a to b"; by how much, where both have the same text."""
    verb, first, last = "falls" if after < before else "rises", number(before), number(after)
    if first == last:
        return f"{verb} by **{number(abs(after - before))}** from **{first}**"
    return f"{verb} from **{first}** to **{last}**"


def heads_fact(
    baseline: Baseline,
    ranked: Sequence[tuple[str, Effect]],
    picked: str,
    layer: tuple[str, Effect] | None,
    sharpest: tuple[str, float],
    agree: tuple[float | None, float | None],
) -> str:
    """The head and layer with the largest effects, the ranks of the picked and the sharpest head, how ranks agree."""
    first, effect = ranked[0]
    name_text = f":primary[**{plain(first)}**]" if first == picked else f"**{plain(first)}**"
    ranks = {name: rank for rank, (name, _) in enumerate(ranked)}
    text = (
        f"Without {name_text}, {target_text(baseline)} {moves(baseline.value, effect.value)}, "
        + (f"the largest change of {len(ranked)} heads" if len(ranked) > 1 else "its only head")
    )
    text += (
        f"; without all of {plain(layer[0])} it is {number(layer[1].value)}. " if layer else ". "
    )
    if picked != first:
        text += (
            f"Without :primary[**{plain(picked)}**] it is {number(ranked[ranks[picked]][1].value)}, number "
            f"{ranks[picked] + 1}. "
        )
    name, sharp = sharpest
    change = ranked[ranks[name]][1].change
    position = "first" if not ranks[name] else f"number {ranks[name] + 1}"
    text += (
        f"The sharpest head, **{plain(name)}** with a mean largest weight of {number(sharp)}, is {position}: "
        f"{signed(change)}."
    )
    by_weight, by_slope = agree
    if by_weight is not None:
        text += f" Over all heads, the ranks by sharpness and by change agree with ρ = {signed(by_weight)}"
        text += (
            "."
            if by_slope is None
            else f"; those by gradient estimate and by change with {signed(by_slope)}."
        )
    return text


def cell_fact(head: str, pair: tuple[str, str], measures: HeadMaps, row: int, column: int) -> str:
    """One cell in all measures: its weight, what is written, its gradient, and what arrives by paths of attention."""
    values = {name: float(each[row, column]) for name, each in measures.maps.items()}
    (query, key), weight, lengths = pair, values["weights"], measures.lengths
    text = (
        f"In **{plain(head)}**, :primary[**{plain(query)}**] puts **{number(weight)}** of its weight on "
        f"**{plain(key)}**"
    )
    if lengths is not None and column < lengths.shape[1]:
        share = values["written"]
        less, more = share < weight - 0.02, share > weight + 0.02
        text += f"{', but only' if less else ', and'} **{number(share)}** of what it writes comes from there"
        text += (
            f": v·W_O has length {number(float(lengths[row, column]))} there and "
            f"{number(float(lengths[row].mean()))} on average"
            if less or more
            else ""
        )
    if "gradient" in values:
        text += f"; the gradient gives this cell {signed(values['gradient'])}"
    text += (
        f". Over all paths through attention and residuals, {number(values['rollout'])} of {plain(query)} comes "
        f"from {plain(key)}"
    )
    return text + (
        "." if "flow" not in values else f", and at most {number(values['flow'])} can flow."
    )


def heads_csv(controls: Controls, changes: Mapping[Head, Effect]) -> str:
    """A line a head: the answer without it, the gradient's estimate, and its mean largest weight."""
    estimates, sharp = gradient_estimates(controls), sharpness(controls.maps)
    lines = ["kind,layer,head,answer,change,gradient_estimate,largest_weight"]
    for head, effect in changes.items():
        kind, layer, index = controls.head_id(head)
        estimate = f"{estimates[head]:.8g}" if head in estimates else ""
        lines.append(
            f"{kind},{layer},{index},{effect.value:.8g},{effect.change:.8g},{estimate},{sharp[head]:.8g}"
        )
    return "\n".join(lines) + "\n"


def tokens_fact(
    tokens: Sequence[str],
    lost: Sequence[float],
    first: Mapping[str, int],
    agree: Mapping[str, float | None],
) -> str:
    """Which token the answer needs, which one the weights rank first, and how well each measure orders all of them."""
    needed = max(range(len(lost)), key=lambda index: abs(lost[index]))
    named = first["weights"]
    text = f"Hiding :primary[**{plain(tokens[needed])}**] changes the answer most, by **{signed(lost[needed])}**. "
    text += (
        f"The weights rank {plain(tokens[named])} first as well"
        if named == needed
        else f"The weights rank **{plain(tokens[named])}** first, but hiding it changes the answer by "
        f"{signed(lost[named])}"
    )
    known = {name: tau for name, tau in agree.items() if tau is not None}
    if "weights" not in known:
        return f"{text}."
    best = max(known, key=lambda name: known[name])
    text += f"; over all {len(tokens)} tokens their order agrees with the measured one with τ = "
    text += f"**{signed(known['weights'])}**"
    return text + (
        ", the most of all measures."
        if best == "weights"
        else f". The order by {SPOKEN[best]} agrees most, with {signed(known[best])}."
    )


VERDICTS = (
    (
        0.25,
        "So what the head writes matters here, and where it attends hardly does: other weights would "
        "give nearly the same answer.",
    ),
    (
        0.75,
        "So {share} of the head's contribution is where it attends; the rest is what it writes in any case.",
    ),
    (
        1.25,
        "So this head contributes by where it attends: with uniform weights its contribution is lost.",
    ),
    (
        math.inf,
        "So this head contributes by where it attends: with uniform weights it does more harm than when "
        "it is off.",
    ),
)


def even_fact(baseline: Baseline, head: str, even: Effect, off: Effect) -> str:
    """How much of a head's effect is due to its weights, by the same head with uniform weights."""
    text = (
        f"**Other weights, the same answer?** With uniform weights, as Wiegreffe and Pinter test it, {plain(head)} "
        f"gives {number(even.value)} instead of {number(baseline.value)}; switched off it gives "
        f"{number(off.value)}. "
    )
    if abs(off.change) < 1e-6:
        return text + "The head changes nothing, so its weights change nothing either."
    share = even.change / off.change
    return text + next(
        verdict.format(share=percent(share)) for limit, verdict in VERDICTS if share < limit
    )


CAN_TELL = (
    "**What weights can and cannot tell.** Jain and Wallace (“Attention is not Explanation”, 2019) found that weights "
    "often order tokens differently from gradients and from leaving words out, and that other weights can give the "
    "same answer. Wiegreffe and Pinter (“Attention is not not Explanation”, 2019) reply that other weights are a fair "
    "test only if a whole model is trained to have them, and that such models learn less from them: a weight is one "
    "explanation of an answer, if not the only one. "
)


def can_tell(agree: Mapping[str, float | None] | None, same_first: bool) -> str:
    """The two papers, and this text between them; `same_first`: the weights put the most needed token first."""
    if agree is None:
        return CAN_TELL
    tau = agree.get("weights")
    if tau is None:
        return (
            CAN_TELL
            + "Here there are too few tokens, or nothing changes, so neither can be tested."
        )
    side = (
        "so here the weights show well which tokens matter, but not how much"
        if tau >= 0.6
        else "so here they show in part which tokens matter"
        if tau >= 0.2
        else "so here they show little of which tokens matter"
    )
    if same_first and tau < 0.6:
        side += ", though they rank the one that matters most first"
    return (
        f"{CAN_TELL}On your text the order by weight agrees with the measured one with τ = {signed(tau)} (1: the "
        f"same order, 0: no relation), {side}."
    )


def conditions(controls: Controls) -> str:
    """Under which conditions the page's numbers hold."""
    text = f"{plain(controls.reading.trace.source)}, {controls.reading.source.count}"
    text += "; fp32, no dropout" if controls.baseline else ", as uploaded"
    text += ", one forward pass per head." if controls.recordable else "."
    if len(controls.reading.trace.kinds) > 1:
        text += (
            " The paper on rollout and flow covers encoders only; here the decoder's steps follow the encoder's "
            "in one graph, and the part that reaches the source is shown."
        )
    if controls.recordable:
        text += " A head that changes nothing by itself may be one of several that do the same."
    return text


# The first figure: what the answer loses without each head, and the answer with several of them off.


MODEL = "evidence:model"
LAYER = "all"  # the column of whole layers
HeadsPair = tuple[Effect, Effect]
TABLE_ROWS = 6


def section(controls: Controls, baseline: Baseline) -> tuple[Head, HeadsPair, HeadSet]:
    """Draw the section; returns the picked head, its effects with uniform weights and off, and all heads that are off."""
    todo, alone_fast = head_sets(controls.reading.trace), len(baseline.source) <= SHORT
    with one_thread(alone_fast):
        effects = measure_with_progress(
            WITHOUT_HEADS,
            controls.key,
            todo,
            lambda off: ablate_heads(baseline, off),
            "heads and layers",
        )
    alone = {
        (controls.row_of(kind, layer), head): effect
        for (kind, layer, head), effect in single_heads(effects).items()
    }
    ranked = sorted(alone, key=lambda head: -abs(alone[head].change))
    picked, measured_all = _picked_head(controls, ranked[0]), len(alone) == len(controls.heads)
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        _grid(controls, baseline, effects, ranked, picked)
    with right, one_thread(alone_fast):
        pair, off = _without(controls, baseline, picked, effects)
    sharp, estimates = sharpness(controls.maps), gradient_estimates(controls)
    if measured_all:
        sharpest = max(sharp, key=lambda head: sharp[head])
        whole = [
            (controls.layers[kind, layer], effect)
            for out, effect in effects.items()
            for kind, layer, head in out
            if head is None
        ]
        fact(
            heads_fact(
                baseline,
                [(controls.heads[head], alone[head]) for head in ranked],
                controls.heads[picked],
                max(whole, key=lambda pair: abs(pair[1].change), default=None),
                (controls.heads[sharpest], sharp[sharpest]),
                study.rank_agreement(alone, sharp, estimates),
            )
        )
    count, shown = len(controls.heads), min(TABLE_ROWS, len(ranked))
    of = "" if measured_all else f" of the {len(alone)} measured so far, out of {count}"
    label = f"The {shown} heads that the answer needs most" if shown > 1 else "The head"
    details(
        f"{label}{of}, as a table",
        partial(_ranking, controls, baseline, alone, ranked),
        "evidence:ranking",
    )
    return picked, pair, off


def head_field(controls: Controls, picked: Head) -> None:
    """Draw the field of the head."""

    def choose(head: Head) -> None:
        kind, layer, index = controls.head_id(head)
        choose_head(controls.ref, kind, (layer, index))
        write_pair("head", head)

    draw_head_field(
        {name: head for head, name in controls.heads.items()},
        picked,
        choose,
        f"evidence:head:{controls.ref.name}",
    )


def _picked_head(controls: Controls, default: Head) -> Head:
    """The head of the link, else the one that was picked on another page, else the default."""
    if st.session_state.setdefault(MODEL, controls.ref) != controls.ref:
        st.session_state[MODEL] = controls.ref
        write_pair("head", None)  # another model has other heads
    bounds = len(controls.maps), max(len(item.weights) for item in controls.maps)
    linked, error = read_pair("head", bounds)
    if error:
        st.warning(error)
    if linked in controls.heads:
        kind, layer, index = controls.head_id(linked)
        choose_head(controls.ref, kind, (layer, index))
        return linked
    if stored := current_head(controls.ref):
        for head in controls.heads:
            if controls.head_id(head) == (stored[0], *stored[1]):
                write_pair("head", head)
                return head
    return default


def _grid(
    controls: Controls,
    baseline: Baseline,
    effects: Mapping[HeadSet, Effect],
    ranked: list[Head],
    picked: Head,
) -> None:
    """Draw the change of the answer without each head and each layer, whose cells pick a head."""
    rows: list[Spec] = []
    measured = "" if len(ranked) == len(controls.heads) else " measured"
    for off, effect in effects.items():
        ((kind, layer, head),) = off
        name, one = controls.layers[kind, layer], (controls.row_of(kind, layer), head)
        cell = {"head": LAYER, "name": f"all of {name}", "share": "a whole layer"}
        if head is not None:
            rank = f"{ranked.index(one) + 1} of {len(ranked)}{measured}"  # type: ignore[arg-type]
            cell = {"head": str(head), "name": f"{name}·H{head}", "share": rank}
        rows.append(
            cell
            | {
                "layer": name,
                "change": effect.change,
                "by": signed(effect.change),
                "now": f"{number(effect.value)} instead of {number(baseline.value)}",
            }
        )
    layers = list(controls.layers.values())
    heads = [str(head) for head in range(max(len(item.weights) for item in controls.maps))]
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    ):
        st.markdown(
            "**Without each head**",
            width="content",
            help="One forward pass per head, in which its output is "
            "zero. The last column is the whole layer.",
        )
        head_field(controls, picked)

    def pick() -> None:
        point = pressed_point("evidence:grid")
        if point and point["head"] != LAYER:
            write_pair("head", (layers.index(point["layer"]), int(point["head"])))

    draw_chart(
        st,
        effect_grid(rows, layers, [*heads, LAYER], (layers[picked[0]], str(picked[1])), theme()),
        key="evidence:grid",
        on_select=pick,
        selection_mode=[PICKED],
        alt="What the answer loses without each head",
    )


def _without(
    controls: Controls, baseline: Baseline, picked: Head, effects: Mapping[HeadSet, Effect]
) -> tuple[HeadsPair, HeadSet]:
    """Draw the answer without the picked head and those that a person adds to it.

    Returns the effects of the head, and all that is off.
    """
    name = controls.heads[picked]
    options = {
        f"all of {layer}": frozenset({(*about, None)}) for about, layer in controls.layers.items()
    } | {name: frozenset({controls.head_id(head)}) for head, name in controls.heads.items()}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Without {plain(name)}**", width="content")
        with st.popover("More heads", icon=":material/power_settings_new:"):
            others = st.multiselect(
                "Switched off as well",
                list(options),
                key=f"evidence:off:{controls.ref.name}",
                help="Heads and layers that are switched off together with the picked head.",
                **BOUND,
            )
    others = [other for other in others if other != name]
    alone: HeadSet = frozenset({controls.head_id(picked)})
    off: HeadSet = alone.union(*(options[other] for other in others))
    answers = answers_without(controls, baseline, off)
    ids = [id for id in answers if id is not None]
    words = distinct(display_names(baseline.pretrained, baseline.answer, ids)) or ["similarity"]
    rows = [
        {"word": word, "of": way, "p": value, "text": number(value)}
        for word, by_way in zip(words, answers.values(), strict=True)
        for way, value in by_way.items()
    ]
    logits = baseline.id is not None and baseline.quantity != "probability"
    draw_chart(
        st,
        before_after(rows, words, Ink.of(theme()), logits),
        key="evidence:bars",
        alt="The likeliest tokens with and without the picked head",
    )
    st.caption(
        f"The page measures {target_text(baseline)}.{why_logit(baseline)}",
        help="Uniform: the head gives the same weight to every key that it may attend to. It still writes its "
        "values, but no longer chooses among them.",
    )
    pair = (
        _once("uniform", controls, alone, lambda: make_heads_uniform(baseline, alone)),
        effects.get(alone) or ablate_heads(baseline, alone),
    )
    if others:
        parts = [frozenset({head}) for head in off]
        added = sum(effects[part].change for part in parts if part in effects)
        effect = effects.get(off) or ablate_heads(baseline, off)
        st.caption(
            plain(
                f"Off: {', '.join([name, *others])}. Together they change the answer by "
                f"{signed(effect.change)}; one at a time, their changes sum to {signed(added)}."
            )
        )
    return pair, off


def _ranking(
    controls: Controls, baseline: Baseline, alone: Mapping[Head, Effect], ranked: list[Head]
) -> None:
    """Draw the heads that the answer needs most, with other measures of them, and all that were measured as a file."""
    estimates, sharp = gradient_estimates(controls), sharpness(controls.maps)
    rows = []
    for head in ranked[:TABLE_ROWS]:
        effect, output = alone[head], ""
        if effect.id is not None:
            (output,) = display_names(baseline.pretrained, baseline.answer, [effect.id])
        rows.append(
            {
                "head": controls.heads[head],
                "answer without it": number(effect.value),
                "change": signed(effect.change),
                **({"prediction then": output} if baseline.id is not None else {}),
                **({"gradient estimate": signed(estimates[head])} if estimates else {}),
                "largest weight": number(sharp[head]),
            }
        )
    table(
        list(rows[0]),
        [list(row.values()) for row in rows],
        caption="Heads by the change of the answer without them",
        markers=False,
    )
    which = "All" if len(alone) == len(controls.heads) else "The measured"
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


def maps_section(controls: Controls, head: Head) -> HeadMaps:
    """Draw the measures side by side with one crosshair, and the picked cell in all of them as a sentence."""
    item, name = controls.maps[head[0]], controls.heads[head]
    shape: Pair = item.weights.shape[1:]  # type: ignore[assignment]
    linked = read_linked("evidence", "pin", shape, (controls.ref, controls.question.inputs))
    pinned = settle_pin(stores(KEY, None)[0], KEY, linked, shape)
    write_linked("evidence", "pin", pinned)
    row, column = pinned or default_cell(controls, head)
    flowing = None
    for query in flow_query(item, row):
        flowing = shared(_flow, controls.ref, controls.question.inputs, head[0], query)
    contributions = controls.contributions
    measures = study.head_maps(controls.reading.trace, item, head[1], contributions, flowing)
    paragraph(f"**{name} on the same tokens**")
    if max(item.weights.shape) > MAX_DRAWN:
        sizes = [np.abs(each[row]) for each in measures.maps.values()]
        note = "each measure from 0 to its largest value, without signs"
        values = np.stack([size / (size.max() or 1.0) for size in sizes])
        multiples(
            [Tile(f"From {item.queries[row]}", note, values)],
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
            f"{shape[0]} × {shape[1]} cells are too many to show side by side, so only row {row} is shown."
        )
    else:
        multiples(
            _tiles(item, head[1], measures),
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
    fact(cell_fact(name, (item.queries[row], item.keys[column]), measures, row, column))
    if flowing is None:
        st.caption(f"Flow is left out: {max(shape)} tokens are too many for it here.")
    if contributions.out_of_memory:
        st.caption(
            "The gradient is left out: it needs more memory than this computer has free. Use a shorter text."
        )
    return measures


def _tiles(item: AttentionMap, head: int, measures: HeadMaps) -> list[Tile]:
    """A map a measure, masked where the head cannot attend or the measure is unknown; the gradient is signed."""
    tiles, shape = [], item.weights.shape[1:]
    visible = None
    if item.mask is not None:
        visible = np.broadcast_to(item.mask, (max(head + 1, len(item.mask)), *shape))[head]
    for index, (name, values) in enumerate(measures.maps.items()):
        mask, note = visible, NOTES[name]
        if name == "flow" and measures.known is not None:
            known = measures.known
            mask = np.pad(known, ((0, 0), (0, shape[1] - known.shape[1])))
            mask, note = mask if visible is None else visible & mask, f"{note}; this row only"
        tile = Tile(NAMES[name], note, values, mask, index)
        if name == "gradient":
            share = values / (np.abs(values).max() or 1.0)
            tile = replace(tile, weights=share, span=(-1.0, 1.0), signed=True)
        tiles.append(tile)
    return tiles


def agreement(measures: HeadMaps) -> None:
    """Draw how the measures of this head agree in the order of the keys."""
    rows = []
    for one in measures.maps:
        ρ = {other: key_agreement(measures, one, other) for other in measures.maps}
        texts = [
            "–" if value is None else number(value) if other == one else signed(value)
            for other, value in ρ.items()
        ]
        rows.append([NAMES[one], *texts])
    table(
        ["ρ", *(NAMES[name] for name in measures.maps)],
        rows,
        markers=False,
        caption="Agreement of the order of the keys between measures, Spearman's ρ",
    )
    st.caption(
        "Spearman’s ρ between the orders of the keys by two measures, the mean over the rows; the gradient "
        "without its sign. 1 is the same order, 0 no relation."
    )


# What the page computes as Python.


HEADS = "What the answer loses without each head, and without each layer: one forward pass each."
WITHOUT = "The likeliest answers with all heads, with these heads uniform, and with them off."
MAPS = "One head on the same tokens by each measure"
TOKENS = "The tokens by each measure, and the change of the answer when each is hidden."
_EVERY = """
import numpy as np

from core.interpret.evidence import ablate_heads, head_sets

effects = {off: ablate_heads(baseline, off) for off in head_sets(reading.trace)}
changes = np.array([effect.change for effect in effects.values()])
(needed,) = list(effects)[abs(changes).argmax()]
print("largest change:", needed, changes[abs(changes).argmax()])
"""
_GRID = """
import altair as alt
import pandas as pd

rows = [{"layer": f"{kind} {layer}", "head": "all" if head is None else head, "change": effect.change}
        for off, effect in effects.items() for kind, layer, head in off]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="head:O", y="layer:N", color="change:Q")
"""
_TOKENS = """
import numpy as np

from core.interpret.evidence import hide_token, token_scores
from core.ranks import kendall

scores = token_scores(baseline, reading.trace, contributions)
hidden = np.array([hide_token(baseline, token).change for token in range(len(baseline.source))])
for name, score in scores.items():
    print(f"{name}: first {reading.source.tokens[score.argmax()]}, tau with hiding {kendall(score, abs(hidden))}")
rows = np.stack([*scores.values(), abs(hidden)])
shares = rows / rows.max(-1, keepdims=True).clip(1e-30)  # of the largest
"""
_STRIP = """
from core.show import show_maps

show_maps({"Share of the largest": shares}, [*scores, "hidden"], reading.source.tokens)
"""


def script(controls: Controls, head: Head, measures: HeadMaps, off: HeadSet) -> Script:
    """The measures that the page could take: of an array, rollout and flow alone."""
    baseline, item = controls.baseline, controls.maps[head[0]]
    cells = [model_cell(controls.ref, None if baseline is None else controls.question.inputs)]
    results: dict[str, np.ndarray] = {}
    contributions = "Contributions({}, {})"
    if baseline is not None:
        contributions = "measure_contributions(baseline)"
        ask = f"""
from core.interpret.evidence import Question, ask

baseline = ask(model, {question_code(controls.question)})
print(baseline.word or "cosine", baseline.value)
"""
        cells.append(Cell("The answer of the whole model.", ask))
        results["baseline.value"] = np.array(baseline.value)
    if baseline is not None and controls.recordable:
        ways = f"""
from core.studies.evidence import answers_without

off = frozenset({set(off)!r})  # (kind, layer, head); None is the whole layer
answers = answers_without(baseline, off)  # by token, with all heads on, these uniform, and off
for token, values in answers.items():
    print(token, values)
"""
        cells += [Cell(HEADS, _EVERY, _GRID, "evidence:grid"), Cell(WITHOUT, ways)]
        results["[list(values.values()) for values in answers.values()]"] = np.array(
            [list(each.values()) for each in answers_without(controls, baseline, off).values()]
        )
        measured = measurements(WITHOUT_HEADS, controls.key)
        todo = head_sets(controls.reading.trace)
        if all(one in measured for one in todo):
            results["changes"] = np.array([measured[one].change for one in todo])
    query = (
        default_cell(controls, head)[0]
        if measures.known is None
        else measures.known.any(1).argmax()
    )
    flowing = [f"flow_map(reading.trace, {head[0]}, {to})" for to in flow_query(item, int(query))]
    made = contributions.partition("(")[0]
    maps = f"""
from core.interpret.evidence import {made}
from core.studies.evidence import flow_map, head_maps
{"from core.pretrained.maps import with_sink" if controls.reading.sinks else ""}
contributions = {contributions}
item = {"with_sink(reading.trace)" if controls.reading.sinks else "reading.trace"}.maps[{head[0]}]
flowing = {flowing[0] if flowing else None}  # maximum flow to each query
measures = head_maps(reading.trace, item, {head[1]}, contributions, flowing)  # each (T, S)
"""
    draw = f"""
from core.show import show_maps

shown = {{name: values for name, values in measures.maps.items() if name != "gradient"}}
show_maps(shown, item.queries, item.keys, row={query})
"""
    picture = KEY if max(item.weights.shape) <= MAX_DRAWN else "evidence:row"
    cells.append(Cell(f"{MAPS}: {', '.join(measures.maps)}.", maps, draw, picture))
    results |= {f"measures.maps[{name!r}]": values for name, values in measures.maps.items()}
    measured = measurements(WITHOUT_TOKENS, controls.key)
    count = len(controls.reading.source.tokens)
    if baseline is not None and all(token in measured for token in range(count)):
        cells.append(Cell(TOKENS, _TOKENS, _STRIP, "evidence:strip"))
        changes = np.array([measured[token].change for token in range(count)])
        rows = np.stack([*controls.scores.values(), np.abs(changes)])
        results |= {f"scores[{name!r}]": values for name, values in controls.scores.items()}
        results |= {"hidden": changes, "shares": rows / rows.max(-1, keepdims=True).clip(1e-30)}
    return Script(tuple(cells), results)


# The third figure: the tokens by every measure, and what the answer loses when each one is hidden.


HIDDEN = "Measured"
Agreement = tuple[dict[str, float | None] | None, bool]


def tokens_section(controls: Controls, baseline: Baseline) -> Agreement:
    """Draw every measure as a row over the tokens, the measured changes last.

    Returns Kendall's τ of each measure with those (None where not every token was hidden), and whether the weights put
    the same token first.
    """
    tokens = controls.reading.source.tokens
    st.markdown("**Which tokens the answer depends on**")
    try:
        with one_thread(len(tokens) <= SHORT):
            effects = measure_with_progress(
                WITHOUT_TOKENS,
                controls.key,
                range(len(tokens)),
                lambda token: hide_token(baseline, token),
                "tokens",
            )
    except PretrainedError as error:
        st.caption(plain(str(error)))
        return None, False
    if len(effects) < len(tokens):
        return None, False
    changes = np.array([effects[token].change for token in range(len(tokens))])
    measures = controls.scores
    agree = {name: kendall(values, np.abs(changes)) for name, values in measures.items()}
    first = {name: int(values.argmax()) for name, values in measures.items()}
    needed = int(np.abs(changes).argmax())
    _strip(controls, measures, changes)
    fact(tokens_fact(tokens, changes.tolist(), first, agree))
    rows = [
        [NAMES[name], MEANINGS[name], tokens[first[name]], "–" if tau is None else signed(tau)]
        for name, tau in agree.items()
    ]
    rows.append([HIDDEN, "the token hidden from every head", tokens[needed], ""])
    table(
        ["measure", "computed from", "ranks first", "τ"],
        rows,
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


def _strip(controls: Controls, measures: dict[str, np.ndarray], changes: np.ndarray) -> None:
    """Draw measures × tokens; for a picture, the picture with the picked row over its patches."""
    tokens = controls.reading.source.tokens
    names = [*(NAMES[name] for name in measures), HIDDEN]
    values = np.stack([row / (row.max() or 1.0) for row in (*measures.values(), np.abs(changes))])
    patches = Patches.of(controls.question.inputs.picture, controls.reading.source)
    pin = read_linked("evidence", "strip", values.shape, (controls.ref, controls.question.inputs))
    if patches is not None:
        item = AttentionMap("cross", 0, values[None].astype(np.float32), tuple(names), tokens)
        picked = attention_view(
            AttentionTrace((item,), "measures"),
            key="evidence:patches",
            query=len(names) - 1,
            pin=pin,
            patches=patches,
            title="Share of the largest",
            reads="measure (row) … patch (column)",
            fact=f"{len(names)} measures of {len(tokens)} patches",
        ).pin
    else:
        picked = multiples(
            [Tile("Share of the largest", "each row from 0 to its largest value", values)],
            names,
            tokens,
            pin=pin,
            key="evidence:strip",
            query=len(names) - 1,
            noun="share",
            reads="measure (row) … token (column)",
            fact=f"{len(names)} measures of {len(tokens)} tokens",
        )
    write_linked("evidence", "strip", picked)


# The page Evidence.


PAPERS = (
    (
        "‖α·v·W_O‖",
        "Kobayashi et al. 2020",
        "https://arxiv.org/abs/2004.10102",
        "the length of the vector that a head writes at a query for one key",
    ),
    (
        "Rollout and flow",
        "Abnar and Zuidema 2020",
        "https://arxiv.org/abs/2005.00928",
        "attention combined over the layers, with the residual as half of every step",
    ),
    (
        "Heads switched off",
        "Michel et al. 2019",
        "https://arxiv.org/abs/1905.10650",
        "what the answer loses without a head, and α·∂answer/∂α as its estimate",
    ),
    (
        "Weights as explanation",
        "Jain and Wallace 2019",
        "https://arxiv.org/abs/1902.10186",
        "how the order of words by weight agrees with gradients and with leaving words out",
    ),
    (
        "A reply",
        "Wiegreffe and Pinter 2019",
        "https://arxiv.org/abs/1908.04626",
        "when another set of weights is a fair comparison, and when it is not",
    ),
)
SOURCES = (
    evidence.ablate_heads,
    evidence.make_heads_uniform,
    evidence.hide_token,
    evidence.measure_contributions,
    evidence.value_norms,
    flow.rollout,
    flow.flow,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Evidence",
        "A weight shows where a head attends. Compare it with what the head writes and what the answer "
        "loses without it.",
    )
    choice = choose_model()
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
        details("Papers and source", _papers, "evidence:papers")
    next_page("evidence")


def _view(choice: ModelChoice) -> None:
    """Draw the controls and all that they change."""
    with input_errors():
        controls = draw_controls(choice)
        if controls.reading.note:
            st.caption(plain(controls.reading.note))
        baseline, pair, off = controls.baseline, None, NO_HEADS
        if baseline is not None and controls.recordable:
            head, pair, off = section(controls, baseline)
        else:
            st.caption(
                "Only the weights are known here, so the page shows only what follows from them: rollout and flow."
            )
            head = _picked_head(controls, next(iter(controls.heads)))
            head_field(controls, head)
        measures = maps_section(controls, head)
        add_script(partial(script, controls, head, measures, off))
        _equation(controls, head, measures)
        details(
            "How the measures of this head agree", lambda: agreement(measures), "evidence:agree"
        )
        if baseline is not None:
            agreed = tokens_section(controls, baseline)
            if pair is not None:
                paragraph(even_fact(baseline, controls.heads[head], *pair))
            paragraph(can_tell(*agreed))
        caption(conditions(controls))


def _equation(controls: Controls, head: Head, measures: HeadMaps) -> None:
    """Draw the norm that is written at the default cell, and its rollout, with their numbers."""
    row, column = default_cell(controls, head)
    if measures.lengths is None or column >= measures.lengths.shape[1]:
        return
    weight, length = (
        float(measures.maps["weights"][row, column]),
        float(measures.lengths[row, column]),
    )
    st.latex(
        rf"\lVert \alpha\, v\, W_O\rVert = {number(weight)} \times {number(length)} = "
        rf"{number(weight * length)}"
    )
    st.latex(
        rf"\tilde A = \prod_\ell \tfrac12\left(\bar A_\ell + I\right),\quad "
        rf"\tilde A_{{{row},{column}}} = {number(float(measures.maps['rollout'][row, column]))}"
    )


def _papers() -> None:
    for name, paper, url, meaning in PAPERS:
        st.markdown(f"**{plain(name)}** — {plain(meaning)}. [{paper}]({url})")
    for function in SOURCES:
        source_panel(function)
