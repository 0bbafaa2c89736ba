"""A model as nested parts that open: each row a part, with its numbers in columns, drawn in the browser.

    diagram(tree, key="transformer:diagram", picked="layers.0.cross", on_pick=take)

A row with parts in it opens and closes without a rerun; a row with a map comes back as `picked(key)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.models.model_summary import Part
from dashboard.components.lib import draw
from dashboard.components.model_diagram.cells import COLUMNS, cells, is_attention


def diagram(
    tree: Part, *, key: str, chosen: str, on_pick: Callable[[], None], fact: str = ""
) -> None:
    """Draw the tree; `chosen` is the path of the attention whose maps the page shows."""
    most = max((part.gradient or 0.0 for part in tree.layers()), default=0.0)
    data = {"tree": row(tree, tree, most), "heads": COLUMNS, "chosen": chosen, "fact": fact}
    draw("model_diagram", "dg", data, key=key, on_pick_change=on_pick)


def picked(key: str) -> str:
    """The path of the row that was pressed last."""
    return str(dict(st.session_state[key].get("pick") or {}).get("path", ""))


def row(part: Part, whole: Part, most: float) -> dict[str, Any]:
    """A part for the browser: its texts, and its shares of the model's numbers."""
    shares = [
        part.parameters / max(1, whole.parameters),
        part.flops / max(1, whole.flops),
        part.bytes / max(1, whole.bytes),
    ]
    return {
        "path": part.path,
        "title": part.title,
        "map": is_attention(part.path),
        "cells": cells(part),
        "shares": [round(share, 4) for share in shares],
        "parts": [row(child, whole, most) for child in part.children],
    }
