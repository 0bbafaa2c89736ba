"""The table of outputs and the equation of one step, which Decode and Generate share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from core.decoding import Candidate, Hypothesis, SearchSettings
from dashboard.draw.formats import number, shorten
from dashboard.widgets.table import table

MOST_OUTPUTS = 8  # in the table


def outputs_table(
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    sampled: bool,
    correct: Sequence[bool] = (),
) -> None:
    """A table of the outputs, the best first; whether each is `correct`, where that is known."""
    head = [
        "output",
        "log-probability",
        "tokens",
        "drawn" if sampled else "score",
        *["right"] * bool(correct),
    ]
    rows = [
        [
            shorten(text) or "nothing",
            number(one.logp),
            str(len(one)),
            f"{one.samples}" if sampled else number(one.score),
        ]
        for one, text in zip(hypotheses[:MOST_OUTPUTS], texts, strict=False)
    ]
    for row, right in zip(rows, correct, strict=False):
        row.append("yes" if right else "no")
    table(head, rows, caption="Outputs, the best first", markers=False)
    if (more := len(hypotheses) - MOST_OUTPUTS) > 0:
        st.caption(f"And {more} more.")


def step_equation(settings: SearchSettings, step: Candidate, total: float, subscript: str) -> str:
    """The rule of greedy decoding or of sampling with a step's numbers, in LaTeX; `total` is the path's log p."""
    probability = number(math.exp(step.logp))
    if settings.strategy == "greedy":
        return (
            rf"y_{subscript} = \arg\max_i\, p_i, \qquad p = {probability}, "
            rf"\qquad \sum_t \log p_t = {number(total)}"
        )
    filters = ", ".join(
        [f"top-k {settings.top_k}"] * bool(settings.top_k)
        + [f"top-p {settings.top_p:g}"] * (settings.top_p < 1)
    )
    over = rf"j \text{{ kept by {filters}}}" if filters else r"\text{all } j"
    return (
        rf"p'_i = \frac{{p_i^{{1/T}}}}{{\sum_{{{over}}} p_j^{{1/T}}}}, \qquad T = {settings.temperature:g}: \quad "
        rf"{probability} \to {number(step.chance or 0)}"
    )
