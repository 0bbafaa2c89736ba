"""The table under the fact: a row a mechanism with the marker of its map, what it measures and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import streamlit as st

from core.attention import AttentionConfig
from core.benchmark import Measurement
from dashboard.charts.numbers import byte_size, duration, number, operations
from dashboard.components.multiples import mark_html
from dashboard.runtime.cache import cached
from dashboard.views.compare import costs
from dashboard.views.compare.compute import MapResult
from dashboard.views.compare.costs import ClosedFormCost, Measurements
from dashboard.views.compare.link import LENGTHS, Controls
from dashboard.widgets.panels import plain, theme

MEASUREMENTS = "compare:measured"
HEAD = ("mechanism", "entropy", "distance", "time", "memory", "FLOPs", "parameters")
MISSING = "–"
DENSE_NOTE = "¹ Dense and masked, so the FLOPs it saves are not yet time saved."
STYLE = """<style>
.costs{overflow-x:auto;border:1px solid var(--hair);border-radius:6px;
  --hair:color-mix(in srgb,currentColor 10%,transparent)}
.costs table{border-collapse:collapse;width:100%;font-size:14px;line-height:20px;white-space:nowrap}
.costs th{font-weight:400;text-align:right;opacity:.62}
.costs th,.costs td{padding:7px 8px;border-bottom:1px solid var(--hair)}
.costs tr:last-child td{border-bottom:0}
.costs td{text-align:right}
.costs th:first-child,.costs td:first-child{text-align:left}
.costs span{vertical-align:-1px;margin-right:8px}
</style>"""

Row = list[str]


def cost_table(controls: Controls, names: Sequence[str], results: Sequence[MapResult]) -> Callable[[], None] | None:
    """The table; what was not measured yet waits for a press, but at first sight.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    measurements: Measurements = st.session_state.setdefault(MEASUREMENTS, {})
    configs = costs.sized_configs(controls)
    place, under = st.empty(), st.empty()
    with place:
        _draw_table(controls, names, results, configs, measurements)
    possible = [config for config in configs if config is not None]
    missing = [config for config in possible if (config, controls.length) not in measurements]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.selectbox("Length T", LENGTHS, key="compare:length", persist_state="session", width=110,
                     label_visibility="collapsed", format_func=lambda size: f"T = {size}")
        pressed = st.button("Measure", icon=":material/speed:", key="compare:measure",
                            help="Runs every mechanism here, in turn: a second or two.")
    dense = any(config is not None and closed_form(config, controls.length).dense for config in configs)
    skipped = {at: measurements[config, controls.length].skipped for at, config in enumerate(configs)
               if config is not None and (config, controls.length) in measurements}
    unable = [f"{plain(names[at])}: {plain(reason)}" for at, reason in skipped.items() if reason]
    st.caption(" ".join([costs.conditions(controls), *[DENSE_NOTE] * dense, *unable]))
    if not pressed and not (missing and not measurements):
        return None

    def measure() -> None:
        _measure(controls, possible, measurements, under)
        with place:
            _draw_table(controls, names, results, configs, measurements)

    return measure


def _measure(controls: Controls, configs: Sequence[AttentionConfig], measurements: Measurements, place: Any) -> None:
    bar = place.progress(0.0, "Measuring time and memory here")
    for fraction in costs.measure_costs(configs, controls.length, measurements):
        bar.progress(fraction, "Measuring time and memory here")
    place.empty()


def closed_form(config: AttentionConfig, length: int) -> ClosedFormCost:
    return cached(costs.closed_form_cost, config, length)


def _draw_table(controls: Controls, names: Sequence[str], results: Sequence[MapResult],
                configs: Sequence[AttentionConfig | None], measurements: Measurements) -> None:
    first = next((closed_form(config, controls.length).parameters for config in configs if config is not None), 0)
    rows = [row(names[at], results[at], config and closed_form(config, controls.length), at, first,
                measurements.get((config, controls.length)) if config else None) for at, config in enumerate(configs)]
    st.html(as_html(HEAD, rows))


def row(
    name: str, result: MapResult, cost: ClosedFormCost | None, index: int, first: int, measurement: Measurement | None
) -> Row:
    """One line; the parameters of all but the first stand as what they are more or less than the first's."""
    done = measurement is not None and not measurement.skipped
    dense = "¹" if cost is not None and cost.dense and done else ""
    own = MISSING if cost is None else f"{cost.parameters:,}" if index == 0 else (
        f"{'+' if cost.parameters >= first else '−'} {abs(cost.parameters - first):,}")
    return [name, MISSING if result.entropy is None else number(result.entropy),
            MISSING if result.distance is None else number(result.distance),
            duration(measurement.seconds) + dense if done and measurement else MISSING,
            byte_size(measurement.bytes) if done and measurement else MISSING,
            MISSING if cost is None else ("≤ " if cost.at_most else "") + operations(cost.flops), own]


def as_html(head: Sequence[str], rows: Sequence[Row]) -> str:
    """The table, with a marker before each name; everything else is escaped."""
    body = ["<tr>" + "".join(f"<th>{escape(title)}</th>" for title in head) + "</tr>"]
    for place, line in enumerate(rows):
        cells = [f"<td>{mark_html(place, theme())}{escape(line[0])}</td>"]
        body.append("<tr>" + "".join([*cells, *(f"<td>{escape(cell)}</td>" for cell in line[1:])]) + "</tr>")
    return f'{STYLE}<div class="costs"><table>{"".join(body)}</table></div>'
