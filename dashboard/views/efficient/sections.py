"""The race: its controls, how far it is, two figures, the sentence and the table."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.attention import Choice, Entry
from core.benchmark import CPU, devices, race
from core.cost import attention_cost
from dashboard.charts.numbers import byte_size, duration
from dashboard.runtime.cache import cached
from dashboard.runtime.racing import Race
from dashboard.views.efficient import example, measure, state, words
from dashboard.views.efficient.figures import Line, log_log, rows
from dashboard.views.efficient.state import ENTRIES, Asked, Result, key
from dashboard.widgets.panels import entries_panel, fact, plain, source_panel, theme, title
from dashboard.widgets.params import BOUND, params_of
from dashboard.widgets.table import table

BEAT = 0.5  # seconds between two looks at a race
RACE, RESULT = key("race"), key("result")
SEEN = {False: "every key", True: "keys before"}
PASSES = {False: "forward", True: "and backward"}


def running() -> Race | None:
    found = st.session_state.get(RACE)
    return found if found is not None and found.alive else None


def explore() -> None:
    """Controls and figures as one fragment, which looks again on each beat while a race is on."""
    st.fragment(_explore, run_every=BEAT if running() else None, key=key("explore"))()


def _explore() -> None:
    title("Cost and speed", "Twice the text costs exact attention four times as much. Some kernels save that exactly, "
                            "others nearly.")
    asked = controls()
    follow(asked)
    result = st.session_state.get(RESULT) or example.load()
    kernels = [kernel for kernel in asked.keys if result.of(kernel)]
    figures(result, kernels)
    if said := words.fact(result, kernels):
        fact(said)
    st.caption(" ".join(filter(None, (words.conditions(result, RESULT not in st.session_state),
                                      words.skipped(result, kernels)))))
    found = {kernel: cached(measure.apart, result.asked.config(kernel)) for kernel in kernels}
    table(words.HEAD, words.rows(result, kernels, found), caption="What each kernel takes at its longest length",
          markers=False)


def controls() -> Asked:
    """Which kernels race, how long the text gets, what they see, and the button."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2), st.popover("Kernels", icon=":material/speed:", width="stretch"):
        kernels = st.multiselect(f"Up to {state.MOST} kernels", list(ENTRIES), list(state.USUAL), key=key("kernels"),
                                 format_func=lambda name: ENTRIES[name].name, max_selections=state.MOST, **BOUND)
        window = st.select_slider("Window of local and block-sparse", state.WINDOWS, state.USUAL_WINDOW,
                                  key=key("window"), **BOUND, help="keys seen on either side of a query")
        choices = tuple(chosen(ENTRIES[kernel]) for kernel in kernels)
    with grid:
        longest = st.selectbox("Longest text", state.LONGEST, state.LONGEST.index(state.USUAL_LONGEST),
                               format_func=lambda length: f"{length:,} tokens", key=key("longest"), **BOUND,
                               help=words.limits(devices()[0]))
        causal = st.selectbox("Queries see", list(SEEN), format_func=SEEN.get, key=key("causal"), **BOUND)
        backward = st.selectbox("Pass", list(PASSES), format_func=PASSES.get, key=key("backward"), **BOUND)
        here = devices()
        device = CPU if len(here) == 1 else st.selectbox("Device", here, format_func=words.device, key=key("device"),
                                                         **BOUND)
        asked = Asked(choices, longest, bool(causal), bool(backward), window, device)
        button(asked)
    for sentence in asked.configs()[1]:
        st.info(plain(sentence), icon=":material/block:")
    return asked


def chosen(item: Entry) -> Choice:
    """The kernel with its own parameters' widgets, but for a table's length, which follows the longest text."""
    if any(param.key != state.TABLE for param in item.params):
        st.markdown(f"**{item.name}**")
    return Choice.of(item.key, **params_of(item, key=key("params"), shown_elsewhere=(state.TABLE,)))


def button(asked: Asked) -> None:
    """Measure here, or Stop while a race is on."""
    if found := running():
        st.button("Stop", icon=":material/stop:", type="primary", width="stretch", key=key("stop"), on_click=stop,
                  args=(found,))
    else:
        st.button("Measure here", icon=":material/timer:", type="primary", width="stretch", key=key("measure"),
                  on_click=start, args=(asked,), disabled=not asked.configs()[0], help=words.limits(asked.device))


def start(asked: Asked) -> None:
    able = asked.configs()[0]
    st.session_state[RACE] = Race(replace(asked, kernels=tuple(c for c in asked.kernels if c.key in able)))


def stop(found: Race) -> None:
    found.stop()
    found.wait(BEAT)


def follow(asked: Asked) -> None:
    """How far a race is; what it has measured becomes the result, and its end stops the beat."""
    found = st.session_state.get(RACE)
    if found is None:
        if not (st.session_state.get(RESULT) or example.load()).asked.covers(asked):
            st.caption("The curves below are those measured before; Measure here runs what the controls say now.")
        return
    found.look()
    if found.points:
        st.session_state[RESULT] = found.result()
    if found.alive:
        said = "Another measurement is going on; this one is next." if found.waiting else "Measuring"
        st.progress(found.fraction, text=said)
        if key("beating") not in st.session_state:
            st.session_state[key("beating")] = True
            st.rerun(scope="app")
        return
    if found.error:
        st.error(plain(found.error))
    del st.session_state[RACE]
    if st.session_state.pop(key("beating"), False):
        st.rerun(scope="app")


def figures(result: Result, kernels: list[str]) -> None:
    """Time and peak memory against length, side by side."""
    if not kernels:
        st.info("Pick a kernel to see its curves.", icon=":material/speed:")
        return
    time, memory = [], []
    for kernel in kernels:
        points, place = result.of(kernel), len(time)
        config = result.asked.config(kernel)
        closed = [(p.length, attention_cost(config, p.length, p.length)) for p in points]
        speed = points[-1].seconds / closed[-1][1].flops
        time.append(Line(ENTRIES[kernel].name, place, [(p.length, p.seconds / words.MILLI) for p in points],
                         [(length, cost.flops * speed / words.MILLI) for length, cost in closed]))
        memory.append(Line(ENTRIES[kernel].name, place, [(p.length, p.bytes / words.MEGABYTE) for p in points],
                           [(length, cost.bytes / words.MEGABYTE) for length, cost in closed]))
    left, right = st.columns(2, gap="medium")
    both = ((left, "Time of a call", "ms", time, lambda y: duration(y * words.MILLI)),
            (right, "Peak memory", "MB", memory, lambda y: byte_size(y * words.MEGABYTE)))
    for column, name, unit, lines, told in both:
        drawn = log_log(name, unit, lines, theme())
        column.vega_lite_chart(rows(lines, told), drawn, theme=None, key=key(unit), width="stretch",
                               alt=f"{name} against the number of tokens, both logarithmic, one line a kernel")


def sources() -> None:
    """On request: each kernel's equation and paper, and the generator that measured."""
    panel = st.expander("Equations, papers and the code that just ran", on_change="rerun", key=key("sources"))
    if panel.open:
        with panel:
            entries_panel(ENTRIES.values())
            source_panel(race)
