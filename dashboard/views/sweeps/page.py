"""The pictures of a sweep: means along the way, every seed at the end, the fact, the table, each run."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.training.seed_stats import Line
from dashboard.navigation import PAGES
from dashboard.views.sweeps import charts, differences, text
from dashboard.views.sweeps.compute import Shown
from dashboard.views.sweeps.units import plain_number, scaled
from dashboard.widgets.panels import fact, plain, theme
from dashboard.widgets.params import BOUND
from dashboard.widgets.table import table

OVER = {"steps": "Steps", "trained": "Seconds"}
TOP = {"exact": 100.0, "letters": 100.0, "bleu": 100.0, "chrf": 100.0, "expected": 1.0}


def draw(shown: Shown) -> None:
    """Everything that has been measured so far."""
    measures = shown.measures()
    if not measures:
        with st.container(border=True, height=420, vertical_alignment="center", horizontal_alignment="center"):
            st.caption("The first numbers come as soon as a run has begun." if shown.live else
                       "No run of this sweep has measured anything. Continue begins them again.")
        return
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    with row:
        measure = st.selectbox("Measure", measures, key="sweeps:measure", width=240, **BOUND,
                               format_func=lambda name: text.figure_title(name, shown))
        over = st.segmented_control("Over", list(OVER), default="steps", required=True, key="sweeps:over",
                                    format_func=OVER.get, **BOUND)
    _figures(shown, measure, over)
    fact(text.fact(shown, measure))
    head, rows = text.table(shown)
    table(head, rows, caption=f"{shown.setting}: mean ± half of its 95 % interval over seeds")
    st.caption(text.caption(shown, over))
    for sentence in text.failures(shown):
        st.warning(plain(sentence))
    _differences(shown, measure)


def _differences(shown: Shown, measure: str) -> None:
    """On request: every pair of values with its test."""
    panel = st.expander("Differences, pair by pair", on_change="rerun", key="sweeps:pairs")
    if not panel.open:
        return
    with panel:
        head, rows = differences.pairs(shown, measure)
        if not rows:
            st.caption("Tested when all runs have ended and two seeds of two values have finished.")
            return
        table(head, rows, caption=f"{text.figure_title(measure, shown)}: differences of every pair of values",
              markers=False)
        st.caption("Two-sided t tests at 5 %, paired by seed (Welch's where two values share no seed); p is corrected "
                   f"for these {len(rows)} pairs (Holm 1979), each interval is of its pair alone. A difference that is "
                   "not significant is not shown to be zero; more seeds narrow its interval.")


def _figures(shown: Shown, measure: str, over: str) -> None:
    """Both on one scale of the measure, so that an end above is found again below."""
    def percent(each: Line) -> Line:
        return Line(each.x, *(tuple(scaled(v, measure) for v in part) for part in (each.mean, each.low, each.high)))

    places = range(len(shown.names))
    drawn = {place: percent(each) for place in places if (each := shown.line(place, measure, over)) is not None}
    ends = {place: s.times(scaled(1.0, measure)) for place in places
            if (s := shown.spread(place, measure)) is not None}
    if not drawn:
        return
    values = [v for each in drawn.values() for v in (*each.low, *each.high)]
    values += [s.mean + s.half_width for s in ends.values() if s.half_width] if measure not in TOP else []
    scale = charts.Scale.around(values, TOP.get(measure))
    title = text.figure_title(measure, shown)
    written = partial(plain_number, measure=measure, percent=True)
    x_title = "step" if over == "steps" else "seconds of training"
    spec = charts.lines(title, x_title, _last_x(shown, over, drawn), shown.names, drawn, scale, theme(), written)
    st.vega_lite_chart(spec, key="sweeps:lines", alt=f"{title} over training, a line each: {', '.join(shown.names)}.")
    if ends:
        spec = charts.seeds(f"Every seed at its end: {title[0].lower()}{title[1:]}", shown.names, ends, scale, theme(),
                             written)
        st.vega_lite_chart(spec, key="sweeps:seeds", alt=f"{title} of every seed, by {shown.setting}.")


def _last_x(shown: Shown, over: str, drawn: dict[int, Line]) -> float:
    config = shown.config
    if (over == "steps") == (config.equal == "steps"):
        return config.base.steps if over == "steps" else config.seconds
    return max(each.x[-1] for each in drawn.values()) or 1.0


def runs(shown: Shown) -> None:
    """On request: every run with its seed and its numbers, each a link to it; and all numbers to take away."""
    panel = st.expander("Each run, and the numbers", on_change="rerun", key="sweeps:runs")
    if not panel.open:
        return
    folders = shown.sweep.runs()
    with panel:
        st.download_button("All numbers, CSV", lambda: text.numbers_csv(shown), "sweep.csv", "text/csv",
                           icon=":material/download:", on_click="ignore")
        for cell, outcome in sorted(shown.outcomes.items()):
            said = text.run_line(shown, cell, outcome)
            if cell in folders:
                st.page_link(PAGES / "train.py", label=plain(said), query_params={"run": folders[cell].id})
            else:
                st.markdown(f":small[{plain(said)}]")
