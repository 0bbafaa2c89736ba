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
from dashboard.views.compare.compute import Weighed
from dashboard.views.compare.costs import Costed, Key
from dashboard.views.compare.link import LENGTHS, Setup
from dashboard.widgets.panels import plain, theme

FOUND = "compare:measured"
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


def table(setup: Setup, names: Sequence[str], weighed: Sequence[Weighed]) -> Callable[[], None] | None:
    """The table; what was not measured yet waits for a press, but at first sight.

    Returns what measures and fills the table, for the page to call when all else is drawn; None with nothing to do.
    """
    found: dict[Key, Measurement] = st.session_state.setdefault(FOUND, {})
    configs = costs.sized(setup)
    place, under = st.empty(), st.empty()
    with place:
        _show(setup, names, weighed, configs, found)
    wanted = [config for config in configs if config is not None]
    missing = [config for config in wanted if (config, setup.length) not in found]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.selectbox("Length T", LENGTHS, key="compare:length", persist_state="session", width=110,
                     label_visibility="collapsed", format_func=lambda size: f"T = {size}")
        pressed = st.button("Measure", icon=":material/speed:", key="compare:measure",
                            help="Runs every mechanism here, in turn: a second or two.")
    dense = any(config is not None and closed(config, setup.length).dense for config in configs)
    unable = [f"{plain(names[at])}: {plain(found[config, setup.length].skipped)}" for at, config in enumerate(configs)
              if config is not None and (config, setup.length) in found and found[config, setup.length].skipped]
    st.caption(" ".join([costs.conditions(setup), *[DENSE_NOTE] * dense, *unable]))
    if not pressed and not (missing and not found):
        return None

    def measure() -> None:
        _measure(setup, wanted, found, under)
        with place:
            _show(setup, names, weighed, configs, found)

    return measure


def _measure(setup: Setup, configs: Sequence[AttentionConfig], found: dict[Key, Measurement], place: Any) -> None:
    bar = place.progress(0.0, "Measuring time and memory here")
    for fraction in costs.measuring(configs, setup.length, found):
        bar.progress(fraction, "Measuring time and memory here")
    place.empty()


def closed(config: AttentionConfig, length: int) -> Costed:
    return cached(costs.costed, config, length)


def _show(setup: Setup, names: Sequence[str], weighed: Sequence[Weighed],
          configs: Sequence[AttentionConfig | None], found: dict[Key, Measurement]) -> None:
    first = next((closed(config, setup.length).parameters for config in configs if config is not None), 0)
    rows = [row(names[at], weighed[at], config and closed(config, setup.length), at, first,
                found.get((config, setup.length)) if config else None) for at, config in enumerate(configs)]
    st.html(as_html(HEAD, rows))


def row(name: str, weighed: Weighed, cost: Costed | None, place: int, first: int, measured: Measurement | None) -> Row:
    """One line; the parameters of all but the first stand as what they are more or less than the first's."""
    done = measured is not None and not measured.skipped
    dense = "¹" if cost is not None and cost.dense and done else ""
    own = MISSING if cost is None else f"{cost.parameters:,}" if place == 0 else (
        f"{'+' if cost.parameters >= first else '−'} {abs(cost.parameters - first):,}")
    return [name, MISSING if weighed.entropy is None else number(weighed.entropy),
            MISSING if weighed.distance is None else number(weighed.distance),
            duration(measured.seconds) + dense if done and measured else MISSING,
            byte_size(measured.bytes) if done and measured else MISSING,
            MISSING if cost is None else ("≤ " if cost.at_most else "") + operations(cost.flops), own]


def as_html(head: Sequence[str], rows: Sequence[Row]) -> str:
    """The table, with a marker before each name; everything else is escaped."""
    body = ["<tr>" + "".join(f"<th>{escape(title)}</th>" for title in head) + "</tr>"]
    for place, line in enumerate(rows):
        cells = [f"<td>{mark_html(place, theme())}{escape(line[0])}</td>"]
        body.append("<tr>" + "".join([*cells, *(f"<td>{escape(cell)}</td>" for cell in line[1:])]) + "</tr>")
    return f'{STYLE}<div class="costs"><table>{"".join(body)}</table></div>'
