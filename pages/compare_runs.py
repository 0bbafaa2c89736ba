"""Compare runs: two to four of them, over steps and over seconds, with their attention at the same step."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.interpret.trace import Head
from core.serialization import OLD_NAMES
from core.studies import runs as study
from dashboard.draw import compare_runs as draw

LABELS = ("First", "Second", "Third", "Fourth")
# Links once held a measure's label, or its old name.
OLD_LABELS = OLD_NAMES["record"] | {
    "Exact": "sequence_accuracy",
    "Error": "error",
    "Tokens": "token_accuracy",
    "BLEU": "bleu",
    "chrF": "chrf",
    "Loss": "loss",
    "Training loss": "train_loss",
    "Expected place": "expected",
}


def write_runs(names: dict[str | None, str]) -> None:
    """Put the selected ones of the runs on offer into the link, and remember them for the next visit."""
    offer = {None: "none", **names}
    selected = [Controls.read("run", index=index, names=offer).run for index in range(len(LABELS))]
    Controls.runs.value = Controls.runs.write(filter(None, selected))


class Controls(lab.Fields, page="compare_runs"):
    same: list[study.ComparedRun]  # the runs whose maps are compared

    runs = lab.RunsField("runs")
    run = lab.Select[str | None](
        lambda c: LABELS[c.index],
        lambda c: c.names,
        key=lambda c: str(c.index),
        also=lambda c: {
            "bind": None,
            "on_change": write_runs,
            "args": (c.names,),
            "disabled": c.disabled,
        },
        help=lambda c: f"The {LABELS[c.index].lower()} of the compared runs.",
    )
    measure = lab.Segmented[str](
        "Measure",
        lambda c: {measure.key: measure.name for measure in c.measures},
        old=lambda text, c: OLD_LABELS.get(text, text),
        hidden=True,
        also={"label_visibility": "collapsed"},
        help="The number that is compared.",
    )
    step = lab.SelectSlider[int](
        "Training step",
        lambda c: study.steps(c.same),
        lambda c: usual_step(c.same),
        text="{:,}".format,
        key=lambda c: f"step:{c.ids}",
        link="step",
        hidden=True,
        also=lambda c: {"width": lab.room(300)},
        help="The training step of all maps.",
    ).when(lambda c: len(study.steps(c.same)) > 1)
    example = lab.Select[int](
        "Held-out example",
        lambda c: dict(enumerate(study.examples(c.same[0]))),
        key=lambda c: f"example:{c.ids}",
        hidden=True,
        help="The example on which the maps of all runs are drawn.",
    )
    head = lab.Select[Head](
        lambda c: f"Head of {lab.plain(c.side.name)}",
        lambda c: c.heads,
        text=lambda head: f"L{head[0]}·H{head[1]}",
        key=lambda c: f"head:{c.side.run.id}",
        hidden=True,
        help="Layer and head, both from 0; first the head with the most weight on the expected "
        "position.",
    ).when(lambda c: len(c.heads) > 1)
    pair = lab.Select(
        "Difference",
        lambda c: {
            (first, second): f"{c.maps[first].run.name} {lab.MINUS} {c.maps[second].run.name}"
            for second in range(len(c.maps))
            for first in range(len(c.maps))
            if first != second
        },
        key=lambda c: f"pair:{len(c.maps)}",
        hidden=True,
        help="Which map is subtracted from which.",
    ).optional(lambda c: len(c.maps) > 2)

    @property
    def ids(self) -> str:
        return "-".join(side.run.id for side in self.same)


def usual_step(same: Sequence[study.ComparedRun]) -> int:
    """The last step of which all runs have maps; the first run's last where there is none."""
    shared = set.intersection(*(set(side.steps) for side in same))
    return max(shared or {same[0].steps[-1]})


HEIGHT, LINK = 260, "compare_runs"
DRAW_CURVES = """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, curve in curves.items() for point in curve]
alt.Chart(pd.DataFrame(rows, columns=["run", "step", "seconds", "value"]).dropna()).mark_line().encode(
    x="step", y="value", color="run")
"""


def page() -> None:
    lab.title(
        "Compare runs",
        "Which of these models learns faster, by steps and by seconds? Below: how their attention differs.",
    )
    summaries = lab.list_summaries()
    # with the runs of other people of a public copy, whose ids the link has
    others = set(Controls.runs.ids) - {item.run.id for item in summaries}
    summaries += [
        lab.summarize(run) for run in map(lab.limits.find_run, sorted(others)) if run is not None
    ]
    runs, message = runs_to_compare(summaries)
    if message:
        st.warning(message)
    choose_runs(runs, summaries)
    lab.forget_other_runs("compare_runs", *(item.run.id for item in runs))
    with lab.figures_place("compare_runs"):
        lab.poll(
            lambda: sides(runs),
            board,
            any(item.live for item in runs),
            "compare_runs:board",
            interval=lab.SLOW_POLL_INTERVAL,
            still_live=lambda sides: any(side.live for side in sides),
        )
    lab.details(
        "How runs are compared at equal steps and at equal seconds",
        partial(lab.source_panel, draw.fact_text),
        "compare_runs:source",
    )


def runs_to_compare(summaries: Sequence[study.RunSummary]) -> tuple[list[study.RunSummary], str]:
    """The two to four runs of the link, else of the session, else the examples; and a warning about the link."""
    by_id = {item.run.id: item for item in summaries}
    ids, most = Controls.runs.ids, len(LABELS)
    runs = [
        by_id[name]
        for name in ids
        if name in by_id and (by_id[name].config is not None or by_id[name].watched is not None)
    ]
    warning = draw.warning(len(ids) - len(runs), len(runs), most)
    while len(runs) < 2:
        examples = (by_id[run.id] for run in lab.EXAMPLE_RUNS if by_id[run.id] not in runs)
        runs.append((ids and runs and study.rival(runs[0], summaries)) or next(examples))
    return runs[:most], warning


def choose_runs(runs: Sequence[study.RunSummary], summaries: Sequence[study.RunSummary]) -> None:
    """Draw a list for each of the compared runs, of which the third and the fourth may stay empty."""
    names: dict[str | None, str] = {
        item.run.id: item.name for item in summaries if not item.trouble
    }
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    for index in range(len(LABELS)):
        if index == 2:
            row = row.popover("More runs", icon=":material/add:")
            names = {None: "none", **names}
        Controls.set(run=runs[index].run.id if index < len(runs) else None, index=index)
        Controls.draw("run", into=row, index=index, names=names, disabled=index > len(runs))


def sides(summaries: Sequence[study.RunSummary]) -> list[study.ComparedRun]:
    runs = dict(zip(draw.labels_of(summaries), (item.run for item in summaries), strict=True))
    return lab.recorded(study.compared_runs, (runs,), study.compared_runs(runs))


def board(sides: list[study.ComparedRun]) -> None:
    lab.caption(draw.apart_text(sides))
    measures = study.measures(sides)
    if not measures:
        st.info("None of these runs has measured anything yet.", icon=":material/hourglass_empty:")
        return
    same, others = study.split_by_task(sides)
    top, middle, below = (st.container(gap="small") for _ in range(3))
    key = Controls.draw("measure", into=top, measures=measures).measure
    measure = next(measure for measure in measures if measure.key == key)
    curves = lab.recorded(study.curves_of, (sides, key), study.curves_of(sides, key))
    results: dict[str, Any] = {"curves": curves}
    if same:
        step, maps = draw_maps(sides, same, middle, below)
    else:
        step = max((side.records[-1].step for side in sides if side.records), default=0)
    with top:
        lab.fact(draw.fact_text(sides, measure, step))
        draw_curves(sides, measure, curves, step)
    if same and maps.maps:
        results["maps"] = maps
        if len(maps.maps) > 1:
            results["difference"] = draw_difference(maps, step)
    lab.as_python("", {"compare_runs:step": DRAW_CURVES}, (), **results)
    if not same:
        st.caption("None of these runs has saved attention maps.")
    elif others:
        st.caption(
            f"No map of {draw.names(others)}: none is saved, or the run learns another task with other examples."
        )
    lab.table(*draw.results_table(sides), caption="Results of each run")
    if all(side.config is not None for side in sides):
        draw_settings(sides)


def draw_curves(
    sides: Sequence[study.ComparedRun],
    measure: study.Measure,
    curves: dict[str, np.ndarray],
    step: int,
) -> None:
    """The measure over steps and over seconds of training: the two may rank the runs differently."""
    columns = st.columns(2, gap="medium")
    for at, (column, unit) in enumerate(zip(columns, ("step", "seconds of training"), strict=True)):
        lines = draw.lines(sides, curves, at, measure.share, lab.Ink.of(lab.theme()))
        lab.draw_curves(
            column,
            measure.name,
            lines,
            last_x=max((x for line in lines for x, _ in line.points), default=1.0),
            step=step if unit == "step" else None,
            unit=unit,
            percent=measure.share,
            high=100 if measure.share and measure.key != "error" else None,
            key=f"compare_runs:{unit[:4]}",
            alt=f"{measure.name} of {len(sides)} runs over {unit}",
        )


def draw_maps(
    sides: Sequence[study.ComparedRun],
    same: list[study.ComparedRun],
    middle: DeltaGenerator,
    below: DeltaGenerator,
) -> tuple[int, study.Maps]:
    """Draw a map of each run that has any at the selected step; returns the step and the maps."""
    controls = Controls.draw("step", into=middle, same=same)
    heads: dict[str, Head | None] = {}
    with below.popover("Heads and example", icon=":material/tune:"):
        example = controls.draw_more("example", into=lab.HERE).example
        for side in same:
            given = {"side": side, "heads": study.heads(side)}
            heads[side.name] = Controls.draw("head", into=lab.HERE, **given).head
    args = sides, controls.step, example, [heads.get(side.name) for side in sides]
    maps = lab.recorded(study.maps_at, args, study.maps_at(*args))
    frames, steps = None, study.steps(same)
    if len(steps) > 1:  # the maps at each step of the slider, which the browser draws at once
        moments = study.maps_over_time(tuple(same), example, tuple(heads.values()))
        frames = lab.Frames(
            Controls.step.key_of(controls),
            steps.index(controls.step),
            [draw.tiles(moment) for moment in moments],
        )
    if not maps.maps:
        st.caption("No run has a saved attention map of its source at this step.")
        return controls.step, maps
    with middle:
        lab.multiples(
            draw.tiles(maps.maps),
            maps.rows,
            maps.columns,
            key=f"compare_runs:maps:{len(maps.rows)}:{len(maps.columns)}",
            height=HEIGHT,
            link=LINK,
            reads=draw.reads_of(maps),
            frames=frames,
            fact=f"Attention of {len(maps.maps)} runs at step {controls.step:,} on one held-out example",
        )
    if maps.others:
        st.caption(f"{draw.names(maps.others)}: these maps have another size and are not shown.")
    return controls.step, maps


def draw_difference(maps: study.Maps, step: int) -> np.ndarray:
    left, right = st.columns([0.42, 0.58], gap="medium")
    ours = all(one.run.config is not None for one in maps.maps)
    forced = "; the decoder reads the correct target (teacher forcing)" if ours else ""
    with right:
        lab.caption(
            f"Each map was saved at step {step:,}, or at the last step before it{forced}. Seconds count training "
            "only, on the machine of each run. Each side is one run, and results vary with the seed: use a sweep to "
            "test a small difference."
        )
        pair = Controls.draw("pair", into=lab.HERE, maps=maps.maps).pair or (0, 1)
    first, second = (maps.maps[index] for index in pair)
    minuend, subtrahend = draw.tiles((first, second))
    with left:
        lab.difference_map(
            minuend,
            subtrahend,
            maps.rows,
            maps.columns,
            link=LINK,
            height=HEIGHT,
            reads=draw.reads_of(maps),
            key=f"compare_runs:apart:{len(maps.rows)}:{len(maps.columns)}",
            fact=f"{first.run.name} minus {second.run.name}",
        )
    return lab.recorded(study.difference_of, (maps, *pair), study.difference_of(maps, *pair))


def draw_settings(sides: Sequence[study.ComparedRun]) -> None:
    different, same = draw.differences(sides)
    lab.chart_title("Settings that differ")
    if different:
        lab.table(
            ["setting", *(side.name for side in sides)],
            different,
            caption="Settings in which the runs differ",
            left=5,
            markers=False,
        )
    st.caption(
        f"{same} settings are equal in all runs." if different else "All settings are equal."
    )
