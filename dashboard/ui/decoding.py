"""Controls, outputs and sources of a search for tokens, which Decode and Generate share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from core.models.decoding import (
    Candidate,
    Hypothesis,
    SearchSettings,
    Strategy,
    beam_steps,
    sample_steps,
)
from dashboard.draw.formats import number, shorten
from dashboard.ui.links import BOUND
from dashboard.ui.panels import details, source_panel
from dashboard.ui.tables import table

# The table of outputs and the equation of one step, which Decode and Generate share.


MAX_OUTPUTS = 8  # in the table


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
        for one, text in zip(hypotheses[:MAX_OUTPUTS], texts, strict=False)
    ]
    for row, right in zip(rows, correct, strict=False):
        row.append("yes" if right else "no")
    table(head, rows, caption="Outputs, the best first", markers=False)
    if (more := len(hypotheses) - MAX_OUTPUTS) > 0:
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


STRATEGIES: dict[str, Strategy] = {
    "Greedy": "greedy",
    "Beam": "beam",
    "Sampling": "sampling",
}  # by label
PAPERS: dict[Strategy, tuple[str, str, str, str]] = {  # name, paper, address, meaning
    "greedy": (
        "Greedy",
        "Sutskever et al. 2014",
        "https://arxiv.org/abs/1409.3215",
        "Greedy decoding selects the most probable token at each step and never revises it.",
    ),
    "beam": (
        "Beam",
        "Wu et al. 2016, section 7",
        "https://arxiv.org/abs/1609.08144",
        "Beam search keeps the best partial outputs; the length penalty divides by a power of the length, because "
        "long outputs have a lower probability.",
    ),
    "sampling": (
        "Sampling",
        "Holtzman et al. 2020",
        "https://arxiv.org/abs/1904.09751",
        "Top-p (nucleus) sampling draws from the fewest tokens that together have probability p, without the "
        "unreliable tail; top-k sampling is from Fan et al. 2018.",
    ),
}
TEMPERATURES = (0.1, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0, 3.0)


def strategy_settings(
    strategy: str,
    cells: Sequence[Any],
    key: Callable[[str], str],
    *,
    max_width: int,
    penalty: tuple[str, float, str],
) -> dict[str, Any]:
    """A strategy's settings, one a cell; `penalty` is the label, default and help of the length penalty."""
    if strategy == "Greedy":
        return {}
    if strategy == "Sampling":
        return _sampling_settings(cells, key)
    label, default, meaning = penalty
    return {
        "width": cells[0].slider(
            "Width",
            1,
            max_width,
            4,
            key=key("width"),
            **BOUND,
            help="The number of partial outputs that are kept at each step.",
        ),
        "length_penalty": cells[1].slider(
            label, 0.0, 2.0, default, 0.1, key=key("penalty"), **BOUND, help=meaning
        ),
    }


def sample_count(most: int, default: int, key: Callable[[str], str]) -> dict[str, Any]:
    """The fields of the number of samples and the seed."""
    return {
        "samples": st.slider(
            "Samples",
            1,
            most,
            default,
            key=key("samples"),
            **BOUND,
            help="The number of outputs that are sampled.",
        ),
        "seed": st.number_input(
            "Seed",
            0,
            10_000,
            0,
            key=key("seed"),
            **BOUND,
            help="The same seed gives the same samples.",
        ),
    }


def _sampling_settings(cells: Sequence[Any], key: Callable[[str], str]) -> dict[str, Any]:
    return {
        "temperature": cells[0].select_slider(
            "Temperature",
            TEMPERATURES,
            1.0,
            key=key("temperature"),
            **BOUND,
            help="Below 1 the distribution is sharper, above 1 flatter.",
        ),
        "top_k": cells[1].number_input(
            "Top-k",
            0,
            1000,
            0,
            key=key("top_k"),
            **BOUND,
            help="Sample from the k most probable tokens; 0 means all.",
        ),
        "top_p": cells[2].slider(
            "Top-p",
            0.05,
            1.0,
            1.0,
            0.05,
            key=key("top_p"),
            **BOUND,
            help="Sample from the fewest tokens that together have this probability.",
        ),
    }


def sources(strategy: Strategy, key: str) -> None:
    """An expander with the paper of a search strategy and the source of the search."""

    def draw() -> None:
        name, paper, url, meaning = PAPERS[strategy]
        st.markdown(f"**{name}** — {meaning} [{paper}]({url})")
        source_panel(sample_steps if strategy == "sampling" else beam_steps)

    details("Paper and source code of the search", draw, key)
