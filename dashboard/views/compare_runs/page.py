"""The Compare runs page: curves over steps and seconds, maps at one step, settings that differ, and results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from dashboard.draw.formats import MINUS
from dashboard.draw.multiples import Frames, Tile, difference_map, multiples
from dashboard.runtime.link_values import forget_other_runs, link_value, one_of
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import SLOW_POLL_INTERVAL, poll
from dashboard.runtime.run_data import count_parameters, list_summaries
from dashboard.ui.tables import table
from dashboard.views.compare_runs import compute, text
from dashboard.views.compare_runs.charts import curves
from dashboard.views.compare_runs.compute import ComparedRun, Maps, sides
from dashboard.views.compare_runs.controls import Controls, draw_controls, draw_runs
from dashboard.views.compare_runs.script import script
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    plain,
    source_panel,
    title,
)

LINK, READS, HEIGHT = "compare_runs", "output (row) attends to → input (column)", 260


def page() -> None:
    """The choice of runs, and below it their figures and tables, polled while one of the runs is live."""
    title(
        "Compare runs",
        "You will see which run is better at equal steps and at equal seconds, and how their attention differs.",
    )
    runs = draw_runs(list_summaries())
    forget_other_runs("compare_runs", *(item.run.id for item in runs))
    poll(
        lambda: sides(runs),
        _board,
        any(item.live for item in runs),
        "compare_runs:board",
        interval=SLOW_POLL_INTERVAL,
        still_live=lambda sides: any(side.data.live for side in sides),
    )
    details(
        "How runs are compared at equal steps and at equal seconds",
        partial(source_panel, text.fact),
        "compare_runs:source",
    )
    next_page("compare_runs")


def _board(sides: Sequence[ComparedRun]) -> None:
    """The curves, the maps, the differences and the tables of the compared runs."""
    measures = compute.measures(sides)
    if not measures:
        st.info("None of these runs has measured anything yet.", icon=":material/hourglass_empty:")
        return
    same, others = compute.split_by_task(sides)
    top = st.container(gap="small")
    controls = draw_controls(sides, same, measures, top)
    maps = compute.maps_at(same, controls.step, controls.example, controls.heads)
    if same:
        _maps(maps, controls.step, _frames(same, controls))
    with top:
        curves(sides, controls.measure, controls.step)
    pair = _difference(maps, controls.step, text.fact(sides, controls.measure, controls.step))
    add_script(partial(script, sides, controls, maps, same, pair))
    if others:
        st.caption(text.no_maps(others, bool(same)))
    _tables(sides)


def _frames(same: Sequence[ComparedRun], controls: Controls) -> Frames | None:
    """The maps at each step of the slider, which the browser draws at once; None without a slider."""
    if not controls.slider:
        return None
    over_time = compute.tiles_over_time(
        compute.MapsRequest.of(same, controls.example, controls.heads)
    )
    return Frames(controls.slider, compute.steps(same).index(controls.step), over_time)


def _maps(maps: Maps, step: int, frames: Frames | None) -> None:
    """The maps side by side, or why there are none."""
    if not maps.tiles:
        st.caption("No run has a saved attention map of its source at this step.")
        return
    multiples(
        maps.tiles,
        maps.rows,
        maps.columns,
        key=f"compare_runs:maps:{len(maps.rows)}:{len(maps.columns)}",
        height=HEIGHT,
        link=LINK,
        reads=READS,
        frames=frames,
        fact=f"Attention of {len(maps.tiles)} runs at step {step:,} on one held-out example",
    )
    if maps.others:
        names = ", ".join(plain(side.name) for side in maps.others)
        st.caption(f"{names}: these maps have another size and are not shown.")


def _difference(maps: Maps, step: int, sentence: str) -> tuple[Tile, Tile] | None:
    """One map minus another on the left, the measured sentence on the right; returns both maps."""
    if len(maps.tiles) < 2:
        fact(sentence)
        return None
    left, right = st.columns([0.42, 0.58], gap="medium")
    with right:
        fact(sentence)
        caption(text.conditions(step))
        first, second = _pair(maps.tiles)
    with left:
        difference_map(
            first,
            second,
            maps.rows,
            maps.columns,
            link=LINK,
            height=HEIGHT,
            reads=READS,
            key=f"compare_runs:apart:{len(maps.rows)}:{len(maps.columns)}",
            fact=f"{first.name} minus {second.name}",
        )
    return first, second


def _pair(tiles: Sequence[Tile]) -> tuple[Tile, Tile]:
    """Which map minus which; with two maps there is no choice."""
    pairs = [(a, b) for b in range(len(tiles)) for a in range(len(tiles)) if a != b]
    if len(tiles) == 2:
        return tiles[0], tiles[1]
    key = f"compare_runs:pair:{len(tiles)}"
    link_value(key, pairs[0], one_of(pairs))
    first, second = st.selectbox(
        "Difference",
        pairs,
        key=key,
        persist_state="session",
        format_func=lambda pair: f"{tiles[pair[0]].name} {MINUS} {tiles[pair[1]].name}",
        help="Which map is subtracted from which.",
    )
    return tiles[first], tiles[second]


def _tables(sides: Sequence[ComparedRun]) -> None:
    parameters = [
        None
        if side.data.config is None
        else count_parameters(side.data.config.model, side.data.task().shape)
        for side in sides
    ]
    head, rows = text.results(sides, parameters)
    table(head, rows, caption="Results of each run")
    different, same = text.differences(sides)
    chart_title("Settings that differ")
    if different:
        table(
            ["setting", *(side.name for side in sides)],
            different,
            caption="Settings in which the runs differ",
            left=5,
            markers=False,
        )
    st.caption(
        f"{same} settings are equal in all runs." if different else "All settings are equal."
    )
