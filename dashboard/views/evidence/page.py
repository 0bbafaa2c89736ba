"""The page Evidence, from the question to the papers."""

from __future__ import annotations

import streamlit as st

from core import flow
from core.pretrained import PretrainedError
from core.pretrained.evidence import (
    ablate_heads,
    ablation,
    contributions,
    hide_token,
    make_heads_uniform,
    measure_contributions,
)
from dashboard.charts.numbers import number
from dashboard.views.evidence import heads, maps, tokens
from dashboard.views.evidence.controls import Controls, Head, draw_controls
from dashboard.views.evidence.text import can_tell, even_fact
from dashboard.widgets.model_picker import choose_model
from dashboard.widgets.panels import next_page, plain, source_panel, title

PAPERS = (
    ("‖α·v·W_O‖", "Kobayashi et al. 2020", "https://arxiv.org/abs/2004.10102",
     "how long the vector is that a head writes at a query for one key"),
    ("Rollout and flow", "Abnar and Zuidema 2020", "https://arxiv.org/abs/2005.00928",
     "attention added up over layers, with the residual as half of every step"),
    ("Heads switched off", "Michel et al. 2019", "https://arxiv.org/abs/1905.10650",
     "what the answer loses without a head, and α·∂answer/∂α as its estimate"),
    ("Weights as explanation", "Jain and Wallace 2019", "https://arxiv.org/abs/1902.10186",
     "how weights order words against gradients and words left out"),
    ("The answer to it", "Wiegreffe and Pinter 2019", "https://arxiv.org/abs/1908.04626",
     "when another set of weights is a fair rival, and when it is not"))
SOURCES = (ablate_heads, make_heads_uniform, hide_token, ablation._without, measure_contributions,
           contributions.value_norms, flow.rollout,
           flow.flow)


def page() -> None:
    title("Evidence", "A weight says where a head looks. Beside it: what the head writes, and what the answer loses.")
    chosen = choose_model("evidence")
    if chosen is None:
        next_page("evidence")
        return
    try:
        controls = draw_controls(chosen)
        _sections(controls)
    except PretrainedError as error:
        st.info(plain(str(error)), icon=":material/edit:")
    _papers()
    next_page("evidence")


def _sections(controls: Controls) -> None:
    if controls.reading.note:
        st.caption(plain(controls.reading.note))
    baseline = controls.baseline
    head: Head = (0, 0)
    pair = None
    if baseline is None or not baseline.pretrained.recordable:
        st.caption("Only the weights are known here, so what stands beside them is what follows from weights alone: "
                   "rollout and flow.")
        head = heads.head_field(controls)
    else:
        head, pair = heads.section(controls, baseline)
    head_views = maps.section(controls, head)
    _equation(controls, head, head_views)
    agree = st.expander("How the measures of this head agree", on_change="rerun", key="evidence:agree")
    if agree.open:
        with agree:
            maps.agreement(head_views)
    if baseline is not None:
        agreed = tokens.section(controls, baseline)
        if pair is not None:
            st.markdown(even_fact(baseline, controls.name(head), *pair))
        st.markdown(can_tell(*agreed))
    st.caption(_conditions(controls))


def _equation(controls: Controls, head: Head, head_views: maps.Views) -> None:
    """What is written at the telling cell, with its numbers."""
    if head_views.lengths is None:
        return
    row, column = maps.default_cell(controls, head)
    if column >= len(head_views.lengths):
        return
    weight, length = float(head_views.maps["weights"][row, column]), float(head_views.lengths[column])
    rolled = head_views.maps["rollout"]
    st.latex(rf"\lVert \alpha\, v\, W_O\rVert = {number(weight)} \times {number(length)} = "
             rf"{number(weight * length)}")
    st.latex(rf"\tilde A = \prod_\ell \tfrac12\left(\bar A_\ell + I\right),\quad "
             rf"\tilde A_{{{row},{column}}} = {number(float(rolled[row, column]))}")


def _conditions(controls: Controls) -> str:
    text = f"{plain(controls.reading.trace.source)}, {controls.reading.source.count}"
    watched = controls.baseline is not None and controls.baseline.pretrained.recordable
    text += "; fp32, no dropout" if controls.baseline else ", as they were uploaded"
    text += ", one forward pass a head." if watched else "."
    if controls.mixed:
        text += (" The paper of rollout and flow has encoders alone; here the decoder's steps follow the encoder's in "
                 "one graph, and the part that reaches the source is shown.")
    alone = " A head that changes nothing alone may still be one of several that do the same."
    return text + (alone if watched else "")


def _papers() -> None:
    shown = st.expander("Papers, and the code that just ran", on_change="rerun", key="evidence:papers")
    if shown.open:
        with shown:
            for name, paper, url, meaning in PAPERS:
                st.markdown(f"**{plain(name)}** — {plain(meaning)}. [{paper}]({url})")
            for function in SOURCES:
                source_panel(function)
