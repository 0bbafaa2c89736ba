"""Compare runs: two to four of them, over steps and over seconds, with their attention at the same step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import dashboard.page as lab
from core.models import count_parameters
from core.serialization import OLD_NAMES
from core.studies import runs as compute

# One measure of every run, over steps and over seconds of training: the two may rank the runs differently.


def curves(sides: Sequence[compute.ComparedRun], measure: compute.Measure, step: int) -> None:
    ink, factor = lab.Ink.of(lab.theme()), 100 if measure.share else 1
    columns, units = st.columns(2, gap="medium"), ("step", "seconds of training")
    for column, unit, field in zip(columns, units, ("step", "train_seconds"), strict=True):
        lines = [
            lab.Curve(
                side.name,
                [
                    (float(getattr(r, field)), None if value is None else value * factor)
                    for r in side.records
                    for value in (measure.value(r),)
                ],
                colour=ink.series[side.index % len(ink.series)],
                dash=side.index,
            )
            for side in sides
        ]
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


# The controls of Compare runs: the runs, which are in the link, then the measure and what the maps show.


LINK, LAST = "runs", "compare_runs:last"
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
LABELS = ("First", "Second", "Third", "Fourth")


class Controls(lab.Fields, page="compare_runs"):
    measure = lab.Segmented[str](
        "Measure",
        lambda values: {measure.key: measure.label for measure in values.measures},
        old=lambda text, values: OLD_LABELS.get(text, text),
        hidden=True,
        also={"label_visibility": "collapsed"},
        help="The number that is compared.",
    )
    example = lab.Select[int](
        "Held-out example",
        lambda values: dict(enumerate(values.examples)),
        key=lambda values: f"example:{values.ids}",
        hidden=True,
        help="The example on which the maps of all runs are drawn.",
    )
    head = lab.Select(
        lambda values: f"Head of {lab.plain(values.side.name)}",
        lambda values: values.heads,
        text=lambda head: f"L{head[0]}·H{head[1]}",
        key=lambda values: f"head:{values.side.run.id}",
        hidden=True,
        help="Layer and head, both from 0; first the head with the most weight on the expected "
        "position.",
    ).optional(lambda values: len(values.heads) > 1)
    pair = lab.Select(
        "Difference",
        lambda values: {
            (first, second): f"{values.names[first]} {lab.MINUS} {values.names[second]}"
            for second in range(len(values.names))
            for first in range(len(values.names))
            if first != second
        },
        key=lambda values: f"pair:{len(values.names)}",
        hidden=True,
        help="Which map is subtracted from which.",
    ).optional(lambda values: len(values.names) > 2)


def sides(summaries: Sequence[lab.RunSummary]) -> list[compute.ComparedRun]:
    return [
        compute.ComparedRun(
            index, name, data.run, data.config, data.records, tuple(data.steps), data.live
        )
        for index, (item, name) in enumerate(zip(summaries, names(summaries), strict=True))
        for data in (lab.load_run(item.run),)
    ]


def names(summaries: Sequence[lab.RunSummary]) -> list[str]:
    """Names short enough to stand beside a curve, all different, without a task that all have in common."""
    names, tasks = list[str](), {item.task for item in summaries}
    for item in summaries:
        name = item.plain_name
        if len(tasks) == 1 and not item.named:
            name = name.removeprefix(f"{item.task}: ")
            name = name[:1].upper() + name[1:]
        name = lab.cut(name, 30)
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names


def _linked_ids() -> list[str]:
    return list(
        dict.fromkeys(
            name
            for name in (st.query_params.get(LINK) or st.session_state.get(LAST) or "").split(",")
            if name
        )
    )


def runs_to_compare(summaries: Sequence[lab.RunSummary]) -> tuple[list[lab.RunSummary], str]:
    """The two to four runs of the link, else of the session, else the examples; and a warning about the link."""
    by_id = {item.run.id: item for item in summaries}
    ids, most = _linked_ids(), len(LABELS)
    runs = [by_id[name] for name in ids if name in by_id and by_id[name].config is not None]
    missing, warning = len(ids) - len(runs), ""
    if missing:
        warning = (
            f"{missing} of the runs in the link {'is' if missing == 1 else 'are'} not on this machine, or "
            "cannot be read. "
        )
    if len(runs) > most:
        warning += f"At most {most} runs can be compared; these are the first {most}."
    while len(runs) < 2:
        examples = (by_id[run.id] for run in lab.EXAMPLE_RUNS if by_id[run.id] not in runs)
        runs.append((ids and runs and lab.rival(runs[0], summaries)) or next(examples))
    return runs[:most], warning.strip()


def draw_controls(
    sides: Sequence[compute.ComparedRun],
    same: Sequence[compute.ComparedRun],
    measures: Sequence[compute.Measure],
    top: st.delta_generator.DeltaGenerator,
    below: st.delta_generator.DeltaGenerator,
) -> lab.Values:
    """The measure, the step, the held-out example, a head of each run with maps (None where it has none).

    The step's `slider` is the key of its widget, "" without one.
    """
    key = Controls.draw("measure", into=top, measures=measures).measure
    measure = next(measure for measure in measures if measure.key == key)
    if not same:
        step = max((side.records[-1].step for side in sides if side.records), default=0)
        return lab.Values(measure=measure, step=step, example=0, heads=(), slider="")
    given = {"ids": "-".join(side.run.id for side in same), "examples": compute.examples(same[0])}
    steps, shared = compute.steps(same), set.intersection(*(set(side.steps) for side in same))
    # the last of which all have maps; the first run's last where there is none
    usual, heads, step, slider = max(shared or {same[0].steps[-1]}), [], steps[0], ""
    if len(steps) > 1:
        slider = f"compare_runs:step:{given['ids']}"
        lab.link_value(slider, usual, lab.one_of(steps), name="step")
        step = top.select_slider(
            "Training step",
            steps,
            usual,
            key=slider,
            format_func="{:,}".format,
            width=lab.room(300),
            **lab.KEEP,
            help="The training step of all maps.",
        )
    with below.popover("Heads and example", icon=":material/tune:"):
        example = Controls.draw("example", into=lab.HERE, **given).example
        for side in same:
            on_offer = compute.heads(side)
            heads.append(
                Controls.draw("head", into=lab.HERE, side=side, heads=on_offer).head
                or next(iter(on_offer), None)
            )
    return lab.Values(
        measure=measure, step=step, example=example, heads=tuple(heads), slider=slider
    )


# What the page computes as Python.


def script(
    sides: Sequence[compute.ComparedRun],
    controls: lab.Values,
    maps: compute.Maps,
    same: Sequence[compute.ComparedRun],
    pair: tuple[compute.RunMap, compute.RunMap] | None,
) -> lab.Script:
    key = controls.measure.key
    # the head with the most weight on the expected position
    value = "max(map(max, record.expected))" if key == "expected" else f"record.{key}"
    paths = "\n".join(
        f"    {side.name!r}: open_run({lab.path_code(side.run.path)})," for side in sides
    )
    cells = [
        lab.Cell(
            "One measure of each run at every step, from the folders in which the runs were saved.",
            f"""
from core.training.evaluate import one_a_step
from core.runs.runs import open_run

runs = {{
{paths}
}}
curves = {{name: [(record.step, record.train_seconds, {value})
                 for record in one_a_step(run.records()) if record.{key} is not None] for name, run in runs.items()}}
for name, curve in curves.items():
    print(name, curve[-1])  # step, seconds of training, and the measure
""",
            """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, curve in curves.items() for point in curve]
alt.Chart(pd.DataFrame(rows, columns=["run", "step", "seconds", "value"])).mark_line().encode(
    x="step", y="value", color="run")
""",
            "compare_runs:step",
            {
                f"curves[{side.name!r}]": np.array(
                    [
                        (record.step, record.train_seconds, measured)
                        for record in side.records
                        if (measured := controls.measure.value(record)) is not None
                    ]
                )
                for side in sides
            },
        )
    ]
    if maps.maps:
        picked = {
            side.name: (max(step for step in side.steps if step <= controls.step), *head)
            for side, head in zip(same, controls.heads, strict=True)
            if head is not None and any(one.run == side for one in maps.maps)
        }
        difference, results = "", dict[str, Any]()
        if pair is not None:
            difference = f"difference = maps[{pair[0].run.name!r}] - maps[{pair[1].run.name!r}]\n"
            results["difference"] = pair[0].weights - pair[1].weights
        cells.append(
            lab.Cell(
                "The attention of one head of each run on the same held-out example.",
                f"""
from core.tasks import make_task
from core.training.evaluate import source_maps

example = {controls.example}
picked = {lab.source_of(picked)}  # step, layer and head
maps = {{}}
for name, (at, layer, head) in picked.items():
    config = runs[name].config()
    task = make_task(config.task)
    watched = task.held_out(config.num_examples)[example]
    read = source_maps(config.model, task, runs[name].frame(at), watched, example)
    maps[name] = read.weights[layer, head]  # (T, S), the outputs on the source
{difference}""",
                """
from dashboard.show import show_maps

show_maps(maps, read.rows, read.columns)
""",
                f"compare_runs:maps:{len(maps.rows)}:{len(maps.columns)}",
                results | {f"maps[{one.run.name!r}]": one.weights for one in maps.maps},
            )
        )
    return lab.Script(tuple(cells))


# The settings in which runs differ, what each reached, and the measured sentence, as text; makes no st call.


MISSING = "–"


def settings(data: Any, name: str = "") -> dict[str, str]:
    """Every setting of a run's config in JSON by its name, such as model.attention.score."""
    if isinstance(data, dict | list):
        inner = {
            (name if key == "key" else f"{name}.{key}".lstrip(".")): part
            for key, part in (data.items() if isinstance(data, dict) else enumerate(data, 1))
        }
        return {
            each: text for key, part in inner.items() for each, text in settings(part, key).items()
        }
    is_number = isinstance(data, float | int) and not isinstance(data, bool)
    words = {None: "none", True: "yes", False: "no"}
    text = f"{data:g}" if is_number else words.get(data, str(data))
    return {name.replace(".params.", "."): lab.cut(text, 40)}


def differences(sides: Sequence[compute.ComparedRun]) -> tuple[list[list[str]], int]:
    table = pd.DataFrame([settings(side.required_config.to_json()) for side in sides]).T
    table = table.drop(
        [f"model.attention.{name}" for name in ("d_model", "num_heads", "dropout")], errors="ignore"
    ).fillna(MISSING)
    different = table[table.nunique(axis=1) > 1]
    rows = different.rename(lambda name: name.removeprefix("model.")).reset_index()
    return rows.to_numpy().tolist(), len(table) - len(different)


VALUES: tuple[tuple[str, compute.Value, Callable[[float], str]], ...] = (
    ("loss", lambda r: r.loss, lab.number),
    ("accuracy", lambda r: r.sequence_accuracy, lab.percent),
    ("BLEU", lambda r: r.bleu, lab.score),
    ("chrF", lambda r: r.chrf, lab.score),
    ("error", lambda r: r.error, lab.percent),
)
HEAD = (
    "run",
    "parameters",
    "steps taken",
    "training",
    *(name for name, _, _ in VALUES),
    "expected weight",
    "tokens/s",
)


def _results(side: compute.ComparedRun) -> list[str]:
    def last(value: compute.Value) -> float | None:
        return compute.latest(side.records, value, lambda _: True)

    weight, even, speed = map(
        last, (compute.expected, lambda r: r.even, lambda r: r.tokens_per_second)
    )
    config, end = side.config, side.records[-1] if side.records else None
    return [
        side.name,
        lab.whole(count_parameters(config.model, side.task.shape)) if config else MISSING,
        lab.whole(end.step) if end else MISSING,
        lab.duration(end.train_seconds) if end else MISSING,
        *(
            MISSING if (reached := last(value)) is None else write(reached)
            for _, value, write in VALUES
        ),
        MISSING
        if weight is None or even is None
        else lab.written(
            f"{lab.share_text(weight)} (uniform {lab.number(even)})",
            {"": weight, ", uniform": even},
        ),
        MISSING if not speed else lab.written(f"{speed:,.0f}", speed),
    ]


def fact_text(sides: Sequence[compute.ComparedRun], measure: compute.Measure, step: int) -> str:
    """The value of each run at equal steps, and at equal seconds of training."""
    sides = [side for side in sides if side.records]
    if len(sides) < 2:
        return "Only one of these runs has measurements yet."
    seconds, scores = min(side.records[-1].train_seconds for side in sides), ("bleu", "chrf")
    write = lab.percent if measure.share else lab.score if measure.key in scores else lab.number
    by_step, by_time = (
        [
            "no measurement" if value is None else write(value)
            for side in sides
            for value in (compute.latest(side.records, measure.value, until),)
        ]
        for until in (lambda r: r.step <= step, lambda r: r.train_seconds <= seconds)
    )
    at_step = ", ".join(
        f"**{value}** for {lab.plain(side.name)}" + f" (its last, step {last:,})" * (last < step)
        for side, value in zip(sides, by_step, strict=True)
        for last in (side.records[-1].step,)
    )
    name = lab.lower_name(measure.name)
    return (
        f"At step :primary[**{step:,}**], {name}: {at_step}. After {lab.duration(seconds)} of training, it is "
        f"{', '.join(by_time[:-1])} and {by_time[-1]}, in that order."
    )


# The Compare runs page: curves over steps and seconds, maps at one step, settings that differ, and results.


PAGE_LINK, READS, HEIGHT = "compare_runs", "output (row) attends to → input (column)", 260


def page() -> None:
    lab.title(
        "Compare runs",
        "Which run is better at equal steps, and at equal seconds? See how their attention differs.",
    )
    # Draw a list for each of the compared runs, of which the third and the fourth may stay empty
    summaries = lab.list_summaries()
    # with the runs of other people of a public copy, whose ids the link has
    others = set(_linked_ids()) - {item.run.id for item in summaries}
    summaries += [
        lab.summarize(run) for run in map(lab.limits.find_run, sorted(others)) if run is not None
    ]
    runs, message = runs_to_compare(summaries)
    if message:
        st.warning(message)
    names = {item.run.id: item.name for item in summaries if not item.trouble}
    state, keys = st.session_state, [f"compare_runs:{index}" for index in range(len(LABELS))]

    def write_link() -> None:
        st.query_params[LINK] = state[LAST] = ",".join(
            dict.fromkeys(state[key] for key in keys if state[key])
        )

    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    for index, (label, key) in enumerate(zip(LABELS, keys, strict=True)):
        if index == 2:
            row = row.popover("More runs", icon=":material/add:")
        with row:
            state[key] = runs[index].run.id if index < len(runs) else None
            st.selectbox(
                label,
                [*[None] * (index > 1), *names],
                key=key,
                on_change=lab.guarded(key, write_link),
                disabled=index > len(runs),
                format_func=lambda name: names.get(name, "none"),
                help=f"The {label.lower()} of the compared runs.",
            )
    lab.forget_other_runs("compare_runs", *(item.run.id for item in runs))
    lab.poll(
        lambda: sides(runs),
        _board,
        any(item.live for item in runs),
        "compare_runs:board",
        interval=lab.SLOW_POLL_INTERVAL,
        still_live=lambda sides: any(side.live for side in sides),
    )
    lab.details(
        "How runs are compared at equal steps and at equal seconds",
        partial(lab.source_panel, fact_text),
        "compare_runs:source",
    )


def _board(sides: Sequence[compute.ComparedRun]) -> None:
    measures = compute.measures(sides)
    if not measures:
        st.info("None of these runs has measured anything yet.", icon=":material/hourglass_empty:")
        return
    same, others = compute.split_by_task(sides)
    top, board, below = (st.container(gap="small") for _ in range(3))
    controls = draw_controls(sides, same, measures, top, below)
    example, heads, step = controls.example, controls.heads, controls.step
    maps, frames = compute.maps_at(same, step, example, heads), None
    if controls.slider:  # the maps at each of its steps, which the browser draws at once
        frames = lab.Frames(
            controls.slider,
            compute.steps(same).index(step),
            list(map(_tiles, compute.maps_over_time(tuple(same), example, heads))),
        )
    if same and not maps.maps:
        st.caption("No run has a saved attention map of its source at this step.")
    elif same:
        with board:
            lab.multiples(
                _tiles(maps.maps),
                maps.rows,
                maps.columns,
                key=f"compare_runs:maps:{len(maps.rows)}:{len(maps.columns)}",
                height=HEIGHT,
                link=PAGE_LINK,
                reads=READS,
                frames=frames,
                fact=f"Attention of {len(maps.maps)} runs at step {step:,} on one held-out example",
            )
        if maps.others:
            st.caption(f"{_names(maps.others)}: these maps have another size and are not shown.")
    with top:
        curves(sides, controls.measure, step)
        lab.fact(fact_text(sides, controls.measure, step))
    lab.add_script(partial(script, sides, controls, maps, same, _difference(maps, step)))
    if not same:
        st.caption("None of these runs has saved attention maps.")
    elif others:
        st.caption(
            f"No map of {_names(others)}: none is saved, or the run learns another task with other examples."
        )
    _tables(sides)


def _names(sides: Sequence[compute.ComparedRun]) -> str:
    return ", ".join(lab.plain(side.name) for side in sides)


def _tiles(maps: Sequence[compute.RunMap]) -> list[lab.Tile]:
    return [lab.Tile(one.run.name, one.note, one.weights, None, one.run.index) for one in maps]


def _difference(maps: compute.Maps, step: int) -> tuple[compute.RunMap, compute.RunMap] | None:
    if len(maps.maps) < 2:
        return None
    left, right = st.columns([0.42, 0.58], gap="medium")
    with right:
        lab.caption(
            f"Each map was saved at step {step:,}, or at the last step before it; the decoder reads the correct "
            "target (teacher forcing). Seconds count training only, on the machine of each run. Each side is one "
            "run, and results vary with the seed: use a sweep to test a small difference."
        )
        names = [one.run.name for one in maps.maps]
        pair = Controls.draw("pair", into=lab.HERE, names=names).pair or (0, 1)
    first, second = (maps.maps[index] for index in pair)
    minuend, subtrahend = _tiles((first, second))
    with left:
        lab.difference_map(
            minuend,
            subtrahend,
            maps.rows,
            maps.columns,
            link=PAGE_LINK,
            height=HEIGHT,
            reads=READS,
            key=f"compare_runs:apart:{len(maps.rows)}:{len(maps.columns)}",
            fact=f"{first.run.name} minus {second.run.name}",
        )
    return first, second


def _tables(sides: Sequence[compute.ComparedRun]) -> None:
    rows = [_results(side) for side in sides]
    # a measure that none of them has is left out
    columns = [i for i in range(len(HEAD)) if i < 5 or any(row[i] != MISSING for row in rows)]
    lab.table(
        [HEAD[i] for i in columns],
        [[row[i] for i in columns] for row in rows],
        caption="Results of each run",
    )
    different, same = differences(sides)
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
