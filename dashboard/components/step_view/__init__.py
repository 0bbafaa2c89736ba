"""The six-stage picture of one query, as a component: drawn in the browser, presses come back as `pick`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.components.step_view.payload import StageWords, payload
from dashboard.components.step_view.reading import Reading, read

_HERE = Path(__file__).parent
_HTML = """
<div class="step-view" tabindex="0">
  <div class="tint"></div><canvas></canvas><div class="art"></div>
  <p class="fact"></p><p class="caption"></p><div class="more"></div><table></table>
</div>
"""
_SCRIPTS = ("colour.js", "thumbs.js", "detail.js", "step_view.js")  # in this order: the last one exports


def _assets() -> dict[str, str]:
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return {"html": _HTML, "css": (_HERE / "step_view.css").read_text(encoding="utf-8"), "js": script}


_component = st.components.v2.component("attention_lab.step_view", **_assets())


def step_view(picture: dict[str, Any], *, key: str, on_pick: Callable[[], None]) -> None:
    """Draw a payload; `st.session_state[key].pick` holds what was pressed: {query}, {key} or {stage}."""
    _component(data=picture, key=key, on_pick_change=on_pick)


__all__ = ["Reading", "StageWords", "payload", "read", "step_view"]
