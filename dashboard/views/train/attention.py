"""The attention of one held-out example over training time, and where it attends on a picture or a series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from core.interpret.trace import Kind
from core.training.evaluate import source_weights
from dashboard.draw import grids
from dashboard.draw.attention_view import READS, attention_view
from dashboard.draw.formats import number
from dashboard.draw.palette import Ink
from dashboard.runtime import attention_frames
from dashboard.runtime.link_values import link_value, one_of, take_link, went_back, write_link
from dashboard.runtime.run_data import RunData
from dashboard.ui.presentation import draw_chart, room
from dashboard.views.train import text
from dashboard.widgets.panels import chart_title, theme


@dataclass(frozen=True)
class Head:
    """The head that is drawn: its example, type of attention, layer and index; `shape` is (layers, heads) of the type.

    `to_source`: whether outputs attend to their source by this type, so that records measure it.
    """

    example: int
    kind: Kind
    layer: int
    head: int
    shape: tuple[int, int]
    to_source: bool = True

    @property
    def name(self) -> str:
        return f"head {self.head}" if self.shape[0] == 1 else f"head L{self.layer}·H{self.head}"


@dataclass(frozen=True)
class Moment:
    """The selected step of the run, and the head that is drawn with its weights (T, S) at that step.

    `latest`: no step was picked, so all figures follow a live run.
    """

    step: int
    head: Head | None = None
    weights: np.ndarray | None = None
    latest: bool = True


def attention_over_time(data: RunData) -> Moment:
    """Draw the map, its filmstrip and its slider; without attention a plain slider over the records."""
    steps = attention_frames.steps_with_maps(data)
    head = _choose_head(data, steps[-1]) if steps else None
    if head is None:
        return _no_attention(data)
    step_key, step_name = f"train:wish:{data.run.id}", f"train:step:{data.run.id}"
    take_link(step_key, one_of(steps), name=step_name)
    if went_back(step_name):
        forget_step(data.run.id)
    start = st.session_state.get(step_key)
    key = f"train:map:{data.run.id}:{head.example}:{head.kind}"
    picked = st.session_state.get(f"{key}:view", {}).get("frame")
    frames = attention_frames.head_over_time(
        data.run, steps, head.example, head.kind, head.layer, head.head, picked or start
    )
    if not frames:
        return _no_attention(data)
    last_step, last = frames[-1]
    state = attention_view(
        attention_frames.head_trace(data, head.example, head.kind, head.layer, last, head.shape[1]),
        key=key,
        layout="frames",
        layer=head.layer,
        head=head.head,
        frame=start,
        frames=frames,
        live=data.live,
        title=f"Held-out example, {head.name}",
        reads=READS[head.kind],
        height=300,
    )
    step = last_step if state.frame is None else state.frame
    write_link(step_name, None if step == last_step else str(step))
    return Moment(step, head, dict(frames).get(step), state.frame is None)


def forget_step(run_id: str) -> None:
    """Forget the step that a person had picked: the figures show the latest one."""
    st.session_state.pop(f"train:wish:{run_id}", None)
    for key in map(str, st.session_state):
        if key.startswith(f"train:map:{run_id}") and key.endswith(":view"):
            st.session_state[key]["frame"] = None


def _no_attention(data: RunData) -> Moment:
    steps = [r.step for r in data.records]
    if data.config is not None and data.config.model.attention is None:
        st.markdown("**No attention**")
        st.caption(
            "The decoder of this model reads only the encoder's last state, so there is no attention map."
        )
    if len(steps) < 2 or data.live:
        return Moment(steps[-1])
    key = f"train:step:{data.run.id}"
    link_value(key, steps[-1], one_of(steps))
    return Moment(
        st.select_slider(
            "Training step",
            steps,
            steps[-1],
            key=key,
            help="The training step that all figures show.",
        )
    )


def _choose_head(data: RunData, step: int) -> Head | None:
    """Choose a held-out example, a type of attention and a head, at first the best one; None without maps."""
    examples = range(attention_frames.count_examples(data.run, step))
    link_value("train:example", 0, one_of(examples))
    row = st.grid("auto", min_column_width=room(190), gap="small")
    with row:
        example = (
            st.selectbox(
                "Held-out example",
                examples,
                key="train:example",
                persist_state="session",
                format_func=lambda i: _example_label(data, i),
                help="An input that the model is not trained on; the map shows its attention.",
            )
            or 0
        )
    sizes = attention_frames.sizes(data.run, step, example)
    if not sizes.kinds:
        return None
    kind = sizes.kinds[0]
    if len(sizes.kinds) > 1:
        kind_key = f"train:kind:{data.run.id}"
        link_value(kind_key, kind, one_of(sizes.kinds))
        kind = row.selectbox(
            "Attention",
            sizes.kinds,
            key=kind_key,
            persist_state="session",
            format_func=attention_frames.NAMES.__getitem__,
            help="Cross-attention: from outputs to the input. Self-attention: within one of them. A "
            "hierarchical model attends to sentences, and to the words of each.",
        )
    layers, count = shape = sizes.layers[kind]
    heads = [(layer, head) for layer in range(layers) for head in range(count)]
    to_source = kind == sizes.kinds[0]
    best = attention_frames.best_head(data.records[-1]) if to_source else (0, 0)
    layer, head = heads[0]
    if len(heads) > 1:
        best, head_key = best if best in heads else heads[0], f"train:head:{data.run.id}:{kind}"
        link_value(head_key, best, one_of(heads))
        layer, head = row.selectbox(
            "Head",
            heads,
            heads.index(best),
            key=head_key,
            persist_state="session",
            format_func=lambda at: Head(example, kind, at[0], at[1], shape).name,
            help="At first the head with the most weight on the expected position.",
        )
    return Head(example, kind, layer, head, shape, to_source)


def _example_label(data: RunData, example: int) -> str:
    assert data.config is not None
    task = data.task()
    source, target = task.display_tokens(
        attention_frames.watched_examples(data.config.task, data.config.watch)[example]
    )
    if task.input in ("patches", "series"):
        answer = f": {task.separator.join(target)}" if task.input == "patches" else ""
        return f"Example {example + 1}{answer}"
    return text.separator(task).join(source)


def source_figures(data: RunData, moment: Moment, ink: Ink) -> None:
    """Pictures tinted by the weights of each output, or a series with its forecast."""
    task, head, config = data.task(), moment.head, data.config
    if task.input not in ("patches", "series") or config is None:
        return
    example = 0 if head is None else head.example
    sample = attention_frames.watched_examples(config.task, config.watch)[example]
    outputs: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    if head is not None and moment.weights is not None:
        rows, _ = attention_frames.tokens(data, example, head.kind)
        outputs, weights = source_weights(
            config.model, head.kind, moment.weights, rows, len(sample.source)
        ) or ((), None)
    if task.input == "patches" and weights is not None:
        chart_title(f"What it attends to, step {moment.step:,}")
        st.html(grids.tiles(sample.source, task.shape.grid, outputs, weights, theme(), ink))
        st.caption(
            f"The largest weight of a patch is {number(weights.max())}; uniform attention gives each patch "
            f"{number(1 / weights.shape[1])}."
        )
    decoded = data.decoded_at(moment.step)
    if task.form == "series" and decoded is not None and len(decoded.examples) > example:
        past, target, output = text.series(decoded.examples[example])
        chart_title(f"Forecast at step {decoded.step:,}")
        chart = grids.forecast_chart(past, target, output, task.naive(past), weights, ink, theme())
        draw_chart(
            st, chart, key="train:forecast", alt="The past values, the target and the forecast."
        )
        st.caption(
            "Gray: past values; the size of a dot is its attention weight. Black or white: the target. Blue: "
            "the forecast. Dashed: the last season repeated."
        )
