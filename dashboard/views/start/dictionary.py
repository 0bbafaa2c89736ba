"""The dictionary: a hard and a soft look-up of the same query, which the reader edits; the part that loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from dashboard.draw.formats import number
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.start.charts import lookup_table
from dashboard.views.start.compute import look_up
from dashboard.views.start.controls import NAMES, PAGE, Controls, draw_controls, key, read_controls
from dashboard.views.start.script import script
from dashboard.views.start.text import (
    DICTIONARY,
    hard_text,
    score_text,
    soft_text,
    typed,
    vector_text,
)
from dashboard.widgets.guide import Move, in_picture, try_this
from dashboard.widgets.panels import caption, theme

MOVES = (
    Move(
        "Ask for exactly key C",
        {key("q1"): 1.0, key("q2"): 1.0},
        "the hard look-up now finds key C and returns its value alone. The soft one gives C the largest weight and "
        "still mixes in the others.",
    ),
    Move(
        "Make the query ten times longer",
        {key("q1"): 10.0, key("q2"): 20.0},
        "the scores are ten times larger, and one weight is nearly 1: the soft look-up has become almost hard.",
    ),
    Move(
        "Ask for nothing",
        {key("q1"): 0.0, key("q2"): 0.0},
        "all scores are 0, so all weights are equal, and the output is the mean of the values.",
    ),
)


@fragment
def dictionary(data: Mapping[str, Any], item: Mapping[str, Any]) -> None:
    """Draw the numbers to edit, and what both look-ups return."""
    st.markdown("## Query, key and value: a soft dictionary")
    st.markdown(DICTIONARY)
    render_before_widgets(
        key("ready"),
        read_controls,
        draw_controls,
        in_picture(PAGE, partial(_show, data, item)),
        st.columns([0.42, 0.58], gap="large"),
    )
    try_this(PAGE, MOVES)


def _show(data: Mapping[str, Any], item: Mapping[str, Any], controls: Controls) -> None:
    """Draw the table of both look-ups and what they return."""
    result = look_up(controls)
    add_script(partial(script, data, item, controls, result))
    rows = [
        (
            f"{name} {vector_text(controls.keys[at])}",
            number(result.products[at]),
            number(result.scores[at]),
            result.weights[at],
            typed(controls.values[at]),
            at == result.equal,
        )
        for at, name in enumerate(NAMES)
    ]
    st.html(lookup_table(rows, theme()))
    st.markdown(hard_text(controls, result))
    st.markdown(soft_text(controls, result))
    caption(score_text(controls, result))
