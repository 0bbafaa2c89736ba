"""The page What a head can do: composition as a graph, three measures of every head, and the circuits of one."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret import circuits as core_circuits
from core.interpret.circuits import fold_gain, thin_svd
from dashboard.draw.vega import PICKED, Spec
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.heads import weights_of
from dashboard.ui.presentation import draw_chart
from dashboard.ui.progress import UNASKED, measure_with_progress
from dashboard.ui.tables import table
from dashboard.views.circuits import charts, compute, induction, names, text, tokens
from dashboard.views.circuits.compute import Circuits
from dashboard.views.circuits.controls import Controls, draw_controls, pick_from
from dashboard.views.circuits.script import script
from dashboard.widgets.model_picker import ModelRef, choose_weights, input_errors
from dashboard.widgets.panels import (
    caption,
    chart_title,
    details,
    fact,
    next_page,
    paragraph,
    source_panel,
    theme,
    title,
)

FIRST = ModelRef("lab", "only-attention")
SOURCES = (
    core_circuits.read_heads,
    fold_gain,
    thin_svd,
    core_circuits.composition,
    core_circuits.copying_scores,
    core_circuits.effective_rank,
)


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "What a head can do",
        "A head’s weights say what it can move and where it can look, before any text is read.",
    )
    choice = choose_weights(FIRST, ("model", "qkv"))
    if choice is not None:
        with input_errors():
            _measured(choice[0])
    next_page("circuits")


def _measured(ref: ModelRef) -> None:
    with st.spinner("Reading the weights of every head, once per model"):
        rows = range(len(weights_of(ref).heads))
    measured = measure_with_progress(
        compute.MEASURED, ref, rows, compute.measures_of(ref), "layers", UNASKED
    )
    if len(measured) < len(rows):
        return
    _circuits(ref)  # Stop cannot interrupt a fragment


@fragment
def _circuits(ref: ModelRef) -> None:
    """Draw the controls and all that they change, which reruns alone."""
    with input_errors():
        _draw(ref)


def _draw(ref: ModelRef) -> None:
    circuits = compute.circuits_of(ref)
    controls = draw_controls(ref, circuits)
    add_script(partial(script, controls, circuits))
    _graph(controls, circuits)
    circuit = induction.induction_circuit(ref)
    if circuit is not None:
        paragraph(text.twice(circuits, circuit))
    if carriers := names.carriers(ref):
        paragraph(text.carried(circuits, carriers))
    _grids(controls, circuits)
    fact(text.head_fact(circuits, controls.head))
    _head(controls, circuits)
    for line in text.equations(circuits, controls.head, circuits.best_into(controls.head)):
        st.latex(line)
    caption(text.conditions(circuits, ref.name, controls.head[0]))
    details("Papers and source", _sources, "circuits:source")


def _graph(controls: Controls, circuits: Circuits) -> None:
    if controls.kind is None:
        st.caption(
            "No head comes after another here, or none reads by one matrix, so there is no composition to draw."
        )
        return
    edges = circuits.edges(controls.kind)
    drawn = edges[: controls.edges]
    chart_title(
        f"Composition: from which earlier heads the {text.PARTS[controls.kind]} of a head read"
    )
    _pickable(
        charts.graph(circuits, drawn, controls.head, theme()),
        "circuits:graph",
        controls,
        circuits,
        "Heads by layer, connected where a later one reads what an earlier one writes",
    )
    fact(text.edges_fact(circuits, controls.kind))
    caption(text.drawn(circuits, controls.kind, len(edges), drawn))


def _grids(controls: Controls, circuits: Circuits) -> None:
    """Draw copying, effective rank and the best composition of every head."""
    copying = {
        (row, head): float(one.copying[head])
        for row, one in enumerate(circuits.measures)
        if one.copying is not None
        for head in range(len(one.copying))
    }
    ranks = {
        (row, head): float(value)
        for row, one in enumerate(circuits.measures)
        for head, value in enumerate(one.ranks)
    }
    best = {
        head: max(edge.score for edge in edges.values())
        for head in circuits.all()
        if (edges := circuits.best_into(head))
    }
    grids = (
        ("Copying score", copying, "copying", True),
        ("Effective rank of OV", ranks, "rank", False),
        ("Best composition", best, "above random", True),
    )
    shown = [one for one in grids if one[1]]
    for column, (name, values, unit, has_sign) in zip(
        st.columns(len(shown), gap="medium"), shown, strict=True
    ):
        with column:
            chart_title(name)
            _pickable(
                charts.measure_grid(circuits, values, controls.head, unit, theme(), has_sign),
                f"circuits:{unit.split()[0]}",
                controls,
                circuits,
                f"{name} of every head, layers by heads",
            )


def _pickable(spec: Spec, key: str, controls: Controls, circuits: Circuits, alt: str) -> None:
    draw_chart(
        st,
        spec,
        key=key,
        alt=alt,
        selection_mode=[PICKED],
        on_select=lambda: pick_from(key, controls.ref, circuits),
    )


def _head(controls: Controls, circuits: Circuits) -> None:
    """Draw what the head writes and what it looks for: singular values, one token, and the largest directions."""
    values = compute.singular_values(controls.ref, controls.head)
    titles = {"OV": "What it moves", "QK": "What it looks for"}
    for column, name in zip(st.columns(2, gap="medium"), values, strict=False):
        with column:
            st.markdown(f"## {titles[name]}")
            chart_title(f"Singular values of its {name} circuit")
            draw_chart(
                st,
                charts.singular_bars(values[name], theme()),
                key=f"circuits:{name}",
                alt=f"The singular values of the {name} circuit, largest first",
            )
            if circuits.has_tokens(controls.head[0]):
                (_moves if name == "OV" else _matches)(controls, circuits)
                _directions(controls, name)


def _moves(controls: Controls, circuits: Circuits) -> None:
    """Draw the tokens that attending to the token raises and lowers."""
    written = tokens.extremes(controls.ref, controls.head, "OV", controls.token)
    if written is None:
        st.caption(text.no_embedding(controls.word, circuits.heads[controls.head[0]].reads))
        return
    paragraph(text.token_fact(circuits.name(controls.head), controls.word, written))
    table(
        ["raises", "logit", "lowers", "logit"],
        text.extreme_rows(written),
        markers=False,
        left=(0, 2),
        caption=f"Tokens that attending to {controls.word} raises and lowers",
    )


def _matches(controls: Controls, circuits: Circuits) -> None:
    """Draw the keys that the token's query matches most and least."""
    scores = tokens.extremes(controls.ref, controls.head, "QK", controls.token)
    if scores is None:
        st.caption(text.no_embedding(controls.word, circuits.heads[controls.head[0]].writes))
        return
    paragraph(text.query_fact(controls.word, scores))
    table(
        ["key", "score", "key", "score"],
        text.extreme_rows(scores),
        markers=False,
        left=(0, 2),
        caption=f"Keys that the query of {controls.word} matches most and least",
    )


def _directions(controls: Controls, name: str) -> None:
    ends = ("reads", "writes") if name == "OV" else ("queries", "keys")
    rows = text.direction_rows(tokens.directions(controls.ref, controls.head, name))
    chart_title(f"Its largest directions, by the tokens at both ends: {ends[0]} → {ends[1]}")
    table(
        ["value", *ends],
        rows,
        markers=False,
        left=(1, 2),
        wrap=True,
        caption=f"Largest singular directions of the {name} circuit",
    )


def _sources() -> None:
    st.markdown(
        f"Circuits, copying score and composition: {text.PAPER[0]}. Effective rank: {text.PAPER[1]}."
    )
    for function in SOURCES:
        source_panel(function)
