"""The page Inside one weight, from the model picker to the equation."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from core.pretrained.weight_breakdown import LayerAttention, WeightBreakdown, break_down_weight
from core.trace import AttentionTrace
from dashboard.charts.numbers import number
from dashboard.components.attention_view import attention_view
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.views.inside_weight import charts, text
from dashboard.views.inside_weight.charts import Strip
from dashboard.views.inside_weight.compute import Cell, cell_attention
from dashboard.views.inside_weight.controls import KEY, MAP, QUERY, draw_controls, order_field
from dashboard.views.inside_weight.script import script
from dashboard.widgets.model_picker import ModelChoice, choose_model
from dashboard.widgets.panels import details, fact, next_page, plain, source_panel, theme, title
from dashboard.widgets.presentation import draw_chart


def page() -> None:
    """Draw the page from top to bottom."""
    title("Inside one weight", "See how a query and a key give one attention weight, number by number.")
    chosen = choose_model("inside_weight", needs=("qkv",))
    if chosen is not None:
        _weight(chosen)
    next_page("inside_weight")


@fragment
def _weight(chosen: ModelChoice) -> None:
    """Draw the controls and all that they change, which reruns alone."""
    controls, reading = draw_controls(chosen), chosen.reading
    trace, cell = controls.trace, controls.cell
    layer, one = cell_attention(controls.ref, controls.inputs, controls.kind, cell)
    add_script(partial(script, controls, one))
    item = trace.map(cell.layer)
    query, key = item.queries[cell.query], item.keys[cell.key]
    left, right = st.columns([1, 1.15], gap="large")
    with left:
        _map(trace, cell)
    with right:
        fact(text.weight_fact(trace.label(cell.layer, cell.head), one, query, key))
        _row(item.keys, one, cell.key)
    _products(cell, one, query, key)
    _carried(one, query, key)
    for line in text.equation(cell, layer, one, query, key):
        st.latex(line)
    own = float(item.weights[cell.head, cell.query, cell.key])
    note = reading.note if one.sink is None else None  # a sink has a sentence of its own
    st.caption(" ".join(filter(None, (text.conditions(reading.trace.source, cell, layer, one, own), note))))
    details("Where these numbers come from", lambda: _sources(layer))


def _map(trace: AttentionTrace, cell: Cell) -> None:
    name = trace.label(cell.layer, cell.head)
    attention_view(trace, key=MAP, layer=cell.layer, head=cell.head, pin=(cell.query, cell.key),
                   query=cell.query, show="matrix", height=420, pin_lists=(QUERY, KEY),
                   title=f"Head {name}: click a cell to open it",
                   fact=f"Head {name}; the open cell is the query {cell.query} and the key {cell.key}")


def _row(keys: tuple[str, ...], one: WeightBreakdown, key: int) -> None:
    visible = int(np.isfinite(one.scores).sum())
    even = number(1 / visible)
    names = (*keys, "sink") if one.sink is not None else keys
    scores = one.scores if one.sink is None else np.append(one.scores, np.float32(one.sink))
    weights = one.weights if one.sink is None else np.append(one.weights, 1 - one.weights.sum())
    weights = np.where(np.isfinite(scores), weights, -np.inf)
    st.markdown(":small[**Scores of the row**]")
    _draw(charts.row(names, scores, key, theme(), "score", named=False), "scores", "Scores of the row")
    st.markdown(f":small[**Weights of the row**; the dotted line is uniform attention, {even}]")
    _draw(charts.row(names, weights, key, theme(), "weight", 1 / visible), "weights", "Weights of the row")


def _products(cell: Cell, one: WeightBreakdown, query: str, key: str) -> None:
    """q and k dimension by dimension, before and after rotation where the family rotates."""
    st.markdown("## Where the query and the key agree")
    by_size = order_field() == "largest"
    dimensions = np.argsort(-np.abs(one.products), kind="stable") if by_size else np.arange(len(one.q))
    strips = [Strip(f"q · {query}", one.q), Strip(f"k · {key}", one.k)]
    if one.unrotated_q is not None and one.unrotated_k is not None:
        strips = [Strip(f"q · {query}, before rotation", one.unrotated_q), Strip(f"q · {query}, rotated", one.q),
                  Strip(f"k · {key}, before rotation", one.unrotated_k), Strip(f"k · {key}, rotated", one.k)]
    _draw(charts.products_chart(strips, one.products, dimensions, theme()), "meeting",
          f"Query of {query} times key of {key}, dimension by dimension")
    st.caption("Each bar is the product of the two numbers above it: green where their signs agree, purple where they "
               "differ. The line adds the bars up to q·k.")
    if one.unrotated_q is not None:
        fact(text.rotation_fact(one, cell))


def _carried(one: WeightBreakdown, query: str, key: str) -> None:
    st.markdown("## What the weight carries")
    strips = [Strip(f"v · {key}", one.value), Strip("α · v", one.contribution),
              Strip(f"output of {query}, the sum over all keys", one.out)]
    _draw(charts.strips_alone(strips, theme()), "carried", f"What the weight carries from {key} to {query}")
    fact(text.carried_fact(one, query, key))


def _draw(spec: charts.Spec, name: str, alt: str) -> None:
    draw_chart(st, spec, key=f"inside_weight:{name}", theme=None, alt=alt)


def _sources(layer: LayerAttention) -> None:
    shape = " × ".join(map(str, layer.q.shape))
    st.markdown(f"The layer's queries ({plain(shape)}) and keys are recorded on their way into the model's own "
                "attention; this function computes one weight from them, step by step. Vaswani et al. 2017, equation "
                "1; rotation: Su et al. 2021; shared key heads: Ainslie et al. 2023.")
    source_panel(break_down_weight)
