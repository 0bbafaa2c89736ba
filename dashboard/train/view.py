"""The pictures of a run: curves, the attention of one held-out example over training time, examples and the fact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import streamlit as st

from core.training.record import Record
from dashboard.attention_view import attention_view
from dashboard.attention_view.palette import Ink
from dashboard.charts import Curve, step_chart
from dashboard.panels import fact, theme
from dashboard.train import words
from dashboard.train.state import Shown, best_head, frames, trace

LONG = 24  # tokens
LONG_TABLE = 300  # pixels


@dataclass(frozen=True)
class Moment:
    """What the page points at: a step of the run, and the (layer, head) whose attention is drawn."""

    step: int
    head: tuple[int, int] | None


def draw(shown: Shown) -> None:
    """Curves above, below them the attention over training time beside the examples and the fact, all at one step."""
    ink = Ink.of(theme())
    with st.container(gap="small"):
        curves = st.columns(2, gap="medium")
        below = st.columns(2, gap="medium")
    with below[0]:
        moment = _attention(shown)
    with curves[0]:
        _loss(shown, moment.step, ink)
    with curves[1]:
        _exact(shown, moment.step, ink)
    with below[1]:
        _examples(shown, moment, ink)


def title(text: str) -> None:
    st.markdown(f":small[**{text}**]")


def _last_x(shown: Shown) -> float:
    return shown.config.steps if shown.live else shown.records[-1].step


def _loss(shown: Shown, step: int, ink: Ink) -> None:
    title("Loss")
    task = shown.task()
    one, _ = words.unit(task.key)
    held_out = Curve("held-out", [(r.step, r.loss) for r in shown.records])
    training = Curve("training", [(r.step, r.train_loss) for r in shown.records])
    guess = (task.baseline_loss, f"guessing a {one}: {task.baseline_loss:.2f}")
    figure = step_chart([held_out, training], ink=ink, last_x=_last_x(shown), step=step, guess=guess)
    at = shown.at(step)
    st.altair_chart(figure, key="train:loss", alt=f"Held-out loss over training; {at.loss:.2f} at step {step}.")


def _exact(shown: Shown, step: int, ink: Ink) -> None:
    one, many = words.unit(shown.config.task.key)
    bleu = any(r.bleu is not None for r in shown.records)
    title("Exact match and BLEU, held-out" if bleu else "Exact match, held-out")
    curves = [
        Curve(f"whole {many}", [(r.step, None if r.exact is None else 100 * r.exact) for r in shown.records]),
        Curve(f"single {one}s", [(r.step, None if r.letters is None else 100 * r.letters) for r in shown.records]),
        Curve("BLEU", [(r.step, r.bleu) for r in shown.records]),
    ]
    figure = step_chart(curves, ink=ink, last_x=_last_x(shown), step=step, high=100, percent=not bleu)
    st.altair_chart(figure, key="train:exact", alt=f"Share of held-out {many} all right over training.")


def _attention(shown: Shown) -> Moment:
    """The map, its filmstrip and its slider; without attention a plain slider through the records."""
    watched = len(next((r.examples for r in shown.records if r.examples), ()))
    example, head = _pickers(shown, watched)
    kept = frames(shown, example) if watched else []
    if not kept:
        return _no_attention(shown)
    layer, h = head
    following = _following(shown)
    key = f"train:map:{shown.run.id}:{example}"
    last = kept[-1]
    wish = None if following else st.session_state.setdefault(f"train:wish:{shown.run.id}", last[0])
    before = next((w for step, w in kept if step == wish), last[1])
    state = attention_view(
        trace(shown, example, before), key=key, layout="frames", layer=layer, head=h, frame=wish,
        frames=[(step, np.ascontiguousarray(w[layer, h])) for step, w in kept], live=shown.live,
        title=f"Held-out example, head {h}" if len(last[1]) == 1 else f"Held-out example, head L{layer}·H{h}",
        reads="output (row) attends to → input (column)", height=300,
    )
    step = last[0] if state.frame is None else state.frame
    if following and step != last[0]:
        st.session_state["train:follow"] = False  # whoever scrubs wants to stay there
    return Moment(step, head)


def _no_attention(shown: Shown) -> Moment:
    steps = [r.step for r in shown.records]
    if shown.config.model.attention is None:
        st.markdown("**No attention**")
        st.caption("This model hands its last encoder state on, and nothing else: there is no map to draw.")
    if len(steps) < 2 or _following(shown):
        return Moment(steps[-1], None)
    return Moment(st.select_slider("Step", steps, steps[-1], key=f"train:step:{shown.run.id}"), None)


def _pickers(shown: Shown, watched: int) -> tuple[int, tuple[int, int]]:
    """Which held-out example and which head; the head that looks best where the output comes from stands first."""
    best = best_head(shown.records[-1])
    model = shown.config.model
    if not watched or model.attention is None:
        return 0, best
    heads = [(layer, h) for layer in range(_layers(shown)) for h in range(model.num_heads)]
    row = st.columns([3, 2] if len(heads) > 1 else [1], gap="small")
    found = next(r.examples for r in shown.records if r.examples)
    separator = shown.task().separator
    example = row[0].selectbox("Held-out example", range(watched), key="train:example", label_visibility="collapsed",
                               format_func=lambda i: separator.join(found[i].source))
    if len(heads) == 1:
        return example, heads[0]
    one_layer = heads[-1][0] == 0
    head = row[1].selectbox("Head", heads, heads.index(best) if best in heads else 0, label_visibility="collapsed",
                            key=f"train:head:{shown.run.id}",
                            format_func=lambda p: f"head {p[1]}" if one_layer else f"head L{p[0]}·H{p[1]}")
    return example, head


def _layers(shown: Shown) -> int:
    return 1 if shown.config.model.kind == "recurrent" else shown.config.model.layers


def _following(shown: Shown) -> bool:
    return shown.live and bool(st.session_state.get("train:follow", True))


def _examples(shown: Shown, moment: Moment, ink: Ink) -> None:
    record, decoded = shown.at(moment.step), shown.decoded_at(moment.step)
    if decoded is not None:
        title(f"Examples at step {decoded.step:,}")
        separator = shown.task().separator
        table = words.examples_table(decoded.examples, separator, ink.pick, ink.hairline)
        # Long sentences scroll, so that the fact below them stays in sight.
        long = max(len(e.source) for e in decoded.examples) > LONG
        with st.container(height=LONG_TABLE if long else "content", border=False):
            st.html(table)
    if record.buckets:
        title("By length of the source")
        st.html(words.buckets_table(record.buckets, ink.hairline))
    head = moment.head or best_head(record)
    fact(words.fact(record, shown.config.task.key, head))
    if shown.live:
        st.session_state.setdefault("train:follow", True)
        st.toggle("Follow the live step", key="train:follow", on_change=_follow_again, args=(shown.run.id,))
    _pace(record)


def _follow_again(run_id: str) -> None:
    """Following anew forgets the step a person had picked."""
    for key in [k for k in st.session_state if str(k).startswith((f"train:map:{run_id}", f"train:wish:{run_id}"))]:
        if str(key).endswith(":view") or "wish" in str(key):
            del st.session_state[key]


def _pace(record: Record) -> None:
    parts = [f"{record.elapsed:.1f} s in"]
    if record.gradient is not None:
        parts.append(f"gradient norm {record.gradient:.2f}")
    if record.tokens_per_second:
        parts.append(f"{record.tokens_per_second:,.0f} tokens/s")
    st.caption(" · ".join(parts))
