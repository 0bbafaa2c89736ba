"""The page Fine-tune: the controls, two curves, one head before and after with its difference, and held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.entries import ConfigError
from core.interpret.map_transform import HeadChange, changes
from core.interpret.trace import AttentionTrace
from core.pretrained import PretrainedError
from core.pretrained.finetune import FineTuneConfig, own_rows, parse
from core.pretrained.finetune_run import make_trainer
from core.runs.machine import line
from dashboard.draw.attention_view import READS
from dashboard.draw.curves import Curve, balanced_points, legend, loss_curves, points, step_chart
from dashboard.draw.formats import number, percent
from dashboard.draw.multiples import Frames, difference_map, multiples
from dashboard.draw.palette import Ink
from dashboard.draw.tables import confusion
from dashboard.draw.vega import split_data
from dashboard.navigation import STEPS
from dashboard.runtime import jobs
from dashboard.runtime.fine_tune_data import (
    FOLLOW,
    FineTuneData,
    current_run,
    load_fine_tune,
    read_link,
    select_example,
    select_run,
)
from dashboard.runtime.link_values import forget_other_runs, link_value, one_of
from dashboard.runtime.model_folders import folder_name
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import poll
from dashboard.runtime.run_data import damage_of
from dashboard.ui import fine_tuned_models
from dashboard.ui.presentation import draw_chart
from dashboard.views.fine_tune import text
from dashboard.views.fine_tune.compute import BeforeAfter
from dashboard.views.fine_tune.controls import SENTENCE, controls
from dashboard.views.fine_tune.script import script
from dashboard.widgets import run_controls
from dashboard.widgets.model_picker.head_choice import KINDS
from dashboard.widgets.model_picker.models import MODEL
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)

PAGE = "fine_tune"
RESTART_HELP: dict[run_controls.RunState, str] = {
    "paused": "Leave this run and start a new one with these settings"
}

HIGH = 280
LINK = "fine_tune:pin"
HEAD, SET, PICK = "fine_tune:head", "fine_tune:head-set", "fine_tune:head-picked"

HEIGHT = 190
PAGES = ("pretrained", "evidence", "use_model")  # that open the fine-tuned model


def page() -> None:
    title(
        "Fine-tune", "Fine-tune a pretrained model on your rows, and see how its attention changes."
    )
    jobs.warm_up()
    if trouble := read_link():
        st.warning(trouble)
    task, config = controls()
    data = load_fine_tune(current_run(task))
    forget_other_runs("fine_tune", data.run.id)
    run_bar(data, config)
    poll(lambda: load_fine_tune(data.run), _figures, data.live, "fine_tune:figures")
    details("Source code and papers", _source, "fine_tune:how")
    next_page("fine_tune")


def _source() -> None:
    """Draw the function that trains, and papers."""
    st.markdown(
        "Hugging Face's [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) trains "
        "the model. As in [Devlin 2019](https://arxiv.org/abs/1810.04805), a new classification head is "
        "put on the pretrained encoder. [Merchant 2020](https://arxiv.org/abs/2004.14448) and "
        "[Kovaleva 2019](https://arxiv.org/abs/1908.08593) report that later layers change most."
    )
    source_panel(make_trainer)


def _figures(data: FineTuneData) -> None:
    """The figures of a run, or why there are none yet."""
    if damage := damage_of(data.run):
        st.warning(damage)
    if data.trouble:
        st.error(plain(data.trouble))
        st.button(
            "Show the example run",
            key="fine_tune:kept-instead",
            on_click=select_example,
            args=("classify",),
        )
    elif not data.records or data.config is None:
        placeholder(
            "The model is loaded and evaluated before training. The first numbers appear in about five seconds."
            if data.live
            else "This run ended before its first measurement."
        )
    else:
        _draw(data, data.config)


def _draw(data: FineTuneData, config: FineTuneConfig) -> None:
    ink, rows = Ink.of(theme()), data.rows()
    curves = st.columns(2, gap="medium")
    both = before_and_after(data, config)
    step = both.step if both else data.records[-1].step
    add_script(partial(script, data, both, selected_head(both) if both and both.now.maps else None))
    majority = rows.majority if config.task == "classify" else None
    _curves(data, step, majority, curves, ink)
    left, right = st.columns(2, gap="medium")
    sentence = text.fact(config, data.records[0], data.at(step), majority)
    if both is not None and both.now.maps:
        with left:
            difference(both)
        sentence += text.gained(both, selected_head(both))
    with right:
        fact(sentence)
        caption(
            text.conditions(config, data.about, rows, line(data.run.metadata().get("machines")))
        )
    columns = (
        *(("text", "label") if rows.labels else ("source", "target")),
        "before",
        f"step {step:,}",
    )
    chart_title("Held-out rows and predictions")
    st.html(
        text.table(
            data.records[0].examples, data.at(step).examples, columns, ink.hairline, ink.quiet
        )
    )
    counts, labels = data.at(step).confusion, data.about.get("labels", ())
    if counts and len(counts) == len(labels):
        chart_title(f"Confusion matrix at step {step:,}")
        st.html(confusion(counts, labels, ink))
    if data.model is not None:
        _links(folder_name(data.model))


def _links(model: str) -> None:
    """Links to the pages that open the fine-tuned model."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Open the fine-tuned model:", width="content")
        for step in STEPS:
            if step.key in PAGES:
                st.page_link(
                    step.path, label=step.title, icon=step.icon, query_params={MODEL: model}
                )


def _curves(
    data: FineTuneData,
    step: int,
    majority: tuple[str, float] | None,
    columns: Sequence[DeltaGenerator],
    ink: Ink,
) -> None:
    """The losses on the left, the scores on the right."""
    records = data.records
    last = max(int(data.about.get("steps", 0)) if data.live else 0, records[-1].step, 1)
    guess = (
        (100 * (records[0].exact or 0.0), f"before training: {percent(records[0].exact)}")
        if majority is None
        else (100 * majority[1], f"majority class: {percent(majority[1])}")
    )
    losses = loss_curves(records)
    chart_title("Loss", columns[0], legend(losses, ink))
    draw_chart(
        columns[0],
        *split_data(step_chart(losses, ink=ink, last_x=last, step=step, height=HEIGHT)),
        key="fine_tune:loss",
        alt="Validation and training loss over fine-tuning",
    )
    scores = [
        Curve("accuracy" if majority else "sequence accuracy", points(records, "exact", 100)),
        Curve("balanced accuracy", balanced_points(records)),
        Curve("token accuracy", points(records, "letters", 100)),
    ]
    chart_title("Validation accuracy", columns[1], legend(scores, ink))
    spec = step_chart(
        scores, ink=ink, last_x=last, step=step, high=100, percent=True, guess=guess, height=HEIGHT
    )
    draw_chart(
        columns[1],
        *split_data(spec),
        key="fine_tune:right",
        alt="Validation accuracy over fine-tuning",
    )


# One head before and after fine-tuning: its sentence, step and index, the maps and their difference.


def before_and_after(data: FineTuneData, config: FineTuneConfig) -> BeforeAfter | None:
    """Draw one head of one sentence before training and at the selected step."""
    row = st.columns([1.6, 1, 1.1], vertical_alignment="bottom")
    text = _sentence(data, config, row[0])
    both = _readings(data, text, row)
    if both is None or not both.now.maps:
        return both
    _head_field(row[1], both.heads)
    head = selected_head(both)
    item = both.now.map(head.layer)
    multiples(
        both.tiles(head),
        item.queries,
        item.keys,
        key=f"fine_tune:maps:{item.kind}",
        reads=READS[item.kind],
        link=LINK,
        height=HIGH,
        fact=f"Head {head.name} before training and at step {both.step:,}",
        frames=_frames(data, both, head),
    )
    return both


def _frames(data: FineTuneData, both: BeforeAfter, head: HeadChange) -> Frames | None:
    """The two maps at each step of the slider, which the browser draws at once; None without a slider."""
    steps = data.steps
    if both.sentence is None or _slider(data) not in st.session_state:
        return None
    kind = both.now.kinds[0]
    moments = [
        replace(
            both, step=step, last=_is_last(data, step), now=data.trace(step, both.sentence).of(kind)
        )
        for step in steps
    ]
    return Frames(_slider(data), steps.index(both.step), [moment.tiles(head) for moment in moments])


def _watched(data: FineTuneData) -> list[str]:
    return [str(sentence["text"]) for sentence in data.sentences]


def _sentence(data: FineTuneData, config: FineTuneConfig, cell: Any) -> str:
    """The sentence: a watched one, or for labels any that is typed."""
    if config.task == "pairs":
        key, watched = f"fine_tune:source:{data.run.id}", _watched(data)
        link_value(key, watched[0] if watched else None, one_of(watched))
        return str(
            cell.selectbox(
                "Source",
                watched,
                key=key,
                persist_state="session",
                help="The held-out source whose attention is shown.",
            )
            or ""
        )
    options = list(dict.fromkeys([*_watched(data), str(st.session_state[SENTENCE])]))
    return str(
        cell.selectbox(
            "Sentence (select or type)",
            options,
            key=SENTENCE,
            accept_new_options=True,
            persist_state="session",
            help="The next run records its attention.",
        )
        or ""
    )


def _readings(data: FineTuneData, text: str, row: list) -> BeforeAfter | None:
    """The maps of one type at step 0 and at the selected one; of a sentence that was not watched, before and after."""
    watched, steps = _watched(data), data.steps
    if text not in watched and data.model is None and watched:
        st.caption(
            "This run did not record your sentence and its weights are not saved, so the maps are those of "
            f"“{plain(watched[0])}”. The next run records your sentence from its first step."
        )
        text = watched[0]
    if text in watched and steps:
        index, step = watched.index(text), _step(data, steps, row[2])
        return _of_kind(
            data.trace(steps[0], index), data.trace(step, index), step, data, text, index
        )
    try:
        traces = fine_tuned_models.readings(data, text)
    except PretrainedError as error:
        st.info(plain(str(error)))
        return None
    if traces is None:
        return None
    labels = fine_tuned_models.labels(data, text)
    row[2].markdown(
        ":small["
        + " · ".join(f"{plain(name)} **{number(share)}**" for name, share in labels[:4])
        + "]"
    )
    return _of_kind(*traces, data.records[-1].step, data, text, None)


def _step(data: FineTuneData, steps: list[int], cell: Any) -> int:
    """A slider over the saved steps; of a live run the last step until the toggle is off."""
    if (
        data.live
        and cell.toggle(
            "Follow the latest step",
            True,
            key=FOLLOW,
            help="The maps show the newest step while the run trains.",
        )
        or len(steps) < 2
    ):
        return steps[-1]
    key = _slider(data)
    link_value(key, steps[-1], one_of(steps))
    return int(
        cell.select_slider(
            "Training step",
            steps,
            steps[-1],
            key=key,
            format_func=lambda step: f"{step:,}",
            persist_state="session",
            help="The training step that all figures show.",
        )
    )


def _slider(data: FineTuneData) -> str:
    """The key of the slider over the saved steps."""
    return f"fine_tune:step:{data.run.id}:{len(data.steps) if data.live else 'all'}"


def _is_last(data: FineTuneData, step: int) -> bool:
    return not data.live and step == data.records[-1].step


def _of_kind(
    first: AttentionTrace,
    now: AttentionTrace,
    step: int,
    data: FineTuneData,
    text: str,
    sentence: int | None,
) -> BeforeAfter:
    kind = now.kinds[0]
    if len(now.kinds) > 1:
        first_kind = next(name for name in ("cross", "self", "causal") if name in now.kinds)
        options = [name for name in KINDS if name in now.kinds]
        link_value("fine_tune:kind", first_kind, one_of(options))
        kind = st.segmented_control(
            "Attention",
            options,
            default=first_kind,
            format_func=KINDS.__getitem__,
            required=True,
            key="fine_tune:kind",
            label_visibility="collapsed",
            persist_state="session",
        )
    first, now = first.of(kind), now.of(kind)
    return BeforeAfter(text, sentence, step, _is_last(data, step), first, now, changes(first, now))


def _head_field(cell: Any, heads: list[HeadChange]) -> None:
    """The list of heads, the one that moved most first, which is selected until a person picks another."""
    names = {(item.layer, item.head): item.name for item in heads}
    link_value(PICK, None, one_of(names), name=HEAD)
    selected = st.session_state.get(PICK)
    st.session_state[HEAD] = st.session_state[SET] = (
        selected if selected in names else next(iter(names))
    )
    cell.selectbox(
        "Head (largest change first)",
        list(names),
        format_func=names.__getitem__,
        key=HEAD,
        on_change=_pick,
        help="Layer and head, both from 0.",
    )


def _pick() -> None:
    if st.session_state[HEAD] != st.session_state.get(SET):
        st.session_state[PICK] = st.session_state[HEAD]


def selected_head(both: BeforeAfter) -> HeadChange:
    """The head that a person picked; the one that moved most otherwise."""
    selected = st.session_state.get(PICK)
    return next((item for item in both.heads if (item.layer, item.head) == selected), both.heads[0])


def difference(both: BeforeAfter) -> None:
    """Draw what the selected head gained and lost."""
    head = selected_head(both)
    before, now = both.tiles(head)
    item = both.now.map(head.layer)
    difference_map(
        now,
        before,
        item.queries,
        item.keys,
        key=f"fine_tune:apart:{item.kind}",
        link=LINK,
        height=HIGH,
        fact=f"Change of the weights of head {head.name} until step {both.step:,}",
    )


# The run bar of Fine-tune: start, stop, pause, continue, and the run's progress.


def run_bar(data: FineTuneData, config: FineTuneConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Fine-tune would start."""
    if config is not None and run_controls.pressed(PAGE, config):
        run_controls.start_run(
            PAGE,
            config,
            lambda: jobs.fine_tune(config),
            lambda run: select_run(run, config.task),
            ConfigError,
            PretrainedError,
        )
        st.rerun()
    state = "ended" if data.is_example else run_controls.state_of(data.run, data.status)
    buttons, column = st.columns([1, 2.4], vertical_alignment="center")
    row = buttons.container(horizontal=True, gap="small")
    run_controls.run_buttons(
        row,
        data.run,
        PAGE,
        state,
        start="Fine-tune",
        start_key="fine_tune:start",
        config=config,
        proceed=partial(run_controls.continue_run, PAGE),
        restart_help=RESTART_HELP,
    )
    with column:
        poll(lambda: load_fine_tune(data.run), _progress, data.live, "fine_tune:progress")
        if config is not None and config.data != own_rows(config.task):
            rows = parse(config.task, config.data, config.seed)
            st.caption(
                f"The next run trains on {len(rows.learned):,} of your rows and holds out "
                f"{len(rows.held_out):,}."
            )
        run_controls.anothers_note(data.run)
        run_controls.limits_line(steps=False)
        run_controls.show_flash(PAGE)


def _progress(data: FineTuneData) -> None:
    if data.is_example:
        st.caption(
            "This is an example run. Press Fine-tune to start your own: about 20 s for the lab's rows on one "
            "core."
        )
        return
    run_controls.show_progress(
        data.run,
        data.status,
        ending=plain(data.status.message or data.status.state),
        progress=lambda: text.progress(data.records, int(data.about.get("steps", 0)) or 1),
    )
