"""The page's parts: settings and Run it, how the two runs stand, the curves, the alignment, the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from core.attention.config import entry
from core.models.recurrent import RecurrentSeq2Seq
from core.trace import AttentionMap, AttentionTrace
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink
from dashboard.components.attention_view import attention_view
from dashboard.navigation import PAGES
from dashboard.runtime import jobs
from dashboard.views.why import state, text
from dashboard.views.why.charts import Line, rows
from dashboard.views.why.charts import by_length as length_figure
from dashboard.views.why.charts import over_time as time_figure
from dashboard.views.why.compute import Learned, Sentence, Spread, by_length, over_time
from dashboard.views.why.controls import LONGEST, SCORES, SECONDS, SIZES, Model, Setting
from dashboard.views.why.state import Pair, Shown
from dashboard.widgets.panels import entries_panel, fact, source_panel, theme, title
from dashboard.widgets.params import BOUND
from dashboard.widgets.table import table

BEAT = 0.5  # seconds between two looks at running models
TROUBLE = "why:trouble"


def explore() -> None:
    """Settings, and below them the kept measurement or the two runs, followed while they learn."""
    title("Why attention", "A sentence of number words goes through one vector, or is looked back at. "
                           "The longer it is, the more the vector loses.")
    pair, trouble = state.asked_pair()
    live = pair is not None and not all(run.status().ended for run in pair)
    setting, kept = controls(pair if live else None), state.kept().setting
    for said in filter(None, (trouble, st.session_state.pop(TROUBLE, ""))):
        st.warning(said)
    if pair is None and (setting.d_model, setting.longest) != (kept.d_model, kept.longest):
        st.caption(f"Below is what was measured with {kept.d_model} numbers and up to {kept.longest} words; Run it "
                   "trains with the settings above.")
    if st.session_state.setdefault("why:seen", False):
        jobs.warm_up()  # not on the first run, which has enough to load
    st.session_state["why:seen"] = True
    st.fragment(_look, run_every=BEAT if live else None, key="why:look")(pair, live)


def controls(running: Pair | None) -> Setting:
    """One row: what the next two models are given, and the button."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid:
        setting = Setting(
            d_model=st.selectbox("Size of the vector", SIZES, SIZES.index(Setting.d_model), key="why:d_model", **BOUND,
                                 format_func=lambda size: f"{size} numbers"),
            longest=st.selectbox("Longest source", LONGEST, LONGEST.index(Setting.longest), key="why:longest", **BOUND,
                                 format_func=lambda length: f"{length} words"),
            score=st.selectbox("Score", SCORES, key="why:score", **BOUND,
                               format_func=lambda score: entry("score", score).name),
            seconds=st.selectbox("Training each", SECONDS, SECONDS.index(Setting.seconds), key="why:seconds", **BOUND,
                                 format_func=lambda seconds: f"{seconds:g} s"),
            seed=st.number_input("Seed", 0, 2**31 - 1, 0, key="why:seed", **BOUND))
        if running:
            st.button("Stop", icon=":material/stop:", type="primary", width="stretch", key="why:stop", on_click=stop,
                      args=(running,))
        else:
            st.button("Run it", icon=":material/play_arrow:", type="primary", width="stretch", key="why:run",
                      on_click=start, args=(setting,),
                      help="Trains two models here, at once: one without attention, one with it.")
    return setting


def start(setting: Setting) -> None:
    """Ask for both runs, and put them into the link."""
    asked = [(setting.config(model), {"name": f"Why attention: {text.name(model)}"}) for model in setting.pair]
    try:
        pair = jobs.start_all(asked)
    except (jobs.QueueFull, OSError) as error:
        st.session_state[TROUBLE] = f"The runs could not be started: {error}"
        return
    st.query_params[state.RUNS] = ".".join(run.id for run in pair)


def stop(pair: Pair) -> None:
    for run in pair:
        jobs.stop(run)


def _look(pair: Pair | None, live: bool) -> None:
    """One look at what there is; when both runs have ended, the whole page once more."""
    if live:
        jobs.tick()
    shown = state.look(pair)
    if live and not shown.live:
        st.rerun()
    standing(shown)
    pictures(shown)


def standing(shown: Shown) -> None:
    """How the two runs stand, side by side; nothing where it is the kept measurement."""
    if not shown.parts:
        return
    for column, part in zip(st.columns(2, gap="medium"), shown.parts, strict=True):
        with column:
            if part.status.ended:
                tell = st.error if part.status.state == "failed" else st.caption
                tell(f"{text.name(part.learned.model).capitalize()}: {part.status.message}")
            else:
                st.progress(*text.progress(part, shown.setting, jobs.place(part.run)))
            st.page_link(PAGES / "train.py", label="All of this run", icon=":material/play_circle:",
                         query_params={"run": part.run.id})
    if not shown.live and st.button("Back to the kept measurement", key="why:kept"):
        state.leave()
        st.rerun()  # the whole page: this stands in a fragment


def pictures(shown: Shown) -> None:
    """By length above; the alignment beside the fact and the curves over training below."""
    lengths = list(dict.fromkeys(b.lengths for one in shown.learned for b in one.buckets))
    lengths.sort(key=lambda name: int(name.split("–")[0]))
    for column, metric in zip(st.columns(2, gap="medium"), ("bleu", "exact"), strict=True):
        column.vega_lite_chart(
            rows(lines(shown.learned, partial(_lengths, shown.learned, metric))),
            length_figure(f"{text.NAMES[metric]}, by the length of the source", text.NAMES[metric], lengths, theme()),
            theme=None, key=f"why:{metric}", width="stretch",
            alt=f"{text.NAMES[metric]} against words in the source, one line a model")
    left, right = st.columns([0.56, 0.44], gap="medium")
    with left:
        weights, row = alignment(shown)
    with right:
        if said := text.fact(shown):
            fact(said)
        if weights is not None and shown.sentence is not None:
            for latex in text.equations(shown.setting, shown.sentence, weights, row):
                st.latex(latex)
            st.caption("Above: one vector for every output. Below: one for each; a pinned cell picks the output.")
        learning(shown)
    ink = Ink.of(theme())
    if shown.sentence is not None:
        st.html(text.sentence_table(shown.sentence, text.names(shown.learned), ink.pick, ink.hairline))
    table(["BLEU / exact %", *lengths], text.numbers(shown.learned, lengths), caption="Quality by source length")
    st.caption(text.conditions(shown, None if shown.parts else state.kept()))


def lines(learned: Sequence[Learned], points: Callable[[Model], Iterable[tuple[Any, Spread]]]) -> list[Line]:
    """A line a model through its points."""
    return [Line(called, place, list(points(model))) for place, (model, called) in
            enumerate(text.names(learned).items())]


def _lengths(learned: Sequence[Learned], metric: str, model: Model) -> Iterable[tuple[str, Spread]]:
    return by_length(learned, model, metric).items()


def learning(shown: Shown) -> None:
    """BLEU as they learn, over what both are given equally: seconds of training here, steps in what is kept."""
    clock = "seconds" if shown.parts else "step"
    reached = max([getattr(p, clock) for one in shown.learned for p in one.points], default=1.0)
    figure = time_figure("BLEU as they learn", "BLEU", clock, max(reached, shown.setting.seconds if shown.live else 0),
                         theme())
    st.vega_lite_chart(rows(lines(shown.learned, lambda model: over_time(shown.learned, model, "bleu", clock))), figure,
                       theme=None, key="why:learning", width="stretch", alt=f"BLEU against {clock}, one line a model")


def alignment(shown: Shown) -> tuple[np.ndarray | None, int]:
    """The attention of the long sentence over training time; the weights at the picked step, and the picked row."""
    sentence = shown.sentence
    if sentence is None or not sentence.frames:
        with st.container(border=True, height=380, vertical_alignment="center", horizontal_alignment="center"):
            st.caption("The alignment comes with the first measurement, within seconds." if shown.live else
                       "These runs ended before their first measurement.")
        return None, 0
    row = text.default_row(sentence)
    steps = dict(sentence.frames)
    last, weights = sentence.frames[-1]
    most = int(weights[row].argmax())
    seen = attention_view(
        trace(sentence, shown.name), key=f"why:map:{shown.name}", layout="frames", frames=list(sentence.frames),
        query=row, live=shown.live, height=420,
        fact=f"{sentence.target[row]} puts {number(weights[row, most])} of its weight on {sentence.source[most]}",
        title=f"A held-out sentence of {len(sentence.source)} words",
        reads="output (row) attends to → input (column)")
    return steps[seen.frame if seen.frame in steps else last], row if seen.pin is None else seen.pin[0]


def trace(sentence: Sentence, source: str) -> AttentionTrace:
    weights = sentence.frames[-1][1][None]
    return AttentionTrace((AttentionMap("cross", 0, weights, (*sentence.target, "<eos>"), sentence.source),), source)


def sources() -> None:
    """On request: the papers, and the model that just ran."""
    panel = st.expander("Papers, equations and the model that ran", on_change="rerun", key="why:sources")
    if panel.open:
        with panel:
            st.markdown("Without attention: [Sutskever et al. 2014](https://arxiv.org/abs/1409.3215). The bottleneck, "
                        "and looking back: [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473). The readout here: "
                        "[Luong et al. 2015](https://arxiv.org/abs/1508.04025), equation 5.")
            entries_panel([entry("score", score) for score in SCORES])
            source_panel(RecurrentSeq2Seq)
