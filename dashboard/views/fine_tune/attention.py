"""One head before and after fine-tuning: the choice of sentence, step and head, the maps and their difference."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.difference import HeadChange
from core.pretrained import PretrainedError
from core.trace import AttentionTrace
from dashboard.charts.numbers import number
from dashboard.components.attention_view.payload import READS
from dashboard.components.multiples import difference_map, multiples
from dashboard.runtime.fine_tune_data import FOLLOW, FineTuneData
from dashboard.views.fine_tune.compute import BeforeAfter
from dashboard.views.fine_tune.controls import SENTENCE
from dashboard.widgets import fine_tuned_models
from dashboard.widgets.model_picker.head_choice import KINDS
from dashboard.widgets.panels import plain

HIGH = 280
LINK = "fine_tune:pin"
HEAD, SET, PICK = "fine_tune:head", "fine_tune:head-set", "fine_tune:head-picked"


def before_and_after(data: FineTuneData) -> BeforeAfter | None:
    """One head of one sentence: before training, at the picked step, and the difference."""
    row = st.columns([1.5, 1, 1.2], vertical_alignment="bottom")
    text = _sentence(data, row[0])
    both = _readings(data, text, row)
    if both is None or not both.now.maps:
        return both
    _head_field(row[1], both.heads)
    head = selected_head(both)
    item = both.now.map(head.layer)
    multiples(both.tiles(head), item.queries, item.keys, key=f"fine_tune:maps:{item.kind}", reads=READS[item.kind],
              link=LINK, height=HIGH, fact=f"Head {head.name} before training and at step {both.step:,}")
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


def _readings(data: FineTuneData, text: str, row: list) -> BeforeAfter | None:
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


def _of_kind(first: AttentionTrace, now: AttentionTrace, step: int, data: FineTuneData) -> BeforeAfter:
    kinds = now.kinds
    kind = kinds[0]
    if len(kinds) > 1:
        order = [name for name in ("cross", "self", "causal") if name in kinds]
        named = [name for name in KINDS if name in kinds]
        kind = st.segmented_control("Attention", named, default=order[0], format_func=KINDS.get, required=True,
                                    key="fine_tune:kind", label_visibility="collapsed")
    return BeforeAfter.of(first, now, kind, step, not data.live and step == data.records[-1].step)


def _head_field(place: Any, heads: list[HeadChange]) -> None:
    """The field of all heads, the one that moved most first; it stands on that one until a person picks another."""
    names = {(item.layer, item.head): item.name for item in heads}
    selected = st.session_state.get(PICK)
    st.session_state[HEAD] = st.session_state[SET] = selected if selected in names else next(iter(names))
    place.selectbox("Head, most moved first", list(names), format_func=names.get, key=HEAD, on_change=_pick)


def _pick() -> None:
    if st.session_state[HEAD] != st.session_state.get(SET):
        st.session_state[PICK] = st.session_state[HEAD]


def selected_head(both: BeforeAfter) -> HeadChange:
    """The head that a person picked; the one that moved most otherwise."""
    selected = st.session_state.get(PICK)
    return next((item for item in both.heads if (item.layer, item.head) == selected), both.heads[0])


def difference(both: BeforeAfter) -> None:
    """What the picked head gained and lost."""
    before, now = both.tiles(selected_head(both))
    item, name = both.now.map(selected_head(both).layer), selected_head(both).name
    difference_map(now, before, item.queries, item.keys, key=f"fine_tune:apart:{item.kind}", link=LINK, height=HIGH,
                   fact=f"What head {name} gained and lost until step {both.step:,}")
