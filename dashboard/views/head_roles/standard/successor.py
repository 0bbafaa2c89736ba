"""The test Successor: whether a head's matrices turn a number, a day or a letter into the next one."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.interpret.head_tests import GOULD, SuccessorScores, score_successors
from core.interpret.syntax import wilson_interval
from core.interpret.trace import AttentionMap, AttentionTrace, Head
from dashboard.draw.attention_view import ViewState, attention_view
from dashboard.draw.formats import number, percent, plain
from dashboard.draw.palette import Theme
from dashboard.draw.vega import Spec
from dashboard.ui.links import BOUND
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.panels import caption, fact, paragraph, source_panel, theme
from dashboard.views.head_roles.charts import head_grid, share_cell
from dashboard.views.head_roles.fields import follow_view, head_chart, reset_choice
from dashboard.views.head_roles.standard.controls import GRID, HEAD

ORDER = "head_roles:order"


def draw_successor(choice: ModelChoice, scores: SuccessorScores, head: Head) -> int:
    """Draw every head's score, and what the picked head adds to the logits of one order; returns its index."""
    left, right = st.columns([1, 1.1], gap="medium")
    with left:
        paragraph("**Successor**, share of items from 0 to 1")
        head_chart(
            successor_grid(scores, head, theme()),
            GRID,
            HEAD,
            "Layers by heads, each with the share of items whose successor it ranks highest",
        )
    with right:
        index = _order_field(choice, scores)
        view = _order_map(choice, scores, head, index)
    fact(successor_fact(scores, head))
    st.latex(
        r"s = \frac{1}{|I|}\sum_{x \in I} \left[\arg\max_{y \in O_x}\ (W_E W_V W_O W_U)_{xy} = x + 1\right] = "
        rf"\frac{{{_hits(scores, head)}}}{{{scores.count}}} = {number(float(scores.score[head]))}"
    )
    caption(plain(successor_caption(scores, choice.reading.trace.source)))
    follow_view(view, head, HEAD, scores.name)
    return index


def successor_grid(scores: SuccessorScores, head: Head, theme: Theme) -> Spec:
    """A cell a head with its share; faint where the interval reaches chance."""
    rows = []
    for one in sorted(scores.ranked()):
        share, low, high = (
            float(scores.score[one]),
            *wilson_interval(_hits(scores, one), scores.count),
        )
        says = f"{percent(share)}, 95 % interval {percent(low)} to {percent(high)}"
        rows.append(share_cell(scores, one, share, theme, says, faint=low <= scores.chance))
    return head_grid(scores, scores.score.shape[1], rows, head, theme, "items")


def successor_fact(scores: SuccessorScores, head: Head) -> str:
    """How many successors a head ranks highest, beside chance, and whether any head is above it."""
    low, high = wilson_interval(_hits(scores, head), scores.count)
    line = (
        f"From {scores.count} ordered items, :primary[**{scores.name(head)}**] raises the "
        f"successor most of its order in **{percent(float(scores.score[head]))}**, with a 95 % interval from "
        f"{percent(low)} to {percent(high)}; random ranks would do so in {percent(scores.chance)}."
    )
    best = scores.ranked()[0]
    if wilson_interval(_hits(scores, best), scores.count)[0] <= scores.chance:
        return f"{line} No head of this model is a successor head."
    return (
        line
        if best == head
        else f"{line} {scores.name(best)} has the highest share, "
        f"{percent(float(scores.score[best]))}."
    )


def successor_caption(scores: SuccessorScores, model: str) -> str:
    """Under which conditions the numbers of the test hold."""
    orders = ", ".join(f"{len(order.items)} {order.name}" for order in scores.orders)
    line = (
        f"{model}, from its weights alone: what a head adds to the logits where it attends to an item, without any "
        f"text. The orders O are {orders}, those that are single tokens; I are the items with a successor. Biases "
        "and the first feed-forward network are left out; the gains of norms are folded in. A cell is faint where "
        "its interval reaches chance; of many heads the best one is above chance by luck more often than one."
    )
    if scores.by_embedding:
        line += " This model has no unembedding; its embedding, transposed, stands for it."
    return line


def draw_source() -> None:
    """The paper and the source of the test."""
    st.markdown(
        f"**Successor** — the successor of a number, a day, a month or a letter. [{GOULD[0]}]({GOULD[1]})"
    )
    source_panel(score_successors)


def _hits(scores: SuccessorScores, head: Head) -> int:
    return round(float(scores.score[head]) * scores.count)


def _order_field(choice: ModelChoice, scores: SuccessorScores) -> int:
    names = [order.name for order in scores.orders]
    reset_choice(ORDER, names, names[0], str(choice.ref))
    return names.index(
        st.selectbox(
            "Order", names, key=ORDER, **BOUND, help="The ordered items that the map shows."
        )
    )


def _order_map(choice: ModelChoice, scores: SuccessorScores, head: Head, index: int) -> ViewState:
    """Draw what the head adds to the logit of each item of an order, where it attends to each."""
    order, values = scores.orders[index], np.nan_to_num(scores.logits[index])
    maps = tuple(
        AttentionMap("self", layer, one, order.items, order.items, None, scores.numbers[layer])
        for layer, one in enumerate(values)
    )
    return attention_view(
        AttentionTrace(maps, choice.reading.trace.source),
        key="head_roles:order-map",
        layer=head[0],
        head=head[1],
        signed=True,
        scale="largest",
        show="matrix",
        height=420,
        reads="attending to the row adds to the logit of the column",
        fact=f"What {scores.name(head)} adds to the logits of {order.name}",
    )
