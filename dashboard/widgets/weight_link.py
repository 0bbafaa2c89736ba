"""A link from a picked cell of any page to the page Inside one weight."""

from __future__ import annotations

import streamlit as st

from core.trace import Kind
from dashboard.navigation import step_of
from dashboard.widgets.model_picker import ModelChoice
from dashboard.widgets.model_picker.head_choice import KINDS
from dashboard.widgets.panels import plain

KIND = "inside_weight:kind"  # the widget that takes the kind of attention from the link
STEP = step_of("inside_weight")


def weight_link(
    chosen: ModelChoice, kind: Kind, head: tuple[int, int], cell: tuple[int, int]
) -> None:
    """Draw a link to this weight; none for a sink, for arrays, and for families that cannot be recorded."""
    rows, columns = chosen.reading.lines(kind)
    if chosen.pretrained is None or not chosen.pretrained.recordable or cell[1] >= len(columns):
        return
    label = f"{STEP.title}: {plain(rows.tokens[cell[0]])} → {plain(columns.tokens[cell[1]])}"
    st.page_link(
        STEP.path,
        label=label,
        icon=STEP.icon,
        query_params={
            "head": f"{head[0]}.{head[1]}",
            "cell": f"{cell[0]}.{cell[1]}",
            KIND: KINDS[kind],
        },
    )
