"""Train and watch: train a small model in a worker process, and see its attention form."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core import training
from core.attention import Choice, ConfigError, entry
from core.interpret.trace import Head, Kind, head_name
from core.memory import is_small
from core.runs.machine import line
from core.runs.runs import Run
from core.studies import runs as study
from core.studies.decode import Checkpoint
from core.tasks import METRICS, TaskConfig, make_task
from dashboard.draw import train as draw

# The controls of Train: those of the next run, and which figures of a run are drawn.


MEAN = -1  # in place of a token: all of them


class Controls(lab.NextRun, page="train"):
    best = lab.SessionValue[tuple[str, Head]](("", (0, 0)))  # the run drawn last, and its head
    drawn = lab.SessionValue[str | None](None)  # the run whose figures were drawn last
    kinds: list[Kind]  # of the maps of the example
    shape: tuple[int, int]  # layers and heads of that kind
    example = lab.Select[int](
        "Held-out example",
        lambda c: {at: draw.example_label(c.data, at) for at in c.examples},
        hidden=True,
        help="An input that the model is not trained on; the map shows its attention.",
    )
    map_kind = lab.Select[Kind](
        "Attention",
        lambda c: {kind: lab.KIND_NAMES[kind] for kind in c.kinds},
        key=lambda c: f"kind:{c.data.run.id}",
        hidden=True,
        help="Cross-attention: from outputs to the input. Self-attention: within one of them. A "
        "hierarchical model attends to sentences, and to the words of each.",
    ).when(lambda c: len(c.kinds) > 1)
    head = lab.Select[Head](
        "Head",
        lambda c: {
            (layer, head): f"head {head if c.shape[0] == 1 else head_name(layer, head)}"
            for layer in range(c.shape[0])
            for head in range(c.shape[1])
        },
        lambda c: c.best,
        key=lambda c: f"head:{c.data.run.id}:{c.map_kind}",
        hidden=True,
        help="At first a head with much weight on the expected position.",
    ).when(lambda c: c.shape != (1, 1))
    stack = lab.Select[str](
        "Stack",
        lambda c: list(c.stacks),
        key=lambda c: f"stack:{c.data.run.id}",
        hidden=True,
        help="The layers that read the source, or those that write the target.",
    ).when(lambda c: len(c.stacks) > 1)
    token = lab.Select[int](
        "Token over depth",
        lambda c: (
            {MEAN: "mean over all"} | {at: f"{at}: {name}" for at, name in enumerate(c.names)}
        ),
        MEAN,
        key=lambda c: f"token:{c.data.run.id}:{c.stack}",
        hidden=True,
        help="Each token weighs the outputs before a sublayer by itself.",
    )
    step = lab.SelectSlider[int](
        "Training step",
        lambda c: [record.step for record in c.data.records],
        lambda c: c.data.records[-1].step,
        key=lambda c: f"step:{c.data.run.id}",
        hidden=True,
        help="The training step that all figures show.",
    )
    more = lab.Number(
        "More steps",
        lambda c: min(c.most, max(100, c.reached)),
        1,
        lambda c: c.most,
        100,
        key=lambda c: f"more:{c.data.run.id}",
        hidden=True,
        help="Training continues from the last saved weights.",
    )


# The page Train: the run bar and the controls on the left, the figures of the run on the right.


WEIGHT_PANEL = "Weight on the expected position, and more curves"

PAGE = "train"


def page() -> None:
    lab.title(
        "Train and watch",
        "Attention forms while a small model trains. Drag the step to any moment.",
    )
    run = lab.linked_run()
    data = lab.load_run(run)
    lab.SessionValue[object](None, lab.queue.SPARE).value = lab.queue.warm_up(data.live)
    if run != lab.EXAMPLE_RUN and lab.SETTINGS_OF.value != run.id:
        # a run that a link has just brought, once; not the session's own
        lab.SETTINGS_OF.value = run.id
        task = Controls.task.key_of(Controls())
        if data.config is not None and not lab.is_new(task):  # else the link has a set-up
            lab.adopt_run(data.config)
    with lab.picture("train"), st.container(key="train:board"):
        # On a phone the run bar comes first, then the sentence, the map, the settings and the curves: all of them are
        # in one row, which wraps. The sentence keeps its height, so that the map stays where it is.
        st.html(draw.STYLE)
        left, right = st.columns([0.3, 0.7], gap="medium")
    with right:  # before the controls: the browser gets the figures first
        note = st.container(gap="small")
        lab.poll(lambda: lab.load_run(run), _figures, data.live, "train:figures")
    with left:
        first = st.container()  # on a phone Stop comes before everything else
        config = lab.next_run()
        shown = data.config and lab.limits.within(data.config)
        # what the run bar has beside Stop, or beside Continue, is Restart
        goes_on = lab.limits.mine(run) and (data.live or data.status.state == "paused")
        start = ":material/replay:" if goes_on else "Train"
        lab.note_other_settings(PAGE, note, "train:now", [run], [shown, config], start)
        with first:
            run_bar(data, config)
            if config is not None:
                # last, because it times a few steps
                with st.spinner("Timing a few steps"):
                    sentence = training.time_needed(config)
                if sentence:
                    st.caption(lab.plain(sentence))
    # A question about the run, runs to try, and what the figures mean
    if data.config is not None and not data.live and (question := run_question(data)):
        lab.predict("train", question)
    same = shown is not None and config is not None and not study.differing([shown, config])
    lab.try_this("train", moves(draw.what_to_do(same, data.live, bool(goes_on))))
    lab.paragraph(
        "**What it means.** Nobody programs where a model attends. The gradient of the loss moves every matrix. "
        "It moves $W_q$ and $W_k$ until the query of an output matches the key of the input that helps: the map starts "
        "nearly uniform and becomes sharp."
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("The path ends here. Test what you know, or read on:", width="content")
        for step in map(lab.step_of, ("questions", "lessons")):
            st.page_link(step.page(), label=step.title, icon=step.icon, query_params={})

    def source() -> None:
        if config is not None and config.model.attention is not None:
            lab.entries_panel([entry("score", config.model.attention.score.key)])
        lab.source_panel(training.train)

    lab.details("Equation, paper and training loop", source, "train:source")


def _figures(data: study.RunData, state: str = "") -> None:
    """Draw the run; before its first record the one that was drawn last, else the example, under its own `state`."""
    lab.warn_of_damage(data.run)
    if data.trouble:
        st.error(lab.plain(data.trouble))
        st.button("Show the example run", key="train:example-instead", on_click=lab.select_example)
    elif data.records:
        lab.forget_other_runs(PAGE, data.run.id)
        draw_run(data, state)
        Controls.drawn.value = data.run.id
    else:
        last = lab.find_any_run(Controls.drawn.value) or lab.EXAMPLE_RUN
        Controls.drawn.value = None
        state = (
            "This run ended before its first measurement. Press Train to start another."
            if not data.live
            else "Setting up this run."
            if lab.queue.place(data.run) is None
            else "This run waits for a free worker."
        )
        whose = "the example run" if last in lab.EXAMPLE_RUNS else "the run that was shown before"
        _figures(lab.load_run(last), f"**{state}** Below is {whose}.")


def draw_run(data: study.RunData, state: str = "") -> None:
    """Draw the figures of a run under `state`, else under its task."""
    ink, task, config = lab.Ink.of(lab.theme()), data.task, data.required_config
    lab.paragraph(state or draw.task_text(task))
    with st.container(gap="small", key="train:now"):
        left, right = st.columns(2, gap="medium")
        below = st.container()
    with left, st.container():
        board, scores = st.container(), st.container()
        moment = attention_over_time(data, board)  # with its popover, below the figures
        with board:
            source_figures(moment, ink)
    step = moment.step
    lab.as_python(
        table=lab.records_table(data.run),
        draw={"train:loss": lab.DRAW_LOSSES},
        also=[draw.step_cell(moment, lab.run_code(data.run.path))],
    )
    failure = data.status.message if data.status.state == "failed" else ""
    problems = tuple(training.diagnose(data.until(step), config, task.baseline_loss, failure))
    with right:
        # What the step shows; while the run trains, the way back to the latest step
        record = data.at(step)
        index = moment.head if moment.measured else training.best_head(record)
        baselines = lab.baselines_of(config.task, record.held_out)
        lab.fact(draw.fact_text(record, task, index, baselines))
        # a button: a switch that the browser draws late would send its default
        if data.live and moment.head:
            st.button(
                "Follow the latest step",
                key="train:follow",
                on_click=forget_step,
                args=(data.run.id,),
                disabled=moment.latest,
                help="All figures show the latest step until you pick one.",
            )
        _draw(data, step, "loss", problems, *draw.loss_chart(task, data.records))
        if text := draw.loss_text(task):
            lab.caption(text)
        changes_figure(data, record.changes, ink)
    with scores:
        baselines = lab.baselines_of(config.task, data.records[-1].held_out)
        chart = draw.score_chart(task, data.records, baselines)
        _draw(data, step, "sequence_accuracy", problems, *chart)
    with below:
        # The outputs at the step, correct and wrong, and how fast it went
        if (decoded := data.decoded_at(step)) is not None:
            at = "" if decoded.step == step else f" at step {decoded.step:,}, the last that has any"
            lab.chart_title(f"Examples{at}")
            html, long = draw.examples_html(data, decoded, lab.theme())
            # Long sentences scroll, so that the fact below them stays in sight.
            st.container(height=300 if long else "content", border=False).html(html)
        if record.confusion and len(record.confusion) == len(task.classes):
            lab.chart_title("Confusion matrix")
            st.html(lab.confusion(record.confusion, task.classes, ink))
        if record.buckets:
            lab.chart_title("Accuracy by source length")
            st.html(lab.lengths(record.buckets, ink.hairline))
    if config.model.residual != "plain":
        lab.details(
            "Over depth: which outputs each sublayer reads",
            partial(depth_figure, moment),
            "train:over_depth",
        )
    document_figure(moment, ink)  # as wide as both columns: a sentence is a line
    lab.details(
        WEIGHT_PANEL if any(r.expected for r in data.records) else "More curves",
        partial(charts_details, data, step, problems),
        "train:curves",
        opened=any(each.beside != "loss" for each in problems),  # what is wrong is not folded away
    )


# The attention of one held-out example over training time, and where it attends on a picture or a series.


def attention_over_time(data: study.RunData, board: DeltaGenerator) -> study.Moment:
    """Draw on the board the map, its filmstrip and its slider; without attention a plain slider over the records."""
    c, frames = _choose_head(data), list[tuple[int, np.ndarray]]()
    if c is not None:
        link, picked = Controls.step.key_of(c), picked_step(data.run.id)
        lab.take_link(picked.key, lab.one_of(data.steps), name=link)
        if lab.went_back(link):
            forget_step(data.run.id)
        start, which = picked.value, (c.example, c.map_kind)
        key = f"train:map:{data.run.id}:{c.example}:{c.map_kind}"
        view = lab.SessionValue[dict[str, int | None]]({}, f"{key}:view").value
        frames = lab.head_over_time(
            data.run, data.steps, *which, *c.head, view.get("frame") or start
        )
    if c is None or not frames:
        if data.required_config.model.attention is None:
            st.markdown("**No attention**")
            st.caption(
                "The decoder of this model reads only the encoder's last state, so there is no attention map."
            )
        step = data.records[-1].step
        if len(data.records) > 1 and not data.live:
            step = Controls.draw("step", into=lab.HERE, data=data).step
        return study.Moment(data, step)
    last_step, last = frames[-1]
    with board:
        state = lab.attention_view(
            data.trace(*which, c.head[0], last, c.shape[1]),
            key=key,
            layout="frames",
            layer=c.head[0],
            head=c.head[1],
            frame=start,
            frames=frames,
            live=data.live,
            title=f"Held-out example, {head_name(*c.head)}",
            reads=draw.reads(data.task, c.map_kind),
            height=300,
        )
    step = last_step if state.frame is None else state.frame
    lab.write_link(link, None if step == last_step else str(step))
    measured = c.map_kind == c.kinds[0]
    weights = dict(frames).get(step)
    return study.Moment(data, step, *which, c.head, measured, weights, state.frame is None)


def picked_step(run_id: str) -> lab.SessionValue[int | None]:
    """The step of a link, with which the map of a run opens."""
    return lab.SessionValue(None, f"train:wish:{run_id}")


def forget_step(run_id: str) -> None:
    """Forget the step that a person had picked: the figures show the latest one."""
    picked_step(run_id).pop()
    for key in map(str, st.session_state):  # each example and type of attention has a map
        if key.startswith(f"train:map:{run_id}") and key.endswith(":view"):
            lab.SessionValue[dict[str, int | None]]({}, key).value["frame"] = None


def _choose_head(data: study.RunData) -> Controls | None:
    """Choose a held-out example, a type of attention and a head, at first the best one; None without maps."""
    if not data.steps:
        return None
    counts = lab.head_counts(data.run, data.steps[-1])
    row = st.popover("Head and example", icon=":material/tune:")
    c = Controls.draw("example", into=row, data=data, examples=range(len(counts)))
    if not counts or not (sizes := counts[c.example]):
        return None
    c = c.draw_more("map_kind", into=row, kinds=list(sizes))
    shape = sizes[c.map_kind]
    best = _best_head(data) if c.map_kind == c.kinds[0] else (0, 0)
    best = best if np.less(best, shape).all() else (0, 0)
    return c.draw_more("head", into=row, shape=shape, best=best)


def _best_head(data: study.RunData) -> tuple[int, int]:
    """The head with most weight on the expected position; a live run keeps the one before with at least half of it."""
    record, best = data.records[-1], training.best_head(data.records[-1])
    run_id, before = Controls.best.value
    weights = np.array(record.expected or [[0.0]])
    if (data.live or run_id == data.run.id) and np.less(before, weights.shape).all():
        best = best if 2 * weights[before] < weights[best] else before
    Controls.best.value = data.run.id, best
    return best


def source_figures(moment: study.Moment, ink: lab.Ink) -> None:
    data, example = moment.data, moment.example
    task = data.task
    if task.input not in ("patches", "series"):
        return
    source = data.watched[example].source
    outputs, weights = moment.on_source(len(source)) or ((), None)
    if task.input == "patches" and weights is not None:
        lab.chart_title("What it attends to")
        st.html(lab.tiles(source, task.shape.grid, outputs, weights, lab.theme(), ink))
        st.caption(
            f"The largest weight of a patch is {lab.share_text(weights.max())}; uniform attention gives each patch "
            f"{lab.number(1 / weights.shape[1])}."
        )
    decoded = data.decoded_at(moment.step)
    if task.form == "series" and decoded is not None and len(decoded.examples) > example:
        past, target, output = draw.series(decoded.examples[example])
        lab.draw_chart(
            st,
            lab.forecast_chart(past, target, output, task.naive(past), weights, ink, lab.theme()),
            key="train:forecast",
            alt="The past values, the target and the forecast.",
            heading=f"Forecast at step {decoded.step:,}",
        )
        st.caption(
            "Gray: past values; the size of a dot is its attention weight. Black or white: the target. Blue: "
            "the forecast. Dashed: the last season repeated."
        )


def changes_figure(data: study.RunData, changes: Mapping[str, float], ink: lab.Ink) -> None:
    """How far each part of the model has moved at a step; nothing in a run of an older version."""
    if not changes:
        return
    most = max(value for record in data.records for value in record.changes.values())
    lab.draw_chart(
        st,
        draw.changes_chart(changes, most, ink),
        key="train:changes",
        alt="How far each part of the model moved from its start.",
        heading="What training changes",
    )
    lab.caption(draw.changes_text(changes))


# The curves of a run: loss, the scores of its task, and its training; each with the picked step.


def charts_details(data: study.RunData, step: int, findings: Sequence[training.Finding]) -> None:
    last = next((r for r in reversed(data.records) if r.expected), None)
    shown = {
        "expected": last is not None,
        **dict.fromkeys(("gradient", "parts", "rate"), True),
        "speed": last is None,
        "indexer": any(r.indexer_loss is not None for r in data.records),
        **{
            key: metric.unit == "positive" and any(key in r.scores for r in data.records)
            for key, metric in METRICS.items()
        },
    }
    names = [name for name, holds in shown.items() if holds]
    cells = [cell for _ in names[::2] for cell in st.columns(2, gap="medium")]
    for cell, name in zip(cells, names, strict=False):
        with cell:
            if name == "parts":
                record = next((r for r in reversed(data.until(step)) if r.gradients), None)
                if record is None:
                    lab.chart_title("Gradient norm by part of the model")
                    st.caption("Measured from the first step.")
                else:
                    lab.draw_chart(
                        st,
                        draw.parts_chart(record.gradients, lab.Ink.of(lab.theme())),
                        key="train:parts",
                        alt="Gradient norm of each part of the model.",
                        heading=f"Gradient norm by part, step {record.step:,} (logarithmic)",
                    )
                _show(name, findings)
            elif name == "expected" and last is not None:
                _draw(data, step, name, findings, *draw.weight_chart(data.task, data.records, last))
                if (count := sum(map(len, last.expected or ()))) > draw.MAX_HEADS:
                    st.caption(
                        f"The {draw.MAX_HEADS} of {count} heads with the largest weight at the end."
                    )
            else:
                chart = draw.single_chart(name, data.records, data.required_config.clip)
                _draw(data, step, name, findings, *chart)
    lab.caption(draw.pace(data.at(step), line(data.run.metadata().get("machines"))))


def _draw(
    data: study.RunData,
    step: int,
    key: str,
    findings: Sequence[training.Finding],
    title: str,
    curves: Sequence[lab.Curve],
    options: Mapping[str, object],
) -> None:
    """Curves over the steps of the run, all of them while it is live, and what goes wrong in them.

    `alt` names no step: the browser builds a chart anew when its words change.
    """
    given: dict[str, Any] = {
        "alt": f"{key} over training.",
        "height": 120,  # so that loss and changes are in one screen
        "last_x": data.required_config.steps if data.live else data.records[-1].step,
        **options,
    }
    lab.draw_curves(st, title, curves, key=f"train:{key}", cut=" accuracy", step=step, **given)
    _show(key, findings)


def _show(key: str, findings: Sequence[training.Finding]) -> None:
    for each in findings:
        if each.beside == key:
            st.markdown(f":small[**{lab.plain(each.text)}** {lab.plain(each.advice)}]")


# Between layers: which earlier outputs each sublayer reads, of a model without the plain residual sum.


def depth_figure(moment: study.Moment) -> None:
    data = moment.data
    residual = data.required_config.model.residual
    lab.paragraph(
        "Between layers stands no plain sum here. At each sublayer a token reads a weighted sum of what came before: "
        f"{draw.DEPTH_FORMULAS[residual]} A share of a row is a weight over the sum of all; the norm takes out that sum."
    )
    saved = data.run.checkpoint_steps()
    if not saved:
        st.caption("The map needs the model's weights, which are not saved yet.")
        return
    step = max((one for one in saved if one <= moment.step), default=saved[0])
    maps = lab.shared(study.of_checkpoint, Checkpoint.of(data.run, step), moment.example)
    row = st.container(horizontal=True)
    stacks = {one.stack: one for one in maps}
    c = Controls.draw("stack", into=row, stacks=stacks, data=data)
    shown = stacks[c.stack]
    token = c.draw_more("token", into=row, names=shown.tokens).token
    whose = "mean over the tokens" if token == MEAN else f"token {lab.plain(shown.tokens[token])}"
    lab.attention_view(
        shown.trace(None if token == MEAN else token),
        key=f"train:depth:{data.run.id}:{shown.stack}",
        show="matrix",
        title=f"What each sublayer reads at step {step:,}, {whose}",
        reads="sublayer (row) reads → output (column)",
        fact=f"The shares of {len(shown.outputs)} outputs in what each sublayer reads",
        height=420,
    )
    read = study.farthest(shown)
    lab.paragraph(
        f"On average over the tokens, {read.reader} takes **{lab.percent(read.share)}** of what it reads from {read.output}; "
        f"equal shares, as with a plain sum, would be {lab.percent(read.equal)}. Of all outputs but the latest this one is "
        "the most above its equal share."
    )


# A classified document with the weights of its sentences and of their words, beside what decides its class.


def document_figure(moment: study.Moment, ink: lab.Ink) -> None:
    if (weights := draw.document_weights(moment)) is None:
        return
    deciding = moment.data.task.deciding(moment.data.watched[moment.example])
    lab.chart_title(f"Document at step {moment.step:,}")
    st.html(lab.sentence_weights(weights, deciding and deciding[0], lab.theme(), ink))
    lab.caption(draw.document_text(moment, weights))


# The run bar of Train: start, stop, pause, continue, train longer, and the run's progress.


def run_bar(data: study.RunData, config: training.RunConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Train would start."""
    run = data.run
    lab.start_run(PAGE, config, lab.queue.start, lab.select_run, ends=run if data.live else None)
    row = st.container(horizontal=True, gap="small")
    state = lab.run_buttons(
        row,
        PAGE,
        data,
        config,
        start="Train",
        start_key="train:train",
        proceed=_continue,
        restart_help={
            "live": "Stop this run and start a new one with these settings",
            "paused": "Leave this run and start a new one with these settings",
        },
    )
    ended = data.config if state == "ended" else None
    if ended and not lab.is_example(data.run) and lab.limits.mine(run) and run.checkpoint_steps():
        _train_longer(row, data, ended)
    if lab.anothers_note(run) and data.config is not None:
        st.button(
            "Copy to my runs",
            icon=":material/content_copy:",
            key="train:copy",
            on_click=_copy,
            args=(run,),
            help="The copy is yours: continue it, name it or download it.",
        )
    lab.limits_line()
    if is_small() and state == "ended":
        # Where memory is short no worker waits.
        st.caption(
            "Memory is short on this server, so that a run starts a few seconds after Train is pressed."
        )
    lab.show_flash(PAGE)
    lab.poll(lambda: lab.load_run(run), _progress, data.live, "train:progress")
    if (
        ended
        and not lab.is_example(data.run)
        and data.records
        and ended.task.key == lab.EXAMPLE_RUN.config().task.key
    ):
        st.page_link(
            lab.step_of("compare_runs").page(),
            label="Compare with the example run",
            icon=lab.step_of("compare_runs").icon,
            query_params={"runs": f"{lab.EXAMPLE_RUN.id},{run.id}"},
        )


def _train_longer(row: DeltaGenerator, data: study.RunData, config: training.RunConfig) -> None:
    panel = row.popover(
        "Train longer",
        icon=":material/forward:",
        width="stretch",
        on_change="rerun",
        key="train:longer",
        help="Continue training for more steps.",
    )
    if not panel.open:
        return
    reached, most = data.run.checkpoint_steps()[-1], lab.limits.max_run_steps()
    with panel:
        if reached >= most:
            st.caption(f"This run has reached {most:,} steps, the most that a run can have here.")
            return
        more = Controls.draw(
            "more", into=lab.HERE, data=data, reached=reached, most=most - reached
        ).more
        st.caption(
            f"From step {reached:,} to {reached + more:,}, for at most {config.max_seconds:g} more seconds. "
            f"The learning rate schedule ({config.schedule}) covers all steps."
        )
        st.button(
            "Continue training",
            icon=":material/resume:",
            key="train:go-on",
            on_click=_continue,
            args=(data.run, more),
        )


def _copy(run: Run) -> None:
    lab.flash_errors(
        PAGE,
        "The run could not be copied: ",
        lambda: lab.select_run(lab.copy_run(run, run.name)),
        lab.limits.LimitReached,
        OSError,
    )


def _continue(run: Run, more: int = 0) -> None:
    """Continue a run for `more` steps and as many seconds again; a paused run (0) as it was."""
    changes: dict[str, Any] = {}
    if more:
        data = lab.load_run(run)
        changes = lab.longer(
            data.required_config,
            run.checkpoint_steps()[-1] + more,
            sum(r.elapsed for r in data.records[-1:]),
        ) | {"patience": 0}
    if lab.continue_run(PAGE, run, **changes):
        forget_step(run.id)
        with suppress(ConfigError):  # of one that was deleted meanwhile the page says so
            lab.adopt_run(run.config())  # what is trained longer has these settings


def _progress(data: study.RunData) -> None:
    config = data.config
    if lab.is_example(data.run):
        st.caption(
            "An example run, already trained.",
            help=draw.early_end(data.records[-1], config).strip() or None,
        )
    elif config is not None or not data.live:
        lab.show_progress(
            data.run,
            data.status,
            ending=lab.plain(draw.ending_text(data.status, data.records, config)),
            progress=lambda: lab.steps_done(
                data.records, data.required_config.steps, data.required_config.max_seconds
            ),
        )


# What Train offers a learner: a question that its run answers, and runs to try.


def run_question(data: study.RunData) -> lab.Question | None:
    """Whether accuracy or the weight on the correct position reaches one half first; None where the run says neither,
    and for a class, of which guessing may reach one half.

    The curve of that weight is one click away on the page, so that it does not tell the answer.
    """
    values: dict[str, Callable[[training.Record], float | None]] = {
        f"{data.task.unit.capitalize()} accuracy": lambda r: r.token_accuracy,
        "The weight on the correct position": study.expected,
    }
    steps = {
        name: next((r.step for r in data.records if (value(r) or 0) >= 0.5), None)
        for name, value in values.items()
    }
    if data.task.form == "label" or None in steps.values() or len(set(steps.values())) == 1:
        return None
    order = sorted(steps, key=lambda name: steps[name] or 0)
    first, second = (f"{name[0].lower()}{name[1:]} at step {steps[name]:,}" for name in order)
    reason = f"In this run: {first}, {second}. The weight has its curve in “{WEIGHT_PANEL}”."
    return lab.Question(
        "Which reaches one half first while this model trains?",
        tuple(steps),
        list(steps).index(order[0]),
        (reason, reason),
    )


@lru_cache(maxsize=8)
def moves(what_to_do: str) -> tuple[lab.Move, ...]:
    """Runs to try; `what_to_do` says what comes next, once the settings are made."""
    task = make_task(TaskConfig.of("reverse"))
    base, longer = (
        training.recommended(task, "transformer"),
        training.recommended(task, "recurrent").steps,
    )
    attention, rate = base.model.attention, base.learning_rate
    setup = {"task": "reverse", "kind": "transformer"}
    return (
        lab.Move(
            "Remove the positions",
            Controls.state(
                **setup, rate=rate, attention=attention.with_(position=Choice.of("none"))
            )
            | {"train:reverse:transformer:axes": True},  # the panel with the position
            f"The encoder no longer knows the order of the letters. {what_to_do} When it has ended, **Compare with the "
            "example run**: sequence accuracy, and how sharp the map is.",
            ("axes",),
        ),
        lab.Move(
            "Remove the attention",
            Controls.state(task="reverse", kind="recurrent", attention=None),
            "A Transformer cannot compute without attention, so the model is now a recurrent one, whose decoder reads "
            f"only the last state of the encoder. It may take {longer:,} steps instead of {base.steps:,}. {what_to_do} When "
            "it has ended, **Compare with the example run**: how many each needs.",
            ("model", "mechanism"),
        ),
        lab.Move(
            "Increase the learning rate tenfold",
            Controls.state(**setup, rate=10 * rate, attention=attention),
            f"The learning rate is now {10 * rate:g}, so that every update is ten times as large. "
            f"{what_to_do} Does the loss fall?",
            ("rate",),
        ),
    )
