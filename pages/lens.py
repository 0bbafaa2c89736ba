"""When it decides: every layer read as if it were the last, and who wrote the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import streamlit as st

from core.interpret import lens
from core.interpret.evidence import Baseline, Question
from core.interpret.lens import (
    PASSES,
    Attribution,
    LensPart,
    LogitLens,
    Part,
    Stream,
    Trajectories,
    attribute_passes,
    count_parts,
    follow_tokens,
    join_parts,
    read_part,
    read_stream,
)
from core.interpret.trace import Kind, to_numpy
from core.pretrained import Line, PretrainedError, Reading
from core.pretrained.answers import mask_position, output_id
from core.pretrained.generate import token_names
from core.studies import lens as study
from core.studies.lens import (
    EMBEDDING,
    WINDOW,
    Decision,
    answering_maps,
    layer_names,
    window_start,
)
from dashboard.draw import vega
from dashboard.draw.formats import distinct, latex, number, percent, plain, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.page_exports import Cell, Script, add_script, source_of
from dashboard.draw.palette import CATEGORIES, PAGE, SIGNED, Ink, Theme, colour_scale
from dashboard.draw.vega import (
    PICKED,
    Spec,
    axis_style,
    figure,
    layer,
    picking_grid,
    series_encoding,
)
from dashboard.server.cache import measurements, shared
from dashboard.ui.heads import weight_link
from dashboard.ui.links import BOUND, read_linked, write_pair
from dashboard.ui.model_picker import (
    KINDS,
    NOTHING,
    ModelChoice,
    choose_head,
    choose_model,
    current_head,
    head_field,
    input_errors,
    masked_inputs,
    output_field,
    output_names,
    position_field,
    position_key,
)
from dashboard.ui.models import (
    ModelRef,
    answer_study,
    baseline_of,
    is_small,
    load_model,
    model_cell,
    one_thread,
    question_code,
    study_of,
)
from dashboard.ui.panels import (
    Move,
    caption,
    chart_title,
    details,
    draw_chart,
    fact,
    field_error,
    next_page,
    paragraph,
    picture,
    pressed_point,
    room,
    source_panel,
    table,
    theme,
    title,
    try_this,
)
from dashboard.ui.progress import UNASKED, fragment_unless_measuring, measure_with_progress

# The controls: the view, the position that answers, the token that is followed, and what it is compared with.


LENS_PARTS, ATTRIBUTED = "lens:read", "lens:attributed"  # for all sessions
VIEWS = {"when": "When it decides", "who": "Who wrote it"}
DECISIVE = "where it is decided"
MAX_ADDED = 4  # that a reader adds


@dataclass(frozen=True, eq=False)
class Controls:
    """The model, its reading, and the question with its answer; `contrast` is a token whose logit is subtracted."""

    choice: ModelChoice
    view: str
    question: Question
    baseline: Baseline
    contrast: int | None

    @property
    def ref(self) -> ModelRef:
        return self.choice.ref

    @property
    def reading(self) -> Reading:
        return self.choice.reading

    @property
    def line(self) -> Line:
        """The tokens of the sequence that answers."""
        return self.reading.target or self.reading.source

    @property
    def position(self) -> int:
        return self.baseline.answer.position


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the fields above both views; PretrainedError where this model cannot answer."""
    view = (
        st.segmented_control(
            "View",
            list(VIEWS),
            default="when",
            required=True,
            format_func=VIEWS.__getitem__,
            key="lens:view",
            label_visibility="collapsed",
            **BOUND,
            help="The answer layer by layer, or the parts that it is the sum of.",
        )
        or "when"
    )
    pretrained = choice.pretrained
    assert pretrained is not None
    with st.container(horizontal=True, vertical_alignment="top", key="lens:question"):
        masked = None
        if pretrained.head == "masked":
            inputs = masked_inputs("lens", choice, "word")
            choice = replace(choice, inputs=inputs)
            masked = mask_position(
                pretrained, baseline_of(choice.ref, Question(inputs)).batch["input_ids"]
            )
        question = Question(choice.inputs, position_field("lens", choice.reading, masked))
        baseline = baseline_of(choice.ref, question)
        output = output_field("lens", choice.ref, baseline, "Token to follow")
        if output is not None:
            question = replace(question, output=output)
            baseline = baseline_of(choice.ref, question)
        contrast = (
            None
            if view == "when"
            else output_field(
                "lens", choice.ref, baseline, "Minus the logit of", "contrast", NOTHING
            )
        )
    return Controls(choice, view, question, baseline, contrast)


def draw_tokens(controls: Controls, leaders: list[int]) -> list[int]:
    """Draw the field of further tokens, which offers those that lead in some layer; returns their ids."""
    baseline = controls.baseline
    names = output_names(controls.ref, baseline.question, tuple(leaders))
    typed = st.multiselect(
        "More tokens",
        list(names),
        key=f"lens:tokens:{controls.ref.name}",
        width=room(360),
        accept_new_options=True,
        max_selections=MAX_ADDED,
        placeholder="pick or type",
        help="Each gets a curve of its own. Type any token of the vocabulary, or its number, "
        "such as #17.",
        **BOUND,
    )
    tokens = []
    for text in typed:
        try:
            tokens.append(
                names[text]
                if text in names
                else output_id(baseline.pretrained, baseline.answer, text)
            )
        except PretrainedError as error:
            field_error(error)
    return tokens


def draw_layer(ref: ModelRef, names: list[str]) -> str | None:
    """Draw the field of the layer whose attention is shown; None for the one that decides."""
    key = f"lens:layer:{ref.name}"
    if st.session_state.get(key) not in (None, DECISIVE, *names):
        del st.session_state[key]
    name = st.selectbox(
        "Layer",
        [DECISIVE, *names],
        key=key,
        width=room(240),
        **BOUND,
        help="The layer whose attention is shown. A click in the picture of the layers picks one, too.",
    )
    return None if name == DECISIVE else str(name)


# The page's Vega-Lite figures: the likeliest token after each layer, curves along the layers, and parts of a logit.


TALL, WIDE = 26, 46  # pixels of a cell of the grid
NAMES = 72  # pixels of the names of the states
SIGNS = 8  # of a token in a cell
HIGH = 190
DARK_CELL = 0.45  # a probability from which a cell's text is light


def token_grid(
    rows: Sequence[Spec],
    states: Sequence[str],
    tokens: Sequence[str],
    picked: tuple[str, int],
    theme: Theme,
    late: bool = False,
) -> Spec:
    """States × positions: the likeliest token in each cell, in ink by its probability; a click picks a cell.

    Each row holds state, column, index (its position in the text), token, p, text and top, which the tooltip shows.
    With `late` the names of the states stand at the end, which is in sight first where the figure scrolls.
    """
    ink, columns = Ink.of(theme), distinct(tokens)
    across = {
        "field": "column",
        "type": "ordinal",
        "sort": columns,
        "title": None,
        "scale": {"domain": columns, "paddingInner": 0.04},
        "axis": {
            **axis_style(ink),
            "orient": "top",
            "labelAngle": 0,
            "labelLimit": WIDE,
            "labelFlush": False,
            "labelOverlap": False,
        },
    }
    at = {
        "x": across,
        "y": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"domain": list(states), "paddingInner": 0.06},
            "axis": {**axis_style(ink), "orient": "right" if late else "left", "minExtent": NAMES},
        },
    }
    colour = {
        "field": "p",
        "type": "quantitative",
        "scale": {"range": colour_scale(theme), "domain": [0, 1]},
        "legend": None,
    }  # which would scroll with the cells
    tips = [
        {"field": name, "title": title}
        for name, title in (
            ("state", "after"),
            ("token", "position"),
            ("text", "likeliest"),
            ("top", "others"),
        )
    ]
    cells = []
    for row in rows:
        word = row["word"]
        short = word if len(word) <= SIGNS else f"{word[: SIGNS - 1]}…"
        cells.append(row | {"column": columns[row["column"]], "short": short})
    written = {
        "condition": {"test": f"datum.p > {DARK_CELL}", "value": PAGE[theme]},
        "value": ink.text,
    }
    layers = [
        layer(
            "rect", cells, {**at, "color": colour, "tooltip": tips}, cursor="pointer", stroke=None
        ),
        layer(
            "text",
            cells,
            {**at, "text": {"field": "short"}, "color": written},
            fontSize=11,
            tooltip=False,
        ),
    ]
    return picking_grid(
        layers,
        {"state": picked[0], "column": columns[picked[1]]},
        at,
        ink,
        TALL,
        ["state", "index"],
    )


def colours(curves: int, theme: Theme) -> list[str]:
    """The accent for the answer, then the categories."""
    return [Ink.of(theme).pick, *CATEGORIES[theme][: max(0, curves - 1)]]


def along_layers(
    curves: Mapping[str, Sequence[float]],
    states: Sequence[str],
    theme: Theme,
    *,
    rank: bool = False,
    high: float | None = None,
    picked: str | None = None,
) -> Spec:
    """A curve a token over the states; ranks on a log scale with 1 on top, else from 0 to `high`."""
    ink, names = Ink.of(theme), list(curves)
    rows = [
        {
            "state": state,
            "y": value,
            "name": name,
            "text": f"{value:,.0f}" if rank else number(value),
        }
        for name, values in curves.items()
        for state, value in zip(states, values, strict=True)
    ]
    top = max(map(max, curves.values())) if high is None else high
    scale = (
        {"type": "log", "domain": [1, max(10, 10 ** math.ceil(math.log10(top)))], "reverse": True}
        if rank
        else {"domain": [0, (top or 1) * 1.04]}
    )
    axis = {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4}
    at = {
        "x": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"padding": 0.3},
            "axis": {**axis_style(ink), "labelAngle": 0, "labelOverlap": True},
        },
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": None,
            "scale": scale,
            "axis": axis
            | ({"format": ",d", "values": [10**power for power in range(8)]} if rank else {}),
        },
        "color": series_encoding("name", names, colours(len(curves), theme)),
    }
    tips = [
        {"field": "state", "title": "after"},
        {"field": "name", "title": "token"},
        {"field": "text", "title": "rank" if rank else "value"},
    ]
    layers = (
        [layer("rule", [{"state": picked}], {"x": at["x"]}, color=ink.hairline, strokeWidth=2)]
        if picked
        else []
    )
    drawn = figure(
        [
            *layers,
            layer("line", rows, at, strokeWidth=2),
            layer("point", rows, {**at, "tooltip": tips}, filled=True, size=50, opacity=1),
        ],
        HIGH,
    )
    beside = [
        (name, colour, [1, 0])
        for name, colour in zip(names, colours(len(names), theme), strict=True)
    ]
    return drawn | vega.names(beside if len(names) > 1 else [])


def part_bars(parts: dict[str, float], theme: Theme) -> Spec:
    """A signed bar a part, in the order of the model, with its number."""
    ink, stops = Ink.of(theme), SIGNED[theme]
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    room = 0.16 * (high - low or 1.0)
    rows = [
        {"part": part, "y": value, "text": signed(value), "end": max(value, 0.0)}
        for part, value in parts.items()
    ]
    y = {
        "field": "part",
        "type": "nominal",
        "sort": list(parts),
        "title": None,
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "labelFontSize": 13,
            "labelLimit": 190,
            "grid": False,
        },
    }
    x = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "axis": None,
        "scale": {"domain": [low - 0.05 * room, high + room]},
    }
    colour = {"condition": {"test": "datum.y < 0", "value": stops[1]}, "value": stops[-3]}
    tips = [{"field": "part"}, {"field": "text", "title": "adds"}]
    return figure(
        [
            layer("bar", rows, {"y": y, "x": x, "color": colour, "tooltip": tips}, cornerRadius=2),
            layer(
                "text",
                rows,
                {"y": y, "x": {**x, "field": "end"}, "text": {"field": "text"}},
                align="left",
                dx=4,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        {"step": 26},
    )


# Where the heads of a layer look from the position that answers.


def attention(controls: Controls, state: str, only: tuple[str, int] | None = None) -> None:
    """Draw what each head of a layer attends to most; `only` is one head, as (kind, head)."""
    rows = [
        (item.weights[head, controls.position], item, head)
        for item in answering_maps(controls.reading)
        for head in range(len(item.weights))
        if item.layer_name == state and only in (None, (item.kind, head))
    ]
    if not rows:
        caption(f"{plain(state)} has no attention.")
        return
    name = state
    if only is not None:
        _, item, head = rows[0]
        name = f"{layer_names(controls.reading)[item.kind, item.layer]}·H{head}"
    paragraph(
        f"**Where {plain(name)} attends to from {plain(controls.line.tokens[controls.position])}**"
    )
    rows.sort(key=lambda row: -float(row[0].max()))
    several = len({item.kind for _, item, _ in rows}) > 1
    table(
        ["head", *(["attention"] if several else []), "attends most to", "weight"],
        [
            [
                f"{item.layer_name}·H{head}",
                *([KINDS[item.kind].lower()] if several else []),
                f"{item.keys[weights.argmax()]} ({weights.argmax()})",
                number(float(weights.max())),
            ]
            for weights, item, head in rows
        ],
        caption=f"The heads of {state}",
        left=3 if several else 2,
        markers=False,
    )
    weights, item, head = rows[0]
    cell = controls.position, int(weights.argmax())
    weight_link(controls.choice, item.kind, (item.layer, head), cell)


# What the page computes as Python.


ASK = "The answer of the whole model at one position."
LENS = (
    "Every layer read as if it were the last: the likeliest tokens after each, at every position."
)
ALONG = "The answer and other tokens through the layers, and the layer from which the answer stays the likeliest."
PARTS = "The logit as a sum of what each part of the model wrote, the largest first."


def script(controls: Controls, *cells: Cell, results: Mapping[str, np.ndarray]) -> Script:
    """The model, its answer to the question, and what a view computes of it."""
    ask = f"""
from core.interpret.evidence import Question, ask

baseline = ask(model, {question_code(controls.question)})
print(baseline.word, baseline.value)
"""
    model = model_cell(controls.ref, controls.question.inputs)
    return Script((model, Cell(ASK, ask), *cells), results)


def when_script(controls: Controls, decision: Decision, words: Mapping[int, str]) -> Script:
    """The logit lens, and the probability and the rank of some tokens after each layer."""
    lens, along = decision.lens, decision.trajectories
    window = f", {lens.start}, {lens.start + WINDOW}" if len(controls.line) > WINDOW else ""
    grid = f"""
from core.interpret.lens import first_likeliest, follow_tokens, read_lens

lens = read_lens(baseline{window})  # states (N, T, C) after the embedding and each layer
likeliest = lens.top[:, :, 0]  # (N, T) token ids
probabilities = lens.probabilities[:, :, 0]
"""
    names = distinct([words[token] for token in decision.tokens])
    follow = f"""
tokens = {source_of(dict(zip(names, decision.tokens, strict=True)))}
along = follow_tokens(baseline, lens, baseline.answer.position, list(tokens.values()))
first, stays = first_likeliest(along)  # states: 0 is the embedding
print("the likeliest from state", stays, "on; its probability after each:", along.probabilities[:, 0].tolist())
"""
    results = {
        f"lens.{name}": to_numpy(getattr(lens, name))
        for name in ("top", "probabilities", "entropy")
    }
    results["along.probabilities"] = to_numpy(along.probabilities)
    results["along.ranks"] = to_numpy(along.ranks)
    results["[-1 if one is None else one for one in (first, stays)]"] = np.array(
        [-1 if one is None else one for one in (decision.first, decision.stays)]
    )
    return script(
        controls,
        Cell(LENS, grid, _GRID, "lens:grid"),
        Cell(ALONG, follow, _CURVES, "lens:probability"),
        results=results,
    )


def who_script(controls: Controls, attribution: Attribution) -> Script:
    """The parts of the answer's logit, or of its difference from another."""
    contrast = "" if controls.contrast is None else f", {controls.contrast}"
    parts = f"""
from core.interpret.lens import attribute_logit

attribution = attribute_logit(baseline, baseline.id{contrast})
parts = sorted(attribution.parts, key=lambda part: -abs(part.value))
for part in parts[:10]:
    print(f"{{part.value:+.3f}} {{part.role}} {{part.key or part.name}} {{'' if part.head is None else part.head}}")
print("sum of the parts:", attribution.total, "logit:", attribution.logit)
"""
    ranked = sorted(attribution.parts, key=lambda part: -abs(part.value))
    results = {
        "[part.value for part in parts]": np.array([part.value for part in ranked]),
        "attribution.total": np.array(attribution.total),
        "attribution.logit": np.array(attribution.logit),
    }
    return script(controls, Cell(PARTS, parts, _PARTS_CHART, "lens:parts"), results=results)


_GRID = """
import altair as alt
import pandas as pd

from core.pretrained.generate import token_names

words = token_names(model, likeliest.flatten().tolist())
cells = [{"state": state, "position": lens.start + at, "token": words[one], "probability": float(probability)}
         for state, row in enumerate(zip(likeliest.tolist(), probabilities))
         for at, (one, probability) in enumerate(zip(*row))]
base = alt.Chart(pd.DataFrame(cells)).encode(x="position:O", y=alt.Y("state:O", sort="descending"))
base.mark_rect().encode(color="probability:Q") + base.mark_text(size=9).encode(text="token:N")
"""
_CURVES = """
curves = pd.DataFrame(along.probabilities.numpy(), columns=list(tokens)).rename_axis("state").reset_index()
alt.Chart(curves.melt("state", var_name="token", value_name="probability")).mark_line().encode(
    x="state:Q", y="probability:Q", color="token:N")
"""
_PARTS_CHART = """
import altair as alt
import pandas as pd

heads = pd.DataFrame([{"layer": str(part.key), "head": part.head, "adds": part.value}
                      for part in parts if part.role == "head"])
alt.Chart(heads).mark_rect().encode(x="head:O", y="layer:N", color="adds:Q")
"""


# Sentences and figures of the page.


def after(state: str) -> str:
    """A state of the residual stream in a sentence."""
    return "the embedding" if state == EMBEDDING else state


def decided(controls: Controls, decision: Decision, words: Mapping[int, str]) -> str:
    """From which layer on the answer is the likeliest, its probability there, and what led before."""
    answer, states = plain(words[decision.tokens[0]]), decision.states
    probabilities, ranks = (
        values[:, 0].tolist()
        for values in (decision.trajectories.probabilities, decision.trajectories.ranks)
    )
    start = f"At **{plain(controls.line.tokens[controls.position])}**, :primary[**{answer}**] "
    if decision.stays is None:
        best = ranks.index(min(ranks))
        return (
            f"{start}is not the likeliest at the end: its rank is **{ranks[-1]:,}**, with a probability of "
            f"**{number(probabilities[-1])}**. It comes closest after **{after(states[best])}**, as number "
            f"{ranks[best]:,}."
        )
    at = decision.stays
    text = (
        f"{start}is the likeliest from **{after(states[at])}** on, with a probability of "
        f"**{number(probabilities[at])}**"
    )
    text += (
        "." if at == len(states) - 1 else f" there and **{number(probabilities[-1])}** at the end."
    )
    if at and decision.first is not None:
        before = plain(
            words[int(decision.lens.top[at - 1, controls.position - decision.lens.start, 0])]
        )
        text += (
            f" After {after(states[at - 1])} it was number {ranks[at - 1]:,}, with "
            f"{number(probabilities[at - 1])}, and **{before}** led."
        )
        if decision.first < at:
            text += f" It led once before, after {after(states[decision.first])}."
    return text


def rows_of(decision: Decision, words: Mapping[int, str], position: int) -> list[list[str]]:
    """The table of the layers at the picked position."""
    lens, along = decision.lens, decision.trajectories
    position -= lens.start
    return [
        [
            state,
            words[int(lens.top[row, position, 0])],
            number(float(lens.probabilities[row, position, 0])),
            number(float(along.probabilities[row, 0])),
            f"{int(along.ranks[row, 0]):,}",
            number(float(lens.entropy[row, position])),
        ]
        for row, state in enumerate(decision.states)
    ]


def wrote(
    controls: Controls,
    attribution: Attribution,
    parts: Sequence[tuple[str, Part]],
    answer: str,
    other: str | None,
) -> str:
    """The largest part, the largest head, and the sum beside the logit."""
    what = (
        f"The logit of :primary[**{plain(answer)}**] at **{plain(controls.line.tokens[controls.position])}**"
        + (f" minus that of **{plain(other)}**" if other is not None else "")
    )
    name, first = parts[0]
    heads = [(name, part) for name, part in parts if part.role == "head"]
    text = f"{what} is **{number(attribution.logit)}**. Most is written by **{name}**, **{signed(first.value)}**"
    if heads and heads[0][1] is not first:
        text += f"; among the heads, by **{heads[0][0]}**, **{signed(heads[0][1].value)}**"
    return (
        f"{text}. Sum of all {len(parts)} parts = **{number(attribution.total)}**, logit = "
        f"**{number(attribution.logit)}**."
    )


def share_of_heads(parts: Sequence[tuple[str, Part]]) -> str:
    """How much of what is written towards the logit comes from heads and from few of them."""
    sizes = [abs(part.value) for _, part in parts]
    heads = sorted((abs(part.value) for _, part in parts if part.role == "head"), reverse=True)
    if not heads or not sum(sizes):
        return ""
    most = next(
        count for count in range(1, len(heads) + 1) if sum(heads[:count]) >= 0.8 * sum(heads)
    )
    return (
        f"Heads write {percent(sum(heads) / sum(sizes))} of all that is added or taken away; {most} of the "
        f"{len(heads)} heads write 80\u00a0% of that."
    )


def equation(attribution: Attribution) -> str:
    """The sum of the parts by what they are, with its numbers, as LaTeX."""
    sums: dict[str, float] = {}
    for part in attribution.parts:
        name = ROLES.get(part.role, "biases")
        sums[name] = sums.get(name, 0.0) + part.value
    terms = [
        (rf"\underbrace{{{latex(abs(sums[name]))}}}_{{\text{{{name}}}}}", sums[name])
        for name in ORDER
        if name in sums
    ]
    written = " ".join(
        f"{'+' if value >= 0 else '-'} {term}" for term, value in terms
    ).removeprefix("+ ")
    return rf"\mathrm{{logit}} = {written} = {latex(attribution.total)}"


ROLES = {
    "embedding": "embeddings",
    "head": "heads",
    "mixer": "mixers",
    "feed-forward": "feed-forward",
}
ORDER = (*ROLES.values(), "biases")
TEXT_LENS = r"\mathrm{lens}(x_\ell) = \mathrm{softmax}\big(W_U\, \mathrm{norm}(x_\ell)\big)"


def conditions(controls: Controls) -> str:
    """The conditions under which the numbers hold."""
    held = "the scales of the norms"
    if controls.baseline.answer.kind == "mask":
        held += ", and the gates of the activation before the unembedding,"
    of_view = {
        "when": "The last layer is the model’s own output; earlier layers were not trained to be read so.",
        "who": f"Direct logit attribution: {held} are held at their values. What a part does by way of later "
        "layers counts as theirs.",
    }
    decoder = "" if controls.reading.target is None else " The layers are those of the decoder."
    return (
        f"{plain(controls.reading.trace.source)}, {len(controls.line)} tokens; fp32, no dropout.{decoder} "
        f"{of_view[controls.view]}"
    )


MOVES = (
    Move(
        "A passage without a repeat",
        {
            "inside:model": "induction",
            "inside:language": "induction",
            "lens:view": "when",
            "inside:text": "the old king walked to the dark river . the young dog",
        },
        "Nothing can be copied here, so no layer is sure: compare the entropy of the last layer with that of a "
        "passage that repeats.",
    ),
    Move(
        "A translation",
        {
            "inside:model": "numbers",
            "inside:language": "numbers",
            "lens:view": "when",
            "inside:text": "nine thousand three hundred and twelve",
        },
        "The layers are those of the decoder. Press a cell of another column to see where another word is decided.",
    ),
    Move(
        "Who copies?",
        {
            "inside:model": "induction",
            "inside:language": "induction",
            "lens:view": "who",
            "inside:text": "the old king walked to the dark river . the old king walked to the dark",
        },
        "The heads of the last layer write the word that they attend to: press one in the picture to see where it "
        "looks.",
    ),
)


# The view When it decides: the lens at every position, and tokens along the layers at one.


GRID = "lens:grid"
# A long text scrolls in its own box, whose cells keep the width that a token needs: from the end that is picked.
STYLE = """<style>
.st-key-lens-cells {{ overflow-x: auto; direction: {direction} }}
.st-key-lens-cells > div {{ min-width: {width}px; direction: ltr }}
</style>"""
MARGIN = 80  # pixels for the names of the layers


def section(controls: Controls) -> None:
    """Draw the view."""
    ref, baseline = controls.ref, controls.baseline
    start = window_start(controls.position, len(controls.line))
    key = ref, Question(controls.question.inputs, 0), start
    with st.spinner("Running the model"):
        parts = range(count_parts(baseline, _stream(*key)))
    read = measure_with_progress(
        LENS_PARTS, key, parts, partial(_read_part, *key), "parts", UNASKED
    )
    if len(read) < len(parts):
        return
    lens = shared(_lens, *key)
    fact_place = st.container()
    grid_place = st.container()
    with st.container(horizontal=True, vertical_alignment="top"):
        tokens = draw_tokens(controls, study.leaders(baseline, lens))
        name = draw_layer(ref, list(study.state_names(lens))[1:])
    chosen = study.followed(baseline, lens, tokens)
    decision = Decision(lens, chosen, shared(_trajectories, ref, controls.question, start, chosen))
    words = _words(ref, [*chosen, *lens.top.flatten().tolist()])
    state = name or decision.states[max(1, decision.decisive)]
    add_script(partial(when_script, controls, decision, words))
    with fact_place:
        fact(decided(controls, decision, words))
    with grid_place:
        _grid(controls, decision, words, state)
    _curves(controls, decision, words, state)
    details(
        "The layers at this position, as a table",
        lambda: table(
            ["after", "likeliest", "its probability", "the answer’s", "rank", "entropy, bits"],
            rows_of(decision, words, controls.position),
            caption="The lens at the picked position",
            left=2,
            markers=False,
        ),
        "lens:rows",
    )
    attention(controls, state)
    st.latex(TEXT_LENS)


def _stream(ref: ModelRef, question: Question, start: int) -> Stream:
    return answer_study(read_stream, ref, question, start, start + WINDOW)


def _read_part(ref: ModelRef, question: Question, start: int, part: int) -> LensPart:
    """The states that one pass reads, by its index."""
    baseline = baseline_of(ref, question)
    with one_thread(is_small(baseline.pretrained)):
        return read_part(baseline, _stream(ref, question, start), part)


def _lens(ref: ModelRef, question: Question, start: int) -> LogitLens:
    """The lens; parts that were not read yet, or no longer are in memory, are read now."""
    stream, values = _stream(ref, question, start), measurements(LENS_PARTS, (ref, question, start))
    parts = range(count_parts(baseline_of(ref, question), stream))
    return join_parts(
        load_model(ref),
        stream,
        [values.get(part) or _read_part(ref, question, start, part) for part in parts],
    )


def _trajectories(
    ref: ModelRef, question: Question, start: int, tokens: tuple[int, ...]
) -> Trajectories:
    baseline, lens = (
        baseline_of(ref, question),
        shared(_lens, ref, Question(question.inputs, 0), start),
    )
    with one_thread(is_small(baseline.pretrained)):
        return follow_tokens(baseline, lens, baseline.answer.position, tokens)


def _words(ref: ModelRef, tokens: Sequence[int]) -> dict[int, str]:
    """The display text of tokens by their ids."""
    return study_of(token_names, ref, tuple(dict.fromkeys(tokens)))


def _grid(controls: Controls, decision: Decision, words: dict[int, str], state: str) -> None:
    """Draw the likeliest tokens at each position; a pressed cell is the position that answers, and the layer shown."""
    lens = decision.lens
    start, length = lens.start, lens.top.shape[1]
    tokens, position = controls.line.tokens[start : start + length], controls.position - start
    rows = []
    for row, name in enumerate(decision.states):
        for index, token in enumerate(tokens):
            likeliest = [words[one] for one in lens.top[row, index].tolist()]
            shares = lens.probabilities[row, index].tolist()
            texts = [f"{word} {number(p)}" for word, p in zip(likeliest, shares, strict=True)]
            rows.append(
                {
                    "state": name,
                    "column": index,
                    "index": start + index,
                    "token": token,
                    "word": likeliest[0],
                    "p": shares[0],
                    "text": texts[0],
                    "top": ", ".join(texts[1:]),
                }
            )
    stops = ",".join(colour_scale(theme()))
    chart_title(
        "The likeliest token after each layer, in the colour of its probability",
        legend=(
            f'0 <span style="display:inline-block;width:96px;height:8px;background:linear-gradient(90deg,{stops})">'
            "</span> 1"
        ),
    )
    caption("A row is a layer, a column a token that was read.")
    if length < len(controls.line):
        caption(
            f"Tokens {start} to {start + length - 1} of {len(controls.line)}, around the position that answers."
        )
    late = position >= length / 2

    def pick() -> None:
        if point := pressed_point(GRID):
            st.session_state[position_key("lens", controls.reading)] = int(point["index"])
            if point["state"] != EMBEDDING:
                st.session_state[f"lens:layer:{controls.ref.name}"] = point["state"]

    st.html(STYLE.format(width=WIDE * len(tokens) + MARGIN, direction="rtl" if late else "ltr"))
    with st.container(key="lens:cells"):
        draw_chart(
            st,
            token_grid(rows, decision.states, tokens, (state, position), theme(), late),
            key=GRID,
            on_select=pick,
            selection_mode=[PICKED],
            alt="The likeliest token after each layer, at each position",
        )


def _curves(controls: Controls, decision: Decision, words: dict[int, str], state: str) -> None:
    """Draw probability, rank and entropy along the layers."""
    names = distinct([words[token] for token in decision.tokens])
    along, at = decision.trajectories, controls.position - decision.lens.start
    legend = " ".join(
        f'<span style="font-weight:600;white-space:nowrap"><span style="display:inline-block;width:14px;'
        f'height:3px;margin-right:4px;vertical-align:middle;background:{colour}"></span>{plain(name)}</span>'
        for name, colour in zip(names, colours(len(names), theme()), strict=True)
    )
    shares, ranks = (
        dict(zip(names, values.T.tolist(), strict=True))
        for values in (along.probabilities, along.ranks)
    )
    entropy = {"entropy": decision.lens.entropy[:, at].tolist()}
    charts: list[tuple[str, str, str, dict[str, list[float]], dict[str, Any]]] = [
        ("probability", "Probability", "Probability of the answers", shares, {"high": 1.0}),
        ("rank", "Rank, 1 is the likeliest", "Rank of the answers", ranks, {"rank": True}),
        ("entropy", "Entropy of all tokens, bits", "Entropy of all tokens, in bits,", entropy, {}),
    ]
    for column, (key, heading, alt, curves, options) in zip(
        st.columns(3, gap="medium"), charts, strict=True
    ):
        with column:
            chart_title(heading, legend=legend if key == "probability" else "")
            spec = along_layers(curves, decision.states, theme(), picked=state, **options)
            draw_chart(st, spec, key=f"lens:{key}", alt=f"{alt} after each layer")


# The view Who wrote it: the answer's logit as a sum of what each part wrote.


WHO_GRID = "lens:parts"
INNER = "FF"  # the column after the heads
Head = tuple[Kind, int, int]


def who_section(controls: Controls) -> None:
    """Draw the view; PretrainedError where the logit is no such sum."""
    key = controls.ref, controls.question, controls.contrast
    passes = measure_with_progress(
        ATTRIBUTED, key, range(PASSES), _attributor(controls), "passes", UNASKED
    )
    attribution = passes.get(PASSES - 1)
    if attribution is None:
        return
    add_script(partial(who_script, controls, attribution))
    parts = study.named_parts(controls.reading, attribution)
    ids = [token for token in (controls.baseline.id, controls.contrast) if token is not None]
    words = list(_words(controls.ref, ids).values())
    fact(wrote(controls, attribution, parts, words[0], words[1] if len(words) > 1 else None))
    layers = layer_names(controls.reading)
    heads = {
        (*part.key, part.head): part.value
        for part in attribution.parts
        if part.role == "head" and part.key is not None and part.head is not None
    }
    picked = _picked(controls, heads)

    def choose(head: Head) -> None:
        """The picked head becomes the one whose attention is shown, here and on other pages."""
        kind, layer, index = head
        choose_head(controls.ref, kind, (layer, index))
        write_pair("head", (list(layers).index((kind, layer)), index))

    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        has_inner = any(part.role == "feed-forward" for _, part in parts)
        paragraph(
            f"**What each head adds{', and the feed-forward network (FF) of a layer' if has_inner else ''}**"
        )
        named = {f"{layers[head[:2]]}·H{head[2]}": head for head in heads}
        head_field(named, picked, choose, f"lens:head:{controls.ref.name}")
        _who_grid(layers, attribution, heads, picked, choose)
        caption(share_of_heads(parts))
    groups = study.grouped(controls.reading, attribution)
    with right:
        paragraph("**The sum, in the order of the model**")
        draw_chart(
            st,
            part_bars(groups, theme()),
            key="lens:bars",
            alt="What each kind of part adds to the logit",
        )
    rows = [[name, signed(part.value)] for name, part in parts]
    details(
        f"All {len(rows)} parts, the largest first",
        partial(table, ["part", "adds"], rows, caption="Parts of the logit", markers=False),
        "lens:ranked",
    )
    if picked is not None:
        kind, layer, head = picked
        name = controls.reading.trace.of(kind).map(layer).layer_name
        attention(controls, name, (kind, head))
    st.latex(equation(attribution))


def _attributor(controls: Controls) -> Callable[[int], Attribution | None]:
    """A function that runs the passes up to one, by its index; the last one gives the parts of the answer's logit.

    PretrainedError where they do not add up.
    """
    baseline, run = controls.baseline, list[Attribution | None]()
    assert baseline.id is not None
    passes = attribute_passes(baseline, baseline.id, controls.contrast)

    def attribute(index: int) -> Attribution | None:
        with one_thread(is_small(baseline.pretrained)):
            run.extend(islice(passes, index + 1 - len(run)))
        return run[index]

    return attribute


def _picked(controls: Controls, heads: Mapping[Head, float]) -> Head | None:
    """The head of the link, else the one that was picked on another page, else the one with the largest part."""
    layers = list(layer_names(controls.reading))
    most = max((head for *_, head in heads), default=0) + 1
    linked = read_linked("lens", "head", (len(layers), most), controls.ref)
    if linked is not None and (*layers[linked[0]], linked[1]) in heads:
        return *layers[linked[0]], linked[1]
    chosen = current_head(controls.ref)
    if chosen is not None and (chosen[0], *chosen[1]) in heads:
        return chosen[0], *chosen[1]
    return max(heads, key=lambda head: abs(heads[head]), default=None)


def _who_grid(
    layers: Mapping[tuple[Kind, int], str],
    attribution: Attribution,
    heads: Iterable[Head],
    picked: Head | None,
    choose: Callable[[Head], None],
) -> None:
    """Draw layers × heads and the feed-forward networks, each cell what it adds; one of a head picks it."""
    rows = []
    for part in attribution.parts:
        if part.key is not None and part.role in ("head", "feed-forward"):
            layer, column = layers[part.key], str(part.head) if part.role == "head" else INNER
            name = f"{layer}·H{column}" if part.role == "head" else f"feed-forward of {layer}"
            rows.append(
                {
                    "layer": layer,
                    "head": column,
                    "change": part.value,
                    "name": name,
                    "by": signed(part.value),
                }
            )
    most = 1 + max((head for *_, head in heads), default=0)
    outlined = ("", "") if picked is None else (layers[picked[:2]], str(picked[2]))
    inner = [INNER] if any(row["head"] == INNER for row in rows) else []

    def pick() -> None:
        point = pressed_point(WHO_GRID)
        if point and point["head"] != INNER:
            keys = {name: key for key, name in layers.items()}
            choose((*keys[point["layer"]], int(point["head"])))

    draw_chart(
        st,
        effect_grid(
            rows,
            list(layers.values()),
            [*map(str, range(most)), *inner],
            outlined,
            theme(),
            title="added to the logit",
            tips=(("name", "part"), ("by", "adds")),
        ),
        key=WHO_GRID,
        on_select=pick,
        selection_mode=[PICKED],
        alt="What each head and feed-forward layer adds to the logit",
    )


# The page When it decides.


SOURCES = (
    lens.read_part,
    lens._readout,
    lens._last_output,
    lens.attribute_passes,
    lens._stream_parts,
    lens._scaled_copy,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "When it decides",
        "A model changes its answer layer by layer. Read every layer with the logit lens, as if "
        "it were the last, and see which part wrote the answer.",
    )
    choice = choose_model(needs=("tokens",))
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
    details("How layers are read and summed: papers and source", _sources, "lens:how")
    next_page("lens")


def _view(choice: ModelChoice) -> None:
    with input_errors():
        controls = draw_controls(choice)
        with picture("lens"):
            {"when": section, "who": who_section}[controls.view](controls)
        caption(conditions(controls))
    try_this("lens", MOVES)


def _sources() -> None:
    st.markdown(
        "The states after a layer stand in for the last layer’s, so that whatever the family does after it is "
        "done to them: [nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/"
        "interpreting-gpt-the-logit-lens). Attribution: [Elhage et al. 2021](https://transformer-circuits.pub/"
        "2021/framework/index.html); [Wang et al. 2023](https://arxiv.org/abs/2211.00593), section 3. In "
        "models that normalize after each addition, such as the original Transformer, a part passes every "
        "later norm with its scale held."
    )
    for function in SOURCES:
        source_panel(function)
