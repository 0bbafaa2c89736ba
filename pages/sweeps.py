"""Sweeps: vary one setting, train each value from several seeds, and test the differences."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import streamlit as st

import dashboard.page as lab
from core.attention import AXES, ConfigError
from core.attention.text import choice_text
from core.entries import refuse_if
from core.files import SWEEPS
from core.memory import TooMuch
from core.runs.runs import list_runs
from core.runs.store import bring_all
from core.runs.sweeps import CLAIMED, Sweep, SweepClaim, delete_sweep, find_sweep, list_sweeps
from core.serialization import OLD_NAMES as OLD_FIELDS
from core.studies import runs as study
from core.tasks import TASKS, TaskConfig, task_of
from core.training import (
    BOUNDS,
    RunConfig,
    SweepConfig,
    duration,
    name_of,
    recommended,
    sweep_seconds,
    sweeps as settings,
)
from core.training.seed_stats import compare
from core.training.sweeps import EQUAL, SEEDS, value_text, vary
from dashboard.draw import sweeps as draw

# The controls: base, varied setting, values, seeds and length, of which core's SweepConfig is made.


SAME_SWEEP = "same"
# The names of settings in older links; those of measures, once by the first word of their label, and of axes.
OLD_NAMES = {
    "Place of the norm": "norm",
    "Kind of model": "kind",
    "Normalization": "normalization",
    "Feeding": "feeding",
    "Schedule": "schedule",
    "Warm-up": "warmup",
    "Batch": "batch_size",
    "Gradient clipping": "clip",
    "Words to say": "task.said",
}
OLD_LABELS = OLD_FIELDS["record"] | {
    "Whole": "sequence_accuracy",
    "Single": "token_accuracy",
    "BLEU": "bleu",
    "chrF": "chrf",
    "Held-out": "loss",
    "Error,": "error",
    "Weight": "expected",
    "Steps": "steps",
    "Seconds": "train_seconds",
}
FIRST_SEEDS, FIRST_SECONDS = 5, 5.0  # as many seeds as the example has


class Controls(lab.Fields, page="sweeps"):
    last = lab.SessionValue[str | None]("")  # the id of the sweep on the page, None for the example
    settings_of = lab.SessionValue[str | None](None)  # whose settings the controls took last
    shown = lab.Select[str](
        "Sweep",
        lambda c: ["", *(sweep.id for sweep in c.sweeps)],
        text=lambda sweep_id: sweep_label(sweep_id),
        also={"bind": None, "persist_state": None, "on_change": lambda: show_selected()},
        help="The sweep whose results are shown.",
    )
    start = lab.Select(
        "Base",
        lambda c: c.starts,
        key="from",
        hidden=True,
        help="Where all other settings come from.",
    ).optional(lambda c: len(c.starts) > 1)
    task = lab.Select[str](
        "Task",
        lambda c: {entry.key: entry.name for entry in TASKS},
        hidden=True,
        help="What the models learn.",
    )
    kind = lab.Select[str](
        "Model",
        lambda c: c.kinds,
        text=lambda kind: lab.MODEL_NAMES.get(kind, kind),
        key=lambda c: f"kind:{c.task}",
        hidden=True,
        help="The architecture that is trained.",
    )
    axis = lab.Select[str](
        "Vary",
        lambda c: c.axes,
        old=lambda text, c: {name: axis for axis, name in c.axes.items()}.get(
            text, OLD_NAMES.get(text, text)
        ),
        hidden=True,
        help="The one setting that differs between the runs.",
    )
    values = lab.MultiSelect[str](
        "Values",
        lambda c: list(settings.offered(c.base, c.axis, own_values(c.like, c.axis))),
        lambda c: settings.first_values(c.base, c.axis),
        key=lambda c: f"values:{c.name}:{c.axis}",
        typed=lambda c: bool(c.hint),
        help=lambda c: c.hint or "The values that are trained.",
    )
    axis2 = lab.Select[str](
        "Second setting",
        lambda c: {"": "None", **{axis: name for axis, name in c.axes.items() if axis != c.axis}},
        key=lambda c: f"second:{c.axis}",
        hidden=True,
        help="Another setting that differs: the learning rate, say, as each mechanism has its own best one.",
    )
    second_values = lab.MultiSelect[str](
        "Its values",
        lambda c: list(settings.offered(c.base, c.axis2, own_values(c.like, c.axis2))),
        lambda c: settings.first_values(c.base, c.axis2),
        key=lambda c: f"values:{c.name}:{c.axis}:{c.axis2}",
        typed=lambda c: c.axis2 in AXES or c.axis2 in settings.NUMBERS,
        help="Each value of the first setting is trained with each of these.",
    ).optional(lambda c: bool(c.axis2))
    paired = lab.Toggle(
        "One for each value",
        hidden=True,
        help="The first value takes the first of these, the second the second: a learning rate for each mechanism.",
    ).optional(lambda c: bool(c.axis2))
    early = lab.Toggle(
        "Stop early",
        hidden=True,
        help="A run ends when its task is learned, or after records without a smaller validation loss.",
    )
    seeds = lab.Number(
        "Seeds of each value",
        FIRST_SEEDS,
        *SEEDS,
        slider=True,
        hidden=True,
        help="Each value is trained this many times; more seeds give narrower intervals.",
    )
    equal = lab.Segmented(
        "Equal for all runs",
        EQUAL,
        text=str.capitalize,
        hidden=True,
        help="All runs have the same number of steps or the same seconds of training.",
    )
    seconds = lab.Number(
        "Seconds of training",
        FIRST_SECONDS,
        float(BOUNDS["max_train_seconds"][0]),
        lambda c: float(min(BOUNDS["max_train_seconds"][1], lab.limits.max_run_seconds())),
        1.0,
        hidden=True,
        help="Evaluation is not counted. The learning rate is constant after the warm-up.",
    ).optional(lambda c: c.equal == "seconds")
    steps = lab.Number(
        "Steps",
        lambda c: min(lab.limits.max_run_steps(), c.usual),
        1,
        lambda c: lab.limits.max_run_steps(),
        50,
        key=lambda c: f"steps:{c.name}",
        hidden=True,
        help="Training steps of each run.",
    ).optional(lambda c: c.equal == "steps")
    measure = lab.Select[str](
        "Measure",
        lambda c: {name: draw.figure_title(name, c.data) for name in c.data.measures()},
        old=lambda text, c: OLD_LABELS.get(text.partition(" ")[0], text),
        hidden=True,
        also=lambda c: {"width": lab.room(240)},
        help="The number that the figures and the tests compare.",
    )
    over = lab.Segmented(
        "Over",
        {"steps": "Steps", "train_seconds": "Seconds"},
        old=lambda text, c: OLD_LABELS.get(text, text),
        hidden=True,
        help="The horizontal axis: training steps or seconds of training.",
    )
    first = lab.Select[int](
        "This value is better",
        lambda c: dict(enumerate(c.data.names)),
        key=lambda c: f"claim:first:{len(c.data.names)}",
        hidden=True,
        help="A value of the sweep.",
    )
    second = lab.Select[int](
        "than this one",
        lambda c: dict(enumerate(c.data.names)),
        1,
        key=lambda c: f"claim:second:{len(c.data.names)}",
        hidden=True,
        help="A value of the sweep.",
    )
    better = lab.Select[str](
        "in",
        lambda c: {name: draw.measure_name(name, c.data) for name in c.measures},
        key="claim:measure",
        hidden=True,
        help="The number that is compared at the end of training.",
    )
    bound = lab.Number(
        lambda c: "by more than" + (" (points)" if c.better in draw.SHARES else ""),
        0.0,
        0.0,
        1e9,
        0.01,
        key=lambda c: f"claim:bound:{c.better in draw.SHARES}",
        hidden=True,
        help="Write it before you run the claim: the interval of the difference must lie above it.",
    )


@lab.shown_errors()
def controls(data: study.SweepData | None) -> SweepConfig | None:
    """Draw the controls; the config of the sweep, or None with the reason on the page."""
    main = st.container(gap="small")
    panel = st.popover("All settings", icon=":material/tune:", width="stretch").container(
        width=lab.room(320)  # narrow, beside the figures
    )
    with panel:
        picker()
        base, name = _base(data)
    if base is None:
        return None
    like = data.config if data is not None and name == data.sweep.id else None
    axes = {axis: name_of(axis, base.task) for axis in settings.axes_of(base)}
    axis = Controls.draw("axis", into=main, axes=axes).axis
    with main:
        selected = _values(base, axis, name, like)
    example = study.EXAMPLE_SWEEP.config().base
    same = (base.task, base.model) == (example.task, example.model)
    usual = example.steps if same else base.steps  # of the picture beside it
    given = {"base": base, "axes": axes, "axis": axis, "name": name, "usual": usual, "like": like}
    names = "axis2", "second_values", "paired", "seeds", "equal", "seconds", "steps", "early"
    values = Controls.draw(*names, into=panel, **given)
    others = [
        settings.value_of_text(base, values.axis2, text, own_values(like, values.axis2))
        for text in values.second_values or ()
    ]
    steps = values.steps or usual
    base = replace(base, steps=steps, record_every=max(1, steps // 25))
    seeds, seconds = tuple(range(values.seeds)), values.seconds or SweepConfig.seconds
    config = SweepConfig(
        base,
        axis,
        tuple(selected),
        seeds,
        values.equal,
        seconds,
        values.axis2,
        tuple(others),
        bool(values.paired),
        values.early,
    )
    config.try_models()
    most = lab.visitors.at_most("under_way", len(config.cells))
    refuse_if(
        len(config.cells) > most,
        f"{len(config.cells)} runs are more than the {most} that a person may have here. Choose fewer values or seeds.",
    )
    panel.caption("All other settings are those of the base.")
    return config


def _time_text(config: SweepConfig) -> str:
    """How many runs, and about how long they take here, measured from a few steps of the first."""
    workers = lab.queue.max_workers()
    text = f"{len(config.cells)} runs, {workers} at a time"
    try:
        takes = duration(sweep_seconds(config, workers, timed=1))
        assumed = "" if config.equal == "seconds" else f", if all take as long as {config.names[0]}"
        return f"{text}: about {takes} on this machine{assumed}"
    except TooMuch as error:
        return f"{text}. How long it takes is not measured. {error}"


def _base(data: study.SweepData | None) -> tuple[RunConfig | None, str]:
    starts: dict[str, tuple[str, RunConfig | None, str]] = {"recipe": ("A recipe", None, "")}
    if data is not None and not data.is_example:
        starts[SAME_SWEEP] = "The sweep shown here", data.config.base, data.sweep.id
    starts |= {key: (_label(item), item.config, key) for key, item in own_runs().items()}
    labels = {key: label for key, (label, _, _) in starts.items()}
    _, config, name = starts[Controls.draw("start", into=lab.HERE, starts=labels).start or "recipe"]
    if config is not None:
        return config, name
    key = Controls.draw("task", into=lab.HERE).task
    try:
        task = task_of(TaskConfig.of(key))
        kind = Controls.draw("kind", into=lab.HERE, task=key, kinds=list(task.recommended)).kind
        return recommended(task, kind), f"{key}:{kind}"
    except (ConfigError, ValueError) as error:
        st.error(
            lab.plain(f"{error} Train one run of this task first; then select it as the base.")
        )
        return None, ""


def own_runs() -> dict[str, study.RunSummary]:
    items = (item for item in map(lab.summarize, reversed(list_runs())) if item.config)
    return {item.run.id: item for item in islice((one for one in items if not one.sweep), 20)}


def _label(item: study.RunSummary) -> str:
    day, clock = item.run.id.split("-")[:2]
    return f"{item.name} · {day[6:]}.{day[4:6]}., {clock[:2]}:{clock[2:4]}"


def own_values(like: SweepConfig | None, axis: str) -> tuple[Any, ...]:
    """The values of a setting in the sweep that is the base: a shell may give others than those on offer."""
    if like is None or axis not in like.axes:
        return ()
    return like.values if axis == like.axis else like.second_values


def _values(base: RunConfig, axis: str, name: str, like: SweepConfig | None) -> list[object]:
    hint = ""  # how another value is typed, where one can be
    if axis in AXES:
        now = choice_text(getattr(base.model.attention, axis), axis)
        hint = f"You can type another value, such as {now}."
    elif axis in settings.NUMBERS:
        hint = "You can type another number."
    # The popover's label stays the same: it is part of its identity, and another popover would be closed.
    with st.popover("Values", width="stretch", icon=":material/checklist:"):
        given = {"base": base, "axis": axis, "name": name, "hint": hint, "like": like}
        selected = Controls.draw("values", into=lab.HERE, **given).values
    lab.caption(f"{len(selected)} values: {', '.join(map(lab.plain, selected))}")
    own = own_values(like, axis)
    return [settings.value_of_text(base, axis, name, own) for name in selected]


def linked(sweep_id: object) -> Sweep | None:
    """The sweep of a link, of the person who asks or of one who gave them the link; None where there is none."""
    bring_all([sweep_id], SWEEPS)
    sweep = next(
        (sweep for home in lab.limits.homes_of(sweep_id) if (sweep := find_sweep(sweep_id, home))),
        None,
    )
    if sweep is not None:
        bring_all(sweep.pending())
    return sweep


def linked_sweep() -> Sweep:
    """The sweep of the link, else the session's last or a running one; warns of a link to none."""
    sweep_id, last = st.query_params.get("sweep"), Controls.last.value
    if sweep_id is None and lab.by_history():
        last = None  # the reader went back to the example
    if sweep_id is not None:
        sweep = linked(sweep_id)
    elif last != "":
        sweep = linked(last)
    else:  # a new session shows the newest live sweep
        sweep = next((one for one in list_sweeps()[::-1] if _is_live(study.load_sweep(one))), None)
    if sweep is not None:
        st.query_params["sweep"] = last = sweep.id
    elif sweep_id is not None:
        last = None
        st.warning(
            "The sweep in the link is not on this machine or was deleted. Below is the example."
        )
    Controls.last.value = last
    return sweep or study.EXAMPLE_SWEEP


def select_sweep(sweep: Sweep) -> None:
    """Make this the page's sweep, in the link too; of the example that no running sweep replaces it."""
    Controls.last.value = None if sweep == study.EXAMPLE_SWEEP else sweep.id
    lab.write_link("sweep", Controls.last.value)


def show_started(sweep: Sweep) -> None:
    select_sweep(sweep)
    Controls.settings_of.value = sweep.id


def adopt(data: study.SweepData) -> None:
    """Set the controls to the settings of a sweep that a link or the list has brought."""
    config, base = data.config, data.config.base
    values, others = (
        [value_text(axis, value) for value in own_values(config, axis)]
        for axis in (config.axis, config.second)
    )
    Controls.set(start=SAME_SWEEP, axis=config.axis, values=values, seeds=len(config.seeds),
                 equal=config.equal, seconds=config.seconds, steps=base.steps, axis2=config.second,
                 second_values=others, paired=config.paired, early=config.early,
                 base=base, name=data.sweep.id, like=config)  # fmt: skip


def show_selected() -> None:
    sweep_id = Controls.read("shown", sweeps=list_sweeps()).shown
    select_sweep(find_sweep(sweep_id) or study.EXAMPLE_SWEEP)


# The page: the controls on the left; curves, every seed, the fact and the tables on the right.


PAGE = "sweeps"


def page() -> None:
    lab.title(
        "Sweeps",
        "Which values of a setting differ by more than chance? A row is a value, a mark one trained model, the bar "
        "where their mean may lie.",
    )
    sweep = linked_sweep()
    data, own = study.load_sweep(sweep), lab.limits.mine(sweep)
    readable = data if isinstance(data, study.SweepData) else None
    if readable and not readable.is_example and Controls.settings_of.value != sweep.id:
        # a sweep that a link or the list has just brought, once; not the one that the controls started
        Controls.settings_of.value = sweep.id
        if not lab.is_new(Controls.axis.key_of(Controls())):  # else the link has a set-up
            adopt(readable)
    right, left = st.columns([0.7, 0.3], gap="medium")  # a phone shows the result first
    with right:  # first in this run, too, as the values on offer are models that are built
        note = st.container(gap="small")
        with lab.figures_place(PAGE):
            _poll(sweep, data, _draw, "sweeps:figures")
    with left:
        first = st.container()
        config = controls(readable)
        takes = st.empty()
        if readable is not None:
            runs, configs = sweep.runs().values(), [readable.config, config]
            start = "Stop**, then **Start sweep" if readable.live and own else "Start sweep"
            lab.note_other_settings(PAGE, note, "sweeps:now", runs, configs, start)
        with first:
            lab.start_run(
                PAGE,
                config,
                lab.queue.start_sweep,
                show_started,
                ConfigError,
                run_of=lambda sweep: next(iter(sweep.runs().values())),
            )
            if readable and readable.live and own:
                lab.stop_button(st, PAGE, lab.queue.stop_sweep, sweep)
            else:
                lab.start_button(
                    st,
                    "Start sweep",
                    key="sweeps:start",
                    disabled=config is None,
                    on_click=lab.press,
                    args=(PAGE,),
                )
                if (
                    readable
                    and not readable.is_example
                    and own
                    and (missing := len(sweep.missing()))
                ):
                    lab.continue_button(
                        st,
                        PAGE,
                        lab.flash_errors,
                        PAGE,
                        "The sweep could not continue: ",
                        partial(lab.queue.resume_sweep, sweep),
                        lab.limits.QueueFull,
                        OSError,
                        label=f"Continue ({missing} runs left)",
                        primary=False,
                    )
            lab.limits_line()
            lab.show_flash(PAGE)
            _poll(sweep, data, draw_progress, "sweeps:progress")
    with right:
        if readable is not None:
            lab.details("All runs and their numbers", partial(_runs, readable), "sweeps:runs")
            lab.details("Make a claim of this sweep", partial(draw_claim, readable), "sweeps:claim")
    lab.details(
        "How a setting is varied and how differences are tested",
        partial(lab.sources, draw.HOW, vary, compare),
        "sweeps:source",
    )
    if config is not None:  # last, because it times a few steps
        with takes, st.spinner("Timing a few steps"):
            text = _time_text(config)
        takes.caption(lab.plain(text))
    # when all is drawn, which a worker's imports would hold up
    lab.SessionValue[Any](None, lab.queue.SPARE).value = lab.queue.warm_up()


def _is_live(data: study.SweepData | str) -> bool:
    return isinstance(data, study.SweepData) and data.live


def _poll(
    sweep: Sweep, data: study.SweepData | str, render: Callable[[study.SweepData], None], key: str
) -> None:
    lab.poll(
        lambda: lab.computed(study.load_sweep, sweep),
        lambda now: st.error(lab.plain(now)) if isinstance(now, str) else render(now),
        _is_live(data),
        key,
        interval=lab.SLOW_POLL_INTERVAL,
        still_live=_is_live,
    )


def _draw(data: study.SweepData) -> None:
    measures = data.measures()
    if not measures:
        lab.placeholder(
            "The first numbers appear when a run has started."
            if data.live
            else "No run of this sweep has measured anything. Press Continue to start them again."
        )
        return
    measure = Controls.draw("measure", into=lab.HERE, data=data).measure
    final = st.container()
    lab.fact(draw.fact_text(data, measure))
    over = Controls.draw("over", into=lab.HERE, data=data).over
    numbers = lab.computed(study.sweep_numbers, data, measure, over)
    lab.as_python(numbers=numbers, draw=draw.DRAW)
    places = {"sweeps:lines": st, "sweeps:seeds": final}
    for key, (spec, alt) in draw.charts(data, measure, over, lab.theme()).items():
        lab.draw_chart(places[key], spec, key=key, alt=alt)
    lab.table(
        *draw.table_text(data, measure),
        caption=f"{data.setting}: {draw.table_of(data, measure)} over seeds [its 95 % confidence interval]",
    )
    lab.caption(draw.caption_text(data, measure, over))
    for sentence in draw.failures(data):
        st.warning(lab.plain(sentence))
    lab.details("Differences of all pairs", partial(_differences, data, measure), "sweeps:pairs")


def _differences(data: study.SweepData, measure: str) -> None:
    head, rows = draw.pairs(data, measure)
    if not rows:
        st.caption("The tests need two finished seeds of two values, after all runs have ended.")
        return
    lab.table(
        head,
        rows,
        caption=f"{draw.figure_title(measure, data)}: differences of every pair of values",
        markers=False,
    )
    st.caption(
        "Two-sided t tests at 5 %, paired by seed (Welch's test if two values share no seed). p and the "
        f"intervals are corrected for these {len(rows)} pairs (Bonferroni), so that they never contradict each "
        "other. A difference that is not significant may still exist; more seeds give narrower intervals."
    )


def _runs(data: study.SweepData) -> None:
    folders, train = data.sweep.runs(), lab.step_of("train").page()
    st.download_button(
        "Download as CSV",
        lambda: draw.numbers_csv(data),
        "sweep.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )
    for cell, outcome in sorted(data.outcomes.items()):
        line = lab.plain(draw.run_line(data, cell, outcome))
        if cell in folders:
            st.page_link(train, label=line, query_params={"run": folders[cell].id})
        else:
            st.markdown(f":small[{line}]")


def draw_progress(data: study.SweepData) -> None:
    if data.live:
        st.progress(*draw.progress(data, lab.queue.max_workers()))
        return
    count = len(data.config.cells)
    st.caption(
        "An example sweep. Press Start sweep for your own."
        if data.is_example
        else f"All {count} runs have finished."
        if data.finished == count
        else f"{data.finished} of {count} runs have finished. Their results are saved."
    )


def picker() -> None:
    sweeps = list(reversed(list_sweeps()))
    if not sweeps:
        return
    current = find_sweep(st.query_params.get("sweep"))
    Controls.set(shown=current.id if current is not None and current in sweeps else "")
    Controls.draw("shown", into=lab.HERE, sweeps=sweeps)
    if current is not None:
        st.button(
            "Delete this sweep",
            icon=":material/delete:",
            key="sweeps:delete",
            on_click=_delete,
            args=(current,),
            help="Its numbers are deleted, too. Its runs stay on the page Runs.",
        )


def sweep_label(sweep_id: str) -> str:
    data = study.load_sweep(find_sweep(sweep_id) or study.EXAMPLE_SWEEP)
    if isinstance(data, str):
        return sweep_id
    name = f"{data.setting} × {len(data.config.seeds)} seeds, {data.task().name.lower()}"
    return f"{name} · {sweep_id[9:11]}:{sweep_id[11:13]}" if sweep_id else f"Example: {name}"


def _delete(sweep: Sweep) -> None:
    if not lab.limits.mine(sweep):
        return
    with suppress(ConfigError):  # a damaged file names no runs that could be stopped
        lab.queue.stop_sweep(sweep)
    delete_sweep(sweep)
    select_sweep(study.EXAMPLE_SWEEP)


# Make a claim of a sweep: which value is better than which, by how much, as a file that works as a plug-in.


def draw_claim(data: study.SweepData) -> None:
    lab.paragraph(
        "A claim is a rule that is written before a run. This one compares two values of the sweep from seeds "
        "that it did not have. Put the file into the folder of `ATTENTION_LAB_PLUGINS`; the page Claims then "
        "has it, with its run and its verdict."
    )
    measures = [name for name in data.measures() if name in CLAIMED]
    if not measures:
        lab.caption("This sweep has no measure that two models could be compared by.")
        return
    values = Controls.draw("first", "second", "better", "bound", data=data, measures=measures)
    bound = values.bound / 100 if values.better in draw.SHARES else values.bound
    try:
        claim = SweepClaim(data.config, values.first, values.second, values.better, bound)
    except ConfigError as error:
        lab.field_error(error)
        return
    lab.caption(f"“{lab.plain(claim.statement)}”")
    st.download_button(
        "Download the claim",
        claim.file,
        f"{claim.key}.py",
        "text/x-python",
        icon=":material/download:",
        on_click="ignore",
        key="sweeps:claim:file",
    )
