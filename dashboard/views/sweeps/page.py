"""The page Sweeps: the controls on the left; curves, every seed, the fact and the tables on the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.attention import ConfigError
from core.claims.sweep_claim import MEASURES, SweepClaim
from core.runs.runs import Run
from core.runs.sweeps import Sweep, create_sweep, delete_sweep, find_sweep, list_sweeps
from core.training.seed_stats import Line, SeedStats, compare
from core.training.sweeps import Cell, SweepConfig, vary
from dashboard.draw.curves import SeedRow, seed_marks
from dashboard.draw.formats import number
from dashboard.draw.palette import CATEGORIES, Ink, Theme
from dashboard.draw.vega import Spec, layer, right_margin, separate, titled_figure
from dashboard.navigation import PAGES
from dashboard.runtime import jobs
from dashboard.runtime.link_values import link_value, one_of
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.server import people
from dashboard.server.limits import check_owner
from dashboard.ui.presentation import draw_chart, room
from dashboard.ui.progress import flash_errors
from dashboard.ui.tables import table
from dashboard.views.sweeps import differences, text
from dashboard.views.sweeps.compute import EXAMPLE_SWEEP, SweepData, load_sweep
from dashboard.views.sweeps.controls import controls, linked_sweep, select_sweep
from dashboard.views.sweeps.script import script
from dashboard.views.sweeps.units import SHARES, plain_number, scaled
from dashboard.widgets.panels import (
    caption,
    details,
    fact,
    field_error,
    next_page,
    paragraph,
    placeholder,
    plain,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.params import BOUND, KEEP
from dashboard.widgets.run_controls import (
    continue_button,
    limits_line,
    press,
    pressed,
    show_flash,
    start_button,
    start_run,
    stop_button,
)

PAGE = "sweeps"

HEIGHT = 240  # pixels of the lines' plot
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)
AIR = 0.04
NAME_STYLE: Spec = {
    "align": "left",
    "dx": 8,
    "fontSize": 12,
    "fontWeight": 600,
    "baseline": "middle",
}

# Links once held a measure's label; by its first word:
OLD_LABELS = {
    "Whole": "exact",
    "Single": "letters",
    "BLEU": "bleu",
    "chrF": "chrf",
    "Held-out": "loss",
    "Error,": "error",
    "Weight": "expected",
}
OVER = {"steps": "Steps", "trained": "Seconds"}
TOP = {"exact": 100.0, "letters": 100.0, "bleu": 100.0, "chrf": 100.0, "expected": 1.0}


def page() -> None:
    title(
        "Sweeps",
        "You will see which values of one setting differ by more than the random seeds do.",
    )
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

    poll(
        lambda: load_sweep(sweep),
        render_or_fail,
        live,
        key,
        interval=SLOW_POLL_INTERVAL,
        still_live=_is_live,
    )


def _source() -> None:
    """Draw how a setting is varied, and the test of differences."""
    st.latex(
        r"\bar x \pm t_{.975,\,n-1} \frac{s}{\sqrt n} \qquad d_i = x_i^{(a)} - x_i^{(b)} \qquad "
        r"t = \frac{\bar d}{s_d / \sqrt n}"
    )
    st.markdown(
        "Every value is trained from the same seeds. The difference of two values is computed for each "
        "seed and tested by a paired t test (Student 1908) over all $n$ seeds; losses and errors by the "
        "differences of their logarithms, shares on a scale that ends at ±1. The p-values and the intervals "
        "of all pairs are corrected together (Bonferroni; Dunn 1961): if all values are equal, the chance of "
        "claiming any difference is at most 5 %, and an interval leaves out no difference exactly where p is "
        "below 5 %. If the differences of all seeds are equal, their standard deviation is taken as one "
        "held-out item."
    )
    source_panel(vary)
    source_panel(compare)


def _draw(data: SweepData) -> None:
    """Draw everything that has been measured so far."""
    measures = data.measures()
    if not measures:
        placeholder(
            "The first numbers appear when a run has started."
            if data.live
            else "No run of this sweep has measured anything. Press Continue to start them again."
        )
        return
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    with row:
        link_value(
            "sweeps:measure",
            measures[0],
            lambda text: one_of(measures)(OLD_LABELS.get(text.partition(" ")[0], text)),
        )
        measure = st.selectbox(
            "Measure",
            measures,
            key="sweeps:measure",
            width=room(240),
            **KEEP,
            help="The number that the figures and the tests compare.",
            format_func=lambda name: text.figure_title(name, data),
        )
        over = st.segmented_control(
            "Over",
            list(OVER),
            default="steps",
            required=True,
            key="sweeps:over",
            format_func=OVER.__getitem__,
            **BOUND,
            help="The horizontal axis: training steps or seconds of training.",
        )
    add_script(partial(script, data, measure, over))
    _figures(data, measure, over)
    fact(text.fact(data, measure))
    head, rows = text.table(data)
    table(
        head,
        rows,
        caption=f"{data.setting}: mean over seeds ± half of its 95 % confidence interval",
    )
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
    table(
        head,
        rows,
        caption=f"{text.figure_title(measure, data)}: differences of every pair of values",
        markers=False,
    )
    st.caption(
        "Two-sided t tests at 5 %, paired by seed (Welch's test if two values share no seed). p and the "
        f"intervals are corrected for these {len(rows)} pairs (Bonferroni), so that they never contradict each "
        "other. A difference that is not significant may still exist; more seeds give narrower intervals."
    )


def _figures(data: SweepData, measure: str, over: str) -> None:
    """The means over training and every seed at its end, on one scale of the measure."""

    def in_percent(line: Line) -> Line:
        return Line(
            line.x,
            *(tuple(scaled(v, measure) for v in part) for part in (line.mean, line.low, line.high)),
        )

    values = range(len(data.names))
    means = {
        value: in_percent(line)
        for value in values
        if (line := data.line(value, measure, over)) is not None
    }
    ends = {
        value: stats.in_percent() if measure in SHARES else stats
        for value in values
        if (stats := data.stats(value, measure)) is not None
    }
    if not means:
        return
    extremes = [v for line in means.values() for v in (*line.low, *line.high)]
    if measure not in TOP:
        extremes += [stats.interval[1] for stats in ends.values() if stats.interval]
    scale, name = Scale.around(extremes, TOP.get(measure)), text.figure_title(measure, data)
    write = partial(plain_number, measure=measure, percent=True)
    x_title = "step" if over == "steps" else "seconds of training"
    spec = lines(
        name, x_title, _last_x(data, over, means), data.names, means, scale, theme(), write
    )
    draw_chart(
        st,
        spec,
        key="sweeps:lines",
        alt=f"{name} over training, a line each: {', '.join(data.names)}.",
    )
    if ends:
        title = f"Final value of every seed: {name if name[:2].isupper() else name[0].lower() + name[1:]}"
        draw_chart(
            st,
            seeds(title, data.names, ends, scale, theme(), write),
            key="sweeps:seeds",
            alt=f"Final {name} of every seed, by {data.setting}.",
        )


def _last_x(data: SweepData, over: str, means: dict[int, Line]) -> float:
    if over == data.config.equal == "steps":
        return data.config.base.steps
    if over == "trained" and data.config.equal == "seconds":
        return data.config.seconds
    return max(line.x[-1] for line in means.values()) or 1.0


def _runs(data: SweepData) -> None:
    """Draw every run with its numbers and a link to it; and all numbers as CSV."""
    folders = data.sweep.runs()
    st.download_button(
        "Download as CSV",
        lambda: text.numbers_csv(data),
        "sweep.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )
    for cell, outcome in sorted(data.outcomes.items()):
        line = text.run_line(data, cell, outcome)
        if cell in folders:
            st.page_link(
                PAGES / "train.py", label=plain(line), query_params={"run": folders[cell].id}
            )
        else:
            st.markdown(f":small[{plain(line)}]")


# The figures of a sweep as Vega-Lite: means with their bands over training, and every seed at the end.


@dataclass(frozen=True)
class Scale:
    """The measure's axis in both figures: its ends, and `end`, the largest value, a little below `high`."""

    low: float
    end: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], whole: float | None) -> Scale:
        """From zero or the smallest value to the largest; to `whole` for a measure with a maximum."""
        low, high = (
            min([0.0, *values]),
            max([*values, 1e-9]) if whole is None else max([whole, *values]),
        )
        return cls(low, high, high + AIR * (high - low))

    def axis(self, field: str) -> Spec:
        return {
            "field": field,
            "type": "quantitative",
            "title": None,
            "axis": {"tickCount": 5, "grid": True},
            "scale": {"domain": [self.low, self.high], "nice": False},
        }


def _colour(index: int, theme: Theme) -> str:
    return CATEGORIES[theme][index % len(CATEGORIES[theme])]


def lines(
    title: str,
    x_title: str,
    last_x: float,
    names: Sequence[str],
    means: dict[int, Line],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """The mean of each value over training, in a band from its lowest to its highest seed, named at its end."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "axis": {"grid": False, "tickMinStep": 1, "tickCount": 10},
        "scale": {"domain": [0, last_x], "nice": False},
    }
    y, layers = scale.axis("y"), []
    tips = [
        {"field": name, "title": label}
        for name, label in (
            ("name", " "),
            ("x" if x_title == "step" else "at", x_title),
            ("told", "mean"),
            ("told_low", "lowest seed"),
            ("told_high", "highest seed"),
        )
    ]
    for index, line in means.items():
        rows = [
            {
                "x": a,
                "y": b,
                "low": low,
                "high": high,
                "name": names[index],
                "at": number(a),
                "told": write(b),
                "told_low": write(low),
                "told_high": write(high),
            }
            for a, b, low, high in zip(line.x, line.mean, line.low, line.high, strict=True)
        ]
        both, colour = {"x": x, "y": y}, _colour(index, theme)
        layers += [
            layer(
                "area",
                rows,
                {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                opacity=0.09,
                color=colour,
            ),
            layer("line", rows, both, strokeWidth=2, color=colour),
            layer(
                "point",
                rows[-1:],
                both,
                filled=True,
                size=44,
                opacity=1,
                shape=SHAPES[index % len(SHAPES)],
                color=colour,
            ),
            layer("point", rows, {**both, "tooltip": tips}, opacity=0, size=160),
        ]
    # Each value's name stands right of the plot, at the height of its end, moved apart where ends meet.
    shares = separate(
        [(line.mean[-1] - scale.low) / (scale.high - scale.low) for line in means.values()]
    )
    layers += [
        layer(
            "text",
            [{}],
            {},
            **NAME_STYLE,
            x="width",
            text=names[index],
            color=_colour(index, theme),
            y={"expr": f"height * {1 - share:.4f}"},
        )
        for index, share in zip(means, shares, strict=True)
    ]
    return titled_figure(title, layers, HEIGHT, Ink.of(theme), **right_margin(4))


def seeds(
    title: str,
    names: Sequence[str],
    stats: dict[int, SeedStats],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """A row a value: every seed a mark, over the 95 % interval of their mean, cut where the axis ends."""
    rows = [
        SeedRow(names[index], each, _colour(index, theme), SHAPES[index % len(SHAPES)])
        for index, each in stats.items()
    ]
    return seed_marks(
        title, rows, scale.axis("x"), Ink.of(theme), ends=(scale.low, scale.end), write=write
    )


# The run bar of Sweeps: start, stop and continue a sweep, its progress, and the list of sweeps.


def run_bar(sweep: Sweep, data: SweepData | str, config: SweepConfig | None) -> None:
    """One primary button (Stop while runs are live, else Start), and Continue where runs of the sweep are missing."""
    if config is not None and pressed(PAGE, config):
        sweeps: list[Sweep] = []
        start_run(
            PAGE,
            config,
            lambda: _start(config, sweeps),
            lambda run: select_sweep(sweeps[0]),
            ConfigError,
        )
        st.rerun()
    readable = data if isinstance(data, SweepData) else None
    own = people.mine(sweep)
    if readable and readable.live and own:
        stop_button(st, PAGE, stop, sweep)
    else:
        start_button(
            st,
            "Start sweep",
            key="sweeps:start",
            disabled=config is None,
            on_click=press,
            args=(PAGE,),
        )
        if readable and not readable.is_example and own and (missing := len(sweep.missing())):
            continue_button(
                st, PAGE, _resume, sweep, label=f"Continue ({missing} runs left)", primary=False
            )
    limits_line()
    show_flash(PAGE)


def _start(config: SweepConfig, sweeps: list[Sweep]) -> Run:
    sweeps.append(start(config))
    return next(iter(sweeps[0].runs().values()))


def progress(data: SweepData) -> None:
    """The progress of the sweep, or how it ended."""
    if data.is_example:
        st.caption("This is an example sweep. Press Start sweep to run your own.")
    elif data.live:
        st.progress(*text.progress(data, jobs.max_workers()))
    else:
        st.caption(text.ending(data))


def picker() -> None:
    """A list of the sweeps, the example first; the selected one can be deleted."""
    sweeps = list(reversed(list_sweeps()))
    if not sweeps:
        return
    current = find_sweep(st.query_params.get("sweep"))
    st.session_state["sweeps:shown"] = (
        current.id if current in sweeps and current is not None else ""
    )
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    row.selectbox(
        "Sweep",
        ["", *(sweep.id for sweep in sweeps)],
        format_func=_label,
        key="sweeps:shown",
        help="The sweep whose results are shown.",
        on_change=lambda: select_sweep(
            find_sweep(st.session_state["sweeps:shown"]) or EXAMPLE_SWEEP
        ),
    )
    if current is not None:
        with row.popover("", icon=":material/delete:", help="Delete this sweep"):
            st.markdown("This deletes the sweep and its numbers. Its runs stay on the page Runs.")
            st.button("Delete", key="sweeps:delete", on_click=_delete, args=(current,))


def _label(sweep_id: str) -> str:
    data = load_sweep(find_sweep(sweep_id) or EXAMPLE_SWEEP)
    if isinstance(data, str):
        return sweep_id
    name = f"{data.setting} × {len(data.config.seeds)} seeds, {data.task().name.lower()}"
    return f"Example: {name}" if not sweep_id else f"{name} · {sweep_id[9:11]}:{sweep_id[11:13]}"


def _delete(sweep: Sweep) -> None:
    if not people.mine(sweep):
        return
    with suppress(ConfigError):  # a damaged file names no runs that could be stopped
        stop(sweep)
    delete_sweep(sweep)
    select_sweep(EXAMPLE_SWEEP)


def _resume(sweep: Sweep) -> None:
    flash_errors(
        PAGE, "The sweep could not continue: ", lambda: resume(sweep), jobs.QueueFull, OSError
    )


# Start, stop and resume a sweep's runs.


def start(config: SweepConfig) -> Sweep:
    """A new sweep with all its runs in the queue. ConfigError and QueueFull leave nothing on the disk."""
    config.try_models()
    sweep = create_sweep(config)
    try:
        _queue(sweep, config, config.cells)
    except jobs.QueueFull:
        delete_sweep(sweep)
        raise
    return sweep


def resume(sweep: Sweep) -> None:
    """Queue all runs that have not finished: a stopped one continues, a failed or lost one starts again.

    Raises QueueFull, NotYours.
    """
    check_owner(sweep)
    outcomes, runs, lost = sweep.outcomes(), sweep.runs(), []
    for cell in sweep.missing():
        if cell in runs and outcomes[cell].state in ("stopped", "paused"):
            jobs.resume(runs[cell])
        else:
            lost.append(cell)
    if lost:
        _queue(sweep, sweep.config(), lost)


def _queue(sweep: Sweep, config: SweepConfig, cells: Sequence[Cell]) -> None:
    runs = jobs.start_all(
        [(config.run(*cell), {"sweep": {"id": sweep.id, "value": cell[0]}}) for cell in cells]
    )
    sweep.add_runs(dict(zip(cells, runs, strict=True)))


def stop(sweep: Sweep) -> None:
    """Stop all runs of a sweep, the waiting ones first, so that none of them takes a free worker. Raises NotYours."""
    check_owner(sweep)
    states = {run: run.status().state for run in sweep.runs().values()}
    for live in (("queued",), ("starting", "running")):
        for run, state in states.items():
            if state in live:
                jobs.stop(run)


# Make a claim of a sweep: which value is better than which, by how much, as a file that works as a plug-in.


def draw_claim(data: SweepData) -> None:
    """Draw the two values, the measure, the bound and the download."""
    paragraph(
        "A claim is a rule that is written before a run. This one compares two values of the sweep from seeds "
        "that it did not have. Put the file into the folder of `ATTENTION_LAB_PLUGINS`; the page Claims then "
        "has it, with its run and its verdict."
    )
    measures, names = [name for name in data.measures() if name in MEASURES], data.names
    if not measures:
        caption("This sweep has no measure that two models could be compared by.")
        return
    with st.grid(4, min_column_width=140):
        first = _value("This value is better", names, 0, "first")
        second = _value("than this one", names, 1, "second")
        measure = st.selectbox(
            "in",
            measures,
            key="sweeps:claim:measure",
            **KEEP,
            format_func=lambda name: text.measure_name(name, data),
            help="The number that is compared at the end of training.",
        )
        percent = measure in SHARES
        bound = st.number_input(
            "by more than" + (" (points)" if percent else ""),
            0.0,
            None,
            0.0,
            key=f"sweeps:claim:bound:{percent}",
            **KEEP,
            help="Write it before you run the claim: the interval of the difference must lie "
            "above it.",
        )
    try:
        claim = SweepClaim(data.config, first, second, measure, bound / 100 if percent else bound)
    except ConfigError as error:
        field_error(error)
        return
    caption(f"“{plain(claim.statement)}”")
    st.download_button(
        "Download the claim",
        claim.file,
        f"{claim.key}.py",
        "text/x-python",
        icon=":material/download:",
        on_click="ignore",
        key="sweeps:claim:file",
    )


def _value(label: str, names: list[str], start: int, key: str) -> int:
    value = st.selectbox(
        label,
        range(len(names)),
        start,
        key=f"sweeps:claim:{key}:{len(names)}",
        format_func=lambda index: names[index],
        help="A value of the sweep.",
        **KEEP,
    )
    return int(value)
