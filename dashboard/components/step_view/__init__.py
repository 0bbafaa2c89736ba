"""The picture of one query in six stages; presses are returned as `pick`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboard.components.lib import draw
from dashboard.components.step_view.payload import StageTexts, payload
from dashboard.components.step_view.projection import projection_payload
from dashboard.components.step_view.reading import Reading, read


def step_view(picture: dict[str, Any], *, key: str, on_pick: Callable[[], None]) -> None:
    """Draw a payload; `st.session_state[key].pick` holds what was pressed: {query}, {key} or {stage}."""
    draw("step_view", "step-view", picture, key=key, on_pick_change=on_pick)


__all__ = ["Reading", "StageTexts", "payload", "projection_payload", "read", "step_view"]
