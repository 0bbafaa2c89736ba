"""The page When it decides."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret import attribution, lens
from dashboard.ui.progress import fragment_unless_measuring
from dashboard.views.lens import text, when, who
from dashboard.views.lens.controls import draw_controls
from dashboard.widgets.guide import picture, try_this
from dashboard.widgets.model_picker import ModelChoice, choose_model, input_errors
from dashboard.widgets.panels import caption, details, next_page, source_panel, title

SOURCES = (
    lens.read_part,
    lens._readout,
    lens._last_output,
    attribution.attribute_passes,
    attribution._stream_parts,
    attribution._scaled_copy,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "When it decides",
        "A model changes its answer layer by layer. Read every layer with the logit lens, as if "
        "it were the last, and see which part wrote the answer.",
    )
    choice = choose_model("lens", needs=("tokens",))
    if choice is not None:
        fragment_unless_measuring(partial(_view, choice))
    details("How layers are read and summed: papers and source", _sources, "lens:how")
    next_page("lens")


def _view(choice: ModelChoice) -> None:
    with input_errors():
        controls = draw_controls(choice)
        with picture("lens"):
            {"when": when.section, "who": who.section}[controls.view](controls)
        caption(text.conditions(controls))
    try_this("lens", text.MOVES)


def _sources() -> None:
    st.markdown(
        "The states after a layer stand in for the last layer’s, so that whatever the family does after it is "
        "done to them: [nostalgebraist 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/"
        "interpreting-gpt-the-logit-lens). Attribution: [Elhage et al. 2021](https://transformer-circuits.pub/"
        "2021/framework/index.html); [Wang et al. 2023](https://arxiv.org/abs/2211.00593), section 3. In "
        "models that normalize after each addition, such as the original Transformer, a part passes every "
        "later norm with its scale held."
    )
    for function in SOURCES:
        source_panel(function)
