"""Inside one weight: the query and the key that meet in one cell, up to the weight and what it carries."""

from functools import partial

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.interpret.evidence import (
    Cell,
    LayerAttention,
    WeightBreakdown,
    break_down_weight,
    layer_attentions,
)
from dashboard.draw import inside_weight as draw

MAP = "inside_weight:map"


class Controls(lab.WeightFields, page="inside_weight"):
    order = lab.Segmented(
        "Order of dimensions",
        {"own": "By dimension", "largest": "Largest first"},
        help="The order of the dimensions: as in the vectors, or by the size of the product.",
        also={"label_visibility": "collapsed"},
    )
    cell, shown = lab.CellField("cell"), lab.HeadField(None)


def page() -> None:
    lab.title(
        "Inside one weight",
        "How a query and a key give one weight, number by number.",
    )
    chosen = lab.choose_model(needs=("qkv",))
    if chosen is not None:
        explore(chosen)


@lab.fragment
def explore(chosen: lab.ModelChoice) -> None:
    reading, answer = chosen.reading, st.container()  # a phone shows it before the controls
    grid = st.grid(4 if len(reading.trace.kinds) > 1 else 3, min_column_width=105)
    controls = Controls.draw("kind", into=grid, reading=reading)
    cell = controls.pick(chosen, grid)
    if cell is None:
        return
    layers = lab.study_of(layer_attentions, chosen.ref, chosen.inputs)
    layer = layers[controls.kind, cell.layer]
    one = lab.computed(break_down_weight, layer, cell.head, cell.query, cell.key)
    trace = controls.trace
    item, head = trace.map(cell.layer), trace.name((cell.layer, cell.head))
    query, key = item.queries[cell.query], item.keys[cell.key]
    left, right = st.columns([1, 1.15], gap="large")
    with left:
        lab.attention_view(
            trace,
            key=MAP,
            layer=cell.layer,
            head=cell.head,
            pin=(cell.query, cell.key),
            query=cell.query,
            show="matrix",
            height=420,
            pin_lists=("inside_weight:query", "inside_weight:key"),
            title=f"Head {head}: press a cell to open it",
            fact=f"Head {head}; the open cell is the query {cell.query} and the key {cell.key}",
        )
    as_python(controls, cell, one)
    with answer:
        lab.fact(draw.weight_fact(head, one, query, key))
        lab.weight_link(chosen, controls.kind, *cell.at, ["why_key"])
    with right:
        row_of_weights(one, item.keys)
    # q and k dimension by dimension, before and after rotation where the family rotates
    st.markdown("## Where the query and the key agree")
    dimensions = np.arange(len(one.q))
    if Controls.draw("order", into=lab.HERE).order == "largest":
        dimensions = np.argsort(-np.abs(one.products), kind="stable")
    strips = draw.meeting_strips(one, query, key)
    chart(
        draw.products_chart(strips, one.products, dimensions, lab.theme()),
        "meeting",
        f"Query of {query} times key of {key}, dimension by dimension",
    )
    st.caption(
        "Each bar is the product of the two numbers above it: green where their signs agree, purple where they "
        f"differ. The line adds the bars up to q·k. {draw.products_text(one)}"
    )
    if one.unrotated_q is not None:
        lab.fact(draw.rotation_fact(one, cell))
    st.markdown("## What the weight carries")
    chart(
        draw.carried_chart(one, query, key, lab.theme()),
        "carried",
        f"What the weight carries from {key} to {query}",
    )
    lab.fact(draw.carried_fact(one, query, key))
    for line in draw.equation(cell, layer, one, query, key):
        st.latex(line, width="content")
    own = float(item.weights[cell.head, cell.query, cell.key])
    note = reading.note if one.sink is None else None  # it has a sentence of its own
    text = draw.conditions(reading.trace.source, cell, layer, one, own)
    st.caption(f"{text} {note}" if note else text)
    lab.details("Where these numbers come from", partial(sources, layer))


def as_python(controls: Controls, cell: Cell, one: WeightBreakdown) -> None:
    lab.as_python(
        trace=controls.reading.trace,
        one=one,
        draw={
            MAP: f"""
from dashboard.show import show

show(trace.of({controls.kind!r}), layer={cell.layer}, head={cell.head}, query={cell.query})
"""
        },
        also=[
            lab.Cell(
                "What the weight carries: the value of the key, its part of the output, and the sum over all keys.",
                """
import numpy as np

along = one.contribution @ one.out / (one.out @ one.out)  # the share of the output that came through this weight
print(f"α·v has the length {np.linalg.norm(one.contribution):.3f} and is {along:.0%} of the output")
""",
                """
import altair as alt
import pandas as pd

products = pd.DataFrame({"dimension": range(len(one.products)), "product": one.products})
alt.Chart(products).mark_bar().encode(x="dimension:O", y="product:Q", color=alt.condition(
    "datum.product > 0", alt.value("#316E3D"), alt.value("#8143A0")))
""",
                "inside_weight:meeting",
            )
        ],
    )


def row_of_weights(one: WeightBreakdown, keys: tuple[str, ...]) -> None:
    """The row that the softmax sees, and a sink beside its keys."""
    sunk = [] if one.sink is None else [np.float32(one.sink)]
    names, scores = (*keys, *["sink"] * len(sunk)), np.append(one.scores, sunk)
    weights = np.append(one.weights, [1 - one.weights.sum()] * len(sunk))
    weights = np.where(np.isfinite(scores), weights, -np.inf)
    uniform = 1 / int(np.isfinite(one.scores).sum())
    st.markdown(":small[**Scores of the row**]")
    chart(
        draw.row(names, scores, one.key, lab.theme(), "score", named=False),
        "scores",
        "Scores of the row",
    )
    st.markdown(":small[**Weights of the row**; the dotted line is uniform attention]")
    chart(
        draw.row(names, weights, one.key, lab.theme(), "weight", uniform),
        "weights",
        "Weights of the row",
    )


def chart(spec: lab.Spec, name: str, alt: str) -> None:
    lab.draw_chart(st, spec, key=f"inside_weight:{name}", theme=None, alt=alt)


def sources(layer: LayerAttention) -> None:
    lab.sources(
        f"The layer's queries ({' × '.join(map(str, layer.q.shape))}) and keys are recorded on their way into the "
        "model's own attention; this function computes one weight from them, step by step. Vaswani et al. 2017, "
        "equation 1; rotation: Su et al. 2021; shared key heads: Ainslie et al. 2023.",
        break_down_weight,
    )
