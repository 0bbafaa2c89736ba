"""Heads over a corpus: every head of a model measured on hundreds of texts."""

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError, Param, refuse_if
from core.files import CORPORA
from core.interpret.corpus import (
    ABLATION,
    ABLATION_LOGIT,
    AXES,
    BY_KEY,
    CELLS,
    CONFIDENCE,
    COPYING,
    DEFAULT_TEXTS,
    LONGEST,
    MAP_TEXTS,
    MAP_TOKENS,
    MAX_TEXTS,
    MAX_TOKENS,
    SAVED,
    Axis,
    Corpus,
    CorpusConfig,
    HeadVectors,
    JointMap,
    MarkedRow,
    Measure,
    Measurement,
    Source,
    Split,
    TextExample,
    copying,
    corpora_folder,
    fits,
    has_training_data,
    join_vectors,
    joint_map,
    load_inputs,
    measure_texts,
    nearness,
    read_measurement,
    shorten,
    split_texts,
    text_examples,
    text_vectors,
    texts_of_map,
)
from core.interpret.roles import ROLES
from core.interpret.trace import Head
from core.pretrained import ModelInputs, Pretrained, PretrainedError, model_inputs, reject_if
from core.pretrained.load import maps_bytes
from core.runs.runs import Run, list_runs
from core.tasks import reading
from core.tokens import bare_piece

# The measurement that fits the controls, and what is read of its texts, for all sessions.


VECTORS = "corpus:vectors"  # the texts whose queries and keys were read, by their index


def find_measurement(config: CorpusConfig, run_id: object) -> Run | None:
    """The measurement of this config: that of the link, else one that came with the lab, else a finished one."""
    ended = [
        run for run in reversed(list_runs(corpora_folder())) if run.status().state == "finished"
    ]
    runs = [lab.limits.find_run(run_id, CORPORA), *map(Run, sorted(SAVED.iterdir())), *ended]
    return next((run for run in runs if run is not None and fits(run, config)), None)


def axis_of(measurement: Measurement, ref: lab.ModelRef, measure: Measure) -> Axis:
    """A measure of every head for an axis of the scatter; OV copying is read from the weights."""
    corpus = measurement.corpus
    if measure != COPYING:
        return Axis(measure, corpus.mean(measure.key), corpus.interval(measure.key))
    scores = lab.study_of(copying, ref, measurement.config.kind, measurement.scores.score.shape[1:])
    return Axis(measure, scores, np.zeros_like(scores))


def examples_of(
    measurement: Measurement, ref: lab.ModelRef, measure: Measure, head: Head, view: str
) -> list[TextExample]:
    """The texts that show a head most or least, or a text at each decile, each with one row."""
    arguments = str(measurement.run.path), measure.key, head, view, measurement.corpus.texts
    # A measurement under way has other texts each second: they would push all else out of the cache.
    if measurement.live:
        return text_examples(lab.load_model(ref), *arguments)
    return lab.study_of(text_examples, ref, *arguments)


# Heads as points of two measures, one head's values over texts, and its queries and keys: arrays to Vega-Lite.


HEIGHT, SMALL = 380, 150
EDGE = 12  # pixels right of a plot, for half of its last tick
CHARTS_OTHER = "other"


def head_scatter(
    measurement: Measurement, x: Axis, y: Axis, picked: Head, theme: lab.Theme
) -> lab.Spec:
    """A point a head at the means of two measures, in the colour of its role, with both 95 % intervals."""
    ink, rows = lab.Ink.of(theme), scatter_rows(measurement, x, y, theme)
    at = {
        name: _value(name, f"{axis.measure.name}, {axis.measure.unit}", ink)
        for name, axis in (("x", x), ("y", y))
    }
    one = [row for row in rows if row["name"] == measurement.scores.name(picked)]
    unread = {"tooltip": False, "aria": False}
    whiskers = [
        lab.layer(
            "rule",
            rows,
            at
            | {
                name: {**at[name], "field": f"{name}0"},
                f"{name}2": {"field": f"{name}1"},
                "color": lab.literal("fill"),
            },
            opacity=0.4,
            strokeWidth=1,
            **unread,
        )
        for name in "xy"
    ]
    x_title, y_title = (f"{axis.measure.name}, {axis.measure.unit}" for axis in (x, y))
    titles = {"name": "head", "role": "role", "x": x_title, "xhalf": f"± of {x_title}"} | {
        "y": y_title,
        "yhalf": f"± of {y_title}",
    }
    return (
        lab.figure(
            [
                *whiskers,
                lab.layer(
                    "circle",
                    rows,
                    {
                        **at,
                        "fill": lab.literal("inside"),
                        "stroke": lab.literal("fill"),
                        "tooltip": [
                            lab.text_tip("name", "head"),
                            lab.text_tip("role", "role"),
                            lab.text_tip("xs", "across"),
                            lab.text_tip("ys", "upwards"),
                        ],
                        "description": {"field": "says", "type": "nominal"},
                    },
                    size=90,
                    strokeWidth=1.5,
                    opacity=0.95,
                    cursor="pointer",
                )
                | {"name": "heads"},
                lab.layer(
                    "point",
                    one,
                    at,
                    size=230,
                    stroke=ink.pick,
                    strokeWidth=2.25,
                    filled=False,
                    **unread,
                ),
                lab.layer(
                    "text",
                    one,
                    {**at, "text": {"field": "name"}},
                    color=ink.pick,
                    dy=-16,
                    fontSize=13,
                    fontWeight=600,
                    **unread,
                ),
            ],
            HEIGHT,
        )
        | lab.right_margin(EDGE)
        | {
            "params": [
                {
                    "name": "head",
                    "select": {"type": "point", "fields": ["name"]},
                    "views": ["heads"],
                }
            ]
        }
        | lab.table_columns(titles)
    )


def scatter_rows(measurement: Measurement, x: Axis, y: Axis, theme: lab.Theme) -> list[lab.Spec]:
    rows, roles = [], measurement.scores.head_roles
    for name, head in measurement.heads.items():
        index = roles.get(head)
        row: lab.Spec = {
            "name": name,
            "fill": lab.Ink.of(theme).quiet if index is None else lab.CATEGORIES[theme][index],
            "inside": "transparent" if index is None else lab.CATEGORIES[theme][index],
            "role": "none" if index is None else ROLES[index].name,
        }
        for at, axis in (("x", x), ("y", y)):
            mean, half = float(axis.mean[head]), float(np.nan_to_num(axis.half[head]))
            words = f"{axis.measure.name} {lab.number(mean)}" + (
                f" ± {lab.number(half)}" if half else ""
            )
            row |= {at: mean, f"{at}0": mean - half, f"{at}1": mean + half, f"{at}s": words}
            row[f"{at}half"] = half
        if not (np.isnan(row["x"]) or np.isnan(row["y"])):
            rows.append(row | {"says": f"{name}: {row['xs']}, {row['ys']}"})
    # A rare role is drawn over a frequent one
    count = Counter(row["role"] for row in rows)
    return sorted(rows, key=lambda row: -count[row["role"]])


def histogram(values: np.ndarray, measure: Measure, nouns: str, theme: lab.Theme) -> lab.Spec:
    """One head's values over texts (`nouns`): how many lie in each of 24 steps, with deciles and the mean."""
    ink, valid = lab.Ink.of(theme), values[~np.isnan(values)].astype(float)
    counts, edges = np.histogram(valid, 24)
    places = {f"decile {step}": np.quantile(valid, step / 10) for step in range(1, 10)}
    *marks, mean = (
        {"name": name, "at": float(value), "text": lab.number(value)}
        for name, value in {**places, "mean": valid.mean()}.items()
    )
    x = {
        "type": "quantitative",
        "title": f"{measure.unit}; ticks: tenths of {nouns}",
        "scale": {"zero": False, "nice": False},
        "axis": {**lab.axis_style(ink), "grid": False, "tickCount": 5},
    }
    marked = {
        "x": {**x, "field": "at"},
        "tooltip": [lab.text_tip("name", "mark"), lab.text_tip("text", measure.name)],
    }
    titles = {"low": f"{measure.name} from", "high": f"{measure.name} to", "count": nouns}
    return lab.figure(
        [
            lab.layer(
                "bar",
                [
                    {
                        "low": float(low),
                        "high": float(high),
                        "count": int(count),
                        "range": f"{lab.number(low)} to {lab.number(high)}",
                    }
                    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
                ],
                {
                    "x": {**x, "field": "low"},
                    "x2": {"field": "high"},
                    "y": {
                        "field": "count",
                        "type": "quantitative",
                        "title": nouns,
                        "axis": {**lab.axis_style(ink), "tickCount": 3, "gridColor": ink.hairline},
                    },
                    "y2": {"datum": 0},
                    "tooltip": [lab.text_tip("range", measure.name), lab.text_tip("count", nouns)],
                },
                color=ink.series[0],
                cornerRadius=1,
            ),
            lab.layer(
                "tick",
                marks,
                {**marked, "y": {"value": "height"}},
                orient="vertical",
                color=ink.text,
                thickness=1.5,
                size=14,
            ),
            lab.layer("rule", [mean], marked, color=ink.pick, strokeWidth=2),
        ],
        SMALL,
    ) | (lab.right_margin(EDGE) | lab.table_columns(titles))


def joint_chart(points: JointMap, vectors: HeadVectors, colour: str, theme: lab.Theme) -> lab.Spec:
    ink = lab.Ink.of(theme)
    common = [token for token, _ in Counter(vectors.tokens).most_common(7)]  # which have a colour
    legend = {
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 5,
        "labelColor": ink.text,
        "labelFontSize": 12,
        "titleColor": ink.quiet,
        "titleFontWeight": "normal",
    }
    shades = lab.CATEGORIES[theme]
    rows = [
        {
            "x": float(x),
            "y": float(y),
            "token": token,
            "position": int(position),
            "text": int(text) + 1,
            "of": of,
            "group": token if token in common else CHARTS_OTHER,
        }
        for of, both in (("query", points.q), ("key", points.k))
        for (x, y), token, position, text in zip(
            both, vectors.tokens, vectors.positions, vectors.texts, strict=True
        )
    ]
    encoding = {
        "x": _value("x", f"first component, {lab.percent(points.share[0])} of the variance", ink),
        "y": _value("y", f"second component, {lab.percent(points.share[1])}", ink),
        "shape": lab.series_encoding("of", ("query", "key"), ("circle", "triangle-up")),
        "tooltip": [
            lab.text_tip("of", "vector"),
            lab.text_tip("token", "token"),
            lab.text_tip("position", "position"),
            lab.text_tip("text", "text"),
        ],
        "color": {
            "field": "group",
            "type": "nominal",
            "title": None,
            "legend": legend,
            "scale": {
                "domain": [*common, CHARTS_OTHER],
                "range": [*shades[: len(common)], shades[-1]],
            },
        }
        if colour == "token"
        else {
            "field": "position",
            "type": "quantitative",
            "title": "position",
            "scale": {"range": lab.WEIGHTS[theme][2:]},
            "legend": {**legend, "gradientLength": 120},
        },
    }
    return lab.figure(
        [
            lab.layer(
                "point",
                rows,
                encoding,
                filled=True,
                size=42,
                opacity=0.75,
            )
        ],
        HEIGHT,
    ) | lab.right_margin(EDGE)


def _value(name: str, title: str, ink: lab.Ink) -> lab.Spec:
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False},
        "axis": {**lab.axis_style(ink), "gridColor": ink.hairline, "tickCount": 6},
    }


# The controls: the model, the texts, two measures for the axes, and the head with what is shown of it.


SOURCES = {
    "own": "The lab's 300 sentences",
    "training": "Its training data",
    "texts": "Your own texts",
}


def axis_select(label: str, default: str) -> lab.Select:
    return lab.Select(
        label,
        {measure.key: measure.name for measure in AXES},
        default,
        help="What the scatter shows of every head on this axis: the mean over texts, or OV "
        "copying, which is read from the weights.",
    )


class Controls(lab.Fields, page="corpus"):
    source = lab.Select[Source](
        "Texts",
        lambda values: {name: SOURCES[name] for name in values.sources},
        lambda values: values.first,
        key=lambda values: f"source:{values.first}",
        help=f"At most {MAX_TEXTS:,} texts are measured.",
    )
    x = axis_select("Across", "distance")
    y = axis_select("Upwards", "entropy")
    count = lab.Number(
        "Texts, at most",
        DEFAULT_TEXTS,
        1,
        MAX_TEXTS,
        hidden=True,
        help="The first so many of the corpus are measured.",
    )
    ablation = lab.Toggle(
        "Switch heads off",
        hidden=True,
        help="Measure how much the answer changes without each head: one pass a head and text, so about as many "
        "times longer as the model has heads.",
    )
    kind = lab.Select(
        "Attention",
        {kind: lab.KINDS[kind] for kind in ("self", "causal")},
        hidden=True,
        help=lab.KIND_HELP,
    ).optional(lambda values: values.pair)
    split = lab.Segmented[Split](
        "Texts are",
        {"lines": "One a line", "paragraphs": "One a paragraph"},
        hidden=True,
        help="How the file is divided into texts.",
    ).optional(lambda values: values.source == "texts")
    head = lab.Select[str](
        "Head",
        lambda values: list(values.measurement.heads),
        lambda values: values.measurement.scores.name(values.measurement.default_head),
        also=lambda values: {
            "on_change": _store_head,
            "args": (values.measurement, values.ref),
        },
        help="One of the heads; a click in the scatter picks one, too.",
    )
    measure = lab.Select[str](
        "Sorted by",
        lambda values: (
            {ROLE: values.own} | {one.key: one.name for one in values.measurement.measures}
        ),
        help="The measure that the texts below are sorted by; of a head without a role its entropy.",
    )
    view = lab.Segmented(
        "Show",
        {
            "strongest": "Strongest",
            "typical": "Typical",
            "weakest": "Weakest",
            "map": "Queries and keys",
        },
        help="Texts with the largest values, at each tenth of all, or with the smallest, where a role fails; or the "
        "head's queries and keys.",
        also={"wrap": True},
    )
    colour = lab.Segmented(
        "Colour",
        {"token": "Token", "position": "Position"},
        help="Points of the most frequent tokens, or by their position in their text.",
    )


ROLE = "role"  # of the measure: that of the head's own role

key = "corpus:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> lab.Values | None:
    """Draw the controls of the measurement and of the scatter; None after a message when there is no model.

    Returns the model, what is measured of it (`config`, None with the reason on the page while that is not known), both
    axes, and what the model reads, of which there are hundreds.
    """
    row = st.columns([1.3, 1.3, 0.8, 0.8], vertical_alignment="bottom")
    choice = lab.choose_model(("model",), has_inputs=False, columns=row[:2])
    if choice is None:
        return None
    with lab.input_errors():
        config = _config(choice.ref, choice.model, row[1], row[2])
        drawn = Controls.draw("x", "y", into=row[3].popover("Axes", width="stretch"))
        return lab.Values(
            ref=choice.ref,
            config=config,
            noun="picture" if choice.model.reads == "picture" else "text",
            x=BY_KEY[drawn.x],
            y=BY_KEY[drawn.y],
        )
    return None


def _config(
    ref: lab.ModelRef, pretrained: Pretrained, column: Any, options_column: Any
) -> CorpusConfig | None:
    model = lab.config_name(ref)
    sources = [
        one
        for one in SOURCES
        if (has_training_data(model) if one == "training" else pretrained.reads_text)
    ]
    reject_if(
        not sources,
        f"{pretrained.name} reads {pretrained.reads}s, and the lab has no corpus of these. Take "
        "a model that reads text.",
    )
    source = Controls.draw(
        "source",
        into=column,
        sources=sources,
        first="training" if "training" in sources else "own",
    ).source
    # The settings of the measurement in a popover; while it is closed, those of the session
    lab.link_data(key("data"), "")
    panel = options_column.popover(
        "Corpus",
        width="stretch",
        on_change="rerun",
        key=key("panel"),
        help="Your own texts, how many are measured, and whether heads are switched off.",
    )
    given = {"source": source, "pair": pretrained.reads == "pair"}
    with panel:
        if not panel.open:
            options = Controls.read("count", "ablation", "kind", "split", **given)
        else:
            options = Controls.draw("count", "ablation", "kind", "split", into=lab.HERE, **given)
            if source == "texts":
                lab.data_widget(
                    Param(
                        "data",
                        "Your texts",
                        default="",
                        meaning="Plain text",
                        longest=reading.MAX_SIGNS,
                    ),
                    key("data"),
                )
                st.caption(
                    f"At most {MAX_TEXTS:,} texts of {LONGEST:,} characters; of each, {MAX_TOKENS} tokens are read."
                )
    kind: Any = options.kind or "self"
    if pretrained.reads == "text":  # the kind of the one that it has, by its maps of a text
        kind = (
            "causal"
            if "self"
            not in lab.reading_of(ref, ModelInputs(model_inputs.text_of(ref.name))).trace.kinds
            else "self"
        )
    split: Split = options.split or "lines"
    try:
        data = ""
        if source == "texts":
            data = str(st.session_state.get(key("data"), ""))
            split_texts(reading.read(data), split)
        return CorpusConfig(
            model, source, data, split, kind, count=options.count, ablation=options.ablation
        )
    except ConfigError as error:
        lab.field_error(error)
    return None


def draw_head_controls(measurement: Measurement, ref: lab.ModelRef) -> lab.Values:
    # Take the head that was picked on another page since
    state, scores = st.session_state, measurement.scores
    picked = lab.current_head_of(ref, measurement.config.kind, scores.score.shape[1:])
    if picked is not None and state.get(key("known")) != (ref, picked):
        state[key("known")] = ref, picked
        if (name := scores.name(picked)) in measurement.heads:
            state[key("head")] = st.query_params[key("head")] = name
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = Controls.draw("view", into=lab.HERE).view
        with st.popover("Head", help="The head, and the measure that its texts are sorted by"):
            values = Controls.draw("head", into=lab.HERE, measurement=measurement, ref=ref)
            head = measurement.heads[values.head]
            of_role = measurement.role_measure(head)
            chosen = Controls.draw(
                "measure",
                into=lab.HERE,
                own=f"{'Its role' if head in scores.head_roles else 'No role'}: {of_role.name}",
                **values,
            ).measure
    return lab.Values(head=head, measure=of_role if chosen == ROLE else BY_KEY[chosen], view=view)


def _store_head(measurement: Measurement, ref: lab.ModelRef) -> None:
    head = measurement.heads[st.session_state[key("head")]]
    st.session_state[key("known")] = ref, head
    lab.choose_head(ref, measurement.config.kind, head)


# What the page computes as Python, from the folder of its measurement.


def script(
    measurement: Measurement, controls: lab.Values, chosen: lab.Values, vectors: HeadVectors | None
) -> lab.Script:
    config, corpus = measurement.config, measurement.corpus
    again = lab.source_of(config).replace("\n", "\n# ")
    points, results = "", dict[str, Any]()
    if COPYING in (controls.x, controls.y):
        points = "from core.interpret.corpus import copying\n"
    for name in "xy":
        axis = axis_of(measurement, controls.ref, controls[name])
        key, results[name] = axis.measure.key, axis.mean
        if axis.measure == COPYING:
            points += (
                f"{name} = copying(model, {config.kind!r}, corpus.roles.score.shape[1:])  "
                f"# {key}, from the weights alone\n"
            )
        else:
            points += f"{name} = corpus.mean({key!r})  # (layers, heads)\n{name}_half = corpus.interval({key!r})\n"
            results[f"{name}_half"] = axis.half
    measure = chosen.measure.key
    results |= {
        "values": measurement.corpus.values_of(chosen.measure.key, chosen.head),
        "mean": corpus.mean(measure)[chosen.head],
        "half": corpus.interval(measure)[chosen.head],
    }
    last, more = shown_cell(measurement, controls, chosen, vectors)
    return lab.Script(
        (
            lab.model_cell(controls.ref),
            lab.Cell(
                "The measurement of every head on every text, as its worker left it.",
                f"""
from core.interpret.corpus import load
from core.runs.runs import open_run

run = open_run({lab.path_code(measurement.run.path)})
# core.interpret.corpus.create(config, folder) and python -m core.runs.worker FOLDER measure it again, for the config
# {again}
corpus = load(run)
print(corpus.texts, "texts,", corpus.cut, "cut")
""",
            ),
            lab.Cell(
                "Two measures of every head: the means over the texts, and half of their 95 % intervals.",
                points,
                """
import altair as alt
import pandas as pd

heads = pd.DataFrame({"layer": [layer for layer, row in enumerate(x) for _ in row], "x": x.ravel(), "y": y.ravel()})
alt.Chart(heads).mark_circle().encode(x="x:Q", y="y:Q", color="layer:O")
""",
                "corpus:scatter",
            ),
            lab.Cell(
                "One head on every text, and its mean.",
                f"""
head = {chosen.head}
values = corpus.values_of({measure!r}, head)  # (texts,)
mean, half = corpus.mean({measure!r})[head], corpus.interval({measure!r})[head]
print(f"{measure} of {{head}}: {{mean:.3f}} ± {{half:.3f}}")
""",
                """
alt.Chart(pd.DataFrame({"value": values})).mark_bar().encode(x=alt.X("value:Q", bin=alt.Bin(maxbins=30)), y="count()")
""",
                "corpus:histogram",
            ),
            last,
        ),
        {name: np.asarray(value) for name, value in (results | more).items()},
    )


def shown_cell(
    measurement: Measurement, controls: lab.Values, chosen: lab.Values, vectors: HeadVectors | None
) -> tuple[lab.Cell, dict[str, Any]]:
    layer, head = chosen.head
    if chosen.view != "map":
        examples = examples_of(measurement, controls.ref, chosen.measure, chosen.head, chosen.view)
        code = f"""
from core.interpret.corpus import text_examples

examples = text_examples(model, str(run.path), {chosen.measure.key!r}, head, {chosen.view!r}, {measurement.corpus.texts})
for one in examples:
    tokens = one.row.line.tokens
    print(f"{{one.value:.3f}} text {{one.text}}: {{tokens[one.row.query]}} -> {{tokens[one.row.key]}}")
"""
        return lab.Cell(
            f"The {chosen.view} texts of the head, each with one row of its map.", code
        ), {
            "[one.value for one in examples]": [one.value for one in examples],
            "[weight for one in examples for weight in one.row.weights]": [
                weight for one in examples for weight in one.row.weights
            ],
        }
    results = dict[str, Any]()
    if vectors is not None:
        plane = joint_map(*vectors.head(layer, head))
        results = {f"points.{name}": getattr(plane, name) for name in ("q", "k", "share")}
        results["near"] = nearness(plane, vectors, layer, head)
    code = f"""
from core.interpret.corpus import head_vectors, joint_map, load_inputs, nearness, shorten

vectors = head_vectors(shorten(model), load_inputs(run)[:{MAP_TEXTS}], {measurement.config.kind!r}, {MAP_TOKENS})
points = joint_map(*vectors.head({layer}, {head}))  # queries and keys (N, 2), and each axis's share of the variance
near = nearness(points, vectors, {layer}, {head})  # correlation of the distance in the plane with q·k
print(points.share, near)
"""
    return lab.Cell(
        "The head's queries and keys on the first texts, in the plane of most variance.",
        code,
        *(("", "") if vectors is None else (_PLANE, "corpus:map")),
    ), results


_PLANE = """
plane = pd.concat([pd.DataFrame(one, columns=["x", "y"]).assign(of=name)
                   for name, one in (("queries", points.q), ("keys", points.k))])
alt.Chart(plane).mark_point().encode(x="x:Q", y="y:Q", color="of:N", shape="of:N")
"""


# Sentences, equation, caption and CSV of the page Heads over a corpus.


VIEW_NOTES = {
    "strongest": "The texts with the largest values, each with the row that shows the measure most.",
    "typical": "At each tenth of all texts the one nearest to the decile, with the row nearest to its value.",
    "weakest": "The texts with the smallest values, each with the row that shows the measure least.",
}


def about(words: str, noun: str) -> str:
    """The same words about pictures, where these are what the model reads."""
    return re.sub(r"\btext(s?)\b", rf"{noun}\1", words)


def fact_text(measurement: Measurement, measure: Measure, head: Head) -> str:
    corpus, scores = measurement.corpus, measurement.scores
    values, role = measurement.corpus.values_of(measure.key, head), measure.role
    half = float(corpus.interval(measure.key)[head])
    within = (
        f" ± {lab.number(half)} ({lab.percent(CONFIDENCE)} interval)" if np.isfinite(half) else ""
    )
    count = int((~np.isnan(values)).sum())
    texts = (
        f"{count:,} texts"
        if count == corpus.read
        else f"the {count:,} of {corpus.read:,} texts that can show it"
    )
    if role is None:
        subject = f"its {lab.lower_name(measure.name)}"
    elif role.targets is None:
        subject = "the share of its keys that it uses"
    else:
        subject = f"its weight on {role.attends_to}{',' * (',' in role.attends_to)}"
    return (
        f":primary[**{scores.name(head)}**]: {subject} is **{lab.number(float(corpus.mean(measure.key)[head]))}**{within}, "
        f"the mean over {texts}."
    )


def spread_text(measurement: Measurement, measure: Measure, head: Head) -> str:
    scores, name = measurement.scores, measurement.scores.name(head)
    values = measurement.corpus.values_of(measure.key, head)
    low, high = (lab.number(float(np.nanquantile(values, share))) for share in (0.1, 0.9))
    most = f"Eight texts in ten lie between {low} and {high}."
    if (index := scores.head_roles.get(head)) is None:
        return f"{most} {name} has no role: in none is it clearly above chance."
    score, chance = (float(one[index][head]) for one in (scores.score, scores.chance))
    baseline = "shuffled keys" if ROLES[index].targets else "random scores"
    return (
        f"{most} The role of {name} is {ROLES[index].name.lower()}: {lab.number(score)} over {scores.rows[index]:,} "
        f"rows, where "
        f"{baseline} would give {lab.number(chance)}."
    )


def caption_text(measurement: Measurement, pretrained: Pretrained) -> str:
    corpus, data = measurement.corpus, measurement.run.metadata()
    day = time.strftime("%Y-%m-%d", time.gmtime(float(data.get("created", 0))))
    kind = "causal self-attention" if measurement.config.kind == "causal" else "self-attention"
    ablation = any(measure.key == ABLATION for measure in measurement.measures)
    most = maps_bytes(pretrained.model, 1) * (CELLS if ablation else MAX_TOKENS**2)
    sums = vars(corpus.roles).values()
    of_answer = "the likeliest answer’s probability without the head less that with it: below 0 where the head supports it"
    failed = len(corpus.failed)
    parts = (
        (
            True,
            f"{pretrained.name}, {kind}, {corpus.read:,} texts, measured on {day}. A measure is the mean over the "
            "rows of a text's own tokens; its mean and confidence interval, the lines at its point, are "
            "taken over texts, which all count the same.",
        ),
        (
            corpus.cut,
            f"Of {lab.plural(corpus.cut, 'text')} only the first {MAX_TOKENS} tokens were read.",
        ),
        (failed, f"{lab.plural(failed, 'text')} could not be read: {corpus.error}"),
        *((True, note) for note in data.get("notes", ())),
        (
            True,
            f"One text at a time was in memory: at most {lab.byte_size(most)} of attention maps, and "
            f"{lab.byte_size(sum(array.nbytes for array in sums))} of running sums, however many texts.",
        ),
        (
            ablation,
            f"The ablation effect is {'1 − cosine of the embedding' if pretrained.head == 'none' else of_answer}.",
        ),
    )
    return " ".join(sentence for holds, sentence in parts if holds)


def progress(measurement: Measurement) -> tuple[float, str]:
    done, count = measurement.corpus.texts, measurement.count
    left = math.ceil(measurement.corpus.seconds * (count - done))
    if not done:
        return 0.0, "Loading the model"
    return done / count, f"{done:,} of {count:,} texts; about {left:,} s left"


def to_csv(measurement: Measurement) -> bytes:
    corpus, roles = measurement.corpus, measurement.scores.head_roles
    columns = [
        (one, corpus.mean(one.key), corpus.interval(one.key), corpus.texts_of(one.key))
        for one in measurement.measures
    ]
    return lab.picture_files.csv_file(
        ["head", "measure", "mean", "half_of_95_percent_interval", "texts", "role"],
        [
            [
                name,
                measure.key,
                f"{mean[head]:.6f}",
                f"{half[head]:.6f}",
                texts[head],
                ROLES[roles[head]].key if head in roles else "",
            ]
            for name, head in measurement.heads.items()
            for measure, mean, half, texts in columns
            if not np.isnan(mean[head])
        ],
    )


# The page Heads over a corpus: a scatter of heads, one head over all texts, the texts that show it, and its map.


MAX_SHOWN = 48  # tokens of a text, around its query

RUN = "corpus:run"


def page() -> None:
    lab.title(
        "Heads over a corpus",
        "Each dot is a head, averaged over hundreds of texts.",
    )
    lab.fragment_unless_measuring(_view)
    papers = [
        *(
            f"**{measure.name}** — {lab.plain(measure.meaning)}. {measure.source}"
            for measure in AXES
        ),
        "Queries and keys in one plane: "
        "[Yeh et al. 2023](https://arxiv.org/abs/2305.03210), AttentionViz.",
    ]
    lab.details(
        "Papers and source",
        partial(lab.sources, "\n\n".join(papers), measure_texts, Corpus, joint_map),
        key("source-code"),
    )


def _view() -> None:
    controls = draw_controls()
    if controls is None or (measurement := _measurement(controls)) is None:
        return
    draw = partial(_draw, controls=controls)
    if measurement.live:
        lab.poll(
            partial(read_measurement, measurement.run),
            draw,
            True,
            "corpus:live",
            interval=lab.SLOW_POLL_INTERVAL,
        )
    else:
        draw(measurement)


def _measurement(controls: lab.Values) -> Measurement | None:
    def run_id(text: str) -> str:
        refuse_if(
            lab.limits.find_run(text, CORPORA) is None,
            f"{text[:40]!r} is no measurement on this machine",
        )
        return text

    lab.link_value(RUN, "", run_id)
    config = controls.config
    lab.start_run(
        "corpus",
        config,
        lab.queue.measure,
        lambda run: st.session_state.update({RUN: run.id}),
        ConfigError,
        PretrainedError,
    )
    run = None if config is None else find_measurement(config, st.session_state.get(RUN))
    lab.show_flash("corpus")
    if run is None:
        # The button that measures what was not measured yet
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Measure",
                icon=":material/play_arrow:",
                type="primary",
                key="corpus:start",
                on_click=lab.press,
                args=("corpus",),
                disabled=controls.config is None,
                help="A worker measures the texts one by one; Stop keeps what there is.",
            )
            st.caption(
                "These texts were not measured with this model yet."
                if controls.config
                else "Open Corpus, and paste texts or upload a file."
            )
        lab.limits_line(steps=False)
        lab.placeholder("The heads appear here while the texts are measured.", HEIGHT)
        return None
    measurement = read_measurement(run)
    if measurement.status.state != "finished":
        # Stop or Continue, and how far the measurement is
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        if not lab.limits.mine(run):
            lab.anothers_note(run)
        elif measurement.live:
            lab.stop_button(buttons, "corpus", lab.end_run, run)
        elif measurement.corpus.texts < measurement.count:
            lab.continue_button(buttons, "corpus", partial(lab.continue_run, "corpus"), run)

        with column:
            lab.poll(
                partial(read_measurement, run),
                lambda now: lab.show_progress(
                    run,
                    now.status,
                    ending=lab.plain(now.status.message),
                    progress=lambda: progress(now),
                ),
                measurement.live,
                "corpus:progress",
            )
    return measurement


@lab.input_errors()
def _draw(measurement: Measurement, controls: lab.Values) -> None:
    if not measurement.corpus.read:
        if measurement.live:
            lab.placeholder(
                "The model is loaded; the first heads appear in about five seconds.", HEIGHT
            )
        return
    ref, noun, scatter = controls.ref, controls.noun, st.container()
    chosen = draw_head_controls(measurement, ref)
    name = measurement.scores.name(chosen.head)
    with scatter:
        # The scatter and the roles below it
        left, right = st.columns([1.7, 1], gap="medium")
        with left:
            _scatter(measurement, controls, chosen.head)
            lab.role_line(measurement.scores.head_roles, len(measurement.heads), "dot")
    values = measurement.corpus.values_of(chosen.measure.key, chosen.head)
    with right:
        # Draw the picked head's values over all texts, and its mean
        lab.draw_chart(
            st,
            histogram(values, chosen.measure, f"{noun}s", lab.theme()),
            key=key("histogram"),
            alt=f"How many {noun}s have which {lab.lower_name(chosen.measure.name)} in {name}",
            heading=f"{chosen.measure.name} of {name}",
        )
        lab.fact(about(fact_text(measurement, chosen.measure, chosen.head), noun))
    corpus = measurement.corpus
    mean, half = (
        float(each(chosen.measure.key)[chosen.head]) for each in (corpus.mean, corpus.interval)
    )
    st.latex(
        r"\bar{x} \pm t_{n-1}\,\frac{s}{\sqrt{n}}"
        rf" = {lab.latex(mean)} \pm {lab.latex(half)}, \qquad n = {int((~np.isnan(values)).sum())}",
        width="content",
    )
    vectors = None
    if chosen.view == "map":
        vectors = draw_map(measurement, controls, chosen)
    else:
        # Draw the texts that show the head, with a row of each map
        examples = examples_of(measurement, ref, chosen.measure, chosen.head, chosen.view)
        expected = before = ""
        if chosen.measure.role and chosen.measure.role.targets:
            expected = ", and the keys that the role expects are underlined"
            if chosen.view == "weakest":  # how often the role fails
                before = (
                    f"In {int((values < 0.5).sum()):,} of {int((~np.isnan(values)).sum()):,} texts the head puts less "
                    f"than half of its weight on {chosen.measure.role.attends_to}. "
                )
        lab.caption(
            about(
                f"{before}{VIEW_NOTES[chosen.view]} The query is outlined, each token has the colour of its "
                f"weight{expected}.",
                noun,
            )
        )
        st.html(marked_table(examples, chosen.measure, noun, lab.theme()))
        if examples:
            # A link to the whole map of the head on one of the texts; none for pictures
            index = examples[0].text
            written, step = load_inputs(measurement.run)[index].text, lab.step_of("pretrained")
            if written:
                st.page_link(
                    step.page(),
                    label=f"Open text {index + 1} in {step.title}",
                    icon=step.icon,
                    query_params={"head": f"{chosen.head[0]}.{chosen.head[1]}", lab.TEXT: written}
                    | {lab.MODEL: ref.written},
                )
    lab.add_script(partial(script, measurement, controls, chosen, vectors))
    lab.caption(about(spread_text(measurement, chosen.measure, chosen.head), noun))
    lab.caption(lab.plain(about(caption_text(measurement, lab.load_model(ref)), noun)))
    st.download_button(
        "All heads, CSV",
        lambda: to_csv(measurement),
        "heads-over-a-corpus.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def _scatter(measurement: Measurement, controls: lab.Values, head: Head) -> None:
    x, y = (axis_of(measurement, controls.ref, one) for one in (controls.x, controls.y))
    if missing := [one.measure for one in (x, y) if np.isnan(one.mean).all()]:
        measure = missing[0]
        # Why a measure has no values, and what would give some
        why = {
            ABLATION: "the model answers none of these texts, as one that fills masks",
            ABLATION_LOGIT: "the model gives no logit for these texts",
            COPYING.key: "this model reads and writes no tokens, or has no matrices of single heads",
        }.get(measure.key, "none of these texts can show it")
        text = f"{measure.name} has no values: {why}."
        if measure.key in (ABLATION, ABLATION_LOGIT):
            if not measurement.config.ablation:
                text = f"{measure.name} was not measured here. Turn on “Switch heads off” in Corpus, and measure again."
            elif ABLATION_LOGIT not in measurement.corpus.measures:
                text = f"{measure.name} was measured without its sign by an earlier version. Measure again."
        st.info(text, icon=":material/edit:")
        return

    def pick() -> None:
        point = lab.pressed_point(key("scatter"), "head")
        if point and point["name"] in measurement.heads:
            st.session_state[key("head")] = point["name"]
            _store_head(measurement, controls.ref)

    spec = head_scatter(measurement, x, y, head, lab.theme())
    lab.draw_chart(
        st,
        *lab.split_data(lab.titles_as_marks(spec, lab.Ink.of(lab.theme()))),
        key=key("scatter"),
        alt="Every head as a point of two measures",
        heading=f"Right: {about(controls.x.meaning, controls.noun)}. Up: {about(controls.y.meaning, controls.noun)}.",
        selection_mode="head",
        on_select=pick,
    )


# The joint map of a head's queries and keys.


def draw_map(
    measurement: Measurement, controls: lab.Values, chosen: lab.Values
) -> HeadVectors | None:
    """Draw the head's queries and keys as points of one plane; returns those of all texts, None while some are unread."""
    if measurement.live:
        st.info("The map is drawn once the measurement has ended.", icon=":material/info:")
        return None
    ref, path, kind = controls.ref, str(measurement.run.path), measurement.config.kind
    with st.spinner("Reading queries and keys"):
        short, texts = shorten(lab.load_model(ref)), lab.study_of(texts_of_map, ref, path)
    read = lab.measure_with_progress(
        VECTORS,
        (ref, path, kind),
        range(len(texts)),
        lambda text: text_vectors(short, texts[text], kind),
        f"{controls.noun}s",
        lab.UNASKED,
    )
    if not read:
        return None
    vectors = join_vectors(list(read.values()))
    points = joint_map(*vectors.head(*chosen.head))
    colour = Controls.draw("colour", into=lab.HERE).colour
    name = measurement.scores.name(chosen.head)
    lab.draw_chart(
        st,
        joint_chart(points, vectors, colour, lab.theme()),
        key=key("map"),
        alt=f"Queries and keys of {name} in the plane of most variance",
        heading=f"Queries ● and keys ▲ of {name} in the plane of most variance",
    )
    near = nearness(points, vectors, *chosen.head)
    lab.caption(
        about(
            (
                f"{len(vectors.tokens):,} queries and keys of {name} from the first "
                f"{int(vectors.texts[-1]) + 1} texts, projected onto the plane in which they vary most: "
                f"it holds {lab.percent(sum(points.share))} of their variance. The queries were multiplied by "
                f"{lab.number(points.scale)}, the keys divided by it and moved to the mean of the queries, which changes no "
                f"weight. The correlation of nearness in the plane, −distance², with q·k is {lab.signed(near)}."
            ),
            controls.noun,
        )
    )
    return vectors if len(read) == len(texts) else None


# Texts as HTML, each token in the colour of its weight in one row: the query in the accent, expected keys underlined.


def marked_table(
    examples: Sequence[TextExample], measure: Measure, noun: str, theme: lab.Theme
) -> str:
    ink, rows, head = lab.Ink.of(theme), "", [measure.name, f"{noun}, with one row of its map"]
    cell = f"padding:6px 8px 6px 0;border-top:1px solid {ink.hairline};vertical-align:top"
    if any(one.decile is not None for one in examples):
        head.insert(0, "decile")
    for example in examples:
        row, tokens, decile = example.row, example.row.line.tokens, ""
        if example.decile is not None:
            decile = f'<td style="{cell}">{round(10 * example.decile)}</td>'
        note = (
            f"{tokens[row.query]} → {tokens[row.key]} {lab.share_text(float(row.weights[row.key]))}"
        )
        if measure.role is not None and lab.number(row.value) != lab.share_text(
            float(row.weights[row.key])
        ):
            note += (
                f"; {'all underlined keys' if measure.role.targets else 'share of keys that it uses'} "
                f"{lab.number(row.value)}"
            )
        rows += (
            f'<tr>{decile}<td style="{cell};text-align:left">{lab.number(example.value)}</td>'
            f'<td style="{cell};width:100%;line-height:26px">{_tokens(row, ink, theme)}'
            f'<div style="font-size:13px;line-height:18px;color:{ink.quiet}">{noun} {example.text + 1}: '
            f"{escape(note)}</div></td></tr>"
        )
    columns = "".join(
        f'<th scope="col" style="padding:2px 8px 2px 0;font-weight:400;text-align:left;opacity:.75;'
        f'white-space:nowrap">{escape(name)}</th>'
        for name in head
    )
    return (
        f'<div style="overflow-x:auto"><table aria-label="Texts of this head" style="width:100%;font-size:14px;'
        f'border-collapse:collapse"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _tokens(row: MarkedRow, ink: lab.Ink, theme: lab.Theme) -> str:
    line, parts = row.line, ""
    first = max(0, min(row.query - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
    last = min(len(line), first + MAX_SHOWN)
    for index in range(first, last):
        weight, word = float(row.weights[index]), line.word[index]
        colour = lab.shade(weight, theme)
        style = f"background:{colour};color:{lab.text_on(colour, theme)};padding:1px 2px;border-radius:3px"
        if index == row.query:
            style += f";outline:2px solid {ink.pick}"
        if row.expected[index]:
            style += f";border-bottom:2px dashed {ink.text};background-clip:padding-box"
        joined = index > first and word is not None and word == line.word[index - 1]
        parts += (
            f'{"" if joined else " "}<span title="{lab.share_text(weight)}" style="{style}">'
            f"{escape(bare_piece(line.tokens[index]) if joined else line.tokens[index])}</span>"
        )
    return f"{'… ' if first else ''}{parts.strip()}{' …' if last < len(line) else ''}"
