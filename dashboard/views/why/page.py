"""The page Why attention: the controls, the progress of two runs, the curves, the alignment and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention.config import entry
from core.models.recurrent import RecurrentSeq2Seq
from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.components.attention_view import attention_view
from dashboard.navigation import PAGES
from dashboard.runtime import jobs
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.views.why import guide, text
from dashboard.views.why.charts import Line, rows
from dashboard.views.why.charts import by_length as length_figure
from dashboard.views.why.charts import over_time as time_figure
from dashboard.views.why.compute import Comparison, load_comparison, saved_measurement
from dashboard.views.why.controls import PAGE, SCORES, Controls, controls, forget_pair, linked_pair
from dashboard.views.why.script import script
from dashboard.views.why.trained_models import TrainedModel, by_length, over_time
from dashboard.widgets.flash import pop_flash
from dashboard.widgets.guide import picture, predict, try_this
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
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.run_controls import limits_line, show_progress
from dashboard.widgets.table import table

CELL = "why:cell"  # the pinned cell, in the link


def page() -> None:
    """Draw the question and the result by length, then the next two runs; polled while they train."""
    title("Why attention", "A sentence is squeezed into one vector, or stays readable through attention.")
    paragraph(text.COMPARED)
    pair, trouble = linked_pair()
    live, saved = pair is not None and not all(run.status().ended for run in pair), saved_measurement()
    shown = predict("why", guide.question(saved.learned)) or pair is not None  # the charts tell the answer
    with picture("why"):
        poll(lambda: load_comparison(pair), partial(_results, shown), live, "why:results")
    try_this("why", guide.moves(saved.learned))
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
    simple = [line for line in _lines(data.learned, "exact") if line.name in text.simple_names(data.learned)]
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


def _length_chart(place: DeltaGenerator, metric: str, lengths: Sequence[str], lines: Sequence[Line]) -> None:
    name = text.NAMES[metric]
    draw_chart(place, length_figure(f"{name}, by the length of the source", name, lengths, theme()), rows(lines),
               theme=None, key=f"why:{metric}", width="stretch",
               alt=f"{name} against words in the source, one line a model")


def _lengths(data: Comparison) -> list[str]:
    """The ranges of lengths, shortest first."""
    return sorted({b.lengths for one in data.learned for b in one.buckets}, key=lambda name: int(name.split("–")[0]))


def _board(shown: bool, data: Comparison) -> None:
    """The progress of the two runs, if there are any, and the figures."""
    if data.parts:
        _progress(data)
        if explanation := text.too_few_steps(data, saved_measurement().learned):
            st.info(explanation, icon=":material/lightbulb:")
    _figures(shown, load_comparison(None) if _waits(data) else data)


def _progress(data: Comparison) -> None:
    for column, part in zip(st.columns(2, gap="medium"), data.parts, strict=True):
        with column:
            name = part.learned.model.name().capitalize()
            show_progress(part.run, part.status, ending=text.ended(part),
                          progress=partial(text.progress, part, data.setting), name=f"{name}: waits")
            st.page_link(PAGES / "train.py", label="Open this run in Train", icon=":material/play_circle:",
                         query_params={"run": part.run.id})
    if not data.live and st.button("Back to the saved measurement", key="why:kept"):
        forget_pair()
        st.rerun()  # the whole page: this stands in a fragment


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
            details("What an output word reads, as an equation", partial(_equations, data, weights, row),
                    "why:equation")
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
        st.html(text.sentence_table(data.sentence, text.names(data.learned), ink.pick, ink.hairline))
        caption(text.SENTENCE)
    _length_chart(st.container(), "bleu", lengths, _lines(data.learned, "bleu"))
    caption(text.BLEU)
    table(["words: BLEU / exact match, %", *lengths], text.numbers(data.learned, lengths),
          caption="Quality by the length of the source")
    if not data.parts:
        caption(text.conditions(data, saved_measurement()))


def _lines(learned: Sequence[TrainedModel], metric: str, clock: str = "") -> list[Line]:
    """A metric of every model, by the length of the source or, with a `clock`, over training."""
    return [Line(name, index, over_time(learned, model, metric, clock) if clock else
                 list(by_length(learned, model, metric).items()))
            for index, (model, name) in enumerate(text.names(learned).items())]


def _learning(data: Comparison) -> None:
    """BLEU over what both models get equally: seconds of training here, steps in the saved measurement."""
    clock = "seconds" if data.parts else "step"
    reached = max([getattr(p, clock) for one in data.learned for p in one.points], default=1.0)
    figure = time_figure("BLEU during training", "BLEU", clock, max(reached, data.setting.seconds if data.live else 0),
                         theme())
    draw_chart(st, figure, rows(_lines(data.learned, "bleu", clock)), theme=None, key="why:learning",
               width="stretch", alt=f"BLEU against {clock}, one line a model")
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
    trace = AttentionTrace((AttentionMap("cross", 0, weights[None], (*sentence.target, "<eos>"), sentence.source),),
                           data.name)
    state = attention_view(
        trace, key=f"why:map:{data.name}", layout="frames", frames=list(sentence.frames),
        query=row, live=data.live, height=420, pin=read_linked("why", CELL, weights.shape),
        fact=f"{sentence.target[row]} puts {number(weights[row, most])} of its weight on {sentence.source[most]}",
        title=f"A held-out sentence of {len(sentence.source)} words",
        reads="output (row) attends to → input (column)")
    pin = write_linked("why", CELL, state.pin)
    return steps[state.frame if state.frame in steps else last], row if pin is None else pin[0]


def _sources() -> None:
    """Draw the papers, and the model that just ran."""
    st.markdown("Without attention: [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215). The first "
                "attention: [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473). The output layer here: "
                "[Luong et al. 2015](https://arxiv.org/abs/1508.04025), equation 5.")
    entries_panel([entry("score", score) for score in SCORES])
    source_panel(RecurrentSeq2Seq)
