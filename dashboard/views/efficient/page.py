"""The page Cost and speed: a benchmark, two figures, a table, and the weights that some kernels imply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.benchmark import race
from core.cost import attention_cost
from core.kernel_error import output_error
from dashboard.charts.numbers import byte_size, duration
from dashboard.runtime.cache import cached
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.polling import POLL_INTERVAL
from dashboard.runtime.racing import Race
from dashboard.views.efficient import compute, example, text
from dashboard.views.efficient.charts import Line, log_log, rows
from dashboard.views.efficient.compute import Result
from dashboard.views.efficient.controls import ENTRIES, USUAL, Controls, draw_controls, key, limits_help
from dashboard.views.efficient.implied import implied_weights
from dashboard.views.efficient.script import benchmark
from dashboard.widgets.panels import caption, details, entries_panel, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.table import table

RACE, RACE_CONTROLS, RESULT = key("race"), key("race_controls"), key("result")
POLLING = key("beating")
OLDER = "The curves were measured before, with other controls. Press Measure to measure these."


def page() -> None:
    """Draw the page from top to bottom."""
    title("Cost and speed", "Twice as many tokens cost exact attention four times the work. Some kernels save memory "
                            "with the same output, others save work with an approximate one.")
    # one fragment, which polls while a race runs
    st.fragment(_benchmark, run_every=POLL_INTERVAL if running() else None, key=key("explore"))()
    implied_weights()
    details("Equations, papers and the code that just ran", _sources, key("sources"))
    next_page("efficient")


def running() -> Race | None:
    """The race of this session that has not ended."""
    current = st.session_state.get(RACE)
    return current if current is not None and current.alive else None


def _benchmark() -> None:
    _collect()
    controls, older = _controls()
    result, kernels = _shown()
    _figures(result, kernels)
    if sentence := text.fact(result, kernels):
        fact(sentence)
    caption(" ".join(filter(None, (OLDER * older, text.conditions(result, RESULT not in st.session_state),
                                   text.skipped(result, kernels)))))
    if kernels:
        add_script(partial(benchmark, result, kernels, RESULT not in st.session_state), "benchmark")
    errors = {kernel: cached(output_error, result.controls.config(kernel), compute.SEED) for kernel in kernels}
    table(text.HEAD, text.rows(result, kernels, errors), markers=False,
          caption="Time, FLOPs and memory of each kernel at its longest length")


def _controls() -> tuple[Controls, bool]:
    """Draw the controls, and how far a race is; returns also whether the curves are of other controls."""
    controls = draw_controls(_button)
    return controls, _progress(controls)


def _shown() -> tuple[Result, list[str]]:
    """The result, and those of the picked kernels that it has."""
    result = st.session_state.get(RESULT) or example.load()
    return result, [kernel for kernel in st.session_state.get(key("kernels"), USUAL) if result.of(kernel)]


def _button(controls: Controls) -> None:
    """Measure, or Stop while a race is on."""
    if current := running():
        st.button("Stop", icon=":material/stop:", type="primary", width="stretch", key=key("stop"), on_click=_stop,
                  args=(current,))
    else:
        st.button("Measure", icon=":material/timer:", type="primary", width="stretch", key=key("measure"),
                  on_click=_start, args=(controls,), disabled=not controls.configs()[0],
                  help=limits_help(controls.device))


def _start(controls: Controls) -> None:
    configs = controls.configs()[0]
    controls = replace(controls, kernels=tuple(choice for choice in controls.kernels if choice.key in configs))
    st.session_state[RACE], st.session_state[RACE_CONTROLS] = compute.start_race(controls), controls


def _stop(current: Race) -> None:
    current.stop()
    current.wait(POLL_INTERVAL)


def _collect() -> None:
    """Store the points of a race."""
    if current := st.session_state.get(RACE):
        current.poll()
        if current.points:
            st.session_state[RESULT] = Result.of_race(st.session_state[RACE_CONTROLS], current)


def _progress(controls: Controls) -> bool:
    """Show how far a race is; its end stops the polling.

    Returns whether no race is on and the controls are others than those of the curves.
    """
    current = st.session_state.get(RACE)
    if current is None:
        return not (st.session_state.get(RESULT) or example.load()).controls.covers(controls)
    if current.alive:
        label = "Waiting for another measurement to end" if current.waiting else "Measuring"
        st.progress(current.fraction, text=label)
        if POLLING not in st.session_state:
            st.session_state[POLLING] = True
            st.rerun(scope="app")
        return False
    if current.error:
        st.error(plain(current.error))
    del st.session_state[RACE]
    if st.session_state.pop(POLLING, False):
        st.rerun(scope="app")
    return False


def _figures(result: Result, kernels: list[str]) -> None:
    """Time and peak memory against length, side by side."""
    if not kernels:
        st.info("Pick a kernel to see its curves.", icon=":material/speed:")
        return
    time, memory = list[Line](), list[Line]()
    for index, kernel in enumerate(kernels):
        points, config, name = result.of(kernel), result.controls.config(kernel), ENTRIES[kernel].name
        closed = [(p.length, attention_cost(config, p.length, p.length)) for p in points]
        speed = points[-1].seconds / closed[-1][1].flops
        time.append(Line(name, index, [(p.length, p.seconds / text.MILLI) for p in points],
                         [(length, cost.flops * speed / text.MILLI) for length, cost in closed]))
        memory.append(Line(name, index, [(p.length, p.bytes / text.MEGABYTE) for p in points],
                           [(length, cost.bytes / text.MEGABYTE) for length, cost in closed]))
    left, right = st.columns(2, gap="medium")
    _figure(left, "Time of a call", "ms", time, lambda y: duration(y * text.MILLI))
    _figure(right, "Peak memory", "MB", memory, lambda y: byte_size(y * text.MEGABYTE))


def _figure(column: DeltaGenerator, name: str, unit: str, lines: list[Line], format_y: Callable[[float], str]) -> None:
    draw_chart(column, log_log(name, unit, lines, theme()), rows(lines, format_y), theme=None, key=key(unit),
               width="stretch",
               alt=f"{name} against the number of tokens, both logarithmic, one line for each kernel")


def _sources() -> None:
    """Draw each kernel's equation and paper, and the generator that measured."""
    entries_panel(ENTRIES.values())
    source_panel(race)
