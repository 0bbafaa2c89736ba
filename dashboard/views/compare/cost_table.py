"""The table under the fact: a row a mechanism with the marker of its map, what it measures and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.benchmark import Measurement
from core.cost import ClosedFormCost, closed_form_cost
from dashboard.charts.numbers import byte_size, duration, number, operations
from dashboard.runtime.cache import cached, measurements
from dashboard.views.compare import costs
from dashboard.views.compare.compute import MapResult
from dashboard.views.compare.controls import LENGTHS, Controls
from dashboard.views.compare.costs import Measurements
from dashboard.widgets.panels import caption, plain
from dashboard.widgets.presentation import room
from dashboard.widgets.table import table

VISITED = "compare:visited"  # the session has seen the first measurements
HEAD = ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters")
MISSING = "–"
DENSE_NOTE = "¹ This kernel computes all scores and then masks some, so it saves no time."


def cost_table(controls: Controls, names: Sequence[str], results: Sequence[MapResult]) -> Callable[[], None] | None:
    """Draw the table; what no session has measured yet waits for a press, except on the first visit.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    done: Measurements = measurements(__name__)
    configs = costs.sized_configs(controls)
    possible = [config for config in configs if config is not None]
    closed = [None if config is None else cached(closed_form_cost, config, controls.length) for config in configs]
    first = next((cost.parameters for cost in closed if cost), 0)
    table_slot, progress_slot = st.empty(), st.empty()

    def measured() -> list[Measurement | None]:
        return [done.get((config, controls.length)) if config else None for config in configs]

    def draw() -> None:
        rows = [row(*each, first) for each in zip(names, results, closed, range(len(names)), measured(), strict=True)]
        with table_slot.container():
            table(HEAD, rows, caption="Entropy, distance, time, memory, FLOPs and parameters of each mechanism")

    def measure() -> None:
        bar = progress_slot.progress(0.0, "Measuring time and memory on this machine")
        for fraction in costs.measure_costs(possible, controls.length, done):
            bar.progress(fraction, "Measuring time and memory on this machine")
        progress_slot.empty()
        st.session_state[VISITED] = True
        draw()

    draw()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Length T", LENGTHS, key="compare:length", persist_state="session", width=room(110),
                     help="The number of tokens at which time, memory and FLOPs are given.",
                     format_func=lambda size: f"T = {size}")
        pressed = st.button("Measure", icon=":material/speed:", key="compare:measure",
                            help="Runs every mechanism on this machine, which takes a second or two.")
    dense = any(cost.dense for cost in closed if cost)
    unable = [f"{plain(name)}: {plain(each.skipped)}" for name, each in zip(names, measured(), strict=True)
              if each and each.skipped]
    caption(" ".join([costs.conditions(controls), *[DENSE_NOTE] * dense, *unable]))
    new = not st.session_state.get(VISITED) and any((config, controls.length) not in done for config in possible)
    if not new:
        st.session_state[VISITED] = True
    return measure if pressed or new else None


def row(name: str, result: MapResult, cost: ClosedFormCost | None, index: int, measurement: Measurement | None,
        first: int) -> list[str]:
    """One line; parameters as more or less than the first's, `first`, except in the first line."""
    time = memory = flops = parameters = MISSING
    if measurement is not None and not measurement.skipped:
        time = duration(measurement.seconds) + "¹" * bool(cost and cost.dense)
        memory = byte_size(measurement.bytes)
    if cost is not None:
        flops = ("≤ " if cost.at_most else "") + operations(cost.flops)
        more = cost.parameters - first
        parameters = f"{'+' if more >= 0 else '−'} {abs(more):,}" if index else f"{cost.parameters:,}"
    entropy, distance = (MISSING if value is None else number(value) for value in (result.entropy, result.distance))
    return [name, entropy, distance, time, memory, flops, parameters]
