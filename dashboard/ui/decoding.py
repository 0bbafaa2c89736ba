"""Controls, outputs and sources of a search for tokens, which Decode and Generate share."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import streamlit as st
from torch import Tensor

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
from dashboard.draw.figures import Ink
from dashboard.draw.formats import number, shorten
from dashboard.draw.grids import bars
from dashboard.draw.page_views import Names
from dashboard.fields.base import Fields, Number, Segmented, SelectSlider
from dashboard.ui.panels import details, draw_chart, sources as sources_panel, table, theme

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
            *(["right"] if correct else []),
        ],
        [
            [
                shorten(text) or "nothing",
                number(one.logp),
                str(len(one)),
                str(one.samples) if sampled else number(one.score),
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
    both = (
        (f"top-k {settings.top_k}", settings.top_k),
        (f"top-p {settings.top_p:g}", settings.top_p < 1),
    )
    filters = ", ".join(text for text, is_set in both if is_set)
    over = rf"j \text{{ kept by {filters}}}" if filters else r"\text{all } j"
    return (
        rf"p'_i = \frac{{p_i^{{1/T}}}}{{\sum_{{{over}}} p_j^{{1/T}}}}, \qquad T = {settings.temperature:g}: \quad "
        rf"{probability} \to {number(last.chance or 0)}"
    )


# by label
STRATEGIES: dict[str, Strategy] = {"Greedy": "greedy", "Beam": "beam", "Sampling": "sampling"}
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


RARE = ("length_penalty", "top_k", "top_p", "samples", "seed", "no_repeat", "longest")


def _of(strategy: str) -> Callable[[Any], bool]:
    return lambda c: c.strategy == strategy


class Search(Fields):
    """The controls of a search for tokens. A page says where they begin, and how far they go."""

    FIRST: ClassVar[str]  # strategy
    WIDEST: ClassVar[int]
    ALPHA: ClassVar[float]  # the length penalty at first
    SAMPLES: ClassVar[tuple[int, int]]  # at first, and the most

    strategy = Segmented(
        "Strategy",
        list(STRATEGIES),
        lambda c: c.FIRST,
        help="Greedy takes the most likely token at each step, Beam continues several outputs at once, "
        "Sampling draws each token at random.",
    )
    width = Number[int](
        "Width",
        4,
        1,
        lambda c: c.WIDEST,
        slider=True,
        help="The number of partial outputs that are kept at each step.",
    ).optional(_of("Beam"))
    length_penalty = Number[float](
        "Length penalty α",
        lambda c: c.ALPHA,
        0.0,
        2.0,
        0.1,
        slider=True,
        key="penalty",
        help="0 ranks outputs by their probability, which favours short ones; larger values favour long ones.",
    ).optional(_of("Beam"))
    temperature = SelectSlider(
        "Temperature",
        (0.1, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0, 3.0),
        1.0,
        help="Below 1 the distribution is sharper, above 1 flatter.",
    ).optional(_of("Sampling"))
    top_k = Number(
        "Top-k", 0, 0, 1000, help="Sample from the k most probable tokens; 0 means all."
    ).optional(_of("Sampling"))
    top_p = Number(
        "Top-p",
        1.0,
        0.05,
        1.0,
        0.05,
        slider=True,
        help="Sample from the fewest tokens that together have this probability.",
    ).optional(_of("Sampling"))
    samples = Number[int](
        "Samples",
        lambda c: c.SAMPLES[0],
        1,
        lambda c: c.SAMPLES[1],
        slider=True,
        help="The number of outputs that are sampled.",
    ).optional(_of("Sampling"))
    seed = Number("Seed", 0, 0, 10_000, help="The same seed gives the same samples.").optional(
        _of("Sampling")
    )
    no_repeat = Number(
        "No n-gram twice, n",
        0,
        0,
        5,
        also={"width": 180},  # a popover is as wide as its widest part
        help="The same n tokens in a row are not written again; 0 allows everything.",
    )

    @property
    def settings(self) -> SearchSettings:
        names = ("width", "temperature", *RARE)
        settings = {name: self[name] for name in names if self[name] is not None}
        return SearchSettings(strategy=STRATEGIES[self.strategy], **settings)

    def draw_search(self, way: Any, first: Any, more: Any, **given: Any) -> Self:
        """Draw the strategy, its first setting beside it, and all others in the popover `more`."""
        controls = self.draw_more("strategy", into=way, **given)
        return controls.draw_more("width", "temperature", into=first).draw_more(*RARE, into=more)


def next_token_bars(
    shares: dict[str, Tensor], names: Names, token: int, step: int, **options: int
) -> None:
    """Bars of the likeliest tokens at a step, the `token` of the path in the accent: by the model, and as used."""
    st.markdown(f"**Most likely tokens at step {step}**")
    if len(shares) > 1:
        st.caption(
            "Upper bar, pale: the model's own probability, at temperature 1. Lower bar: the probability "
            + ("with which it is drawn." if "drawn from" in shares else "among allowed tokens.")
        )
    draw_chart(
        st,
        bars(shares, names, token, Ink.of(theme()), **options),
        alt="The likeliest next tokens of this step",
    )


def search_sources(strategy: Strategy, key: str) -> None:
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
