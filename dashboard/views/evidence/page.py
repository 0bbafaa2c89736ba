"""The page Evidence."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret import evidence
from core.interpret import trace as flow
from core.pretrained.attention_recorder import NO_HEADS
from dashboard.draw.formats import number
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.progress import fragment_unless_measuring
from dashboard.views.evidence import heads, maps, tokens
from dashboard.views.evidence.compute import HeadMaps, default_cell
from dashboard.views.evidence.controls import Controls, Head, draw_controls
from dashboard.views.evidence.script import script
from dashboard.views.evidence.text import can_tell, conditions, even_fact
from dashboard.widgets.model_picker import ModelChoice, choose_model, input_errors
from dashboard.widgets.panels import (
    caption,
    details,
    next_page,
    paragraph,
    plain,
    source_panel,
    title,
)

PAPERS = (
    (
        "‖α·v·W_O‖",
        "Kobayashi et al. 2020",
        "https://arxiv.org/abs/2004.10102",
        "the length of the vector that a head writes at a query for one key",
    ),
    (
        "Rollout and flow",
        "Abnar and Zuidema 2020",
        "https://arxiv.org/abs/2005.00928",
        "attention combined over the layers, with the residual as half of every step",
    ),
    (
        "Heads switched off",
        "Michel et al. 2019",
        "https://arxiv.org/abs/1905.10650",
        "what the answer loses without a head, and α·∂answer/∂α as its estimate",
    ),
    (
        "Weights as explanation",
        "Jain and Wallace 2019",
        "https://arxiv.org/abs/1902.10186",
        "how the order of words by weight agrees with gradients and with leaving words out",
    ),
    (
        "A reply",
        "Wiegreffe and Pinter 2019",
        "https://arxiv.org/abs/1908.04626",
        "when another set of weights is a fair comparison, and when it is not",
    ),
)
SOURCES = (
    evidence.ablate_heads,
    evidence.make_heads_uniform,
    evidence.hide_token,
    evidence._without,
    evidence.measure_contributions,
    evidence.value_norms,
    flow.rollout,
    flow.flow,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Evidence",
        "A weight shows where a head attends. Compare it with what the head writes and what the answer "
        "loses without it.",
    )
    choice = choose_model("evidence")
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
        details("Papers and source", _papers, "evidence:papers")
    next_page("evidence")


def _view(choice: ModelChoice) -> None:
    """Draw the controls and all that they change."""
    with input_errors():
        _sections(draw_controls(choice))


def _sections(controls: Controls) -> None:
    if controls.reading.note:
        st.caption(plain(controls.reading.note))
    baseline, pair, off = controls.baseline, None, NO_HEADS
    if baseline is not None and controls.recordable:
        head, pair, off = heads.section(controls, baseline)
    else:
        st.caption(
            "Only the weights are known here, so the page shows only what follows from them: rollout and flow."
        )
        head = heads.head_field(controls)
    measures = maps.section(controls, head)
    add_script(partial(script, controls, head, measures, off))
    _equation(controls, head, measures)
    details(
        "How the measures of this head agree", lambda: maps.agreement(measures), "evidence:agree"
    )
    if baseline is not None:
        agreed = tokens.section(controls, baseline)
        if pair is not None:
            paragraph(even_fact(baseline, controls.name(head), *pair))
        paragraph(can_tell(*agreed))
    caption(conditions(controls))


def _equation(controls: Controls, head: Head, measures: HeadMaps) -> None:
    """Draw the norm that is written at the default cell, and its rollout, with their numbers."""
    row, column = default_cell(controls, head)
    if measures.lengths is None or column >= measures.lengths.shape[1]:
        return
    weight, length = (
        float(measures.maps["weights"][row, column]),
        float(measures.lengths[row, column]),
    )
    st.latex(
        rf"\lVert \alpha\, v\, W_O\rVert = {number(weight)} \times {number(length)} = "
        rf"{number(weight * length)}"
    )
    st.latex(
        rf"\tilde A = \prod_\ell \tfrac12\left(\bar A_\ell + I\right),\quad "
        rf"\tilde A_{{{row},{column}}} = {number(float(measures.maps['rollout'][row, column]))}"
    )


def _papers() -> None:
    for name, paper, url, meaning in PAPERS:
        st.markdown(f"**{plain(name)}** — {plain(meaning)}. [{paper}]({url})")
    for function in SOURCES:
        source_panel(function)
