"""The pictures of a fine-tuning run: two curves, one head before and after with its difference, and held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.difference import HeadChange, changes
from core.finetune.run import make_trainer
from core.pretrained import PretrainedError
from core.trace import AttentionTrace
from core.training.machine import line
from dashboard.charts.curves import Curve, step_chart
from dashboard.charts.numbers import number, percent
from dashboard.charts.palette import Ink
from dashboard.charts.prediction_tables import confusion
from dashboard.charts.training_curves import balanced_points
from dashboard.components.attention_view.payload import READS
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.navigation import STEPS
from dashboard.runtime import jobs
from dashboard.runtime.fine_tune_data import (
    FOLLOW,
    FineTuneData,
    current_run,
    load_fine_tune,
    read_link,
    select_example,
)
from dashboard.runtime.polling import poll
from dashboard.views.fine_tune import text
from dashboard.views.fine_tune.controls import SENTENCE, controls
from dashboard.views.fine_tune.run_bar import run_bar
from dashboard.widgets import fine_tuned_models
from dashboard.widgets.model_picker.kinds import KINDS
from dashboard.widgets.model_picker.models import MODEL
from dashboard.widgets.panels import fact, next_page, placeholder, plain, source_panel, theme, title

HEIGHT, HIGH = 190, 280
LINK = "fine_tune:pin"
OPENS = ("pretrained", "evidence", "use_model")
HEAD, SET, PICK = "fine_tune:head", "fine_tune:head-set", "fine_tune:head-picked"


@dataclass(frozen=True)
class Both:
    """One sentence before training and at a step: the maps of one kind, and each head by how far it moved."""

    step: int
    last: bool
    first: AttentionTrace
    now: AttentionTrace
    heads: list[HeadChange]


def page() -> None:
    title("Fine-tune",
          "A pretrained model goes on learning from your rows. Drag the step and see what its attention does about it.")
    jobs.warm_up()
    if trouble := read_link():
        st.warning(trouble)
    task, config = controls()
    data = load_fine_tune(current_run(task))
    run_bar(data, config)
    poll(lambda: load_fine_tune(data.run), _figures, data.live, "fine_tune:figures")
    _source()
    next_page("fine_tune")


def _source() -> None:
    """On request: the function that trains, and papers."""
    panel = st.expander("How it learns: the source that just ran, and papers", on_change="rerun", key="fine_tune:how")
    if not panel.open:
        return
    with panel:
        st.markdown("Hugging Face's [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) takes "
                    "the steps; a callback writes what every run here writes. A new head on a pretrained encoder is "
                    "how [Devlin 2019](https://arxiv.org/abs/1810.04805) fine-tunes; that later layers change most "
                    "is what [Merchant 2020](https://arxiv.org/abs/2004.14448) and "
                    "[Kovaleva 2019](https://arxiv.org/abs/1908.08593) report.")
        source_panel(make_trainer)


def _figures(data: FineTuneData) -> None:
    """The figures of a run, or why there are none yet."""
    if data.trouble:
        st.error(plain(data.trouble))
        st.button("Show the example run", key="fine_tune:kept-instead", on_click=select_example, args=("classify",))
    elif not data.records or data.config is None:
        placeholder("The model loads and is measured as it is: the first numbers come in about five seconds."
                    if data.live else "This run ended before its first measurement.")
    else:
        _draw(data)


def _draw(data: FineTuneData) -> None:
    assert data.config is not None
    ink, rows = Ink.of(theme()), data.rows()
    curves = st.columns(2, gap="medium")
    both = _attention(data)
    step = both.step if both else data.records[-1].step
    majority = rows.majority if data.config.task == "classify" else None
    _curves(data, step, majority, curves, ink)
    left, right = st.columns(2, gap="medium")
    if both is not None and both.now.maps:
        with left:
            _apart(both)
    with right:
        fact(text.fact(data.config, data.records[0], data.at(step), majority) + _gained(both))
        st.caption(" ".join(filter(None, [text.still(data.config), text.conditions(
            data.config, data.about, len(rows.learned), len(rows.held_out), rows.repeated,
            line(data.run.metadata().get("machines")))])))
    columns = (*(("text", "label") if rows.labels else ("source", "target")), "before", f"step {step:,}")
    st.markdown(":small[**Held-out rows, and what the model says of them**]")
    st.html(text.table(data.records[0].examples, data.at(step).examples, columns, ink.hairline, ink.quiet))
    _confusion(data, step, ink)
    _elsewhere(data)


def _confusion(data: FineTuneData, step: int, ink: Ink) -> None:
    """The confusion matrix of the held-out rows at a step, by the labels in the order of the model's outputs."""
    counts, labels = data.at(step).confusion, data.about.get("labels", ())
    if counts and len(counts) == len(labels):
        st.markdown(f":small[**Confusion matrix at step {step:,}**]")
        st.html(confusion(counts, labels, ink))


def _elsewhere(data: FineTuneData) -> None:
    """The fine-tuned model is an ordinary folder, which the other pages open."""
    if data.model is None:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Open the fine-tuned model:", width="content")
        for step in STEPS:
            if step.key in OPENS:
                st.page_link(step.path, label=step.title, icon=step.icon, query_params={MODEL: str(data.model)})


def _curves(data: FineTuneData, step: int, majority: tuple[str, float] | None, columns: list, ink: Ink) -> None:
    records = data.records
    last = max(int(data.about.get("steps", 0)) if data.live else 0, records[-1].step, 1)
    first = 100 * (records[0].exact or 0.0)
    guess = (first, f"before training: {percent(records[0].exact)}") if majority is None else (
        100 * majority[1], f"majority class: {percent(majority[1])}")
    loss = [Curve("held-out", [(r.step, r.loss) for r in records]),
            Curve("learned", [(r.step, r.train_loss) for r in records])]
    columns[0].markdown(":small[**Loss**]")
    columns[0].vega_lite_chart(spec=step_chart(loss, ink=ink, last_x=last, step=step, height=HEIGHT),
                               key="fine_tune:loss", alt=f"Held-out loss {number(records[-1].loss)} at step {last:,}")
    right = [Curve("right", [(r.step, None if r.exact is None else 100 * r.exact) for r in records]),
             Curve("balanced accuracy", balanced_points(records)),
             Curve("single tokens", [(r.step, None if r.letters is None else 100 * r.letters) for r in records])]
    columns[1].markdown(":small[**Right, held-out**]")
    drawn = step_chart(right, ink=ink, last_x=last, step=step, high=100, percent=True, guess=guess, height=HEIGHT)
    columns[1].vega_lite_chart(spec=drawn, key="fine_tune:right",
                               alt=f"{percent(records[-1].exact)} right at step {records[-1].step:,}")


def _head_field(place: Any, heads: list[HeadChange]) -> None:
    """The field of all heads, the one that moved most first; it stands on that one until a person picks another."""
    names = {(item.layer, item.head): item.name for item in heads}
    selected = st.session_state.get(PICK)
    st.session_state[HEAD] = st.session_state[SET] = selected if selected in names else next(iter(names))
    place.selectbox("Head, most moved first", list(names), format_func=names.get, key=HEAD, on_change=_pick)


def _pick() -> None:
    if st.session_state[HEAD] != st.session_state.get(SET):
        st.session_state[PICK] = st.session_state[HEAD]


def _picked(both: Both) -> HeadChange:
    """The head that a person picked; the one that moved most otherwise."""
    selected = st.session_state.get(PICK)
    return next((item for item in both.heads if (item.layer, item.head) == selected), both.heads[0])


def _gained(both: Both | None) -> str:
    """What the picked head does now that it did not do before."""
    if both is None or not both.heads:
        return ""
    head = _picked(both)
    before, now = (trace.map(head.layer) for trace in (both.first, both.now))
    return text.gained(head, before.weights[head.head], now)


def _tiles(both: Both) -> list[Tile]:
    head = _picked(both)
    first, now = (trace.map(head.layer) for trace in (both.first, both.now))
    return [Tile("Before training", "step 0", first.weights[head.head], first.mask, 0),
            Tile("After training" if both.last else "On the way", f"step {both.step:,}", now.weights[head.head],
                 now.mask, 1)]


def _apart(both: Both) -> None:
    """What the picked head gained and lost."""
    before, now = _tiles(both)
    item, name = both.now.map(_picked(both).layer), _picked(both).name
    difference_map(now, before, item.queries, item.keys, key=f"fine_tune:apart:{item.kind}", link=LINK, height=HIGH,
                   fact=f"What head {name} gained and lost until step {both.step:,}")


def _attention(data: FineTuneData) -> Both | None:
    """One head of one sentence: before training, at the picked step, and the difference."""
    row = st.columns([1.5, 1, 1.2], vertical_alignment="bottom")
    text = _sentence(data, row[0])
    both = _readings(data, text, row)
    if both is None or not both.now.maps:
        return both
    _head_field(row[1], both.heads)
    item = both.now.map(_picked(both).layer)
    multiples(_tiles(both), item.queries, item.keys, key=f"fine_tune:maps:{item.kind}", reads=READS[item.kind],
              link=LINK, height=HIGH, fact=f"Head {_picked(both).name} before training and at step {both.step:,}")
    return both


def _sentence(data: FineTuneData, place: Any) -> str:
    """Which sentence: one that was watched, or for labels any that is typed."""
    watched = [str(one["text"]) for one in data.sentences]
    assert data.config is not None
    if data.config.task == "pairs":
        return str(place.selectbox("Source", watched, key=f"fine_tune:source:{data.run.id}") or "")
    options = list(dict.fromkeys([*watched, str(st.session_state[SENTENCE])]))
    return str(place.selectbox(
        "Sentence: pick one, or type your own", options, key=SENTENCE, accept_new_options=True,
        persist_state="session", help="The next run watches it from its first step.") or "")


def _readings(data: FineTuneData, text: str, row: list) -> Both | None:
    """The maps of one kind at step 0 and at the picked one; of a sentence that was not watched, before and after."""
    watched = [str(one["text"]) for one in data.sentences]
    steps = data.steps
    if text not in watched and data.model is None and watched:
        st.caption("This run does not watch your sentence, and its weights are not kept: the maps are those of "
                   f"“{plain(watched[0])}”. The next run watches yours from its first step.")
        text = watched[0]
    if text in watched and steps:
        index, step = watched.index(text), _scrub(data, steps, row[2])
        return _of_kind(data.trace(steps[0], index), data.trace(step, index), step, data)
    try:
        traces = fine_tuned_models.readings(data, text)
    except PretrainedError as error:
        st.info(plain(str(error)))
        return None
    if traces is None:
        return None
    labels = fine_tuned_models.labels(data, text)
    row[2].markdown(":small[" + " · ".join(f"{plain(name)} **{number(share)}**" for name, share in labels[:4]) + "]")
    return _of_kind(*traces, data.records[-1].step, data)


def _scrub(data: FineTuneData, steps: list[int], place: Any) -> int:
    """The slider through the kept steps; while a run goes on, its last step until the toggle is put off."""
    if data.live and place.toggle("Follow the live step", True, key=FOLLOW) or len(steps) < 2:
        return steps[-1]
    key = f"fine_tune:step:{data.run.id}:{len(steps) if data.live else 'all'}"
    return int(place.select_slider("Step", steps, steps[-1], key=key, format_func=lambda step: f"{step:,}"))


def _of_kind(first: AttentionTrace, now: AttentionTrace, step: int, data: FineTuneData) -> Both:
    kinds = now.kinds
    kind = kinds[0]
    if len(kinds) > 1:
        order = [name for name in ("cross", "self", "causal") if name in kinds]
        named = [name for name in KINDS if name in kinds]
        kind = st.segmented_control("Attention", named, default=order[0], format_func=KINDS.get, required=True,
                                    key="fine_tune:kind", label_visibility="collapsed")
    first, now = first.of(kind), now.of(kind)
    return Both(step, not data.live and step == data.records[-1].step, first, now, changes(first, now))
