"""Long measurements item by item, with their progress and a stop after which the measured items remain.

What one session measured, all others have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import streamlit as st

from dashboard.runtime.cache import measurements

AT_ONCE = 6.0  # seconds that are measured unasked
SHOW_EVERY = 0.15
TIMED = 3  # measurements from which the rest is foreseen: the first one also wakes the model up

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")


def measure_with_progress(key: str, about: Hashable, todo: Sequence[Item], one: Callable[[Item], Value], noun: str,
                          at_once: float | None = None) -> Mapping[Item, Value]:  # fmt: skip
    """`one` of each item measured so far; Stop keeps what there is.

    What takes over `at_once` seconds, by default 6, waits for a press.
    """
    state = st.session_state.get(key)
    if state is None or state["about"] != about:
        state = st.session_state[key] = {"about": about, "going": None, "each": 0.0}
    values: dict[Item, Value] = measurements(key, about)
    left = [item for item in todo if item not in values]
    if left and state["going"] is None:
        state["each"] = min(_timed(item, one, values) for item in left[:TIMED])
        left = left[TIMED:]
    if state["going"] is None:
        state["going"] = len(left) * state["each"] <= (AT_ONCE if at_once is None else at_once)
    if left:
        slot = st.empty()
        if state["going"]:
            _measure(key, slot, left, one, values, noun)
        else:
            _offer(key, slot, len(left), len(todo), state["each"], noun)
    return {item: values[item] for item in todo if item in values}


def _offer(key: str, slot: st.delta_generator.DeltaGenerator, left: int, count: int, each: float, noun: str) -> None:
    """Draw the button that measures the rest, with the time it takes."""
    seconds = max(1, round(left * each))
    with slot.container(horizontal=True, vertical_alignment="center"):
        st.button(f"Measure {left} {noun}", key=f"{key}:go", icon=":material/speed:", on_click=_set,
                  args=(key, True), help=f"About {seconds} s here. After Stop the page shows what was measured.")
        st.caption(f"{count - left} of {count} {noun} measured; the rest takes about {seconds} s.")


def _timed(item: Item, one: Callable[[Item], Value], values: dict[Item, Value]) -> float:
    began = time.monotonic()
    values[item] = one(item)
    return time.monotonic() - began


def _measure(key: str, slot: st.delta_generator.DeltaGenerator, left: Sequence[Item], one: Callable[[Item], Value],
             values: dict[Item, Value], noun: str) -> None:
    with slot.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, f"Measuring {len(left)} {noun}")
        st.button("Stop", key=f"{key}:stop", icon=":material/stop:", on_click=_set, args=(key, False))
    updated = time.monotonic()
    for count, item in enumerate(left):
        values[item] = one(item)
        if time.monotonic() - updated > SHOW_EVERY:
            bar.progress((count + 1) / len(left), f"{count + 1} of {len(left)} {noun}")
            updated = time.monotonic()
    slot.empty()


def _set(key: str, going: bool) -> None:
    st.session_state[key]["going"] = going
