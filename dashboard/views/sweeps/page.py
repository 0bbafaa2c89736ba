"""The page Sweeps: the controls on the left; curves, every seed, the fact and the tables on the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from core.training.comparisons import compare
from core.training.seed_stats import Line
from core.training.sweep_files import Sweep
from core.training.sweeps import vary
from dashboard.navigation import PAGES
from dashboard.runtime import jobs
from dashboard.runtime.link_values import link_value, one_of
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.views.sweeps import charts, differences, text
from dashboard.views.sweeps.claim import draw_claim
from dashboard.views.sweeps.compute import SweepData, load_sweep
from dashboard.views.sweeps.controls import controls, linked_sweep
from dashboard.views.sweeps.run_bar import picker, progress, run_bar
from dashboard.views.sweeps.script import script
from dashboard.views.sweeps.units import SHARES, plain_number, scaled
from dashboard.widgets.panels import caption, details, fact, next_page, placeholder, plain, source_panel, theme, title
from dashboard.widgets.params import BOUND, KEEP
from dashboard.widgets.presentation import draw_chart, room
from dashboard.widgets.table import table

# Links once held a measure's label; by its first word:
OLD_LABELS = {"Whole": "exact", "Single": "letters", "BLEU": "bleu", "chrF": "chrf", "Held-out": "loss",
              "Error,": "error", "Weight": "expected"}
OVER = {"steps": "Steps", "trained": "Seconds"}
TOP = {"exact": 100.0, "letters": 100.0, "bleu": 100.0, "chrf": 100.0, "expected": 1.0}


def page() -> None:
    title("Sweeps", "You will see which values of one setting differ by more than the random seeds do.")
    sweep, trouble = linked_sweep()
    if trouble:
        st.warning(trouble)
    data = load_sweep(sweep)
    left, right = st.columns([0.3, 0.7], gap="medium")
    with right:  # first, as the values on offer are models that are built
        _poll(sweep, _draw, _is_live(data), "sweeps:figures")
    with left:
        first = st.container()  # on a phone Stop comes before everything else
        picker()
        config = controls(data if isinstance(data, SweepData) else None)
        with first:
            run_bar(sweep, data, config)
            _poll(sweep, progress, _is_live(data), "sweeps:progress")
    with right:
        if isinstance(data, SweepData):
            details("All runs and their numbers", partial(_runs, data), "sweeps:runs")
            details("Make a claim of this sweep", partial(draw_claim, data), "sweeps:claim")
    details("How a setting is varied and how differences are tested", _source, "sweeps:source")
    next_page("sweeps")
    jobs.warm_up()  # when all is drawn, which a worker's imports would hold up


def _is_live(data: SweepData | str) -> bool:
    return isinstance(data, SweepData) and data.live


def _poll(sweep: Sweep, render: Callable[[SweepData], None], live: bool, key: str) -> None:
    def render_or_fail(data: SweepData | str) -> None:
        if isinstance(data, str):
            st.error(plain(data))
        else:
            render(data)

    poll(lambda: load_sweep(sweep), render_or_fail, live, key, interval=SLOW_POLL_INTERVAL, still_live=_is_live)


def _source() -> None:
    """Draw how a setting is varied, and the test of differences."""
    st.latex(r"\bar x \pm t_{.975,\,n-1} \frac{s}{\sqrt n} \qquad d_i = x_i^{(a)} - x_i^{(b)} \qquad "
             r"t = \frac{\bar d}{s_d / \sqrt n}")
    st.markdown("Every value is trained from the same seeds. The difference of two values is computed for each "
                "seed and tested by a paired t test (Student 1908) over all $n$ seeds; losses and errors by the "
                "differences of their logarithms, shares on a scale that ends at ±1. The p-values and the intervals "
                "of all pairs are corrected together (Bonferroni; Dunn 1961): if all values are equal, the chance of "
                "claiming any difference is at most 5 %, and an interval leaves out no difference exactly where p is "
                "below 5 %. If the differences of all seeds are equal, their standard deviation is taken as one "
                "held-out item.")
    source_panel(vary)
    source_panel(compare)


def _draw(data: SweepData) -> None:
    """Draw everything that has been measured so far."""
    measures = data.measures()
    if not measures:
        placeholder("The first numbers appear when a run has started." if data.live else
                    "No run of this sweep has measured anything. Press Continue to start them again.")
        return
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    with row:
        link_value("sweeps:measure", measures[0],
                   lambda text: one_of(measures)(OLD_LABELS.get(text.partition(" ")[0], text)))
        measure = st.selectbox("Measure", measures, key="sweeps:measure", width=room(240), **KEEP,
                               help="The number that the figures and the tests compare.",
                               format_func=lambda name: text.figure_title(name, data))
        over = st.segmented_control("Over", list(OVER), default="steps", required=True, key="sweeps:over",
                                    format_func=OVER.__getitem__, **BOUND,
                                    help="The horizontal axis: training steps or seconds of training.")
    add_script(partial(script, data, measure, over))
    _figures(data, measure, over)
    fact(text.fact(data, measure))
    head, rows = text.table(data)
    table(head, rows, caption=f"{data.setting}: mean over seeds ± half of its 95 % confidence interval")
    caption(text.caption(data, over))
    for sentence in text.failures(data):
        st.warning(plain(sentence))
    details("Differences of all pairs", partial(_differences, data, measure), "sweeps:pairs")


def _differences(data: SweepData, measure: str) -> None:
    """Draw every pair of values with its test."""
    head, rows = differences.pairs(data, measure)
    if not rows:
        st.caption("The tests need two finished seeds of two values, after all runs have ended.")
        return
    table(head, rows, caption=f"{text.figure_title(measure, data)}: differences of every pair of values",
          markers=False)
    st.caption("Two-sided t tests at 5 %, paired by seed (Welch's test if two values share no seed). p and the "
               f"intervals are corrected for these {len(rows)} pairs (Bonferroni), so that they never contradict each "
               "other. A difference that is not significant may still exist; more seeds give narrower intervals.")


def _figures(data: SweepData, measure: str, over: str) -> None:
    """The means over training and every seed at its end, on one scale of the measure."""
    def in_percent(line: Line) -> Line:
        return Line(line.x, *(tuple(scaled(v, measure) for v in part) for part in (line.mean, line.low, line.high)))

    values = range(len(data.names))
    means = {value: in_percent(line) for value in values if (line := data.line(value, measure, over)) is not None}
    ends = {value: stats.in_percent() if measure in SHARES else stats for value in values
            if (stats := data.stats(value, measure)) is not None}
    if not means:
        return
    extremes = [v for line in means.values() for v in (*line.low, *line.high)]
    if measure not in TOP:
        extremes += [stats.interval[1] for stats in ends.values() if stats.interval]
    scale, name = charts.Scale.around(extremes, TOP.get(measure)), text.figure_title(measure, data)
    write = partial(plain_number, measure=measure, percent=True)
    x_title = "step" if over == "steps" else "seconds of training"
    spec = charts.lines(name, x_title, _last_x(data, over, means), data.names, means, scale, theme(), write)
    draw_chart(st, spec, key="sweeps:lines", alt=f"{name} over training, a line each: {', '.join(data.names)}.")
    if ends:
        title = f"Final value of every seed: {name if name[:2].isupper() else name[0].lower() + name[1:]}"
        draw_chart(st, charts.seeds(title, data.names, ends, scale, theme(), write), key="sweeps:seeds",
                   alt=f"Final {name} of every seed, by {data.setting}.")


def _last_x(data: SweepData, over: str, means: dict[int, Line]) -> float:
    if over == data.config.equal == "steps":
        return data.config.base.steps
    if over == "trained" and data.config.equal == "seconds":
        return data.config.seconds
    return max(line.x[-1] for line in means.values()) or 1.0


def _runs(data: SweepData) -> None:
    """Draw every run with its numbers and a link to it; and all numbers as CSV."""
    folders = data.sweep.runs()
    st.download_button("Download as CSV", lambda: text.numbers_csv(data), "sweep.csv", "text/csv",
                       icon=":material/download:", on_click="ignore")
    for cell, outcome in sorted(data.outcomes.items()):
        line = text.run_line(data, cell, outcome)
        if cell in folders:
            st.page_link(PAGES / "train.py", label=plain(line), query_params={"run": folders[cell].id})
        else:
            st.markdown(f":small[{plain(line)}]")
