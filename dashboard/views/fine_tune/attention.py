"""One head before and after fine-tuning: its sentence, step and index, the maps and their difference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from core.difference import HeadChange, changes
from core.finetune.config import FineTuneConfig
from core.pretrained import PretrainedError
from core.trace import AttentionTrace
from dashboard.charts.numbers import number
from dashboard.components.attention_view.payload import READS
from dashboard.components.multiples import Frames, difference_map, multiples
from dashboard.runtime.fine_tune_data import FOLLOW, FineTuneData
from dashboard.runtime.link_values import link_value, one_of
from dashboard.views.fine_tune.compute import BeforeAfter
from dashboard.views.fine_tune.controls import SENTENCE
from dashboard.widgets import fine_tuned_models
from dashboard.widgets.model_picker.head_choice import KINDS
from dashboard.widgets.panels import plain

HIGH = 280
LINK = "fine_tune:pin"
HEAD, SET, PICK = "fine_tune:head", "fine_tune:head-set", "fine_tune:head-picked"


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
    multiples(both.tiles(head), item.queries, item.keys, key=f"fine_tune:maps:{item.kind}", reads=READS[item.kind],
              link=LINK, height=HIGH, fact=f"Head {head.name} before training and at step {both.step:,}",
              frames=_frames(data, both, head))
    return both


def _frames(data: FineTuneData, both: BeforeAfter, head: HeadChange) -> Frames | None:
    """The two maps at each step of the slider, which the browser draws at once; None without a slider."""
    steps = data.steps
    if both.sentence is None or _slider(data) not in st.session_state:
        return None
    kind = both.now.kinds[0]
    moments = [replace(both, step=step, last=_is_last(data, step), now=data.trace(step, both.sentence).of(kind))
               for step in steps]
    return Frames(_slider(data), steps.index(both.step), [moment.tiles(head) for moment in moments])


def _watched(data: FineTuneData) -> list[str]:
    return [str(sentence["text"]) for sentence in data.sentences]


def _sentence(data: FineTuneData, config: FineTuneConfig, cell: Any) -> str:
    """The sentence: a watched one, or for labels any that is typed."""
    if config.task == "pairs":
        key, watched = f"fine_tune:source:{data.run.id}", _watched(data)
        link_value(key, watched[0] if watched else None, one_of(watched))
        return str(cell.selectbox("Source", watched, key=key, persist_state="session",
                                  help="The held-out source whose attention is shown.") or "")
    options = list(dict.fromkeys([*_watched(data), str(st.session_state[SENTENCE])]))
    return str(cell.selectbox("Sentence (select or type)", options, key=SENTENCE, accept_new_options=True,
                              persist_state="session", help="The next run records its attention.") or "")


def _readings(data: FineTuneData, text: str, row: list) -> BeforeAfter | None:
    """The maps of one type at step 0 and at the selected one; of a sentence that was not watched, before and after."""
    watched, steps = _watched(data), data.steps
    if text not in watched and data.model is None and watched:
        st.caption("This run did not record your sentence and its weights are not saved, so the maps are those of "
                   f"“{plain(watched[0])}”. The next run records your sentence from its first step.")
        text = watched[0]
    if text in watched and steps:
        index, step = watched.index(text), _step(data, steps, row[2])
        return _of_kind(data.trace(steps[0], index), data.trace(step, index), step, data, text, index)
    try:
        traces = fine_tuned_models.readings(data, text)
    except PretrainedError as error:
        st.info(plain(str(error)))
        return None
    if traces is None:
        return None
    labels = fine_tuned_models.labels(data, text)
    row[2].markdown(":small[" + " · ".join(f"{plain(name)} **{number(share)}**" for name, share in labels[:4]) + "]")
    return _of_kind(*traces, data.records[-1].step, data, text, None)


def _step(data: FineTuneData, steps: list[int], cell: Any) -> int:
    """A slider over the saved steps; of a live run the last step until the toggle is off."""
    if data.live and cell.toggle("Follow the latest step", True, key=FOLLOW,
                                  help="The maps show the newest step while the run trains.") or len(steps) < 2:
        return steps[-1]
    key = _slider(data)
    link_value(key, steps[-1], one_of(steps))
    return int(cell.select_slider("Training step", steps, steps[-1], key=key, format_func=lambda step: f"{step:,}",
                                  persist_state="session", help="The training step that all figures show."))


def _slider(data: FineTuneData) -> str:
    """The key of the slider over the saved steps."""
    return f"fine_tune:step:{data.run.id}:{len(data.steps) if data.live else 'all'}"


def _is_last(data: FineTuneData, step: int) -> bool:
    return not data.live and step == data.records[-1].step


def _of_kind(first: AttentionTrace, now: AttentionTrace, step: int, data: FineTuneData, text: str,
             sentence: int | None) -> BeforeAfter:
    kind = now.kinds[0]
    if len(now.kinds) > 1:
        first_kind = next(name for name in ("cross", "self", "causal") if name in now.kinds)
        options = [name for name in KINDS if name in now.kinds]
        link_value("fine_tune:kind", first_kind, one_of(options))
        kind = st.segmented_control("Attention", options, default=first_kind, format_func=KINDS.__getitem__,
                                    required=True, key="fine_tune:kind", label_visibility="collapsed",
                                    persist_state="session")
    first, now = first.of(kind), now.of(kind)
    return BeforeAfter(text, sentence, step, _is_last(data, step), first, now, changes(first, now))


def _head_field(cell: Any, heads: list[HeadChange]) -> None:
    """The list of heads, the one that moved most first, which is selected until a person picks another."""
    names = {(item.layer, item.head): item.name for item in heads}
    link_value(PICK, None, one_of(names), name=HEAD)
    selected = st.session_state.get(PICK)
    st.session_state[HEAD] = st.session_state[SET] = selected if selected in names else next(iter(names))
    cell.selectbox("Head (largest change first)", list(names), format_func=names.__getitem__, key=HEAD, on_change=_pick,
                   help="Layer and head, both from 0.")


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
    difference_map(now, before, item.queries, item.keys, key=f"fine_tune:apart:{item.kind}", link=LINK, height=HIGH,
                   fact=f"Change of the weights of head {head.name} until step {both.step:,}")
