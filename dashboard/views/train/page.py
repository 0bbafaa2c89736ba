"""The page Train: the run bar and the controls on the left, the figures of the run on the right."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.attention.config import entry
from core.training.config import RunConfig
from core.training.loop import train
from core.training.machine import line
from dashboard.charts import prediction_tables
from dashboard.charts.palette import Ink
from dashboard.navigation import step_of
from dashboard.runtime import attention_frames, jobs
from dashboard.runtime.link_values import forget_other_runs, is_new
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.runtime.run_data import (
    RunData,
    config_from_link,
    damage_of,
    linked_run,
    linked_run_id,
    load_run,
    select_example,
)
from dashboard.views.train import charts, guide, text
from dashboard.views.train.attention import Moment, attention_over_time, forget_step, source_figures
from dashboard.views.train.compute import findings, time_needed
from dashboard.views.train.controls import TASK, adopt, controls
from dashboard.views.train.document import document_figure
from dashboard.views.train.examples import examples
from dashboard.views.train.run_bar import run_bar
from dashboard.views.train.script import script
from dashboard.widgets.guide import picture, predict, try_this
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)

CURVES = "train:curves"  # the panel of further curves

# On a phone the run bar comes first, then the figures, then the settings; in Streamlit's order the settings are second.
PHONE_STYLE = """<style>@media (max-width: 640px) {
.st-key-train-board > * > [data-testid=stHorizontalBlock] {
  > :first-child, > :first-child > [data-testid=stVerticalBlock] { display: contents }
  > :last-child { order: 1 }
  > :first-child > [data-testid=stVerticalBlock] > :not(:first-child) { order: 2; flex: 1 1 100% }
}}</style>"""


def page() -> None:
    title("Train and watch", "Attention forms while a small model trains. Drag the step to any moment.")
    jobs.warm_up()
    run, trouble = linked_run(linked_run_id())
    forget_other_runs("train", run.id)
    if trouble:
        st.warning(trouble)
    if (linked := config_from_link(run)) is not None and not is_new(TASK):  # else the link has a set-up
        adopt(linked)
    data = load_run(run)
    with st.container(key="train:board"):
        st.html(PHONE_STYLE)
        left, right = st.columns([0.3, 0.7], gap="medium")
    with right:  # before the controls: the browser gets the figures first
        poll(lambda: load_run(run), _figures, data.live, "train:figures")
    with left:
        first = st.container()  # on a phone Stop comes before everything else
        config = controls()
        st.caption("Changed settings apply to the next run.")
        with first:
            run_bar(data, config)
            if config is not None:
                _time_needed(config)  # last, because it times a few steps
    _guide(data)
    details("Equation, paper and training loop", partial(_source, config), "train:source")
    next_page("train")


def _guide(data: RunData) -> None:
    """A question about the run, runs to try, and what the figures mean."""
    question = guide.question(data) if data.config is not None and not data.live else None
    if question is not None:
        predict("train", question)
    try_this("train", guide.moves())
    paragraph(f"**What it means.** {guide.MEANING}")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("The path ends here. Test what you know, or read on below:", width="content")
        for step in map(step_of, guide.AFTER):
            st.page_link(step.path, label=step.title, icon=step.icon, query_params={})


def _time_needed(config: RunConfig) -> None:
    with st.spinner("Timing a few steps"):
        sentence = time_needed(config)
    if sentence:
        st.caption(plain(sentence))


def _source(config: RunConfig | None) -> None:
    """Draw the equation of the score, and the training loop."""
    if config is not None and config.model.attention is not None:
        entries_panel([entry("score", config.model.attention.score.key)])
    source_panel(train)


def _figures(data: RunData) -> None:
    """The figures of a run, or why there are none yet."""
    if damage := damage_of(data.run):
        st.warning(damage)
    if data.trouble:
        st.error(plain(data.trouble))
        st.button("Show the example run", key="train:example-instead", on_click=select_example)
    elif data.records:
        draw(data)
    else:
        placeholder(text.nothing_yet(data.live, jobs.place(data.run) is not None))


def draw(data: RunData) -> None:
    """The attention over training time beside the curves; below the examples, all at one step."""
    ink = Ink.of(theme())
    paragraph(text.task_line(data.task()))
    with st.container(gap="small"):
        left, right = st.columns(2, gap="medium")
        below = st.container()
    with left, picture("train"):
        moment = attention_over_time(data)
        source_figures(data, moment, ink)
    add_script(partial(script, data, moment))
    problems = findings(data, moment.step)
    with right:
        charts.loss(data, moment.step, ink, problems.get("loss", ()))
        charts.metric(data, moment.step, ink)
        _fact(data, moment)
    with below:
        _examples(data, moment, ink)
    document_figure(data, moment, ink)  # as wide as both columns: a sentence is a line
    if problems.keys() - {"loss"}:  # what is wrong is not folded away
        st.session_state.setdefault(CURVES, True)
    details(guide.WEIGHT_PANEL if any(r.expected for r in data.records) else
            "Gradients, learning rate and speed", partial(charts.details, data, moment.step, ink, problems), CURVES)


def _examples(data: RunData, moment: Moment, ink: Ink) -> None:
    """The outputs at the step, correct and wrong, and how fast it went."""
    record, decoded = data.at(moment.step), data.decoded_at(moment.step)
    if decoded is not None:
        examples(data, decoded, ink)
    if record.confusion and len(record.confusion) == len(data.task().classes):
        chart_title(f"Confusion matrix at step {record.step:,}")
        st.html(prediction_tables.confusion(record.confusion, data.task().classes, ink))
    if record.buckets:
        chart_title("Accuracy by source length")
        st.html(prediction_tables.lengths(record.buckets, ink.hairline))
    caption(text.pace(record, line(data.run.metadata().get("machines"))))


def _fact(data: RunData, moment: Moment) -> None:
    """What the step shows; while the run trains, the way back to the latest step."""
    record, head = data.at(moment.step), moment.head
    index = (head.layer, head.head) if head is not None and head.to_source else attention_frames.best_head(record)
    fact(text.fact(record, data.task(), index, data.baselines(record.held_out)))
    if data.live and moment.head is not None:  # a button: a switch that the browser draws late would send its default
        st.button("Follow the latest step", key="train:follow", on_click=forget_step, args=(data.run.id,),
                  disabled=moment.latest, help="All figures show the latest step until you pick one.")
