"""Controls, outputs and sources of a search for tokens, which Decode and Generate share."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from core.models.decoding import (
    Hypothesis,
    Penalty,
    SearchSettings,
    Strategy,
    Tree,
    beam_steps,
    length_power,
    sample_steps,
)
from dashboard.draw.formats import number, shorten
from dashboard.ui.fields import Field, Fields, Number, Segmented, SelectSlider, Values
from dashboard.ui.panels import details, sources as sources_panel, table

# The table of outputs and the equation of one step, which Decode and Generate share.


MAX_OUTPUTS = 8  # in the table


def outputs_table(
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    sampled: bool,
    correct: Sequence[bool] = (),
) -> None:
    right = [["yes" if one else "no"] for one in correct] or [[]] * len(hypotheses)
    shown = list(zip(hypotheses, texts, right, strict=False))[:MAX_OUTPUTS]
    table(
        [
            "output",
            "log-probability",
            "tokens",
            "drawn" if sampled else "score",
            *["right"] * bool(correct),
        ],
        [
            [
                shorten(text) or "nothing",
                number(one.logp),
                str(len(one)),
                f"{one.samples}" if sampled else number(one.score),
                *last,
            ]
            for one, text, last in shown
        ],
        caption="Outputs, the best first",
        markers=False,
    )
    if (more := len(hypotheses) - MAX_OUTPUTS) > 0:
        st.caption(f"And {more} more.")


def search_equation(
    settings: SearchSettings,
    tree: Tree,
    path: Sequence[int],
    step: int,
    subscript: str,
    base: str = "{}",
    lp: Penalty = length_power,
) -> str:
    """The rule of the strategy with the numbers of a path and its step, in LaTeX.

    A beam divides by `lp`, whose base is written as `base` with the length.
    """
    total, last = tree.candidates[path[-1]].total, tree.candidates[path[step]]
    probability = number(math.exp(last.logp))
    if settings.strategy == "beam":
        length, alpha = len(path), settings.length_penalty
        return (
            rf"\text{{score}} = \frac{{\sum_t \log p_t}}{{{base.format('|Y|')}^{{\alpha}}}} = "
            rf"\frac{{{number(total)}}}{{{base.format(length)}^{{{alpha:g}}}}} = "
            f"{number(total / lp(length, alpha))}"
        )
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
        rf"{probability} \to {number(last.chance or 0)}"
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


IN_ROW = {
    "Greedy": (),
    "Beam": ("width", "length_penalty"),
    "Sampling": ("temperature", "top_k", "top_p"),
}  # the settings that stand beside the strategy


def search_fields(
    first: str, meaning: str, width: int, penalty: tuple[str, float, str], samples: tuple[int, int]
) -> dict[str, Field]:
    """The fields of a search that begins with the strategy `first`, each of a setting by its name.

    `width` is the largest; `penalty` are label, default and help; `samples` the default and the most.
    """

    def of(strategy: str) -> dict[str, Any]:
        return {"when": lambda values: values.strategy == strategy}

    label, alpha, penalty_help = penalty
    return {
        "strategy": Segmented("Strategy", list(STRATEGIES), first, help=meaning),
        "width": Number(
            "Width",
            4,
            1,
            width,
            slider=True,
            help="The number of partial outputs that are kept at each step.",
            **of("Beam"),
        ),
        "length_penalty": Number(
            label, alpha, 0.0, 2.0, 0.1, slider=True, key="penalty", help=penalty_help, **of("Beam")
        ),
        "temperature": SelectSlider(
            "Temperature",
            TEMPERATURES,
            1.0,
            help="Below 1 the distribution is sharper, above 1 flatter.",
            **of("Sampling"),
        ),
        "top_k": Number(
            "Top-k",
            0,
            0,
            1000,
            help="Sample from the k most probable tokens; 0 means all.",
            **of("Sampling"),
        ),
        "top_p": Number(
            "Top-p",
            1.0,
            0.05,
            1.0,
            0.05,
            slider=True,
            help="Sample from the fewest tokens that together have this probability.",
            **of("Sampling"),
        ),
        "samples": Number(
            "Samples",
            samples[0],
            1,
            samples[1],
            slider=True,
            help="The number of outputs that are sampled.",
            **of("Sampling"),
        ),
        "seed": Number(
            "Seed", 0, 0, 10_000, help="The same seed gives the same samples.", **of("Sampling")
        ),
    }


def draw_row(fields: Fields, values: Values, cells: Sequence[Any]) -> Values:
    for name, cell in zip(IN_ROW[values.strategy], cells, strict=False):
        values = fields.draw(name, into=cell, **values)
    return values


def search_settings(values: Values) -> SearchSettings:
    drawn = {name: value for name, value in values.items() if value is not None}
    return SearchSettings(**drawn | {"strategy": STRATEGIES[values.strategy]})


def sources(strategy: Strategy, key: str) -> None:
    name, paper, url, meaning = PAPERS[strategy]
    details(
        "Paper and source code of the search",
        partial(
            sources_panel,
            f"**{name}** — {meaning} [{paper}]({url})",
            sample_steps if strategy == "sampling" else beam_steps,
        ),
        key,
    )
