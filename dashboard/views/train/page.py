"""The pictures of a run: curves, the attention of one held-out example over training time, examples and the fact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from core.trace import Kind
from core.training.machine import line
from dashboard.charts import prediction_tables, source_attention, training_curves
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.components.attention_view import attention_view
from dashboard.components.attention_view.payload import READS
from dashboard.runtime import attention_frames
from dashboard.runtime.run_data import Shown
from dashboard.views.train import text
from dashboard.views.train.examples import examples
from dashboard.widgets.panels import fact, theme


@dataclass(frozen=True)
class Head:
    """Which map is drawn: of which example, kind, layer and head; `of` is (layers, heads) of that kind.

    `looks` says whether a kind is the one by which outputs look at their source, and so the one that is measured.
    """

    example: int
    kind: Kind
    layer: int
    head: int
    of: tuple[int, int]
    looks: bool = True

    @property
    def name(self) -> str:
        return f"head {self.head}" if self.of[0] == 1 else f"head L{self.layer}·H{self.head}"


@dataclass(frozen=True)
class Moment:
    """What the page points at: a step of the run, and the head drawn with its weights (T, S) there."""

    step: int
    head: Head | None
    weights: np.ndarray | None = None


def draw(shown: Shown) -> None:
    """Curves above, below them the attention over training time beside the examples and the fact, all at one step."""
    ink = Ink.of(theme())
    with st.container(gap="small"):
        top = st.columns(2, gap="medium")
        below = st.columns(2, gap="medium")
    with below[0]:
        moment = _attention(shown)
        _looked(shown, moment, ink)
    found = training_curves.findings(shown, moment.step)
    with top[0]:
        training_curves.loss(shown, moment.step, ink, found.get("loss", ()))
    with top[1]:
        training_curves.metric(shown, moment.step, ink)
    with below[1]:
        _told(shown, moment, ink)
    training_curves.beneath(shown, moment.step, ink, found)


def _attention(shown: Shown) -> Moment:
    """The map, its filmstrip and its slider; without attention a plain slider through the records."""
    steps = attention_frames.kept_steps(shown)
    head = _pickers(shown, steps[-1]) if steps else None
    if head is None:
        return _no_attention(shown)
    following, wish_key = _following(shown), f"train:wish:{shown.run.id}"
    wish = None if following else st.session_state.setdefault(wish_key, steps[-1])
    key = f"train:map:{shown.run.id}:{head.example}:{head.kind}"
    picked = st.session_state.get(f"{key}:view", {}).get("frame")
    kept = attention_frames.head_over_time(
        shown.run, steps, head.example, head.kind, head.layer, head.head, picked or wish)
    if not kept:
        return _no_attention(shown)
    state = attention_view(
        attention_frames.trace(shown, head.example, head.kind, head.layer, kept[-1][1], head.of[1]), key=key,
        layout="frames",
        layer=head.layer, head=head.head, frame=wish, frames=kept, live=shown.live,
        title=f"Held-out example, {head.name}", reads=READS[head.kind], height=300,
    )
    step = kept[-1][0] if state.frame is None else state.frame
    if following and step != kept[-1][0]:
        st.session_state["train:follow"] = False  # whoever scrubs wants to stay there
    return Moment(step, head, dict(kept).get(step))


def _no_attention(shown: Shown) -> Moment:
    steps = [r.step for r in shown.records]
    if shown.config is not None and shown.config.model.attention is None:
        st.markdown("**No attention**")
        st.caption("This model hands its last encoder state on, and nothing else: there is no map to draw.")
    if len(steps) < 2 or _following(shown):
        return Moment(steps[-1], None)
    return Moment(st.select_slider("Step", steps, steps[-1], key=f"train:step:{shown.run.id}"), None)


def _pickers(shown: Shown, step: int) -> Head | None:
    """Which held-out example, which kind of attention and which head; the head that looks best stands first."""
    watched = range(attention_frames.watched(shown.run, step))
    example = st.selectbox("Held-out example", watched, key="train:example", label_visibility="collapsed",
                            format_func=lambda i: _label(shown, i)) or 0
    sizes = attention_frames.sizes(shown.run, step, example)
    if not sizes.kinds:
        return None
    row = st.container(horizontal=True, gap="small")
    kind = sizes.kinds[0]
    if len(sizes.kinds) > 1:
        kind = row.selectbox("Attention", sizes.kinds, key=f"train:kind:{shown.run.id}",
                             format_func=attention_frames.NAMES.get,
                             label_visibility="collapsed")
    layers, count = of = sizes.layers[kind]
    heads = [(layer, h) for layer in range(layers) for h in range(count)]
    looks_back = kind == sizes.kinds[0]
    best = attention_frames.best_head(shown.records[-1]) if looks_back else (0, 0)
    layer, h = heads[0]
    if len(heads) > 1:
        layer, h = row.selectbox("Head", heads, heads.index(best) if best in heads else 0,
                                 key=f"train:head:{shown.run.id}:{kind}", label_visibility="collapsed",
                                 format_func=lambda place: Head(example, kind, *place, of).name)
    return Head(example, kind, layer, h, of, looks_back)


def _label(shown: Shown, example: int) -> str:
    assert shown.config is not None
    task = shown.task()
    watched = attention_frames.watched_examples(shown.config.task, shown.config.watch)
    source, target = task.display_tokens(watched[example])
    if task.input in ("patches", "series"):
        said = f": {task.separator.join(target)}" if task.input == "patches" else ""
        return f"Example {example + 1}{said}"
    return (task.separator or ("" if task.input == "tokens" else " · ")).join(source)


def _looked(shown: Shown, moment: Moment, ink: Ink) -> None:
    """Pictures tinted by what each output looked at, or a series with its forecast."""
    task, head, config = shown.task(), moment.head, shown.config
    if task.input not in ("patches", "series") or config is None:
        return
    example = 0 if head is None else head.example
    kept = attention_frames.watched_examples(config.task, config.watch)[example]
    found = None
    if head is not None and moment.weights is not None:
        rows, _ = attention_frames.tokens(shown, example, head.kind)
        found = source_attention.looked(config.model, head.kind, moment.weights, rows, len(kept.source))
    if task.input == "patches" and found is not None:
        outputs, weights = found
        training_curves.title(f"Where it looks, step {moment.step:,}")
        st.html(source_attention.tiles(kept.source, task.shape.grid, outputs, weights, theme(), ink))
        st.caption(f"The fullest patch has {number(weights.max())} of the weight; even attention would give each "
                   f"{number(1 / weights.shape[1])}.")
    decoded = shown.decoded_at(moment.step)
    if task.form == "series" and decoded is not None and len(decoded.examples) > example:
        told = decoded.examples[example]
        past, wanted, said = ([float(x) for x in words] for words in (told.source, told.target, told.predicted))
        training_curves.title(f"Forecast at step {decoded.step:,}")
        drawn = source_attention.forecast_chart(past, wanted, said, task.naive(past),
                                                None if found is None else found[1], ink, theme())
        st.vega_lite_chart(spec=drawn, key="train:forecast", alt="The past, what came, and what the model said.")
        st.caption("Grey: the past, with a dot for the weight it gets. Black or white: what came. Blue: the model. "
                   "Dashed: the last season again.")


def _following(shown: Shown) -> bool:
    return shown.live and bool(st.session_state.get("train:follow", True))


def _told(shown: Shown, moment: Moment, ink: Ink) -> None:
    """The examples, the fact, and how fast it went."""
    record, decoded = shown.at(moment.step), shown.decoded_at(moment.step)
    if decoded is not None:
        examples(shown, decoded, ink)
    if record.confusion and len(record.confusion) == len(shown.task().classes):
        training_curves.title(f"Confusion matrix at step {record.step:,}")
        st.html(prediction_tables.confusion(record.confusion, shown.task().classes, ink))
    if record.buckets:
        training_curves.title("By length of the source")
        st.html(prediction_tables.lengths(record.buckets, ink.hairline))
    head = moment.head
    place = (head.layer, head.head) if head is not None and head.looks else attention_frames.best_head(record)
    fact(text.fact(record, shown.task(), place, shown.baselines(record.held_out)))
    if shown.live:
        st.session_state.setdefault("train:follow", True)
        st.toggle("Follow the live step", key="train:follow", on_change=_follow_again, args=(shown.run.id,))
    st.caption(text.pace(record, line(shown.run.metadata().get("machines"))))


def _follow_again(run_id: str) -> None:
    """Following anew forgets the step a person had picked."""
    for key in [k for k in st.session_state if str(k).startswith((f"train:map:{run_id}", f"train:wish:{run_id}"))]:
        if str(key).endswith(":view") or "wish" in str(key):
            del st.session_state[key]
