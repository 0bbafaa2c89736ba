"""The next value of a control, as the message that Streamlit's frontend would send of it."""

from __future__ import annotations

from typing import Any

from streamlit.proto.Slider_pb2 import Slider
from streamlit.proto.WidgetStates_pb2 import WidgetState

WIDGETS = (
    "slider",
    "number_input",
    "selectbox",
    "button_group",
    "multiselect",
    "checkbox",
    "text_input",
    "text_area",
    "button",
)


def next_state(sort: str, element: Any, before: WidgetState | None) -> WidgetState:
    """One step on from where it stands: `before`, or its first value. Sliders and lists turn at their end."""
    state = WidgetState(id=element.id)
    if sort == "button":
        state.trigger_value = True
    elif sort == "checkbox":
        state.bool_value = not (before.bool_value if before else _first(element))
    elif sort in ("text_input", "text_area"):
        state.string_value = f"{before.string_value if before else _first(element)} a"
    elif sort == "number_input":
        low, high = (
            element.min if element.has_min else -1e9,
            element.max if element.has_max else 1e9,
        )
        state.double_value = _step(
            before.double_value if before else _first(element), element.step, low, high
        )
    elif sort == "slider" and element.type != Slider.SELECT_SLIDER:
        values = list(before.double_array_value.data) if before else list(_first(element))
        values[-1] = _step(values[-1], element.step, element.min, element.max)
        state.double_array_value.data.extend(values)
    else:
        _choose(state, sort, element, before)
    return state


def _first(element: Any) -> Any:
    return element.value if element.set_value else element.default


def _step(value: float, step: float, low: float, high: float) -> float:
    return value + step if value + step <= high else max(low, value - step)


def _choose(state: WidgetState, sort: str, element: Any, before: WidgetState | None) -> None:
    """The option after the present one; of several that are picked, the last is taken out or put back."""
    options = (
        [option.content for option in element.options]
        if sort == "button_group"
        else list(element.options)
    )
    if sort == "selectbox":
        default = options[element.default if element.HasField("default") else 0]
        first = element.raw_value if element.set_value else default
        at = before.string_value if before else first
        state.string_value = options[(options.index(at) + 1) % len(options) if at in options else 0]
        return
    if before is not None:
        picked = list(before.string_array_value.data)
    elif sort == "slider":
        picked = [options[round(at)] for at in _first(element)]
    else:
        picked = (
            list(element.raw_values)
            if element.set_value
            else [options[at] for at in element.default]
        )
    if sort == "multiselect":
        rest = [option for option in options if option not in picked]
        state.string_array_value.data.extend(
            [*picked, *rest[:1]] if len(picked) < 2 else picked[:-1]
        )
    else:
        at = options.index(picked[-1]) if picked and picked[-1] in options else -1
        state.string_array_value.data.extend([*picked[:-1], options[(at + 1) % len(options)]])
