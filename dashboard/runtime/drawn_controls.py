"""The controls that a page draws, by their labels: read from what it sends to the browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamlit.runtime.state.common import user_key_from_element_id

from dashboard.server.streamlit_internals import script_run

CONTROLS = {
    "button_group",
    "checkbox",
    "color_picker",
    "date_input",
    "file_uploader",
    "multiselect",
    "number_input",
    "radio",
    "selectbox",
    "slider",
    "text_area",
    "text_input",
    "time_input",
}  # what a reader can change


@contextmanager
def labels_drawn() -> Iterator[dict[str, str]]:
    """Collect the label of each control that is drawn inside, under its key."""
    labels: dict[str, str] = {}
    context = script_run()
    if context is None:
        yield labels
        return
    send = context._enqueue

    def note(message: Any) -> None:
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if kind in CONTROLS:
            control = getattr(element, kind)
            key = user_key_from_element_id(control.id)
            if key is not None and control.label.strip():
                labels[key] = control.label.strip()
        send(message)

    context._enqueue = note
    try:
        yield labels
    finally:
        context._enqueue = send
