"""The attention of one held-out example over training time, and what it put on a picture or a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from core.trace import Kind
from dashboard.charts import source_attention, training_curves
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.components.attention_view import attention_view
from dashboard.components.attention_view.payload import READS
from dashboard.runtime import attention_frames
from dashboard.runtime.run_data import (
    RunData,
)
from dashboard.widgets.panels import theme


@dataclass(frozen=True)
class Head:
    """The map that is drawn: its example, type, layer and head; `of` is (layers, heads) of that type.

    `attends` says whether a kind is the one by which outputs look at their source, and so the one that is measured.
    """

    example: int
    kind: Kind
    layer: int
    head: int
    of: tuple[int, int]
    attends: bool = True

    @property
    def name(self) -> str:
        return f"head {self.head}" if self.of[0] == 1 else f"head L{self.layer}·H{self.head}"


@dataclass(frozen=True)
class Moment:
    """The selected step of the run, and the head that is drawn with its weights (T, S) at that step."""

    step: int
    head: Head | None
    weights: np.ndarray | None = None


def attention_over_time(data: RunData) -> Moment:
    """The map, its filmstrip and its slider; without attention a plain slider through the records."""
    steps = attention_frames.steps_with_maps(data)
    head = _pickers(data, steps[-1]) if steps else None
    if head is None:
        return _no_attention(data)
    following, wish_key = _following(data), f"train:wish:{data.run.id}"
    wish = None if following else st.session_state.setdefault(wish_key, steps[-1])
    key = f"train:map:{data.run.id}:{head.example}:{head.kind}"
    picked = st.session_state.get(f"{key}:view", {}).get("frame")
    frames = attention_frames.head_over_time(
        data.run, steps, head.example, head.kind, head.layer, head.head, picked or wish)
    if not frames:
        return _no_attention(data)
    state = attention_view(
        attention_frames.head_trace(data, head.example, head.kind, head.layer, frames[-1][1], head.of[1]), key=key,
        layout="frames",
        layer=head.layer, head=head.head, frame=wish, frames=frames, live=data.live,
        title=f"Held-out example, {head.name}", reads=READS[head.kind], height=300,
    )
    step = frames[-1][0] if state.frame is None else state.frame
    if following and step != frames[-1][0]:
        st.session_state["train:follow"] = False  # whoever scrubs wants to stay there
    return Moment(step, head, dict(frames).get(step))


def _no_attention(data: RunData) -> Moment:
    steps = [r.step for r in data.records]
    if data.config is not None and data.config.model.attention is None:
        st.markdown("**No attention**")
        st.caption("This model hands its last encoder state on, and nothing else: there is no map to draw.")
    if len(steps) < 2 or _following(data):
        return Moment(steps[-1], None)
    return Moment(st.select_slider("Step", steps, steps[-1], key=f"train:step:{data.run.id}"), None)


def _pickers(data: RunData, step: int) -> Head | None:
    """Which held-out example, which kind of attention and which head; the head that looks best stands first."""
    watched = range(attention_frames.count_examples(data.run, step))
    example = st.selectbox("Held-out example", watched, key="train:example", label_visibility="collapsed",
                            format_func=lambda i: _label(data, i)) or 0
    sizes = attention_frames.sizes(data.run, step, example)
    if not sizes.kinds:
        return None
    row = st.container(horizontal=True, gap="small")
    kind = sizes.kinds[0]
    if len(sizes.kinds) > 1:
        kind = row.selectbox("Attention", sizes.kinds, key=f"train:kind:{data.run.id}",
                             format_func=attention_frames.NAMES.get,
                             label_visibility="collapsed")
    layers, count = of = sizes.layers[kind]
    heads = [(layer, h) for layer in range(layers) for h in range(count)]
    measured = kind == sizes.kinds[0]
    best = attention_frames.best_head(data.records[-1]) if measured else (0, 0)
    layer, h = heads[0]
    if len(heads) > 1:
        layer, h = row.selectbox("Head", heads, heads.index(best) if best in heads else 0,
                                 key=f"train:head:{data.run.id}:{kind}", label_visibility="collapsed",
                                 format_func=lambda place: Head(example, kind, *place, of).name)
    return Head(example, kind, layer, h, of, measured)


def _label(data: RunData, example: int) -> str:
    assert data.config is not None
    task = data.task()
    watched = attention_frames.watched_examples(data.config.task, data.config.watch)
    source, target = task.display_tokens(watched[example])
    if task.input in ("patches", "series"):
        answer = f": {task.separator.join(target)}" if task.input == "patches" else ""
        return f"Example {example + 1}{answer}"
    return (task.separator or ("" if task.input == "tokens" else " · ")).join(source)


def source_figures(data: RunData, moment: Moment, ink: Ink) -> None:
    """Pictures tinted by what each output looked at, or a series with its forecast."""
    task, head, config = data.task(), moment.head, data.config
    if task.input not in ("patches", "series") or config is None:
        return
    example = 0 if head is None else head.example
    sample = attention_frames.watched_examples(config.task, config.watch)[example]
    result = None
    if head is not None and moment.weights is not None:
        rows, _ = attention_frames.tokens(data, example, head.kind)
        result = source_attention.source_weights(config.model, head.kind, moment.weights, rows, len(sample.source))
    if task.input == "patches" and result is not None:
        outputs, weights = result
        training_curves.title(f"Where it looks, step {moment.step:,}")
        st.html(source_attention.tiles(sample.source, task.shape.grid, outputs, weights, theme(), ink))
        st.caption(f"The fullest patch has {number(weights.max())} of the weight; even attention would give each "
                   f"{number(1 / weights.shape[1])}.")
    decoded = data.decoded_at(moment.step)
    if task.form == "series" and decoded is not None and len(decoded.examples) > example:
        prediction = decoded.examples[example]
        past, target, output = ([float(x) for x in tokens] for tokens in
                                (prediction.source, prediction.target, prediction.predicted))
        training_curves.title(f"Forecast at step {decoded.step:,}")
        drawn = source_attention.forecast_chart(past, target, output, task.naive(past),
                                                None if result is None else result[1], ink, theme())
        st.vega_lite_chart(spec=drawn, key="train:forecast", alt="The past, what came, and what the model said.")
        st.caption("Grey: the past, with a dot for the weight it gets. Black or white: what came. Blue: the model. "
                   "Dashed: the last season again.")


def _following(data: RunData) -> bool:
    return data.live and bool(st.session_state.get("train:follow", True))
