"""Long measurements item by item, with their progress and a stop after which the measured items remain."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import streamlit as st

from dashboard.draw.components import begin
from dashboard.fields.link import fragment
from dashboard.server.cache import measurements
from dashboard.server.session import SessionValue

AT_ONCE = 6.0  # seconds that are measured unasked
UNASKED = 60.0  # the same where little can be shown before all is measured
QUIET = 0.5  # seconds without a sign of the work
SHOW_EVERY = 0.15
TIMED = 3  # measurements from which the rest is foreseen: the first one also wakes the model up
MEASURED = SessionValue(False, "progress:measured")  # whether the last run had something to measure

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")
_in_fragment: ContextVar[bool] = ContextVar("_in_fragment", default=False)


def fragment_unless_measuring(draw: Callable[[], object]) -> None:
    """Draw all pictures of a page in a fragment, which reruns alone; in no fragment after a run that measured.

    A press in a fragment does not interrupt it: one that comes upon something to measure runs the whole app again.
    """
    if MEASURED.pop():
        with st.container():  # as a fragment has one, so that each element keeps its place
            draw()
    else:
        _fragment(draw)


def leave_fragment() -> None:
    """Before something is measured in a fragment, where no press would interrupt it: run the whole app again."""
    if _in_fragment.get():
        MEASURED.value = True
        st.rerun(scope="app")


@fragment
def _fragment(draw: Callable[[], object]) -> None:
    begin(keeps_about=True)
    token = _in_fragment.set(True)
    try:
        draw()
    finally:
        _in_fragment.reset(token)


def measure_with_progress(key: str, about: Hashable, todo: Sequence[Item], one: Callable[[Item], Value], noun: str,
                          at_once: float | None = None) -> Mapping[Item, Value]:  # fmt: skip
    """`one` of each item measured so far; Stop keeps what there is.

    What takes over `at_once` seconds, by default 6, waits for a press. The progress and Stop appear after half a second
    of work. In a fragment only by `fragment_unless_measuring`.
    """
    stored = SessionValue[dict[str, Any]]({}, key)
    if not stored.is_set or stored.value["about"] != about:
        # the values are held here too, as the cache may evict them while the page is open
        stored.value = {
            "about": about,
            "going": None,
            "each": 0.0,
            "values": measurements(key, about),
        }
    state = stored.value
    values: dict[Item, Value] = state["values"]
    left = [item for item in todo if item not in values]
    # always, so that what comes after it keeps its place, and the keyboard's focus
    slot = st.empty()
    if left and state["going"] is not False:
        MEASURED.value = True
        leave_fragment()
    bar: st.delta_generator.DeltaGenerator | None = None
    shown, count = time.monotonic() + QUIET - SHOW_EVERY, len(left)

    def button(label: str, name: str, icon: str, going: bool, meaning: str | None = None) -> None:
        st.button(
            label,
            key=f"{key}:{name}",
            icon=icon,
            help=meaning,
            on_click=lambda: state.update(going=going),
        )

    while left and state["going"] is not False:
        began, item = time.monotonic(), left.pop(0)
        values[item] = one(item)
        now = time.monotonic()
        if state["going"] is None:
            state["each"] = min(state["each"] or now - began, now - began)
            if not left or count - len(left) == TIMED:
                limit = AT_ONCE if at_once is None else at_once
                state["going"] = len(left) * state["each"] <= limit
        if now >= shown + SHOW_EVERY:
            # how many are measured, with Stop, once the work has lasted QUIET
            shown, done = now, sum(each in values for each in todo)
            words = f"{done} of {len(todo)} {noun}"
            if bar is None:
                with slot.container(horizontal=True, vertical_alignment="center"):
                    bar = st.progress(done / len(todo), words)
                    button("Stop", "stop", ":material/stop:", False)
            else:
                bar.progress(done / len(todo), words)
    slot.empty()
    if left:
        # The button that measures the rest, with the time it takes
        wait = f"about {max(1, round(len(left) * state['each']))} s"
        with slot.container(horizontal=True, vertical_alignment="center"):
            button(
                f"Measure {len(left)} {noun}",
                "go",
                ":material/speed:",
                True,
                f"{wait.capitalize()} here. Stop keeps what was measured.",
            )
            st.caption(
                f"{len(todo) - len(left)} of {len(todo)} {noun} measured; the rest takes {wait}."
            )
    return {item: values[item] for item in todo if item in values}
