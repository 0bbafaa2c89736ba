"""Heads over a corpus: every head of a model measured on hundreds of texts."""

from __future__ import annotations

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

from core.entries import ConfigError, Param
from core.interpret.corpus import (
    ABLATION,
    AXES,
    BY_KEY,
    CELLS,
    CONFIDENCE,
    COPYING,
    DEFAULT_TEXTS,
    MAX_TEXTS,
    MAX_TOKENS,
    CorpusConfig,
    HeadVectors,
    JointMap,
    Measure,
    RunningMean,
    Split,
    copying,
    join_vectors,
    joint_map,
    measure_texts,
    nearness,
    shorten,
    text_vectors,
)
from core.interpret.corpus_run import (
    LONGEST,
    corpora_folder,
    has_training_data,
    load_inputs,
    split_texts,
)
from core.interpret.roles import ROLES
from core.interpret.trace import Head, Kind
from core.pretrained import ModelInputs, Pretrained, PretrainedError
from core.pretrained.example_inputs import text_of
from core.runs.runs import Run, list_runs
from core.studies.corpus import (
    EXAMPLES,
    MAP_TEXTS,
    MAP_TOKENS,
    SAVED,
    Axis,
    Measurement,
    TextExample,
    fits,
    mark_rows,
    pick_texts,
    read_measurement,
    texts_of_map,
    token_bytes,
)
from core.tasks import reading
from core.tasks.reading import MAX_SIGNS
from dashboard.draw.formats import byte_size, latex, number, percent, plain, signed
from dashboard.draw.page_exports import Cell, Script, add_script, source_of
from dashboard.draw.palette import CATEGORIES, WEIGHTS, Ink, Theme, shade, text_on
from dashboard.draw.picture_files import csv_file
from dashboard.draw.vega import (
    Spec,
    axis_style,
    figure,
    layer,
    literal,
    right_margin,
    split_data,
    text_tip,
    titles_as_marks,
)
from dashboard.navigation import step_of
from dashboard.server import jobs, people
from dashboard.server.cache import measurements, remembered, shared
from dashboard.ui import run_controls
from dashboard.ui.fields import HERE, Fields, Number, Segmented, Select, Toggle, Values
from dashboard.ui.fine_tuned import config_name
from dashboard.ui.heads import role_line
from dashboard.ui.links import link_value
from dashboard.ui.model_picker import (
    KIND_HELP,
    KINDS,
    MODEL,
    OTHER,
    PANELS,
    TEXT,
    choose_head,
    current_head_of,
    input_errors,
    model_box,
    other_panel,
    resolve_model,
)
from dashboard.ui.models import (
    EMBEDDED,
    ModelRef,
    is_small,
    load_model,
    model_cell,
    one_thread,
    reading_of,
    study_of,
)
from dashboard.ui.panels import (
    caption,
    chart_title,
    details,
    draw_chart,
    fact,
    field_error,
    next_page,
    placeholder,
    pressed_point,
    sources,
    theme,
    title,
)
from dashboard.ui.progress import UNASKED, fragment_unless_measuring, measure_with_progress
from dashboard.ui.run_controls import SLOW_POLL_INTERVAL, poll
from dashboard.ui.run_data import path_code
from dashboard.ui.uploads import data_widget, link_data

# The measurement that fits the controls, and what is read of its texts, for all sessions.


VECTORS = "corpus:vectors"  # the texts whose queries and keys were read, by their index
VectorsKey = tuple[ModelRef, str, Kind]


def find_measurement(config: CorpusConfig, run_id: object) -> Run | None:
    """The measurement of this config: that of the link, else one that came with the lab, else a finished one."""
    linked = people.find_measurement(run_id)
    if linked is not None and fits(linked, config):
        return linked
    saved = [Run(path) for path in sorted(SAVED.iterdir())] if SAVED.is_dir() else []
    finished = [
        run for run in reversed(list_runs(corpora_folder())) if run.status().state == "finished"
    ]
    return next((run for run in (*saved, *finished) if fits(run, config)), None)


def axis_of(measurement: Measurement, ref: ModelRef, measure: Measure) -> Axis:
    """A measure of every head for an axis of the scatter; OV copying is read from the weights."""
    corpus = measurement.corpus
    if measure == COPYING:
        shape = measurement.scores.score.shape[1:]
        scores = study_of(copying, ref, measurement.config.kind, shape)
        return Axis(measure, scores, np.zeros_like(scores))
    return Axis(measure, corpus.mean(measure.key), corpus.interval(measure.key))


def text_examples(
    measurement: Measurement, ref: ModelRef, measure: Measure, head: Head, view: str
) -> list[TextExample]:
    """The texts that show a head most or least, each with its largest or smallest row, or a text at each decile."""
    values, folder = measurement.values(measure, head), measurement.run.path
    texts = pick_texts(values, view)
    picks = tuple((text, float(values[text])) for text, _ in texts)
    # A saved result is found wherever the repository lies.
    folder = folder.relative_to(SAVED) if folder.is_relative_to(SAVED) else folder
    arguments = str(folder), measurement.config.kind, measure.key, head, picks, view
    # A measurement under way has other texts each second: they would push all else out of the cache.
    rows = (
        mark_rows(load_model(ref), *arguments)
        if measurement.live
        else study_of(mark_rows, ref, *arguments)
    )
    return [
        TextExample(text, value, marked, decile)
        for (text, value), (_, decile), marked in zip(picks, texts, rows, strict=True)
        if marked is not None
    ]


def vectors_key(measurement: Measurement, ref: ModelRef) -> VectorsKey:
    return ref, str(measurement.run.path), measurement.config.kind


def read_vectors(key: VectorsKey, text: int) -> HeadVectors:
    """The queries and keys of every head on one text. PretrainedError where the model does not expose them."""
    pretrained, texts = shorten(load_model(key[0])), study_of(texts_of_map, *key[:2])
    with one_thread(is_small(pretrained)):
        return text_vectors(pretrained, texts[text], key[2])


def _all_vectors(*key: Any) -> HeadVectors:
    """Those on all these texts; what was not read yet is read now."""
    parts, texts = measurements(VECTORS, key), study_of(texts_of_map, *key[:2])
    vectors = join_vectors(
        [
            parts[text] if text in parts else read_vectors(key, text)  # type: ignore[arg-type]
            for text in range(len(texts))
        ]
    )
    parts.clear()  # which are as large once more
    return vectors


# Heads as points of two measures, one head's values over texts, and its queries and keys: arrays to Vega-Lite.


HEIGHT, SMALL = 380, 150
EDGE = 12  # pixels right of a plot, for half of its last tick
BINS = 24
NAMED = 7  # tokens with a colour of their own
CHARTS_OTHER = "other"


def head_scatter(measurement: Measurement, x: Axis, y: Axis, picked: Head, theme: Theme) -> Spec:
    """A point a head at the means of two measures, in the colour of its role, with both 95 % intervals."""
    ink, rows = Ink.of(theme), scatter_rows(measurement, x, y, theme)
    at = {"x": _value("x", _title(x.measure), ink), "y": _value("y", _title(y.measure), ink)}
    whisker = {"color": literal("fill")}
    tips = [
        text_tip("name", "head"),
        text_tip("role", "role"),
        text_tip("xs", "across"),
        text_tip("ys", "upwards"),
    ]
    one = [row for row in rows if row["name"] == measurement.scores.name(picked)]
    layers = [
        layer(
            "rule",
            rows,
            {"x": {**at["x"], "field": "x0"}, "x2": {"field": "x1"}, "y": at["y"], **whisker},
            opacity=0.4,
            strokeWidth=1,
            tooltip=False,
            aria=False,
        ),
        layer(
            "rule",
            rows,
            {"y": {**at["y"], "field": "y0"}, "y2": {"field": "y1"}, "x": at["x"], **whisker},
            opacity=0.4,
            strokeWidth=1,
            tooltip=False,
            aria=False,
        ),
        layer(
            "circle",
            rows,
            {
                **at,
                "color": literal("fill"),
                "tooltip": tips,
                "description": {"field": "says", "type": "nominal"},
            },
            size=90,
            opacity=0.95,
            cursor="pointer",
        )
        | {"name": "heads"},
        layer(
            "point",
            one,
            at,
            size=230,
            stroke=ink.pick,
            strokeWidth=2.25,
            filled=False,
            tooltip=False,
            aria=False,
        ),
        layer(
            "text",
            one,
            {**at, "text": {"field": "name"}},
            color=ink.pick,
            dy=-16,
            fontSize=13,
            fontWeight=600,
            tooltip=False,
            aria=False,
        ),
    ]
    select = {"name": "head", "select": {"type": "point", "fields": ["name"]}, "views": ["heads"]}
    return figure(layers, HEIGHT) | right_margin(EDGE) | {"params": [select]}


def scatter_rows(measurement: Measurement, x: Axis, y: Axis, theme: Theme) -> list[Spec]:
    """The heads that have both measures: means, ends of the intervals, role and texts of the tooltip."""
    rows, roles = [], measurement.scores.head_roles
    for name, head in measurement.heads.items():
        (a, b), (half_a, half_b) = (
            [float(values[head]) for values in both]
            for both in ((x.mean, y.mean), np.nan_to_num((x.half, y.half)))
        )
        if np.isnan(a) or np.isnan(b):
            continue
        index = roles.get(head)
        row = {
            "name": name,
            "x": a,
            "x0": a - half_a,
            "x1": a + half_a,
            "y": b,
            "y0": b - half_b,
            "y1": b + half_b,
            "fill": CATEGORIES[theme][-1] if index is None else CATEGORIES[theme][index],
            "role": "none" if index is None else ROLES[index].name,
            "xs": _with_interval(x.measure, a, half_a),
            "ys": _with_interval(y.measure, b, half_b),
        }
        rows.append(row | {"says": f"{name}: {row['xs']}, {row['ys']}"})
    return rows


def _with_interval(measure: Measure, mean: float, half: float) -> str:
    return f"{measure.name} {number(mean)}" + (f" ± {number(half)}" if half else "")


def histogram(values: np.ndarray, measure: Measure, nouns: str, theme: Theme) -> Spec:
    """One head's values over texts (`nouns`): how many lie in each of 24 steps, with deciles and the mean."""
    ink, valid = Ink.of(theme), values[~np.isnan(values)].astype(float)
    counts, edges = np.histogram(valid, BINS)
    bars = [
        {
            "low": float(low),
            "high": float(high),
            "count": int(count),
            "range": f"{number(low)} to {number(high)}",
        }
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    marks = [_mark(f"decile {step}", np.quantile(valid, step / 10)) for step in range(1, 10)]
    mean = [_mark("mean", valid.mean())]
    x = {
        "type": "quantitative",
        "title": _title(measure),
        "scale": {"zero": False, "nice": False},
        "axis": {**axis_style(ink), "grid": False, "tickCount": 5},
    }
    y = {
        "field": "count",
        "type": "quantitative",
        "title": nouns,
        "axis": {**axis_style(ink), "tickCount": 3, "gridColor": ink.hairline},
    }
    tips = [text_tip("name", "mark"), text_tip("text", measure.name)]
    layers = [
        layer(
            "bar",
            bars,
            {
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "y": y,
                "y2": {"datum": 0},
                "tooltip": [text_tip("range", measure.name), text_tip("count", nouns)],
            },
            color=ink.series[0],
            cornerRadius=1,
        ),
        layer(
            "tick",
            marks,
            {"x": {**x, "field": "at"}, "y": {"value": "height"}, "tooltip": tips},
            orient="vertical",
            color=ink.text,
            thickness=1.5,
            size=14,
        ),
        layer(
            "rule",
            mean,
            {"x": {**x, "field": "at"}, "tooltip": tips},
            color=ink.pick,
            strokeWidth=2,
        ),
    ]
    return figure(layers, SMALL) | right_margin(EDGE)


def _mark(name: str, value: float) -> Spec:
    return {"name": name, "at": float(value), "text": number(value)}


def joint_chart(points: JointMap, vectors: HeadVectors, colour: str, theme: Theme) -> Spec:
    """Queries as circles and keys as triangles in one plane, coloured by token or by position."""
    ink = Ink.of(theme)
    common = [token for token, _ in Counter(vectors.tokens).most_common(NAMED)]
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
        "x": _value("x", f"first component, {percent(points.share[0])} of the variance", ink),
        "y": _value("y", f"second component, {percent(points.share[1])}", ink),
        "shape": {
            "field": "of",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": ["query", "key"], "range": ["circle", "triangle-up"]},
        },
        "tooltip": [
            text_tip("of", "vector"),
            text_tip("token", "token"),
            text_tip("position", "position"),
            text_tip("text", "text"),
        ],
        "color": _token_colour(common, ink, theme)
        if colour == "token"
        else {
            "field": "position",
            "type": "quantitative",
            "title": "position",
            "scale": {"range": WEIGHTS[theme][2:]},
            "legend": {**_legend(ink), "gradientLength": 120},
        },
    }
    return figure(
        [layer("point", rows, encoding, filled=True, size=42, opacity=0.75)], HEIGHT
    ) | right_margin(EDGE)


def _token_colour(common: list[str], ink: Ink, theme: Theme) -> Spec:
    shades = [*CATEGORIES[theme][: len(common)], CATEGORIES[theme][-1]]
    return {
        "field": "group",
        "type": "nominal",
        "title": None,
        "legend": _legend(ink),
        "scale": {"domain": [*common, CHARTS_OTHER], "range": shades},
    }


def _legend(ink: Ink) -> Spec:
    return {
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 5,
        "labelColor": ink.text,
        "labelFontSize": 12,
        "titleColor": ink.quiet,
        "titleFontWeight": "normal",
    }


def _title(measure: Measure) -> str:
    return f"{measure.name}, {measure.unit}"


def _value(name: str, title: str, ink: Ink) -> Spec:
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False},
        "axis": {**axis_style(ink), "gridColor": ink.hairline, "tickCount": 6},
    }


# The controls: the model, the texts, two measures for the axes, and the head with what is shown of it.


SOURCES = {
    "own": "The lab's 300 sentences",
    "training": "Its training data",
    "texts": "Your own texts",
}
SPLITS = {"lines": "One a line", "paragraphs": "One a paragraph"}


def axis_select(label: str, default: str) -> Select:
    return Select(
        label,
        {measure.key: measure.name for measure in AXES},
        default,
        help="What the scatter shows of every head on this axis: the mean over texts, or OV "
        "copying, which is read from the weights.",
    )


FIELDS = Fields(
    "corpus",
    source=Select(
        "Texts",
        lambda values: {name: SOURCES[name] for name in values.sources},
        lambda values: values.first,
        key=lambda values: f"source:{values.first}",
        help=f"At most {MAX_TEXTS:,} texts are measured.",
    ),
    x=axis_select("Across", "distance"),
    y=axis_select("Upwards", "entropy"),
    count=Number(
        "Texts, at most",
        DEFAULT_TEXTS,
        1,
        MAX_TEXTS,
        hidden=True,
        help="The first so many of the corpus are measured.",
    ),
    ablation=Toggle(
        "Switch heads off",
        hidden=True,
        help="Measure how much the answer changes without each head: one pass a head and text, so about as many "
        "times longer as the model has heads.",
    ),
    kind=Select(
        "Attention",
        {kind: KINDS[kind] for kind in ("self", "causal")},
        when=lambda values: values.pair,
        hidden=True,
        help=KIND_HELP,
    ),
    split=Segmented(
        "Texts are",
        SPLITS,
        when=lambda values: values.source == "texts",
        hidden=True,
        help="How the file is divided into texts.",
    ),
    head=Select(
        "Head",
        lambda values: list(values.measurement.heads),
        lambda values: values.measurement.scores.name(values.measurement.default_head),
        also=lambda values: {
            "on_change": _store_head,
            "args": (values.measurement, values.ref),
        },
        help="One of the heads; a click in the scatter picks one, too.",
    ),
    measure=Select(
        "Sorted by",
        lambda values: (
            {ROLE: values.own} | {one.key: one.name for one in values.measurement.measures}
        ),
        help="The measure that the texts below are sorted by; of a head without a role its entropy.",
    ),
    view=Segmented(
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
    ),
    colour=Segmented(
        "Colour",
        {"token": "Token", "position": "Position"},
        help="Points of the most frequent tokens, or by their position in their text.",
    ),
)
ROLE = "role"  # of the measure: that of the head's own role

key = "corpus:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> Values | None:
    """Draw the controls of the measurement and of the scatter; None after a message when there is no model.

    Returns the model, what is measured of it (`config`, None with the reason on the page while that is not known), both
    axes, and what the model reads, of which there are hundreds.
    """
    row = st.columns([1.3, 1.3, 0.8, 1, 1], vertical_alignment="bottom")
    name = model_box(row[0], EMBEDDED)
    with input_errors():
        if name == OTHER:
            other_panel(st)
        elif name in PANELS:
            raise PretrainedError(
                "Arrays hold the attention of one text; choose a model, which reads hundreds."
            )
        elif (ref := resolve_model(name)) is not None:
            pretrained = load_model(ref)
            config = _config(ref, pretrained, row[1], row[2])
            x, y = (BY_KEY[FIELDS.draw(one, into=row[at])[one]] for one, at in (("x", 3), ("y", 4)))
            noun = "picture" if pretrained.reads == "picture" else "text"
            return Values(ref=ref, config=config, x=x, y=y, noun=noun)
    return None


def _config(
    ref: ModelRef, pretrained: Pretrained, column: Any, options_column: Any
) -> CorpusConfig | None:
    model = config_name(ref)
    sources = [one for one in SOURCES if one != "training" or has_training_data(model)]
    if not pretrained.reads_text:
        sources = [one for one in sources if one == "training"]
    if not sources:
        raise PretrainedError(
            f"{pretrained.name} reads {pretrained.reads}s, and the lab has no corpus of these. Take "
            "a model that reads text."
        )
    first = "training" if "training" in sources else "own"
    source = FIELDS.draw("source", into=column, sources=sources, first=first).source
    # The settings of the measurement in a popover; while it is closed, those of the session
    link_data(key("data"), "")
    panel = options_column.popover(
        "Corpus",
        icon=":material/notes:",
        width="stretch",
        on_change="rerun",
        key=key("panel"),
        help="Your own texts, how many are measured, and whether heads are switched off.",
    )
    names, given = (
        ("count", "ablation", "kind", "split"),
        {"source": source, "pair": pretrained.reads == "pair"},
    )
    with panel:
        if not panel.open:
            options = FIELDS.read(*names, **given)
        else:
            options = FIELDS.draw(*names, into=HERE, **given)
            if source == "texts":
                meant = Param("data", "Your texts", "", meaning="Plain text", longest=MAX_SIGNS)
                data_widget(meant, key("data"))
                st.caption(
                    f"At most {MAX_TEXTS:,} texts of {LONGEST:,} characters; of each, {MAX_TOKENS} tokens are read."
                )
    kind: Any = options.kind or "self"
    if pretrained.reads == "text":  # the kind of the one that it has, by its maps of a text
        kinds = reading_of(ref, ModelInputs(text_of(ref.name))).trace.kinds
        kind = "causal" if "self" not in kinds else "self"
    split: Split = options.split or "lines"
    try:
        data = str(st.session_state.get(key("data"), "")) if source == "texts" else ""
        if source == "texts":
            split_texts(reading.read(data), split)
        return CorpusConfig(
            model, source, data, split, kind, count=options.count, ablation=options.ablation
        )
    except ConfigError as error:
        field_error(error)
    return None


def draw_head_controls(measurement: Measurement, ref: ModelRef) -> Values:
    """Draw the choice of a head, of what is measured of it, and of what is shown."""
    # Take the head that was picked on another page since
    state, shape = st.session_state, measurement.scores.score.shape[1:]
    picked = current_head_of(ref, measurement.config.kind, shape)
    if picked is not None and state.get(key("known")) != (ref, picked):
        state[key("known")] = ref, picked
        if (name := measurement.scores.name(picked)) in measurement.heads:
            state[key("head")] = st.query_params[key("head")] = name
    row = st.columns([1, 1.4, 2.4], vertical_alignment="bottom")
    values = FIELDS.draw("head", into=row[0], measurement=measurement, ref=ref)
    head = measurement.heads[values.head]
    has_role, of_role = head in measurement.scores.head_roles, measurement.role_measure(head)
    own = f"{'Its role' if has_role else 'No role'}: {of_role.name}"
    chosen = FIELDS.draw("measure", into=row[1], own=own, **values).measure
    measure = of_role if chosen == ROLE else BY_KEY[chosen]
    return Values(head=head, measure=measure, view=FIELDS.draw("view", into=row[2]).view)


def _store_head(measurement: Measurement, ref: ModelRef) -> None:
    head = measurement.heads[st.session_state[key("head")]]
    st.session_state[key("known")] = ref, head
    choose_head(ref, measurement.config.kind, head)


def pick_from_scatter(measurement: Measurement, ref: ModelRef) -> None:
    """Pick the head that was pressed in the scatter."""
    point = pressed_point(key("scatter"), "head")
    if point and point["name"] in measurement.heads:
        st.session_state[key("head")] = point["name"]
        _store_head(measurement, ref)


# What the page computes as Python, from the folder of its measurement.


READ = "The measurement of every head on every text, as its worker left it."
POINTS = "Two measures of every head: the means over the texts, and half of their 95 % intervals."
HEAD = "One head on every text, and its mean."
PLANE = "The head's queries and keys on the first texts, in the plane of most variance."
CHOICES = {
    "strongest": ("ranked", "ranked(values)[:{count}]", "largest", "largest"),
    "weakest": ("ranked", "ranked(values)[::-1][:{count}]", "smallest", "smallest"),
    "typical": (
        "decile_texts",
        "[text for _, text in decile_texts(values)]",
        "nearest_to",
        "nearest_to(float(values[text]))",
    ),
}


def script(measurement: Measurement, controls: Values, chosen: Values) -> Script:
    """The scatter of all heads, the picked head's values, and its texts or its map."""
    config, corpus = measurement.config, measurement.corpus
    again = source_of(config).replace("\n", "\n# ")
    read = f"""
from core.interpret.corpus_run import load
from core.runs.runs import open_run

run = open_run({path_code(measurement.run.path)})
# core.interpret.corpus_run.create(config, folder) and python -m core.runs.worker FOLDER measure it again, for the config
# {again}
corpus = load(run)
print(corpus.texts, "texts,", corpus.cut, "cut")
"""
    axes = {"x": controls.x, "y": controls.y}
    points = "".join(_script_axis(name, measure.key, config.kind) for name, measure in axes.items())
    imports = "from core.interpret.corpus import copying\n" if COPYING in axes.values() else ""
    results: dict[str, np.ndarray] = {}
    for name, measure in axes.items():
        axis = axis_of(measurement, controls.ref, measure)
        results |= {name: axis.mean} | ({} if measure == COPYING else {f"{name}_half": axis.half})
    more, shown = (
        _map(measurement, controls, chosen)
        if chosen.view == "map"
        else _texts(measurement, controls, chosen)
    )
    sorted_by = chosen.measure.key
    cells = (
        model_cell(controls.ref),
        Cell(READ, read),
        Cell(POINTS, imports + points, _SCATTER, "corpus:scatter"),
        Cell(
            HEAD,
            f"""
from core.interpret.corpus_run import values_of

head = {chosen.head}
values = values_of(run, corpus, {sorted_by!r}, head)  # (texts,)
mean, half = corpus.mean({sorted_by!r})[head], corpus.interval({sorted_by!r})[head]
print(f"{sorted_by} of {{head}}: {{mean:.3f}} ± {{half:.3f}}")
""",
            _HISTOGRAM,
            "corpus:histogram",
        ),
        more,
    )
    head = chosen.head
    results |= {
        "values": measurement.values(chosen.measure, head),
        "mean": corpus.mean(chosen.measure.key)[head],
        "half": corpus.interval(chosen.measure.key)[head],
    }
    return Script(cells, {name: np.asarray(value) for name, value in (results | shown).items()})


def _script_axis(name: str, measure: str, kind: str) -> str:
    if measure == COPYING.key:
        return f"{name} = copying(model, {kind!r}, corpus.roles.mean.shape[1:])  # {measure}, from the weights alone\n"
    return (
        f"{name} = corpus.mean({measure!r})  # (layers, heads)\n"
        f"{name}_half = corpus.interval({measure!r})\n"
    )


def _texts(
    measurement: Measurement, controls: Values, chosen: Values
) -> tuple[Cell, dict[str, np.ndarray]]:
    """The texts that show the head, with one row of each map."""
    kind, measure = measurement.config.kind, chosen.measure
    choose, texts, function, row = CHOICES[chosen.view]
    examples = text_examples(measurement, controls.ref, measure, chosen.head, chosen.view)
    code = f"""
from core.interpret.corpus import {", ".join(sorted((choose, function, "marked_row")))}
from core.interpret.corpus import BY_KEY
from core.interpret.corpus_run import load_inputs
from core.interpret.corpus import read_text, shorten

inputs, short = load_inputs(run), shorten(model)  # which reads at most 128 tokens of a text
rows = {{int(text): marked_row(read_text(short, inputs[text], {kind!r}), {kind!r}, BY_KEY[{measure.key!r}], head,
                             {row}) for text in {texts.format(count=EXAMPLES)}}}
for text, row in rows.items():
    print(f"{{values[text]:.3f}} {{inputs[text].text}}: {{row.line.tokens[row.query]}} -> {{row.line.tokens[row.key]}}")
"""
    return Cell(f"The {chosen.view} texts of the head, each with one row of its map.", code), {
        "[values[text] for text in rows]": np.array([one.value for one in examples]),
        "[weight for row in rows.values() for weight in row.weights]": np.concatenate(
            [one.row.weights for one in examples]
        )
        if examples
        else np.zeros(0),
    }


def _map(
    measurement: Measurement, controls: Values, chosen: Values
) -> tuple[Cell, dict[str, np.ndarray]]:
    """The joint map of queries and keys; empty while it is not read."""
    layer, head = chosen.head
    code = f"""
from core.interpret.corpus import head_vectors, joint_map, nearness
from core.interpret.corpus_run import load_inputs
from core.interpret.corpus import shorten

vectors = head_vectors(shorten(model), load_inputs(run)[:{MAP_TEXTS}], {measurement.config.kind!r}, {MAP_TOKENS})
points = joint_map(*vectors.head({layer}, {head}))  # queries and keys (N, 2), and each axis's share of the variance
near = nearness(points, vectors, {layer}, {head})  # correlation of the distance in the plane with q·k
print(points.share, near)
"""
    key = vectors_key(measurement, controls.ref)
    if measurement.live or not remembered(_all_vectors, *key):
        return Cell(PLANE, code), {}
    vectors = shared(_all_vectors, *key)
    points = joint_map(*vectors.head(layer, head))
    return Cell(PLANE, code, _PLANE, "corpus:map"), {
        "points.q": points.q,
        "points.k": points.k,
        "points.share": np.array(points.share),
        "near": np.array(nearness(points, vectors, layer, head)),
    }


_SCATTER = """
import altair as alt
import pandas as pd

heads = pd.DataFrame({"layer": [layer for layer, row in enumerate(x) for _ in row], "x": x.ravel(), "y": y.ravel()})
alt.Chart(heads).mark_circle().encode(x="x:Q", y="y:Q", color="layer:O")
"""
_HISTOGRAM = """
alt.Chart(pd.DataFrame({"value": values})).mark_bar().encode(x=alt.X("value:Q", bin=alt.Bin(maxbins=30)), y="count()")
"""
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
READ_MARKS = "The query is outlined, each token has the colour of its weight"


def about(words: str, noun: str) -> str:
    """The same words about pictures, where these are what the model reads."""
    return re.sub(r"\btext(s?)\b", rf"{noun}\1", words)


def fact_text(measurement: Measurement, measure: Measure, head: Head) -> str:
    """The head's mean with its interval, and how its texts are distributed."""
    corpus, values = measurement.corpus, measurement.values(measure, head)
    valid = values[~np.isnan(values)]
    name, mean = measurement.scores.name(head), float(corpus.mean(measure.key)[head])
    half = float(corpus.interval(measure.key)[head])
    about = f"**{number(mean)}** ± {number(half)}" if np.isfinite(half) else f"**{number(mean)}**"
    low, high = (float(np.quantile(valid, share)) for share in (0.1, 0.9))
    return (
        f":primary[**{name}**]: {_subject(measure)} {about}, the mean over {len(valid):,} texts with its "
        f"{percent(CONFIDENCE)} interval. Eight texts in ten lie between {number(low)} and {number(high)}. "
        f"{role(measurement, head)}"
    )


def _subject(measure: Measure) -> str:
    if measure.role is not None:
        if measure.role.targets is None:
            return "the share of its keys that it uses is"
        weight = f"its weight on {measure.role.attends_to}"
        return f"{weight}, is" if "," in weight else f"{weight} is"
    return f"its {in_sentence(measure)} is"


def in_sentence(measure: Measure) -> str:
    """The measure's name inside a sentence: entropy, OV copying."""
    return (
        measure.name
        if measure.name[:2].isupper()
        else f"{measure.name[0].lower()}{measure.name[1:]}"
    )


def role(measurement: Measurement, head: Head) -> str:
    """The head's role over all rows, beside its chance; and whether it has one."""
    scores = measurement.scores
    index = scores.head_roles.get(head)
    if index is None:
        return "It has no role: in none is it clearly above chance."
    score, chance = (float(one[index][head]) for one in (scores.score, scores.chance))
    baseline = "shuffled keys" if ROLES[index].targets else "random scores"
    return (
        f"Its role is {ROLES[index].name.lower()}: {number(score)} over {scores.rows[index]:,} rows, where "
        f"{baseline} would give {number(chance)}."
    )


def failing(measurement: Measurement, measure: Measure, head: Head) -> str:
    """How often a role fails: the texts in which more weight lies elsewhere than on the expected keys."""
    values = measurement.values(measure, head)
    valid = values[~np.isnan(values)]
    below = int((valid < 0.5).sum())
    if measure.role is None or measure.role.targets is None:
        return ""
    return (
        f"In {below:,} of {len(valid):,} texts the head puts less than half of its weight on "
        f"{measure.role.attends_to}. "
    )


def caption_text(measurement: Measurement, pretrained: Pretrained, token_bytes: int) -> str:
    """Under which conditions the page's numbers hold; `token_bytes` are those of all maps of one token."""
    corpus, data = measurement.corpus, measurement.run.metadata()
    day = time.strftime("%Y-%m-%d", time.gmtime(float(data.get("created", 0))))
    kind = "causal self-attention" if measurement.config.kind == "causal" else "self-attention"
    parts = [
        f"{pretrained.name}, {kind}, {corpus.read:,} texts, measured on {day}. A measure is the mean over the "
        "rows of a text's own tokens; its mean and interval are taken over texts, which all count the same."
    ]
    if corpus.cut:
        parts.append(
            f"Of {corpus.cut:,} {'text' if corpus.cut == 1 else 'texts'} only the first {MAX_TOKENS} tokens "
            "were read."
        )
    if corpus.failed:
        noun = "text" if len(corpus.failed) == 1 else "texts"
        parts.append(f"{len(corpus.failed):,} {noun} could not be read: {corpus.error}")
    parts += data.get("notes", ())
    ablation = any(measure.key == ABLATION for measure in measurement.measures)
    most = token_bytes * (CELLS if ablation else MAX_TOKENS**2)
    parts.append(
        f"One text at a time was in memory: at most {byte_size(most)} of attention maps, and "
        f"{byte_size(_sums_bytes(measurement))} of running sums, however many texts."
    )
    if ablation:
        change = (
            "1 − cosine of the embedding"
            if pretrained.head == "none"
            else "the change of the probability of the "
        )
        parts.append(
            f"The ablation effect is {change}{'' if pretrained.head == 'none' else 'likeliest answer'}."
        )
    return " ".join(parts)


def _sums_bytes(measurement: Measurement) -> int:
    corpus = measurement.corpus
    assert corpus.means is not None and corpus.roles is not None
    return sum(
        array.nbytes for part in (corpus.means, corpus.roles) for array in vars(part).values()
    )


def not_measured(measure: Measure, measurement: Measurement) -> str:
    """Why a measure has no values, and what would give some."""
    if measure.key == ABLATION and not measurement.config.ablation:
        return f"{measure.name} was not measured here. Turn on “Switch heads off” in Corpus, and measure again."
    if measure.key == ABLATION:
        return f"{measure.name} has no values: the model answers none of these texts, as one that fills masks."
    if measure == COPYING:
        return (
            f"{measure.name} has no values: this model reads and writes no tokens, or has no matrices of single "
            "heads."
        )
    return f"{measure.name} has no values: none of these texts can show it."


def progress(measurement: Measurement) -> tuple[float, str]:
    """How far a measurement is, and how long the rest takes at this rate."""
    done, count = measurement.corpus.texts, measurement.count
    if not done:
        return 0.0, "Loading the model"
    left = math.ceil(measurement.corpus.seconds * (count - done))
    return done / max(count, 1), f"{done:,} of {count:,} texts; about {left:,} s left"


def to_csv(measurement: Measurement) -> bytes:
    """Every measure of every head as a table: the mean, half of its interval, and the number of texts."""
    corpus, roles, rows = measurement.corpus, measurement.scores.head_roles, list[list[object]]()
    for name, head in measurement.heads.items():
        role_name = ROLES[roles[head]].key if head in roles else ""
        for measure in measurement.measures:
            mean, half = corpus.mean(measure.key)[head], corpus.interval(measure.key)[head]
            if not np.isnan(mean):
                rows.append(
                    [
                        name,
                        measure.key,
                        f"{mean:.6f}",
                        f"{half:.6f}",
                        corpus.texts_of(measure.key)[head],
                        role_name,
                    ]
                )
    return csv_file(
        ["head", "measure", "mean", "half_of_95_percent_interval", "texts", "role"], rows
    )


# The page Heads over a corpus: a scatter of heads, one head over all texts, the texts that show it, and its map.


MAX_SHOWN = 48  # tokens of a text, around its query

PAGE, RUN = "corpus", "corpus:run"


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Heads over a corpus",
        "Every head on hundreds of texts: what is typical of it, and where it fails.",
    )
    fragment_unless_measuring(_view)
    papers = [
        f"**{measure.name}** — {plain(measure.meaning)}."
        + (f" [{measure.paper}]({measure.url})" if measure.url else "")
        for measure in AXES
    ]
    papers.append(
        "Running means and intervals: Welford 1962. Queries and keys in one plane: "
        "[Yeh et al. 2023](https://arxiv.org/abs/2305.03210), AttentionViz."
    )
    functions = (measure_texts, RunningMean, joint_map)
    details(
        "Papers and source", partial(sources, "\n\n".join(papers), *functions), key("source-code")
    )
    next_page(PAGE)


def _view() -> None:
    controls = draw_controls()
    if controls is None or (measurement := _measurement(controls)) is None:
        return
    draw = partial(_draw, controls=controls)
    if measurement.live:
        poll(
            lambda: read_measurement(measurement.run),
            draw,
            True,
            "corpus:live",
            interval=SLOW_POLL_INTERVAL,
        )
    else:
        draw(measurement)


def _measurement(controls: Values) -> Measurement | None:
    """Draw the buttons of the measurement; returns what it gave so far."""

    def select(run: Run) -> None:
        st.session_state[RUN] = run.id

    link_value(RUN, "", _run_id)
    config = controls.config
    run_controls.start_run(PAGE, config, jobs.measure, select, ConfigError, PretrainedError)
    run = None if config is None else find_measurement(config, st.session_state.get(RUN))
    run_controls.show_flash(PAGE)
    if run is None:
        # The button that measures what was not measured yet
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Measure",
                icon=":material/play_arrow:",
                type="primary",
                key="corpus:start",
                on_click=run_controls.press,
                args=(PAGE,),
                disabled=controls.config is None,
                help="A worker measures the texts one by one; Stop keeps what there is.",
            )
            st.caption(
                "These texts were not measured with this model yet."
                if controls.config
                else "Open Corpus, and paste texts or upload a file."
            )
        run_controls.limits_line(steps=False)
        placeholder("The heads appear here while the texts are measured.", HEIGHT)
        return None
    measurement = read_measurement(run)
    if measurement.status.state != "finished":
        # Stop or Continue, and how far the measurement is
        run = measurement.run
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        if not people.mine(run):
            run_controls.anothers_note(run)
        elif measurement.live:
            run_controls.stop_button(buttons, PAGE, run_controls.end_run, run)
        elif measurement.corpus.texts < measurement.count:
            run_controls.continue_button(
                buttons, PAGE, partial(run_controls.continue_run, PAGE), run
            )
        with column:
            poll(lambda: read_measurement(run), _progress, measurement.live, "corpus:progress")
    return measurement


def _run_id(text: str) -> str:
    """The id of a measurement on this machine; ValueError for another one."""
    if people.find_measurement(text) is None:
        raise ValueError(f"{text[:40]!r} is no measurement on this machine")
    return text


def _progress(measurement: Measurement) -> None:
    run_controls.show_progress(
        measurement.run,
        measurement.status,
        ending=plain(measurement.status.message),
        progress=lambda: progress(measurement),
    )


def _draw(measurement: Measurement, controls: Values) -> None:
    if measurement.corpus.means is None:
        if measurement.live:
            placeholder(
                "The model is loaded; the first heads appear in about five seconds.", HEIGHT
            )
        return
    with input_errors():
        _heads(measurement, controls)


def _heads(measurement: Measurement, controls: Values) -> None:
    ref, scatter = controls.ref, st.container()
    chosen = draw_head_controls(measurement, ref)
    with scatter:
        # The scatter and the roles below it
        left, right = st.columns([1.7, 1], gap="medium")
        with left:
            _scatter(measurement, controls, chosen.head)
            role_line(measurement.scores.head_roles, len(measurement.heads))
    with right:
        # Draw the picked head's values over all texts, and its mean
        noun = controls.noun
        name = measurement.scores.name(chosen.head)
        chart_title(f"{chosen.measure.name} of {name} in every {noun}; ticks are deciles")
        spec = histogram(
            measurement.values(chosen.measure, chosen.head), chosen.measure, f"{noun}s", theme()
        )
        draw_chart(
            st,
            spec,
            key=key("histogram"),
            alt=f"How many {noun}s have which {in_sentence(chosen.measure)} in {name}",
        )
        fact(about(fact_text(measurement, chosen.measure, chosen.head), noun))
    corpus = measurement.corpus
    valid = int((~np.isnan(measurement.values(chosen.measure, chosen.head))).sum())
    mean, half = (
        float(values(chosen.measure.key)[chosen.head]) for values in (corpus.mean, corpus.interval)
    )
    st.latex(
        r"\bar{x} \pm t_{n-1}\,\frac{s}{\sqrt{n}}"
        rf" = {latex(mean)} \pm {latex(half)}, \qquad n = {valid}"
    )
    if chosen.view == "map":
        draw_map(measurement, controls, chosen)
    else:
        # Draw the texts that show the head, with a row of each map
        examples = text_examples(
            measurement, controls.ref, chosen.measure, chosen.head, chosen.view
        )
        expected = (
            ", and the keys that the role expects are underlined"
            if chosen.measure.role and chosen.measure.role.targets
            else ""
        )
        before = (
            failing(measurement, chosen.measure, chosen.head) if chosen.view == "weakest" else ""
        )
        caption(about(f"{before}{VIEW_NOTES[chosen.view]} {READ_MARKS}{expected}.", controls.noun))
        st.html(marked_table(examples, chosen.measure, controls.noun, theme()))
        if examples:
            # A link to the whole map of the head on one of the texts; none for pictures
            index = examples[0].text
            written, step = load_inputs(measurement.run)[index].text, step_of("pretrained")
            if written:
                st.page_link(
                    step.page(),
                    label=f"Open text {index + 1} in {step.title}",
                    icon=step.icon,
                    query_params={
                        "head": f"{chosen.head[0]}.{chosen.head[1]}",
                        TEXT: written,
                        MODEL: controls.ref.written,
                    },
                )
    add_script(partial(script, measurement, controls, chosen))
    caption(
        plain(
            about(
                caption_text(measurement, load_model(ref), study_of(token_bytes, ref)),
                controls.noun,
            )
        )
    )
    st.download_button(
        "All heads, CSV",
        lambda: to_csv(measurement),
        "heads-over-a-corpus.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def _scatter(measurement: Measurement, controls: Values, head: Head) -> None:
    x, y = (axis_of(measurement, controls.ref, one) for one in (controls.x, controls.y))
    if missing := [one.measure for one in (x, y) if one.is_missing]:
        st.info(not_measured(missing[0], measurement), icon=":material/edit:")
        return
    chart_title(
        f"{controls.y.name} and {in_sentence(controls.x)} of every head: means over {controls.noun}s, "
        f"{percent(CONFIDENCE)} intervals"
    )
    spec = head_scatter(measurement, x, y, head, theme())
    draw_chart(
        st,
        spec,
        drawn=split_data(titles_as_marks(spec, Ink.of(theme()))),
        key=key("scatter"),
        alt="Every head as a point of two measures",
        selection_mode="head",
        on_select=partial(pick_from_scatter, measurement, controls.ref),
    )


# The joint map of a head's queries and keys.


def draw_map(measurement: Measurement, controls: Values, chosen: Values) -> None:
    """Draw the head's queries and keys as points of one plane."""
    if measurement.live:
        st.info("The map is drawn once the measurement has ended.", icon=":material/info:")
        return
    if (vectors := _vectors(vectors_key(measurement, controls.ref), f"{controls.noun}s")) is None:
        return
    points = joint_map(*vectors.head(*chosen.head))
    colour = FIELDS.draw("colour", into=HERE).colour
    name = measurement.scores.name(chosen.head)
    chart_title(f"Queries ● and keys ▲ of {name} in the plane of most variance")
    draw_chart(
        st,
        joint_chart(points, vectors, colour, theme()),
        key=key("map"),
        alt=f"Queries and keys of {name} in the plane of most variance",
    )
    near = nearness(points, vectors, *chosen.head)
    caption(
        about(
            (
                f"{len(vectors.tokens):,} queries and keys of {name} from the first "
                f"{int(vectors.texts[-1]) + 1} texts, projected onto the plane in which they vary most: "
                f"it holds {percent(sum(points.share))} of their variance. The queries were multiplied by "
                f"{number(points.scale)}, the keys divided by it and moved to the mean of the queries, which changes no "
                f"weight. The correlation of nearness in the plane, −distance², with q·k is {signed(near)}."
            ),
            controls.noun,
        )
    )


def _vectors(of: VectorsKey, nouns: str) -> HeadVectors | None:
    """The queries and keys of the texts that were read so far; None without any."""
    if not remembered(_all_vectors, *of):
        with st.spinner("Reading queries and keys"):
            texts = range(len(study_of(texts_of_map, *of[:2])))
        read = measure_with_progress(VECTORS, of, texts, partial(read_vectors, of), nouns, UNASKED)
        if len(read) < len(texts) and not remembered(_all_vectors, *of):
            return join_vectors(list(read.values())) if read else None
    return shared(_all_vectors, *of)


# Texts as HTML, each token in the colour of its weight in one row: the query in the accent, expected keys underlined.


def marked_table(examples: Sequence[TextExample], measure: Measure, noun: str, theme: Theme) -> str:
    """A table with a row a text (`noun`): its decile where it stands for one, its value, and its tokens."""
    ink, deciles = Ink.of(theme), any(one.decile is not None for one in examples)
    head = [*(["decile"] if deciles else []), measure.name, f"{noun}, with one row of its map"]
    rows = "".join(_row(one, deciles, measure, noun, ink, theme) for one in examples)
    columns = "".join(
        f'<th scope="col" style="padding:2px 8px 2px 0;font-weight:400;text-align:left;opacity:.75;'
        f'white-space:nowrap">{escape(name)}</th>'
        for name in head
    )
    return (
        f'<div style="overflow-x:auto"><table aria-label="Texts of this head" style="width:100%;font-size:14px;'
        f'border-collapse:collapse"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(
    example: TextExample, deciles: bool, measure: Measure, noun: str, ink: Ink, theme: Theme
) -> str:
    cell = f"padding:6px 8px 6px 0;border-top:1px solid {ink.hairline};vertical-align:top"
    decile = (
        f'<td style="{cell}">{round(10 * example.decile)}</td>'
        if deciles and example.decile is not None
        else ""
    )
    row = example.row
    note = f"{row.line.tokens[row.query]} → {row.line.tokens[row.key]} {number(float(row.weights[row.key]))}"
    if not np.isnan(row.value) and measure.role is not None:
        note += f"; here {number(row.value)}"
    return (
        f'<tr>{decile}<td style="{cell};text-align:left">{number(example.value)}</td>'
        f'<td style="{cell};width:100%;line-height:26px">{_tokens(example, ink, theme)}'
        f'<div style="font-size:13px;line-height:18px;color:{ink.quiet}">{noun} {example.text + 1}: '
        f"{escape(note)}</div></td></tr>"
    )


def _tokens(example: TextExample, ink: Ink, theme: Theme) -> str:
    """The tokens around the query; those of one word stand together."""
    row = example.row
    first = max(0, min(row.query - MAX_SHOWN // 2, len(row.line) - MAX_SHOWN))
    shown = range(first, min(len(row.line), first + MAX_SHOWN))
    parts = []
    for index in shown:
        joined = (
            index > first
            and row.line.word[index] is not None
            and row.line.word[index] == row.line.word[index - 1]
        )
        parts.append(("" if joined else " ") + _token(example, index, ink, theme))
    return f"{'… ' if first else ''}{''.join(parts).strip()}{' …' if shown.stop < len(row.line) else ''}"


def _token(example: TextExample, index: int, ink: Ink, theme: Theme) -> str:
    row = example.row
    colour = shade(float(row.weights[index]), theme)
    style = f"background:{colour};color:{text_on(colour, theme)};padding:1px 2px;border-radius:3px"
    if index == row.query:
        style += f";outline:2px solid {ink.pick}"
    if row.expected[index]:
        style += f";border-bottom:2px dashed {ink.text}"
    token = row.line.tokens[index].removeprefix("##")
    return (
        f'<span title="{number(float(row.weights[index]))}" style="{style}">{escape(token)}</span>'
    )
