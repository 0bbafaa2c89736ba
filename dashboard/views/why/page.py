"""The page Why attention: the controls, the progress of two runs, the curves, the alignment and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention.config import entry
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models.recurrent import RecurrentSeq2Seq
from core.training.seed_stats import SeedStats
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import number, percent, score
from dashboard.draw.palette import CATEGORIES, Ink, Theme
from dashboard.draw.vega import (
    Spec,
    filtered_layer,
    right_margin,
    separate,
    series_encoding,
    titled_figure,
)
from dashboard.navigation import PAGES
from dashboard.runtime import jobs
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.ui.presentation import draw_chart
from dashboard.ui.progress import pop_flash
from dashboard.ui.tables import table
from dashboard.views.why import text
from dashboard.views.why.compute import Comparison, load_comparison, saved_measurement
from dashboard.views.why.controls import (
    FEW,
    FEW_STEPS,
    PAGE,
    SCORES,
    Controls,
    controls,
    forget_pair,
    linked_pair,
)
from dashboard.views.why.script import script
from dashboard.views.why.trained_models import TrainedModel, by_length, over_time
from dashboard.widgets.guide import Move, Question, picture, predict, try_this
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    placeholder,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.run_controls import limits_line, show_progress

if TYPE_CHECKING:
    import pyarrow as pa

HEIGHT, TOP = 200, 104.0  # pixels of the plot, and the top of its axis in percent
SHAPES = ("circle", "square", "triangle-up", "diamond")

OPTIONS = ("The model with one vector", "The model with attention", "Both lose the same")
EQUAL = 5.0  # percentage points; losses closer than this are the same

CELL = "why:cell"  # the pinned cell, in the link


def page() -> None:
    """Draw the question and the result by length, then the next two runs; polled while they train."""
    title(
        "Why attention",
        "A sentence is squeezed into one vector, or stays readable through attention.",
    )
    paragraph(text.COMPARED)
    pair, trouble = linked_pair()
    live, saved = (
        pair is not None and not all(run.status().ended for run in pair),
        saved_measurement(),
    )
    shown = (
        predict("why", question(saved.learned)) or pair is not None
    )  # the charts tell the answer
    with picture("why"):
        poll(lambda: load_comparison(pair), partial(_results, shown), live, "why:results")
    try_this("why", moves(saved.learned))
    values = controls(pair if live else None)
    limits_line()
    for message in filter(None, (trouble, pop_flash(PAGE))):
        st.warning(message)
    measured = saved.setting, saved.learned[0].points[-1].step
    source = measured if pair is None else (Controls.of(pair[1].config()), None)
    if not live and (note := text.shown_text(values, *source)):
        st.caption(note)
    if st.session_state.setdefault("why:seen", False):
        jobs.warm_up()  # not on the first run, which has enough to load
    st.session_state["why:seen"] = True
    poll(lambda: load_comparison(pair), partial(_board, shown), live, "why:figures")
    details("Papers, equations and the code of the model", _sources, "why:sources")
    next_page("why")


def _results(shown: bool, data: Comparison) -> None:
    """Exact match by the length of the source, and its sentence; until it is `shown`, of the shortest sources alone."""
    waiting = text.until_measured(data) if _waits(data) else ""
    data = load_comparison(None) if waiting else data
    lengths = _lengths(data)
    left, right = st.columns([0.56, 0.44], gap="medium", vertical_alignment="center")
    simple = [
        line
        for line in _lines(data.learned, "exact")
        if line.name in text.simple_names(data.learned)
    ]
    if not shown:
        simple = [replace(line, points=line.points[:1]) for line in simple]
    _length_chart(left, "exact", lengths, simple)
    with right:
        if sentence := text.fact(data) if shown else text.before_prediction(data):
            fact(sentence)
        caption(text.measures(data.learned))
        if waiting:
            caption(waiting)


def _waits(data: Comparison) -> bool:
    """Whether the runs have no result yet, so that the saved one stays."""
    return data.live and not data.measured


def _length_chart(
    place: DeltaGenerator, metric: str, lengths: Sequence[str], lines: Sequence[Line]
) -> None:
    name = text.NAMES[metric]
    draw_chart(
        place,
        length_axes(f"{name}, by the length of the source", name, lengths, theme()),
        rows(lines),
        theme=None,
        key=f"why:{metric}",
        width="stretch",
        alt=f"{name} against words in the source, one line a model",
    )


def _lengths(data: Comparison) -> list[str]:
    """The ranges of lengths, shortest first."""
    return sorted(
        {b.lengths for one in data.learned for b in one.buckets},
        key=lambda name: int(name.split("–")[0]),
    )


def _board(shown: bool, data: Comparison) -> None:
    """The progress of the two runs, if there are any, and the figures."""
    if data.parts:
        for column, part in zip(st.columns(2, gap="medium"), data.parts, strict=True):
            with column:
                name = part.learned.model.name().capitalize()
                show_progress(
                    part.run,
                    part.status,
                    ending=text.ended(part),
                    progress=partial(text.progress, part, data.setting),
                    name=f"{name}: waits",
                )
                st.page_link(
                    PAGES / "train.py",
                    label="Open this run in Train",
                    icon=":material/play_circle:",
                    query_params={"run": part.run.id},
                )
        if not data.live and st.button("Back to the saved measurement", key="why:kept"):
            forget_pair()
            st.rerun()  # the whole page: this stands in a fragment
        if explanation := text.too_few_steps(data, saved_measurement().learned):
            st.info(explanation, icon=":material/lightbulb:")
    _figures(shown, load_comparison(None) if _waits(data) else data)


def _figures(shown: bool, data: Comparison) -> None:
    """The alignment, beside it the curves over training once they are `shown`; one click further all numbers."""
    add_script(partial(script, data))
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        weights, row = _alignment(data)
    with right:
        if weights is not None and data.sentence is not None:
            paragraph(text.reading(data.sentence, weights, row))
        if shown:
            _learning(data)
        if weights is not None:
            details(
                "What an output word reads, as an equation",
                partial(_equations, data, weights, row),
                "why:equation",
            )
    if data.parts:
        caption(text.conditions(data, None))
    details("One sentence translated, and all numbers", partial(_numbers, data), "why:numbers")


def _equations(data: Comparison, weights: np.ndarray, row: int) -> None:
    """What an output word reads without attention and with it."""
    assert data.sentence is not None
    for latex in text.equations(data.setting, data.sentence, weights, row):
        st.latex(latex)
    caption(text.EQUATIONS)


def _numbers(data: Comparison) -> None:
    """A sentence as each model translates it, BLEU by the length of the source, and both measures as a table."""
    ink, lengths = Ink.of(theme()), _lengths(data)
    if data.sentence is not None:
        st.html(
            text.sentence_table(data.sentence, text.names(data.learned), ink.pick, ink.hairline)
        )
        caption(text.SENTENCE)
    _length_chart(st.container(), "bleu", lengths, _lines(data.learned, "bleu"))
    caption(text.BLEU)
    table(
        ["words: BLEU / exact match, %", *lengths],
        text.numbers(data.learned, lengths),
        caption="Quality by the length of the source",
    )
    if not data.parts:
        caption(text.conditions(data, saved_measurement()))


def _lines(learned: Sequence[TrainedModel], metric: str, clock: str = "") -> list[Line]:
    """A metric of every model, by the length of the source or, with a `clock`, over training."""
    return [
        Line(
            name,
            index,
            over_time(learned, model, metric, clock)
            if clock
            else list(by_length(learned, model, metric).items()),
        )
        for index, (model, name) in enumerate(text.names(learned).items())
    ]


def _learning(data: Comparison) -> None:
    """BLEU over what both models get equally: seconds of training here, steps in the saved measurement."""
    clock = "seconds" if data.parts else "step"
    reached = max([getattr(p, clock) for one in data.learned for p in one.points], default=1.0)
    figure = time_axes(
        "BLEU during training",
        "BLEU",
        clock,
        max(reached, data.setting.seconds if data.live else 0),
        theme(),
    )
    draw_chart(
        st,
        figure,
        rows(_lines(data.learned, "bleu", clock)),
        theme=None,
        key="why:learning",
        width="stretch",
        alt=f"BLEU against {clock}, one line a model",
    )
    caption(text.BLEU)


def _alignment(data: Comparison) -> tuple[np.ndarray | None, int]:
    """The attention of the long sentence over training time; the weights at the picked step, and the picked row."""
    sentence = data.sentence
    if sentence is None or not sentence.frames:
        placeholder("These runs ended before their first measurement.", 380)
        return None, 0
    row = text.default_row(sentence)
    steps = dict(sentence.frames)
    last, weights = sentence.frames[-1]
    most = int(weights[row].argmax())
    trace = AttentionTrace(
        (AttentionMap("cross", 0, weights[None], (*sentence.target, "<eos>"), sentence.source),),
        data.name,
    )
    state = attention_view(
        trace,
        key=f"why:map:{data.name}",
        layout="frames",
        frames=list(sentence.frames),
        query=row,
        live=data.live,
        height=420,
        pin=read_linked("why", CELL, weights.shape),
        fact=f"{sentence.target[row]} puts {number(weights[row, most])} of its weight on {sentence.source[most]}",
        title=f"A held-out sentence of {len(sentence.source)} words",
        reads="output (row) attends to → input (column)",
    )
    pin = write_linked("why", CELL, state.pin)
    return steps[state.frame if state.frame in steps else last], row if pin is None else pin[0]


def _sources() -> None:
    """Draw the papers, and the model that just ran."""
    st.markdown(
        "Without attention: [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215). The first "
        "attention: [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473). The output layer here: "
        "[Luong et al. 2015](https://arxiv.org/abs/1508.04025), equation 5."
    )
    entries_panel([entry("score", score) for score in SCORES])
    source_panel(RecurrentSeq2Seq)


# What a reader predicts and tries on Why attention.


def question(learned: Sequence[TrainedModel]) -> Question:
    """Which model loses more from the shortest to the longest sentences, by the saved measurement."""
    ends = {model: list(by_length(learned, model, "exact").items()) for model in Controls().pair}
    without, attention = ends.values()
    losses = [points[0][1].mean - points[-1][1].mean for points in ends.values()]
    gap = losses[0] - losses[1]
    answer = 2 if abs(gap) < EQUAL else 0 if gap > 0 else 1
    (short, _), (long, _) = attention[0], attention[-1]
    counts = "; ".join(
        f"{name} translates {percent(points[0][1].mean / 100)} of sentences of {short} words without a "
        f"mistake and {percent(points[-1][1].mean / 100)} of those of {long} words"
        for name, points in (("one vector", without), ("attention", attention))
    )
    reason = (
        f"Measured: {counts}. A vector has the same size for every sentence, while attention has one vector for "
        "each word."
    )
    return Question(
        "Sentences grow from 10 to 60 words. Which model loses more exact translations?",
        OPTIONS,
        answer,
        (reason,) * len(OPTIONS),
    )


def moves(learned: Sequence[TrainedModel]) -> tuple[Move, ...]:
    """Runs to try; `learned` are the models of the saved measurement, with which a run is compared."""
    return (
        Move(
            "A smaller vector",
            {"why:d_model": 32, "why:longest": 60, "why:seconds": 45},
            "**Run it** trains with a vector of 32 numbers. Compare the two lines at short sentences: how long may a "
            "sentence be before the vector fails?",
        ),
        Move(
            "Short sentences",
            {"why:d_model": 128, "why:longest": 20, "why:seconds": 20},
            _short_sentences(learned),
        ),
        Move(
            "Too little training",
            {"why:d_model": 128, "why:longest": 60, "why:seconds": FEW_STEPS},
            f"**Run it** trains each model for {FEW} steps: attention must first learn which words belong together, "
            "so its lead is small or does not show yet. Then press **Back to the saved measurement**, whose models "
            "were trained longer, and compare.",
        ),
    )


def _short_sentences(learned: Sequence[TrainedModel]) -> str:
    """The lead of attention at the shortest and the longest sentences, and how far both are half-way; all as saved."""
    pair = Controls().pair
    without, attention = (list(by_length(learned, model, "exact").items()) for model in pair)
    ends = (
        f"{percent(attention[at][1].mean / 100)} against {percent(without[at][1].mean / 100)} of sentences of "
        f"{attention[at][0]} words"
        for at in (0, -1)
    )
    slow, fast = (over_time(learned, model, "bleu", "step") for model in pair)
    step, half = slow[len(slow) // 2]
    return (
        f"In the saved measurement attention translates {' and '.join(ends)} without a mistake. **Run it** trains "
        "on sentences of at most 20 words: compare the two lines there. After few steps the lead can be larger, "
        f"because the model with one vector learns more slowly: at step {step:,.0f} of the saved measurement "
        f"its BLEU is {score(half.mean)}, with attention {score(dict(fast)[step].mean)}."
    )


# Quality against the source's length and against training time, as Vega-Lite whose rows alone change.


@dataclass(frozen=True)
class Line:
    """One model: its name, its index in the series, and its (x, percent) points."""

    name: str
    index: int
    points: Sequence[tuple[Any, SeedStats]]


def length_axes(title: str, unit: str, lengths: Sequence[str], theme: Theme) -> Spec:
    """Percent against ranges of the source's length in words."""
    x = {
        "field": "name",
        "type": "nominal",
        "title": "words in the source",
        "scale": {"domain": list(lengths)},
        "axis": {"grid": False, "labelAngle": 0, "labelPadding": 8},
    }
    return _figure(title, x, {"field": "name", "title": "words"}, unit, theme)


def time_axes(title: str, unit: str, clock: str, last: float, theme: Theme) -> Spec:
    """Percent against training: `clock` is "seconds" or "step"."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "seconds of training" if clock == "seconds" else "step",
        "scale": {"domain": [0, max(1.0, last)], "nice": False},
        "axis": {"grid": False, "tickCount": 5, "labelPadding": 8},
    }
    return _figure(title, x, {"field": "x", "title": clock, "format": ",.0f"}, unit, theme)


def _figure(title: str, x: Spec, x_tip: Spec, unit: str, theme: Theme) -> Spec:
    indices = [str(index) for index in range(len(SHAPES))]
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, TOP], "nice": False},
        "axis": {"values": [0, 25, 50, 75, 100]},
    }
    shape = series_encoding("place", indices, SHAPES)
    both = {
        "x": x,
        "y": y,
        "color": series_encoding("place", indices, CATEGORIES[theme][: len(SHAPES)]),
    }
    tips = [
        {"field": "model", "title": " "},
        x_tip,
        {"field": "y", "title": unit, "format": ".0f"},
        {"field": "spread", "title": "± std between seeds", "format": ".0f"},
    ]
    label = {"align": "left", "dx": 10, "fontSize": 12, "fontWeight": 600, "baseline": "middle"}
    layers = [
        filtered_layer(
            "point",
            "errorband",
            {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
            opacity=0.16,
            interpolate="linear",
        ),
        filtered_layer("point", "line", both, strokeWidth=2),
        filtered_layer("point", "point", {**both, "shape": shape}, filled=True, size=34, opacity=1),
        filtered_layer("point", "point", {**both, "tooltip": tips}, opacity=0, size=200),
        filtered_layer(
            "label", "text", {**both, "x": {"value": "width"}, "text": {"field": "model"}}, **label
        ),
    ]
    return titled_figure(title, layers, HEIGHT, Ink.of(theme), **right_margin(4))


def rows(lines: Sequence[Line]) -> pa.Table:
    """The data of either figure: kind, model, index, x or the name of a range, mean, low, high and std."""
    import pyarrow as pa

    lines = [line for line in lines if line.points]
    cells = [
        (
            "point",
            line.name,
            str(line.index),
            *_x_cells(x),
            stats.mean,
            max(0.0, stats.mean - std),
            min(100.0, stats.mean + std),
            std,
        )
        for line in lines
        for x, stats in line.points
        for std in [stats.std or 0.0]
    ]
    heights = separate([line.points[-1][1].mean / TOP for line in lines])
    cells += [
        (
            "label",
            line.name,
            str(line.index),
            *_x_cells(line.points[-1][0]),
            height * TOP,
            0.0,
            0.0,
            0.0,
        )
        for line, height in zip(lines, heights, strict=True)
    ]
    names = ("kind", "model", "place", "x", "name", "y", "low", "high", "spread")
    columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in names]
    return pa.table(dict(zip(names, columns, strict=True)))


def _x_cells(x: Any) -> tuple[float, str]:
    return (0.0, x) if isinstance(x, str) else (float(x), "")
