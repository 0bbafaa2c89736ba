"""When it decides: every layer read as if it were the last, and who wrote the answer."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret import lens as study
from core.interpret.evidence import Question
from core.interpret.trace import LayerKey, to_numpy
from core.pretrained import PretrainedError
from core.pretrained.generate import mask_position, output_id, token_names

# The controls: the view, the position that answers, the token that is followed, and what it is compared with.


LENS_PARTS, ATTRIBUTED = "lens:read", "lens:attributed"  # for all sessions


class Controls(lab.Fields, page="lens"):
    view = lab.Segmented(
        "View",
        {"when": "When it decides", "who": "Who wrote it"},
        help="The answer layer by layer, or the parts that it is the sum of.",
        also={"label_visibility": "collapsed"},
    )
    layer = lab.Select[str](
        "Layer",
        lambda values: [DECISIVE, *values.names],
        key=lambda values: f"layer:{values.ref.name}",
        help="The layer whose attention is shown. A click in the picture of the layers picks one, too.",
        also=lambda values: {"width": lab.room(240)},
    )


DECISIVE = "where it is decided"


def draw_controls(choice: lab.ModelChoice) -> lab.Values:
    """Draw the fields above both views; PretrainedError where this model cannot answer.

    `line` are the tokens of the sequence that answers; `contrast` is a token whose logit is subtracted.
    """
    pretrained, ref, masked = choice.model, choice.ref, None
    view = Controls.draw("view", into=lab.HERE).view
    with st.container(horizontal=True, vertical_alignment="top", key="lens:question"):
        if pretrained.head == "masked":
            choice = replace(choice, inputs=lab.masked_inputs("lens", choice, "word"))
            masked = mask_position(
                pretrained, lab.baseline_of(ref, Question(choice.inputs)).batch["input_ids"]
            )
        question = Question(choice.inputs, lab.position_field("lens", choice.reading, masked))
        question = replace(
            question,
            output=lab.output_field(ref, lab.baseline_of(ref, question), "Token to follow"),
        )
        baseline, contrast = lab.baseline_of(ref, question), None
        if view == "who":
            contrast = lab.output_field(
                ref, baseline, "Minus the logit of", "contrast", lab.NOTHING
            )
    return lab.Values(
        choice=choice,
        ref=ref,
        reading=choice.reading,
        line=choice.reading.target or choice.reading.source,
        view=view,
        question=question,
        baseline=baseline,
        position=baseline.answer.position,
        contrast=contrast,
    )


# The page's Vega-Lite figures: the likeliest token after each layer, curves along the layers, and parts of a logit.


TALL, WIDE = 26, 46  # pixels of a cell of the grid
NAMES = 72  # pixels of the names of the states
DARK_CELL = 0.45  # a probability from which a cell's text is light


def token_grid(
    rows: Sequence[lab.Spec],
    states: Sequence[str],
    tokens: Sequence[str],
    picked: tuple[str, int],
    theme: lab.Theme,
    late: bool = False,
) -> lab.Spec:
    """States × positions: the likeliest token in each cell, in ink by its probability; a click picks a cell.

    Each row holds state, column, index (its position in the text), token, p, text and top, which the tooltip shows.
    With `late` the names of the states stand at the end, which is in sight first where the figure scrolls.
    """
    ink, columns = lab.Ink.of(theme), lab.distinct(tokens)
    top = {"orient": "top", "labelAngle": 0, "labelLimit": WIDE, "labelFlush": False}
    at = {
        channel: {
            "field": name,
            "type": "ordinal",
            "sort": list(values),
            "title": None,
            "scale": {"domain": list(values), "paddingInner": padding},
            "axis": lab.axis_style(ink) | axis,
        }
        for channel, name, values, padding, axis in (
            ("x", "column", columns, 0.04, top | {"labelOverlap": False}),
            (
                "y",
                "state",
                states,
                0.06,
                {"orient": "right" if late else "left", "minExtent": NAMES},
            ),
        )
    }
    cells = [
        row
        | {
            "column": columns[row["column"]],
            "short": lab.cut(row["word"], 8),
        }
        for row in rows
    ]
    return lab.picking_grid(
        [
            lab.layer(
                "rect",
                cells,
                at
                | {
                    "color": {
                        "field": "p",
                        "type": "quantitative",
                        "scale": {"range": lab.colour_scale(theme), "domain": [0, 1]},
                        "legend": None,
                    },
                    "tooltip": [
                        lab.text_tip("state", "after"),
                        lab.text_tip("token", "position"),
                        lab.text_tip("text", "likeliest"),
                        lab.text_tip("top", "others"),
                    ],
                },
                cursor="pointer",
                stroke=None,
            ),
            lab.layer(
                "text",
                cells,
                at
                | {
                    "text": {"field": "short"},
                    "color": {
                        "condition": {"test": f"datum.p > {DARK_CELL}", "value": lab.PAGE[theme]},
                        "value": ink.text,
                    },
                },
                fontSize=11,
                tooltip=False,
            ),
        ],
        {"state": picked[0], "column": columns[picked[1]]},
        at,
        ink,
        TALL,
        ["state", "index"],
    ) | lab.table_columns(
        {
            "state": "after",
            "index": "position",
            "token": "token",
            "word": "likeliest",
            "p": "probability",
        }
    )


def colours(curves: int, theme: lab.Theme) -> list[str]:
    return [lab.Ink.of(theme).pick, *lab.CATEGORIES[theme][: max(0, curves - 1)]]


def along_layers(
    curves: Mapping[str, Sequence[float]],
    states: Sequence[str],
    theme: lab.Theme,
    column: str,
    *,
    rank: bool = False,
    high: float | None = None,
    picked: str | None = None,
) -> lab.Spec:
    """A curve a token over the states; ranks on a log scale with 1 on top, else from 0 to `high`."""
    ink, names, inks = lab.Ink.of(theme), list(curves), colours(len(curves), theme)
    rows = [
        {
            "state": state,
            "y": value,
            "name": name,
            "text": f"{value:,.0f}" if rank else lab.number(value),
        }
        for name, values in curves.items()
        for state, value in zip(states, values, strict=True)
    ]
    top = max(map(max, curves.values())) if high is None else high
    scale: lab.Spec = {"domain": [0, (top or 1) * 1.04]}
    axis = {**lab.axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4}
    if rank:
        scale = {
            "type": "log",
            "domain": [1, max(10, 10 ** math.ceil(math.log10(top)))],
            "reverse": True,
        }
        axis |= {"format": ",d", "values": [10**power for power in range(8)]}
    at = {
        "x": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"padding": 0.3},
            "axis": {**lab.axis_style(ink), "labelAngle": 0, "labelOverlap": True},
        },
        "y": {"field": "y", "type": "quantitative", "title": None, "scale": scale, "axis": axis},
        "color": lab.series_encoding("name", names, inks),
    }
    return lab.figure(
        [
            lab.layer(
                "rule",
                [] if picked is None else [{"state": picked}],
                {"x": at["x"]},
                color=ink.hairline,
                strokeWidth=2,
            ),
            lab.layer("line", rows, at, strokeWidth=2),
            lab.layer(
                "point",
                rows,
                {
                    **at,
                    "tooltip": [
                        lab.text_tip("state", "after"),
                        lab.text_tip("name", "token"),
                        lab.text_tip("text", "rank" if rank else "value"),
                    ],
                },
                filled=True,
                size=50,
                opacity=1,
            ),
        ],
        190,
    ) | lab.names(
        [(name, colour, [1, 0]) for name, colour in zip(names, inks, strict=True)]
        if len(names) > 1
        else [],
        {"state": "after", "name": "token", "y": column},
    )


def part_bars(parts: dict[str, float], theme: lab.Theme) -> lab.Spec:
    stops = lab.SIGNED[theme]
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    room = 0.16 * (high - low or 1.0)
    return lab.bar_figure(
        [
            {"part": part, "y": value, "text": lab.signed(value), "end": max(value, 0.0)}
            for part, value in parts.items()
        ],
        "part",
        list(parts),
        "y",
        lab.Ink.of(theme),
        domain=[low - 0.05 * room, high + room],
        height={"step": 26},
        limit=190,
        colour={"condition": {"test": "datum.y < 0", "value": stops[1]}, "value": stops[-3]},
        tips=[lab.text_tip("part", "part"), lab.text_tip("text", "adds")],
    )


# Where the heads of a layer look from the position that answers.


def attention(controls: lab.Values, state: str, only: tuple[str, int] | None = None) -> None:
    position = controls.position
    rows = [
        (item.weights[head, position], item, head)
        for item in study.answering_maps(controls.reading)
        for head in range(len(item.weights))
        if item.layer_name == state and only in (None, (item.kind, head))
    ]
    if not rows:
        lab.caption(f"{lab.plain(state)} has no attention.")
        return
    rows.sort(key=lambda row: -float(row[0].max()))
    weights, item, head = rows[0]
    name = (
        state
        if only is None
        else f"{study.answering_layers(controls.reading)[item.kind, item.layer]}·H{head}"
    )
    lab.paragraph(
        f"**Where {lab.plain(name)} attends to from “{lab.plain(controls.line.tokens[position])}”**"
    )
    several = len({item.kind for _, item, _ in rows}) > 1
    lab.table(
        ["head", *["attention"] * several, "attends most to", "weight"],
        [
            [
                f"{item.layer_name}·H{head}",
                *[lab.KINDS[item.kind].lower()] * several,
                f"{item.keys[weights.argmax()]} ({weights.argmax()})",
                lab.number(float(weights.max())),
            ]
            for weights, item, head in rows
        ],
        caption=f"The heads of {state}",
        left=2 + several,
        markers=False,
    )
    lab.weight_link(
        controls.choice, item.kind, (item.layer, head), (position, int(weights.argmax()))
    )


# What the page computes as Python.


def script(controls: lab.Values, *cells: lab.Cell, results: Mapping[str, np.ndarray]) -> lab.Script:
    return lab.Script(
        (
            lab.model_cell(controls.ref, controls.question.inputs),
            lab.answer_cell(controls.question, "The answer of the whole model at one position."),
            *cells,
        ),
        results,
    )


def when_script(
    controls: lab.Values, decision: study.Decision, words: Mapping[int, str]
) -> lab.Script:
    lens, along = decision.lens, decision.trajectories
    window = (
        f", {lens.start}, {lens.start + study.WINDOW}" if len(controls.line) > study.WINDOW else ""
    )
    names = lab.distinct([words[token] for token in decision.tokens])
    return script(
        controls,
        lab.Cell(
            "Every layer read as if it were the last: the likeliest tokens after each, at every position.",
            f"""
from core.interpret.lens import first_likeliest, follow_tokens, read_lens

lens = read_lens(baseline{window})  # states (N, T, C) after the embedding and each layer
likeliest = lens.top[:, :, 0]  # (N, T) token ids
probabilities = lens.probabilities[:, :, 0]
""",
            """
import altair as alt
import pandas as pd

from core.pretrained.generate import token_names

words = token_names(model, likeliest.flatten().tolist())
cells = [{"state": state, "position": lens.start + at, "token": words[one], "probability": float(probability)}
         for state, row in enumerate(zip(likeliest.tolist(), probabilities))
         for at, (one, probability) in enumerate(zip(*row))]
base = alt.Chart(pd.DataFrame(cells)).encode(x="position:O", y=alt.Y("state:O", sort="descending"))
base.mark_rect().encode(color="probability:Q") + base.mark_text(size=9).encode(text="token:N")
""",
            "lens:grid",
        ),
        lab.Cell(
            "The answer and other tokens through the layers, and the layer from which the answer stays the likeliest.",
            f"""
tokens = {lab.source_of(dict(zip(names, decision.tokens, strict=True)))}
along = follow_tokens(baseline, lens, baseline.answer.position, list(tokens.values()))
first, stays = first_likeliest(along)  # states: 0 is the embedding
print("the likeliest from state", stays, "on; its probability after each:", along.probabilities[:, 0].tolist())
""",
            """
curves = pd.DataFrame(along.probabilities.numpy(), columns=list(tokens)).rename_axis("state").reset_index()
alt.Chart(curves.melt("state", var_name="token", value_name="probability")).mark_line().encode(
    x="state:Q", y="probability:Q", color="token:N")
""",
            "lens:probability",
        ),
        results={
            "lens.top": to_numpy(lens.top),
            "lens.probabilities": to_numpy(lens.probabilities),
            "lens.entropy": to_numpy(lens.entropy),
            "along.probabilities": to_numpy(along.probabilities),
            "along.ranks": to_numpy(along.ranks),
            "[-1 if one is None else one for one in (first, stays)]": np.array(
                [-1 if one is None else one for one in study.first_likeliest(along)]
            ),
        },
    )


def who_script(controls: lab.Values, attribution: study.Attribution) -> lab.Script:
    contrast = "" if controls.contrast is None else f", {controls.contrast}"
    ranked = sorted(attribution.parts, key=lambda part: -abs(part.value))
    return script(
        controls,
        lab.Cell(
            "The logit as a sum of what each part of the model wrote, the largest first.",
            f"""
from core.interpret.lens import attribute_logit

attribution = attribute_logit(baseline, baseline.id{contrast})
parts = sorted(attribution.parts, key=lambda part: -abs(part.value))
for part in parts[:10]:
    print(f"{{part.value:+.3f}} {{part.role}} {{part.key or part.name}} {{'' if part.head is None else part.head}}")
print("sum of the parts:", attribution.total, "logit:", attribution.logit)
""",
            """
import altair as alt
import pandas as pd

heads = pd.DataFrame([{"layer": str(part.key), "head": part.head, "adds": part.value}
                      for part in parts if part.role == "head"])
alt.Chart(heads).mark_rect().encode(x="head:O", y="layer:N", color="adds:Q")
""",
            "lens:parts",
        ),
        results={
            "[part.value for part in parts]": np.array([part.value for part in ranked]),
            "attribution.total": np.array(attribution.total),
            "attribution.logit": np.array(attribution.logit),
        },
    )


# Sentences and figures of the page.


def decided(controls: lab.Values, decision: study.Decision, words: Mapping[int, str]) -> str:
    lens, along = decision.lens, decision.trajectories
    first, at = study.first_likeliest(along)
    shares, ranks = along.probabilities[:, 0].tolist(), along.ranks[:, 0].tolist()
    states = ["the embedding", *decision.lens.names[1:]]
    start = (
        f"At **{lab.plain(controls.line.tokens[controls.position])}**, "
        f":primary[**{lab.plain(words[decision.tokens[0]])}**] "
    )
    if at is None:
        best = ranks.index(min(ranks))
        return (
            f"{start}is not the likeliest at the end: its rank is **{ranks[-1]:,}**, with a probability of "
            f"**{lab.share_text(shares[-1])}**. It comes closest after **{states[best]}**, as number "
            f"{ranks[best]:,}."
        )
    last = f" there and **{lab.share_text(shares[-1])}** at the end" if at < len(states) - 1 else ""
    text = (
        f"{start}is the likeliest from **{states[at]}** on, with a probability of "
        f"**{lab.share_text(shares[at])}**{last}."
    )
    if at:
        before = lab.plain(words[int(lens.top[at - 1, controls.position - lens.start, 0])])
        text += (
            f" After {states[at - 1]} it was number {ranks[at - 1]:,}, with "
            f"{lab.share_text(shares[at - 1])}, and **{before}** led."
        )
    if first is not None and first < at:
        text += f" It led once before, after {states[first]}."
    return text


def wrote(
    controls: lab.Values,
    attribution: study.Attribution,
    parts: Sequence[tuple[str, study.Part]],
    answer: str,
    other: str | None,
) -> str:
    name, first = parts[0]
    minus = "" if other is None else f" minus that of **{lab.plain(other)}**"
    head = next(((name, part) for name, part in parts if part.role == "head"), (name, first))
    among = f"; among the heads, by **{head[0]}**, **{lab.signed(head[1].value)}**"
    return (
        f"The logit of :primary[**{lab.plain(answer)}**] at "
        f"**{lab.plain(controls.line.tokens[controls.position])}**{minus} is **{lab.number(attribution.logit)}**. "
        f"Most is written by **{name}**, **{lab.signed(first.value)}**{among if head[1] is not first else ''}. "
        f"Sum of all {len(parts)} parts = **{lab.number(attribution.total)}**, logit = "
        f"**{lab.number(attribution.logit)}**."
    )


def share_of_heads(parts: Sequence[tuple[str, study.Part]]) -> str:
    every = sum(abs(part.value) for _, part in parts)
    heads = [abs(part.value) for _, part in parts if part.role == "head"]  # the largest first
    if not heads or not every:
        return ""
    most = next(
        count for count in range(1, len(heads) + 1) if sum(heads[:count]) >= 0.8 * sum(heads)
    )
    return (
        f"Heads write {lab.percent(sum(heads) / every)} of all that is added or taken away; {most} of the "
        f"{len(heads)} heads write 80\u00a0% of that."
    )


# The view When it decides: the lens at every position, and tokens along the layers at one.


GRID = "lens:grid"
# A long text scrolls in its own box, whose cells keep the width that a token needs: from the end that is picked.
STYLE = """<style>
.st-key-lens-cells {{ overflow-x: auto; direction: {direction} }}
.st-key-lens-cells > div {{ min-width: {width}px; direction: ltr }}
</style>"""


def section(controls: lab.Values) -> None:
    ref, baseline = controls.ref, controls.baseline
    start = study.window_start(controls.position, len(controls.line))
    key = ref, Question(controls.question.inputs, 0)  # the states are those of any position
    with st.spinner("Running the model"):
        first, stream = (
            lab.baseline_of(*key),
            lab.answer_study(study.read_stream, *key, start, start + study.WINDOW),
        )
    parts, read = (
        range(study.count_parts(first, stream)),
        partial(study.read_part, first, stream),
    )
    values = lab.measure_with_progress(LENS_PARTS, (*key, start), parts, read, "parts", lab.UNASKED)
    if len(values) < len(parts):
        return
    lens = study.join_parts(baseline.pretrained, stream, [*values.values()])
    view = st.container()
    with st.popover("More", help="Further tokens, and the layer whose attention is shown"):
        # Further tokens, of which those that lead in some layer are offered
        tokens, leaders = list[int](), tuple(study.leaders(baseline, lens))
        offered = lab.output_names(ref, baseline.question, leaders)
        for text in st.multiselect(
            "More tokens",
            list(offered),
            key=f"lens:tokens:{ref.name}",
            accept_new_options=True,
            max_selections=4,
            placeholder="pick or type",
            help="Each gets a curve of its own. Type any token of the vocabulary, or its number, "
            "such as #17.",
            **lab.BOUND,
        ):
            try:
                tokens.append(
                    offered[text]
                    if text in offered
                    else output_id(baseline.pretrained, baseline.answer, text)
                )
            except PretrainedError as error:
                lab.field_error(error)
        name = Controls.draw("layer", into=lab.HERE, names=lens.names[1:], ref=ref).layer
    chosen = study.followed(baseline, lens, tokens)
    followed = study.follow_tokens(baseline, lens, controls.position, chosen)
    decision = study.Decision(lens, chosen, followed)
    words = lab.study_of(
        token_names, ref, tuple(dict.fromkeys([*chosen, *lens.top.flatten().tolist()]))
    )
    state = decision.lens.names[max(1, decision.decisive)] if name == DECISIVE else name
    along, at = decision.trajectories, controls.position - start
    lab.add_script(partial(when_script, controls, decision, words))
    with view:
        _grid(controls, decision, words, state)
        lab.fact(decided(controls, decision, words))
    _curves(controls, decision, words, state)
    lab.details(
        "The layers at this position, as a table",
        lambda: lab.table(
            ["after", "likeliest", "its probability", "the answer’s", "rank", "entropy, bits"],
            [
                [
                    state,
                    words[int(lens.top[row, at, 0])],
                    lab.number(float(lens.probabilities[row, at, 0])),
                    lab.number(float(along.probabilities[row, 0])),
                    lab.whole(int(along.ranks[row, 0])),
                    lab.number(float(lens.entropy[row, at])),
                ]
                for row, state in enumerate(decision.lens.names)
            ],
            caption="The lens at the picked position",
            left=2,
            markers=False,
        ),
        "lens:rows",
    )
    attention(controls, state)
    st.latex(
        r"\mathrm{lens}(x_\ell) = \mathrm{softmax}\big(W_U\, \mathrm{norm}(x_\ell)\big)",
        width="content",
    )


def _grid(
    controls: lab.Values, decision: study.Decision, words: dict[int, str], state: str
) -> None:
    lens, start, length = decision.lens, decision.lens.start, decision.lens.top.shape[1]
    tokens, position = controls.line.tokens[start : start + length], controls.position - start
    stops = ",".join(lab.colour_scale(lab.theme()))
    lab.chart_title(
        "The likeliest token after each layer, in the colour of its probability",
        legend=(
            f'0 <span style="display:inline-block;width:96px;height:8px;background:linear-gradient(90deg,{stops})">'
            "</span> 1"
        ),
    )
    if length < len(controls.line):
        lab.caption(
            f"Tokens {start} to {start + length - 1} of {len(controls.line)}, around the position that answers."
        )
    late = position >= length / 2

    def pick() -> None:
        if point := lab.pressed_point(GRID):
            st.session_state[lab.position_key(controls.reading)] = int(point["index"])
            if point["state"] != study.EMBEDDING:
                st.session_state[Controls.layer.key_of(Controls(ref=controls.ref))] = point["state"]

    cells = [
        {
            "state": name,
            "column": index,
            "index": start + index,
            "token": token,
            "word": words[ids[0]],
            "p": shares[0],
            "text": f"{words[ids[0]]} {lab.number(shares[0])}",
            "top": ", ".join(
                f"{words[one]} {lab.number(p)}" for one, p in zip(ids[1:], shares[1:], strict=True)
            ),
        }
        for name, top, probabilities in zip(
            decision.lens.names, lens.top.tolist(), lens.probabilities.tolist(), strict=True
        )
        for index, (token, ids, shares) in enumerate(zip(tokens, top, probabilities, strict=True))
    ]
    st.html(STYLE.format(width=(WIDE * len(tokens) + 80), direction="rtl" if late else "ltr"))
    with st.container(key="lens:cells"):
        lab.draw_chart(
            st,
            token_grid(
                cells,
                decision.lens.names,
                tokens,
                (state, position),
                lab.theme(),
                late,
            ),
            key=GRID,
            on_select=pick,
            selection_mode=[lab.PICKED],
            alt="The likeliest token after each layer, at each position",
        )


def _curves(
    controls: lab.Values, decision: study.Decision, words: dict[int, str], state: str
) -> None:
    names = lab.distinct([words[token] for token in decision.tokens])
    along, at = decision.trajectories, controls.position - decision.lens.start
    shares, ranks = (
        dict(zip(names, values.T.tolist(), strict=True))
        for values in (along.probabilities, along.ranks)
    )
    charts: dict[str, tuple[str, str, str, dict[str, Any]]] = {
        "probability": (
            "Probability",
            "Probability of the answers",
            " ".join(
                f'<span style="font-weight:600;white-space:nowrap"><span style="display:inline-block;width:14px;'
                f'height:3px;margin-right:4px;vertical-align:middle;background:{colour}"></span>{lab.plain(name)}</span>'
                for name, colour in zip(names, colours(len(names), lab.theme()), strict=True)
            ),
            {"curves": shares, "high": 1.0, "column": "probability"},
        ),
        "rank": (
            "Rank, 1 is the likeliest",
            "Rank of the answers",
            "",
            {"curves": ranks, "rank": True, "column": "rank"},
        ),
        "entropy": (
            "Entropy of all tokens, bits",
            "Entropy of all tokens, in bits,",
            "",
            {
                "curves": {"entropy": decision.lens.entropy[:, at].tolist()},
                "column": "entropy, bits",
            },
        ),
    }
    for column, (key, (heading, alt, beside, how)) in zip(
        st.columns(3, gap="medium"), charts.items(), strict=True
    ):
        lab.draw_chart(
            column,
            along_layers(**how, states=decision.lens.names, theme=lab.theme(), picked=state),
            key=f"lens:{key}",
            alt=f"{alt} after each layer",
            heading=heading,
            legend=beside,
        )


# The view Who wrote it: the answer's logit as a sum of what each part wrote.


def who_section(controls: lab.Values) -> None:
    ref, reading, baseline = controls.ref, controls.reading, controls.baseline
    passes, run = (
        study.attribute_passes(baseline, baseline.id, controls.contrast),
        list[study.Attribution | None](),
    )

    def attribute(index: int) -> study.Attribution | None:
        run.extend(islice(passes, index + 1 - len(run)))
        return run[index]

    results = lab.measure_with_progress(
        ATTRIBUTED,
        (ref, controls.question, controls.contrast),
        range(study.PASSES),
        attribute,
        "passes",
        lab.UNASKED,
    )
    if (attribution := results.get(study.PASSES - 1)) is None:
        return
    lab.add_script(partial(who_script, controls, attribution))
    parts, layers = study.named_parts(reading, attribution), study.answering_layers(reading)
    words = lab.study_of(
        token_names,
        ref,
        tuple(token for token in (baseline.id, controls.contrast) if token is not None),
    )
    other = None if controls.contrast is None else words[controls.contrast]
    lab.fact(wrote(controls, attribution, parts, words[baseline.id], other))
    rows = list(layers)
    values = {
        (rows.index(part.key), part.head): part.value
        for part in attribution.parts
        if part.role == "head" and part.key is not None and part.head is not None
    }
    picked = None
    if values:
        picked = lab.link_head(
            "lens",
            ref,
            ref,
            {(row, head): (rows[row][0], (rows[row][1], head)) for row, head in values},
            max(values, key=lambda head: abs(values[head])),
        )
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        if rows:  # a model may have no attention
            inner = any(part.role == "feed-forward" for _, part in parts)
            more = ", and the feed-forward network (FF) of a layer" if inner else ""
            lab.paragraph(f"**What each head adds{more}**")
            lab.head_field(
                {f"{layers[rows[row]]}·H{head}": (row, head) for row, head in values},
                picked,
                f"lens:head:{ref.name}",
            )
            _who_grid(layers, attribution, list(values), picked)
        lab.caption(share_of_heads(parts))
    lab.draw_chart(
        right,
        part_bars(study.grouped(reading, attribution), lab.theme()),
        key="lens:bars",
        alt="What each kind of part adds to the logit",
        heading="The sum, in the order of the model",
    )
    listed = [[name, lab.signed(part.value)] for name, part in parts]
    lab.details(
        f"All {len(listed)} parts, the largest first",
        partial(lab.table, ["part", "adds"], listed, caption="Parts of the logit", markers=False),
        "lens:ranked",
    )
    if picked is not None:
        kind, layer = rows[picked[0]]
        attention(controls, reading.trace.of(kind).map(layer).layer_name, (kind, picked[1]))
    # The sum of the parts by what they are
    kinds = {
        "embedding": "embeddings",
        "head": "heads",
        "mixer": "mixers",
        "feed-forward": "feed-forward",
    }
    sums = Counter[str]()
    for part in attribution.parts:
        sums[kinds.get(part.role, "biases")] += part.value  # type: ignore[assignment]
    written = " ".join(
        rf"{'+' if sums[name] >= 0 else '-'} \underbrace{{{lab.latex(abs(sums[name]))}}}_{{\text{{{name}}}}}"
        for name in (*kinds.values(), "biases")
        if name in sums
    )
    st.latex(
        rf"\mathrm{{logit}} = {written.removeprefix('+ ')} = {lab.latex(attribution.total)}",
        width="content",
    )


def _who_grid(
    layers: Mapping[LayerKey, str],
    attribution: study.Attribution,
    heads: Sequence[lab.Pair],
    picked: lab.Pair | None,
) -> None:
    rows, names = list[lab.Spec](), list(layers.values())
    columns = dict.fromkeys(map(str, range(1 + max((head for _, head in heads), default=0))))
    for part in attribution.parts:
        if part.key is not None and part.role in ("head", "feed-forward"):
            layer, column = layers[part.key], str(part.head) if part.role == "head" else "FF"
            rows.append(
                {"layer": layer, "head": column, "change": part.value}
                | {
                    "name": (
                        f"{layer}·H{column}" if part.role == "head" else f"feed-forward of {layer}"
                    ),
                    "by": lab.signed(part.value),
                }
            )
            columns.setdefault(column)
    lab.effect_chart(
        "lens:parts",
        "What each head and feed-forward layer adds to the logit",
        lambda layer, head: lab.write_pair("head", (names.index(layer), head)),
        rows,
        names,
        list(columns),
        ("", "") if picked is None else (names[picked[0]], str(picked[1])),
        title="added to the logit",
        tips=(("name", "part"), ("by", "adds")),
    )


# The page When it decides.


def page() -> None:
    lab.title(
        "When it decides",
        "Each layer has an answer, if it is read as the last one.",
    )
    choice = lab.choose_model(needs=("tokens",), usual=lab.WRITES, weights=False)
    if choice is not None:
        lab.fragment_unless_measuring(partial(_view, choice))
    lab.details(
        "How layers are read and summed: papers and source",
        partial(
            lab.sources,
            "The states after a layer stand in for the last layer’s, so that whatever the family does after it is "
            "done to them: [nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/"
            "interpreting-gpt-the-logit-lens). Attribution: [Elhage et al. 2021](https://transformer-circuits.pub/"
            "2021/framework/index.html); [Wang et al. 2023](https://arxiv.org/abs/2211.00593), section 3. In "
            "models that normalize after each addition, such as the original Transformer, a part passes every "
            "later norm with its scale held.",
            study.read_part,
            study._readout,
            study.attribute_passes,
            study._stream_parts,
            study._scaled_copy,
        ),
        "lens:how",
    )


def _view(choice: lab.ModelChoice) -> None:
    with lab.input_errors():
        controls = draw_controls(choice)
        with lab.picture("lens"):
            {"when": section, "who": who_section}[controls.view](controls)
        who = controls.view == "who"
        parts = {
            f"{lab.plain(choice.reading.trace.source)}, {controls.line.count}; fp32, no dropout.": True,
            " The layers are those of the decoder.": choice.reading.target is not None,
            " The last layer is the model’s own output; earlier layers were not trained to be read so.": not who,
            " Direct logit attribution: the scales of the norms": who,
            ", and the gates of the activation before the unembedding,": who
            and controls.baseline.answer.kind == "mask",
            " are held at their values. What a part does by way of later layers counts as theirs.": who,
        }
        lab.caption("".join(filter(parts.get, parts)))
    lab.try_this(
        "lens",
        (
            lab.Move(
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
            lab.Move(
                "A translation",
                {
                    "inside:model": "numbers",
                    "inside:language": "numbers",
                    "lens:view": "when",
                    "inside:text": "nine thousand three hundred and twelve",
                },
                "The layers are those of the decoder. Press a cell of another column to see where another word is decided.",
            ),
            lab.Move(
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
        ),
    )
