"""The page Train: the run bar and the controls on the left, the figures of the run on the right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import streamlit as st

from core.attention import Choice
from core.attention.config import entry
from core.memory import is_small
from core.models import ModelConfig
from core.runs.machine import line
from core.runs.runs import Run
from core.tasks import Task, TaskConfig, make_task
from core.training import recommended
from core.training.config import RunConfig
from core.training.evaluate import source_weights
from core.training.loop import train
from core.training.record import Prediction, Record
from dashboard.draw import grids, tables
from dashboard.draw.palette import Ink
from dashboard.draw.tables import DocumentWeights, lines
from dashboard.navigation import step_of
from dashboard.runtime import attention_frames, jobs
from dashboard.runtime.attention_frames import watched_examples
from dashboard.runtime.link_values import between, forget_other_runs, is_new, link_value
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.runtime.run_data import (
    EXAMPLE_RUN,
    RunData,
    config_from_link,
    copy_run,
    damage_of,
    linked_run,
    linked_run_id,
    load_run,
    select_example,
    select_run,
)
from dashboard.server import people
from dashboard.server.limits import LimitReached, most_seconds, most_steps
from dashboard.ui.progress import flash_errors
from dashboard.ui.train_with import attention_key
from dashboard.views.train import charts, text
from dashboard.views.train.attention import Moment, attention_over_time, forget_step, source_figures
from dashboard.views.train.compute import findings, time_needed
from dashboard.views.train.controls import TASK, adopt, controls
from dashboard.views.train.script import script
from dashboard.widgets import run_controls
from dashboard.widgets.guide import Move, Question, picture, predict, try_this
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

HALF = 0.5
WEIGHT_PANEL = "Weight on the expected position, gradients and learning rate"
AFTER = ("questions", "lessons")  # pages for those who have walked the path
MEANING = (
    "Nobody programs where a model attends. The loss rewards correct outputs; its gradient changes $W_q$ and "
    "$W_k$ until the query of an output matches the key of the input that helps. The map above therefore starts "
    "nearly uniform and becomes sharp while the loss falls."
)

PAGE = "train"
RESTART_HELP: dict[run_controls.RunState, str] = {
    "live": "Stop this run and start a new one with these settings",
    "paused": "Leave this run and start a new one with these settings",
}

LONG = 24  # tokens
LONG_TABLE = 300  # pixels
PICTURE = 48

CURVES = "train:curves"  # the panel of further curves

# On a phone the run bar comes first, then the figures, then the settings; in Streamlit's order the settings are second.
PHONE_STYLE = """<style>@media (max-width: 640px) {
.st-key-train-board > * > [data-testid=stHorizontalBlock] {
  > :first-child, > :first-child > [data-testid=stVerticalBlock] { display: contents }
  > :last-child { order: 1 }
  > :first-child > [data-testid=stVerticalBlock] > :not(:first-child) { order: 2; flex: 1 1 100% }
}}</style>"""


def page() -> None:
    title(
        "Train and watch",
        "Attention forms while a small model trains. Drag the step to any moment.",
    )
    jobs.warm_up()
    run, trouble = linked_run(linked_run_id())
    forget_other_runs("train", run.id)
    if trouble:
        st.warning(trouble)
    if (linked := config_from_link(run)) is not None and not is_new(
        TASK
    ):  # else the link has a set-up
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
                # last, because it times a few steps
                with st.spinner("Timing a few steps"):
                    sentence = time_needed(config)
                if sentence:
                    st.caption(plain(sentence))
    # A question about the run, runs to try, and what the figures mean
    question = run_question(data) if data.config is not None and not data.live else None
    if question is not None:
        predict("train", question)
    try_this("train", moves())
    paragraph(f"**What it means.** {MEANING}")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("The path ends here. Test what you know, or read on below:", width="content")
        for step in map(step_of, AFTER):
            st.page_link(step.path, label=step.title, icon=step.icon, query_params={})
    details("Equation, paper and training loop", partial(_source, config), "train:source")
    next_page("train")


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
        placeholder(text.nothing_yet(data.live, jobs.place_of(data.run) is not None))


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
        # The outputs at the step, correct and wrong, and how fast it went
        record, decoded = data.at(moment.step), data.decoded_at(moment.step)
        if decoded is not None:
            examples(data, decoded, ink)
        if record.confusion and len(record.confusion) == len(data.task().classes):
            chart_title(f"Confusion matrix at step {record.step:,}")
            st.html(tables.confusion(record.confusion, data.task().classes, ink))
        if record.buckets:
            chart_title("Accuracy by source length")
            st.html(tables.lengths(record.buckets, ink.hairline))
        caption(text.pace(record, line(data.run.metadata().get("machines"))))
    document_figure(data, moment, ink)  # as wide as both columns: a sentence is a line
    if problems.keys() - {"loss"}:  # what is wrong is not folded away
        st.session_state.setdefault(CURVES, True)
    details(
        WEIGHT_PANEL
        if any(r.expected for r in data.records)
        else "Gradients, learning rate and speed",
        partial(charts.details, data, moment.step, ink, problems),
        CURVES,
    )


def _fact(data: RunData, moment: Moment) -> None:
    """What the step shows; while the run trains, the way back to the latest step."""
    record, head = data.at(moment.step), moment.head
    index = (
        (head.layer, head.head)
        if head is not None and head.to_source
        else attention_frames.best_head(record)
    )
    fact(text.fact(record, data.task(), index, data.baselines(record.held_out)))
    if (
        data.live and moment.head is not None
    ):  # a button: a switch that the browser draws late would send its default
        st.button(
            "Follow the latest step",
            key="train:follow",
            on_click=forget_step,
            args=(data.run.id,),
            disabled=moment.latest,
            help="All figures show the latest step until you pick one.",
        )


# A classified document with the weights of its sentences and of their words, beside what decides its class.


def document_figure(data: RunData, moment: Moment, ink: Ink) -> None:
    """Draw the document of the picked example; nothing for a task without sentences, or before the first maps."""
    task, config = data.task(), data.config
    if config is None or moment.head is None or not task.shape.sentence_end:
        return
    example = attention_frames.watched_examples(config.task, config.watch)[moment.head.example]
    tokens, _ = task.display_tokens(example)
    weights = _weights(data, config.model, moment, tokens)
    if weights is None:
        return
    deciding = task.deciding(example)
    chart_title(f"Document at step {moment.step:,}")
    st.html(lines(weights, None if deciding is None else deciding[0], theme(), ink))
    caption(text.document(weights, deciding, _classes(data, task, moment)))


def _weights(
    data: RunData, model: ModelConfig, moment: Moment, tokens: tuple[str, ...]
) -> DocumentWeights | None:
    """Both levels of a hierarchical model; of a Transformer the row of its class, summed over each sentence."""
    head = moment.head
    assert head is not None
    if model.kind == "hierarchical":
        frame = data.run.frame(moment.step)
        words, sentences = (frame.get(f"{head.example}:{kind}") for kind in ("words", "sentences"))
        if words is None or sentences is None:
            return None
        return DocumentWeights(tokens, words[0, 0].sum(0), sentences[0, 0, 0])
    if moment.weights is None:
        return None
    rows, _ = attention_frames.tokens(data, head.example, head.kind)
    named = source_weights(model, head.kind, moment.weights, rows, len(tokens))
    return (
        None
        if named is None
        else DocumentWeights.of_words(tokens, np.asarray(named[1][0], dtype=np.float32))
    )


def _classes(data: RunData, task: Task, moment: Moment) -> tuple[str, str] | None:
    """The class of the document and the predicted one, at the last record with a prediction."""
    decoded = data.decoded_at(moment.step)
    if decoded is None or moment.head is None or moment.head.example >= len(decoded.examples):
        return None
    prediction = decoded.examples[moment.head.example]
    return " ".join(map(str, prediction.target)), " ".join(prediction.predicted)


# Held-out examples at a step: text with errors marked, pictures, rows of a table, or a series.


def examples(data: RunData, record: Record, ink: Ink) -> None:
    """Draw the watched examples with the model's answers in a record."""
    task, predictions = data.task(), record.examples
    chart_title(f"Examples at step {record.step:,}")
    if task.form == "series":
        st.html(
            tables.forecasts(
                [text.forecast_errors(task, each) for each in predictions], ink.hairline
            )
        )
        return
    long = (
        max(len(e.source) + len(e.predicted) for e in predictions) > 2 * LONG
        and task.input == "tokens"
    )
    # Long sentences scroll, so that the fact below them stays in sight.
    with st.container(height=LONG_TABLE if long else "content", border=False):
        st.html(_table(data, task, predictions, ink))


def _table(data: RunData, task: Task, predictions: Sequence[Prediction], ink: Ink) -> str:
    look = task.separator, ink.pick, ink.hairline
    if task.input == "patches":
        return tables.answers(_pictures(data, task, len(predictions), ink), predictions, *look)
    if task.form == "label":
        sources = [tables.escaped(text.separator(task).join(each.source)) for each in predictions]
        return tables.answers(sources, predictions, *look)
    return (tables.continued if task.form == "text" else tables.outputs)(predictions, *look)


def _pictures(data: RunData, task: Task, count: int, ink: Ink) -> list[str]:
    """The first `count` watched pictures as HTML."""
    assert data.config is not None
    grid, images = task.shape.grid, []
    for example in watched_examples(data.config.task, data.config.watch)[:count]:
        pixels = grids.tinted(grids.picture(example.source, grid), grid, None, theme(), ink.text)
        images.append(grids.image(pixels, "the picture", PICTURE))
    return images


# The run bar of Train: start, stop, pause, continue, train longer, and the run's progress.


def run_bar(data: RunData, config: RunConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Train would start."""
    if config is not None and run_controls.pressed(PAGE, config):
        # Start a run; the one before it is stopped if it is still live
        if data.live:
            run_controls.end_run(data.run)
        run_controls.start_run(PAGE, config, lambda: jobs.start(config), select_run)
        st.rerun()
    run = data.run
    own = not data.is_example and people.mine(run)
    state = run_controls.state_of(run, data.status) if own else "ended"
    row = st.container(horizontal=True, gap="small")
    run_controls.run_buttons(
        row,
        run,
        PAGE,
        state,
        start="Train",
        start_key="train:train",
        config=config,
        proceed=_continue,
        restart_help=RESTART_HELP,
    )
    if state == "ended" and own and run.checkpoint_steps():
        with row:
            _train_longer(data)
    if run_controls.anothers_note(run) and data.config is not None:
        st.button(
            "Copy to my runs",
            icon=":material/content_copy:",
            key="train:copy",
            on_click=_copy,
            args=(run,),
            help="The copy is yours: continue it, name it or download it.",
        )
    run_controls.limits_line()
    if is_small() and state == "ended":
        st.caption(text.SLOW_START)
    run_controls.show_flash(PAGE)
    poll(lambda: load_run(run), _progress, data.live, "train:progress")
    if (
        state == "ended"
        and not data.is_example
        and data.records
        and data.config is not None
        and data.config.task.key == EXAMPLE_RUN.config().task.key
    ):
        st.page_link(
            step_of("compare_runs").path,
            label="Compare with the example run",
            icon=step_of("compare_runs").icon,
            query_params={"runs": f"{EXAMPLE_RUN.id},{data.run.id}"},
        )


def _train_longer(data: RunData) -> None:
    """A popover for more steps, from the last checkpoint."""
    if data.config is None:
        return
    panel = st.popover(
        "Train longer",
        icon=":material/forward:",
        width="stretch",
        on_change="rerun",
        key="train:longer",
        help="Continue training for more steps.",
    )
    if not panel.open:
        return
    reached, most = data.run.checkpoint_steps()[-1], most_steps()
    with panel:
        if reached >= most:
            st.caption(f"This run has reached {most:,} steps, the most that a run can have here.")
            return
        default = min(most - reached, max(100, reached))
        key = f"train:more:{data.run.id}"
        link_value(key, default, between(1, most - reached))
        more = st.number_input(
            "More steps",
            1,
            most - reached,
            default,
            100,
            key=key,
            help="Training continues from the last saved weights.",
        )
        st.caption(
            f"From step {reached:,} to {reached + more:,}, for at most {data.config.seconds:g} more seconds. "
            f"The learning rate schedule ({data.config.schedule}) covers all steps."
        )
        st.button(
            "Continue training",
            icon=":material/resume:",
            key="train:go-on",
            on_click=_continue,
            args=(data.run, more),
        )


def _copy(run: Run) -> None:
    """Copy a run of another person, and show the copy."""
    flash_errors(
        PAGE,
        "The run could not be copied: ",
        lambda: select_run(copy_run(run, run.name)),
        LimitReached,
        OSError,
    )


def _continue(run: Run, more: int = 0) -> None:
    """Continue a run for `more` steps and as many seconds again; a paused run (0) as it was."""
    changes: dict[str, Any] = {}
    if more:
        data = load_run(run)
        if data.config is None:
            return
        spent = data.records[-1].elapsed if data.records else 0.0
        changes = {
            "steps": run.checkpoint_steps()[-1] + more,
            "finish_early": False,
            "patience": 0,
            "seconds": min(most_seconds(), spent + data.config.seconds),
        }
    if run_controls.continue_run(PAGE, run, **changes):
        forget_step(run.id)


def _progress(data: RunData) -> None:
    if data.is_example:
        st.caption("This is an example run. Press Train to start your own.")
    elif data.config is not None or not data.live:
        ending = plain(text.ending(data.status, data.records, data.config))
        run_controls.show_progress(
            data.run,
            data.status,
            ending=ending,
            progress=lambda: text.progress(data.records, data.required_config),
        )


# What Train offers a learner: a question that its run answers, and runs to try.


def run_question(data: RunData) -> Question | None:
    """Whether accuracy or the weight on the correct position reaches one half first; None where the run says neither,
    and for a class, of which guessing may reach one half.

    The curve of that weight is one click away on the page, so that it does not tell the answer.
    """
    unit = data.task().unit
    values = {
        f"{unit.capitalize()} accuracy": [(r.step, r.letters) for r in data.records],
        "The weight on the correct position": [(r.step, _best(r.expected)) for r in data.records],
    }
    steps = {
        name: next((step for step, value in points if value is not None and value >= HALF), None)
        for name, points in values.items()
    }
    if data.task().form == "label" or None in steps.values() or len(set(steps.values())) == 1:
        return None
    order = sorted(steps, key=lambda name: steps[name] or 0)
    first, second = (f"{name[0].lower()}{name[1:]} at step {steps[name]:,}" for name in order)
    options = tuple(steps)
    return Question(
        "Which reaches one half first while this model trains?",
        options,
        options.index(order[0]),
        (f"In this run: {first}, {second}. The weight has its curve in “{WEIGHT_PANEL}”.",)
        * len(options),
    )


def _best(expected: Sequence[Sequence[float]] | None) -> float | None:
    """The largest weight on the expected position among all heads."""
    return max(map(max, expected)) if expected else None


@lru_cache(maxsize=1)
def moves() -> tuple[Move, ...]:
    """Runs to try on the first task; each sets the controls, and Train starts it."""
    task = make_task(TaskConfig.of("reverse"))
    base = recommended(task, "transformer")
    name = "train:reverse:transformer"
    start = {
        TASK: "reverse",
        "train:reverse:kind": "transformer",
        f"{name}:rate": base.learning_rate,
        attention_key(name): base.model.attention,
    }
    assert base.model.attention is not None
    longer = recommended(task, "recurrent").steps
    unordered = base.model.attention.with_(position=Choice.of("none"))
    return (
        Move(
            "Remove the positions",
            {**start, attention_key(name): unordered},
            "The encoder no longer knows the order of the letters. Press **Train**. When it has ended, open **Compare "
            "with the example run** below the button: compare sequence accuracy and the sharpness of the map.",
        ),
        Move(
            "Remove the attention",
            {
                TASK: "reverse",
                "train:reverse:kind": "recurrent",
                attention_key("train:reverse:recurrent"): None,
            },
            "A Transformer cannot compute without attention, so the model is now a recurrent one, whose decoder reads "
            f"only the last state of the encoder. It may take {longer:,} steps instead of {base.steps:,}. Press "
            "**Train**. When it has ended, open **Compare with the example run** and compare how many each needs.",
        ),
        Move(
            "Increase the learning rate tenfold",
            {**start, f"{name}:rate": 10 * base.learning_rate},
            "Every update is ten times as large. Press **Train**, then watch the loss and the gradient norm.",
        ),
        Move(
            "Translate number words",
            {TASK: "numbers"},
            "A task with real words, which takes longer. Press **Train**, then compare the map with the sentence "
            "under the task, which says what its attention should look like.",
        ),
    )
