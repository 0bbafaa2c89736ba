"""Inside one weight: the query and the key that meet in one cell, up to the weight and what it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from core.interpret.trace import AttentionTrace, Kind, head_name
from core.interpret.weight_breakdown import (
    LayerAttention,
    WeightBreakdown,
    break_down_weight,
    find_layer,
    layer_attentions,
)
from core.pretrained import ModelInputs, Reading
from core.studies.inside_weight import Cell, default_cell
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import added, latex, latex_signed as signed, name, number, plain
from dashboard.draw.page_exports import Cell as Cell_of_scripts, Script, add_script
from dashboard.draw.palette import Ink, Theme, colour_scale
from dashboard.draw.vega import Spec, axis_style, figure, layer, quoted, text_tip, whole_tip
from dashboard.ui.fields import HERE, Fields, Segmented, Select
from dashboard.ui.links import fragment, read_pair, write_pair
from dashboard.ui.model_picker import (
    KIND_HELP,
    KINDS,
    ModelChoice,
    choose_head,
    choose_model,
    current_head_of,
)
from dashboard.ui.models import ModelRef, model_cell, study_of
from dashboard.ui.panels import details, draw_chart, fact, next_page, source_panel, theme, title

# The controls: the kind of attention and the cell, from a link, the map or the fields.


MAP = "inside_weight:map"
CELL, OF, SENT, WRITTEN = (f"inside_weight:{name}" for name in ("cell", "of", "told", "written"))
HEAD, QUERY, KEY = (f"inside_weight:{name}" for name in ("head", "query", "key"))
FIELDS = Fields(
    "inside_weight",
    kind=Select(
        "Attention",
        lambda values: {kind: KINDS[kind] for kind in KINDS if kind in values.kinds},
        lambda values: "cross" if "cross" in values.kinds else values.kinds[0],
        when=lambda values: len(values.kinds) > 1,
        help=KIND_HELP,
    ),
    order=Segmented(
        "Order of dimensions",
        {"own": "By dimension", "largest": "Largest first"},
        help="The order of the dimensions: as in the vectors, or by the size of the product.",
        also={"label_visibility": "collapsed"},
    ),
)


@dataclass(frozen=True, eq=False)
class Controls:
    """The model and its inputs, the maps of the chosen kind of attention, and the open cell."""

    ref: ModelRef
    inputs: ModelInputs
    kind: Kind
    trace: AttentionTrace
    cell: Cell


def draw_controls(chosen: ModelChoice) -> Controls:
    """Draw the fields of kind, head, query and key, and read them."""
    reading = chosen.reading
    kinds = reading.trace.kinds
    columns = st.columns(4 if len(kinds) > 1 else 3)
    kind = FIELDS.draw("kind", into=columns[0], kinds=kinds).kind or kinds[0]
    trace = reading.trace.of(kind)
    cell = current_cell(reading, trace, (chosen.ref, chosen.inputs, kind))
    _cell_fields(trace, columns[-3:])
    return Controls(chosen.ref, chosen.inputs, kind, trace, cell)


def current_cell(
    reading: Reading, trace: AttentionTrace, of: tuple[ModelRef, ModelInputs, Kind]
) -> Cell:
    """A new link's cell, else the last one picked here; else, as for another model, text or head, the default."""
    before: Cell | None = st.session_state.get(CELL)
    linked = (
        _cell_of_link(trace)
        if st.query_params.get("cell") not in (None, st.session_state.get(WRITTEN))
        else None
    )
    ref, _, kind = of
    elsewhere = current_head_of(ref, kind, trace.shape)
    same = before is not None and st.session_state.get(OF) == repr(of) and before.inside(trace)
    if (
        before is None
        or linked is not None
        or not same
        or elsewhere not in (None, (before.layer, before.head))
    ):
        cell = linked or default_cell(reading, trace, elsewhere)
    else:
        cell = _cell_of_map(before, trace) or _cell_of_fields(before, trace)
    if linked is not None or same and before is not None and cell.name != before.name:
        choose_head(ref, kind, (cell.layer, cell.head))
    st.session_state[OF], st.session_state[CELL] = repr(of), cell
    st.session_state[WRITTEN] = f"{cell.query}.{cell.key}"
    st.session_state[HEAD], st.session_state[QUERY], st.session_state[KEY] = (
        cell.name,
        cell.query,
        cell.key,
    )
    st.session_state[SENT] = (cell.layer, cell.head), (cell.query, cell.key)
    write_pair("head", (cell.layer, cell.head))
    write_pair("cell", (cell.query, cell.key))
    return cell


def _cell_of_link(trace: AttentionTrace) -> Cell | None:
    head, bad_head = read_pair("head", trace.shape)
    cell, bad_cell = read_pair("cell", trace.maps[0].weights.shape[1:])  # type: ignore[arg-type]
    for sentence in filter(None, (bad_head, bad_cell)):
        st.warning(sentence)
    return None if head is None or cell is None else Cell(*head, *cell)


def _cell_of_map(before: Cell, trace: AttentionTrace) -> Cell | None:
    """The cell just picked in the map: its state differs from what was last sent to it."""
    own = st.session_state.get(f"{MAP}:view", {})
    sent = st.session_state.get(SENT)
    head = own.get("pick") or (before.layer, before.head)
    pin = own.get("pin") or (before.query, before.key)
    cell = Cell(*head, *pin)
    return cell if sent is not None and (head, pin) != sent and cell.inside(trace) else None


def _cell_of_fields(before: Cell, trace: AttentionTrace) -> Cell:
    """The cell of the fields, or the one before if the trace has none such."""
    layer, head = _numbers(st.session_state.get(HEAD, before.name))
    cell = Cell(
        layer,
        head,
        st.session_state.get(QUERY, before.query),
        st.session_state.get(KEY, before.key),
    )
    return cell if cell.inside(trace) else before


def _numbers(name: str) -> tuple[int, int]:
    layer, head = name.split("·")
    return int(layer[1:]), int(head[1:])


def _cell_fields(trace: AttentionTrace, columns: Sequence[Any]) -> None:
    names = [
        head_name(layer, head)
        for layer, item in enumerate(trace.maps)
        for head in range(len(item.weights))
    ]
    item = trace.maps[0]
    columns[0].selectbox(
        "Head",
        names,
        format_func=lambda name: trace.label(*_numbers(name)),
        key=HEAD,
        help="Layer and head, counted from 0.",
    )
    for column, label, tokens, key, does in (
        (columns[1], "Query", item.queries, QUERY, "attends"),
        (columns[2], "Key", item.keys, KEY, "is attended to"),
    ):
        column.selectbox(
            label,
            range(len(tokens)),
            format_func=[f"{index} · {token}" for index, token in enumerate(tokens)].__getitem__,
            key=key,
            help=f"The token that {does}.",
        )


# What the page computes as Python.


WEIGHT = "The queries, keys and values of each layer; one weight of one head in its parts."
CARRIED = "What the weight carries: the value of the key, its part of the output, and the sum over all keys."


def script(controls: Controls, one: WeightBreakdown) -> Script:
    """The head's map, the score and the weight of the open cell dimension by dimension, and what it carries."""
    kind, cell = controls.kind, controls.cell
    weight = f"""
from core.interpret.weight_breakdown import break_down_weight, find_layer, layer_attentions

trace = reading.trace.of({kind!r})
weights = trace.head({cell.layer}, {cell.head})  # (T, S)
layer = find_layer(layer_attentions(model, inputs), {kind!r}, {cell.layer})  # q (H, T, D), k and v (G, S, D)
one = break_down_weight(layer, head={cell.head}, query={cell.query}, key={cell.key})
print(f"q·k = {{one.dot:.3f}}, score {{one.score:.3f}}, weight {{one.weight:.3f}}")
"""
    draw = f"""
from core.show import show

show(trace, layer={cell.layer}, head={cell.head}, query={cell.query})
"""
    carried = """
import numpy as np

along = one.contribution @ one.out / (one.out @ one.out)  # the share of the output that came through this weight
print(f"α·v has the length {np.linalg.norm(one.contribution):.3f} and is {along:.0%} of the output")
"""
    bars = """
import altair as alt
import pandas as pd

products = pd.DataFrame({"dimension": range(len(one.products)), "product": one.products})
alt.Chart(products).mark_bar().encode(x="dimension:O", y="product:Q", color=alt.condition(
    "datum.product > 0", alt.value("#316E3D"), alt.value("#8143A0")))
"""
    names = (
        "q",
        "k",
        "products",
        "dot",
        "score",
        "scores",
        "weights",
        "value",
        "contribution",
        "out",
    )
    rotated = ("unrotated_q", "unrotated_k") if one.unrotated_q is not None else ()
    results = {f"one.{name}": np.asarray(getattr(one, name)) for name in (*names, *rotated)}
    return Script(
        (
            model_cell(controls.ref, controls.inputs),
            Cell_of_scripts(WEIGHT, weight, draw, "inside_weight:map"),
            Cell_of_scripts(CARRIED, carried, bars, "inside_weight:meeting"),
        ),
        {"weights": controls.trace.head(cell.layer, cell.head), **results},
    )


# Sentences about one weight, its equation with numbers, and the conditions.


MAX_TERMS = 2
TELLING = 3  # dimensions named in the fact


def weight_fact(head: str, one: WeightBreakdown, query: str, key: str) -> str:
    """How much the two agree, in which dimensions, and the weight that follows."""
    pair = (
        f"In head **{head}**, the query :primary[**{plain(query)}**] and the key **{plain(key)}**"
    )
    if not one.allowed:
        return f"{pair} have q·k = **{number(one.dot)}**, but the cell is masked, so its weight is **0**."
    largest = np.sort(one.products)[::-1] if one.dot >= 0 else np.sort(one.products)
    share, agree = float(largest[:TELLING].sum()), int((one.products > 0).sum())
    rank = 1 + int((one.scores > one.score).sum())
    visible = int(np.isfinite(one.scores).sum())
    rank_text = "the largest" if rank == 1 else f"number {rank}"
    extreme = "largest" if one.dot >= 0 else "most negative"
    return (
        f"{pair} have q·k = **{number(one.dot)}**: their signs agree in {agree} of {len(one.products)} dimensions, "
        f"and the {TELLING} {extreme} products sum to {number(share)}. The score, {number(one.score)}, is "
        f"{rank_text} of {visible} and gives the weight **{number(one.weight)}**; "
        f"uniform attention would give {number(1 / visible)}."
    )


def rotation_fact(one: WeightBreakdown, cell: Cell) -> str:
    """The product of q and k before and after rotation by their positions."""
    assert one.unrotated_q is not None and one.unrotated_k is not None
    before = float(one.unrotated_q @ one.unrotated_k)
    apart = abs(cell.query - cell.key)
    unit = "position" if apart == 1 else "positions"
    stretch = float(np.linalg.norm(one.q) / np.linalg.norm(one.unrotated_q))
    more = (
        f"The rotation also scales both by {number(stretch)}."
        if abs(stretch - 1) > 1e-3
        else "At the same position, rotation changes nothing."
    )
    return (
        f"Before rotation their product is {number(before)}; after it, {apart} {unit} apart, it is "
        f"{number(one.dot)}. {more}"
    )


def carried_fact(one: WeightBreakdown, query: str, key: str) -> str:
    """How much of the head's output for this query came through this weight."""
    whole = float(np.linalg.norm(one.out))
    share = float(one.contribution @ one.out) / whole**2 if whole else 0.0
    return (
        f"This weight adds α·v of {plain(key)}, of length {number(float(np.linalg.norm(one.contribution)))}, to "
        f"the output of {plain(query)}, of length {number(whole)}. Along the output, it contributes "
        f"**{100 * share:.0f} %**; the weight alone is {100 * one.weight:.0f} %.".replace("-", "−")
    )


def equation(
    cell: Cell, layer: LayerAttention, one: WeightBreakdown, query: str, key: str
) -> tuple[str, ...]:
    """LaTeX, symbols first, then the same with the numbers of this cell, one line a step."""
    pair = f"{name(query, cell.query)},\\,{name(key, cell.key)}"
    terms = [
        rf"{signed(float(a))} \cdot {signed(float(b))}" for a, b in zip(one.q, one.k, strict=True)
    ]
    dots = r" + \cdots" if len(terms) > MAX_TERMS else ""
    lines = [
        symbols(layer, one),
        rf"{latex(one.dot)} = q^\top k = {' + '.join(terms[:MAX_TERMS])}{dots}",
    ]
    if not one.allowed:
        return (
            *lines,
            rf"s_{{{pair}}} = -\infty \quad (\text{{masked}}), \qquad \alpha_{{{pair}}} = 0",
        )
    scaled = one.dot * one.scale
    step = _scaled(one) + ("" if one.bias is None else added(one.bias))
    value = scaled + (one.bias or 0.0)
    if one.capped is not None:
        step = rf"{latex(layer.softcap or 0)} \tanh\!\left(\frac{{{step}}}{{{latex(layer.softcap or 0)}}}\right)"
        value = one.capped
    lines.append(rf"s_{{{pair}}} = {step} = {latex(value)}")
    shift = float(one.scores.max())
    below = float(np.exp(one.scores - shift).sum()) + (
        0.0 if one.sink is None else float(np.exp(one.sink - shift))
    )
    over = rf"e^{{{latex(one.score)}{added(-shift)}}}"
    lines.append(rf"\alpha_{{{pair}}} = \frac{{{over}}}{{{below:.3f}}} = {one.weight:.4f}")
    return tuple(lines)


def _scaled(one: WeightBreakdown) -> str:
    """q·k times its scale, written as a division by a root where it is one."""
    if one.scale == 1:
        return latex(one.dot)
    if np.isclose(one.scale, len(one.q) ** -0.5):
        return rf"\frac{{{latex(one.dot)}}}{{\sqrt{{{len(one.q)}}}}}"
    return rf"{one.scale:.4f} \cdot {signed(one.dot)}"


def symbols(layer: LayerAttention, one: WeightBreakdown) -> str:
    """The family's rule in symbols: what is added, capped, and summed below the fraction."""
    inner = (
        r"q_i^\top k_j"
        if one.scale == 1
        else (
            r"\frac{q_i^\top k_j}{\sqrt{D}}"
            if np.isclose(one.scale, len(one.q) ** -0.5)
            else r"c\, q_i^\top k_j"
        )
    )
    inner = f"{inner} + b_{{i-j}}" if one.bias is not None else inner
    inner = (
        rf"\kappa \tanh\!\left(\tfrac{{1}}{{\kappa}}\left({inner}\right)\right)"
        if layer.softcap
        else inner
    )
    below = r"\sum_m e^{s_{im}}" + (r" + e^{\text{sink}}" if one.sink is not None else "")
    return rf"s_{{ij}} = {inner}, \qquad \alpha_{{ij}} = \frac{{e^{{s_{{ij}}}}}}{{{below}}}"


def conditions(
    source: str, cell: Cell, layer: LayerAttention, one: WeightBreakdown, own: float
) -> str:
    """What the numbers were made from, and how far they are from the model's own."""
    group, readers = layer.kv_group(cell.head)
    parts = [
        f"{plain(source)}: q, k and what is added to the scores are the model's own. The weight computed from "
        f"them is {one.weight:.7f}; the model's is {own:.7f}."
    ]
    if len(readers) > 1:
        parts.append(
            f"Key and value head {group} is read by query heads {readers[0]} to {readers[-1]}: "
            f"{len(layer.q)} query heads share {len(layer.k)}."
        )
    if layer.scale == 1 and one.bias is None:
        parts.append(
            "This family scales q before the product with k, so the product is not scaled again."
        )
    if one.sink is not None:
        share = 1 - float(one.weights.sum())
        parts.append(
            f"A learned sink scores {number(one.sink)} in this head and takes {number(share)} of this row."
        )
    return " ".join(parts)


# The page Inside one weight, from the model picker to the equation.


NAME, STRIP, GAP, BARS = (
    18,
    16,
    6,
    150,
)  # pixels: a strip's name, its height, what is left under it; the bars
TALL, NAMES = 110, 62  # pixels: a row of bars, and the names of its keys
MAX_NAMES = 48  # keys; beyond, their positions are written


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Inside one weight",
        "See how a query and a key give one attention weight, number by number.",
    )
    chosen = choose_model(needs=("qkv",))
    if chosen is not None:
        _weight(chosen)
    next_page("inside_weight")


@fragment
def _weight(chosen: ModelChoice) -> None:
    """Draw the controls and all that they change, which reruns alone."""
    controls, reading = draw_controls(chosen), chosen.reading
    trace, cell = controls.trace, controls.cell
    layers = study_of(layer_attentions, controls.ref, controls.inputs)
    layer = find_layer(layers, controls.kind, cell.layer)
    one = break_down_weight(layer, cell.head, cell.query, cell.key)
    add_script(partial(script, controls, one))
    item = trace.map(cell.layer)
    query, key = item.queries[cell.query], item.keys[cell.key]
    left, right = st.columns([1, 1.15], gap="large")
    with left:
        name = trace.label(cell.layer, cell.head)
        attention_view(
            trace,
            key=MAP,
            layer=cell.layer,
            head=cell.head,
            pin=(cell.query, cell.key),
            query=cell.query,
            show="matrix",
            height=420,
            pin_lists=(QUERY, KEY),
            title=f"Head {name}: click a cell to open it",
            fact=f"Head {name}; the open cell is the query {cell.query} and the key {cell.key}",
        )
    with right:
        fact(weight_fact(trace.label(cell.layer, cell.head), one, query, key))
        _row(item.keys, one, cell.key)
    _products(cell, one, query, key)
    st.markdown("## What the weight carries")
    strips = [
        Strip(f"v · {key}", one.value),
        Strip("α · v", one.contribution),
        Strip(f"output of {query}, the sum over all keys", one.out),
    ]
    order = np.arange(len(strips[0].values))
    _draw(
        _figure(_cells(strips, order, _across(len(order)), theme()), _tall(strips)),
        "carried",
        f"What the weight carries from {key} to {query}",
    )
    fact(carried_fact(one, query, key))
    for line in equation(cell, layer, one, query, key):
        st.latex(line)
    own = float(item.weights[cell.head, cell.query, cell.key])
    note = reading.note if one.sink is None else None  # a sink has a sentence of its own
    st.caption(
        " ".join(filter(None, (conditions(reading.trace.source, cell, layer, one, own), note)))
    )
    details("Where these numbers come from", lambda: _sources(layer))


def _row(keys: tuple[str, ...], one: WeightBreakdown, key: int) -> None:
    visible = int(np.isfinite(one.scores).sum())
    even = number(1 / visible)
    names = (*keys, "sink") if one.sink is not None else keys
    scores = one.scores if one.sink is None else np.append(one.scores, np.float32(one.sink))
    weights = one.weights if one.sink is None else np.append(one.weights, 1 - one.weights.sum())
    weights = np.where(np.isfinite(scores), weights, -np.inf)
    st.markdown(":small[**Scores of the row**]")
    _draw(row(names, scores, key, theme(), "score", named=False), "scores", "Scores of the row")
    st.markdown(f":small[**Weights of the row**; the dotted line is uniform attention, {even}]")
    _draw(row(names, weights, key, theme(), "weight", 1 / visible), "weights", "Weights of the row")


def _products(cell: Cell, one: WeightBreakdown, query: str, key: str) -> None:
    """q and k dimension by dimension, before and after rotation where the family rotates."""
    st.markdown("## Where the query and the key agree")
    by_size = FIELDS.draw("order", into=HERE).order == "largest"
    dimensions = (
        np.argsort(-np.abs(one.products), kind="stable") if by_size else np.arange(len(one.q))
    )
    strips = [Strip(f"q · {query}", one.q), Strip(f"k · {key}", one.k)]
    if one.unrotated_q is not None and one.unrotated_k is not None:
        strips = [
            Strip(f"q · {query}, before rotation", one.unrotated_q),
            Strip(f"q · {query}, rotated", one.q),
            Strip(f"k · {key}, before rotation", one.unrotated_k),
            Strip(f"k · {key}, rotated", one.k),
        ]
    _draw(
        products_chart(strips, one.products, dimensions, theme()),
        "meeting",
        f"Query of {query} times key of {key}, dimension by dimension",
    )
    st.caption(
        "Each bar is the product of the two numbers above it: green where their signs agree, purple where they "
        "differ. The line adds the bars up to q·k."
    )
    if one.unrotated_q is not None:
        fact(rotation_fact(one, cell))


def _draw(spec: Spec, name: str, alt: str) -> None:
    draw_chart(st, spec, key=f"inside_weight:{name}", theme=None, alt=alt)


def _sources(layer: LayerAttention) -> None:
    shape = " × ".join(map(str, layer.q.shape))
    st.markdown(
        f"The layer's queries ({plain(shape)}) and keys are recorded on their way into the model's own "
        "attention; this function computes one weight from them, step by step. Vaswani et al. 2017, equation "
        "1; rotation: Su et al. 2021; shared key heads: Ainslie et al. 2023."
    )
    source_panel(break_down_weight)


# The page's Vega-Lite figures: q and k by dimension, the row that the softmax sees, and what the weight carries.


@dataclass(frozen=True)
class Strip:
    """A named vector, drawn as one line of coloured cells."""

    name: str
    values: np.ndarray


def products_chart(
    strips: Sequence[Strip], products: np.ndarray, order: np.ndarray, theme: Theme
) -> Spec:
    """q and k as strips, and under each dimension its product as a bar; a line adds the products up to q·k."""
    ink, top = Ink.of(theme), _tall(strips)
    at = _across(len(order))
    rows = [
        {
            "at": index,
            "dimension": int(one),
            "product": float(products[one]),
            "told": number(products[one]),
            **_page_numbers(strips, int(one)),
        }
        for index, one in enumerate(order)
    ]
    running = np.cumsum(products[order])
    low, high = (
        1.2 * float(end)
        for end in (
            min(0.0, products.min(), running.min()),
            max(0.0, products.max(), running.max()),
        )
    )
    y = {
        "type": "quantitative",
        "title": None,
        "axis": {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4},
        "scale": {"domain": [low, high or 1.0], "nice": False, "range": [top + BARS, top]},
    }
    tips = [*_tips(strips), text_tip("told", "product")]
    negative, positive = colour_scale(theme, signed=True)[2], colour_scale(theme, signed=True)[8]
    bars = layer(
        "bar",
        rows,
        {
            "x": {**at, "field": "from"},
            "x2": {"field": "to"},
            "y": {**y, "field": "product"},
            "y2": {"datum": 0},
            "tooltip": tips,
            "color": {
                "condition": {"test": "datum.product < 0", "value": negative},
                "value": positive,
            },
        },
    )
    sums = [{"at": index, "sum": float(value)} for index, value in enumerate(running)]
    line = {"x": {**at, "field": "at"}, "y": {**y, "field": "sum"}}
    end = [sums[-1] | {"text": f"q·k = {number(sums[-1]['sum'])}"}]
    return _figure(
        [
            *_cells(strips, order, at, theme),
            _bars_around(bars),
            layer(
                "line",
                sums,
                line,
                color=ink.text,
                strokeWidth=1.5,
                interpolate="step-after",
                tooltip=False,
            ),
            layer("point", end, line, color=ink.text, filled=True, size=36, opacity=1),
            layer(
                "text",
                end,
                {**line, "text": {"field": "text"}},
                align="right",
                dx=-7,
                dy=-10 if running[-1] >= 0 else 12,
                fontSize=12,
                fontWeight=600,
                color=ink.text,
            ),
        ],
        top + BARS,
    )


def row(
    tokens: Sequence[str],
    values: np.ndarray,
    picked: int,
    theme: Theme,
    name: str,
    level: float | None = None,
    named: bool = True,
) -> Spec:
    """One bar a key, the picked one in the accent, none where `values` are not finite (masked).

    `level` is a dotted line to compare with; `named` writes the keys below.
    """
    ink = Ink.of(theme)
    finite = np.isfinite(values)
    rows = [
        {
            "at": index,
            "from": index - 0.42,
            "to": index + 0.42,
            "token": f"{index} · {tokens[index]}",
            name: float(values[index]) if finite[index] else 0.0,
            "told": number(values[index] if finite[index] else 0.0),
            "seen": "" if finite[index] else "masked",
            "picked": bool(index == picked),
        }
        for index in range(len(tokens))
    ]
    few = len(tokens) <= MAX_NAMES
    axis = {**axis_style(ink), "grid": False, "title": None, "labelLimit": 90, "labelFontSize": 12}
    axis |= (
        {
            "values": list(range(len(tokens))),
            "labelAngle": -90,
            "labelOverlap": True,
            "labelExpr": f"[{','.join(map(quoted, tokens))}][datum.value]",
        }
        if few
        else {"tickCount": 8}
    )
    at = _across(len(tokens)) | {"axis": axis if named else None}
    low, high = float(values[finite].min(initial=0)), float(values[finite].max(initial=0))
    y = {
        "field": name,
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [low, high or 1e-6], "nice": True},
        "axis": {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 3},
    }
    tips = [
        {"field": "token", "title": "key"},
        text_tip("told", name),
        {"field": "seen", "title": " "},
    ]
    colour = {"condition": {"test": "datum.picked", "value": ink.pick}, "value": ink.series[0]}
    bars = layer(
        "bar",
        rows,
        {
            "x": {**at, "field": "from"},
            "x2": {"field": "to"},
            "y": y,
            "y2": {"datum": 0},
            "color": colour,
            "tooltip": tips,
        },
    )
    hidden = [one | {"text": "masked"} for one in rows if one["seen"]][:1]
    layers = [
        bars,
        layer(
            "text",
            hidden,
            {"x": {**at, "field": "at"}, "y": {"value": 10}, "text": {"field": "text"}},
            align="left",
            dx=-4,
            fontSize=12,
            color=ink.quiet,
        ),
    ]
    if level is not None:
        layers.append(
            layer(
                "rule",
                [{"level": level}],
                {"y": {**y, "field": "level"}},
                color=ink.quiet,
                strokeDash=[2, 2],
            )
        )
    return _figure(layers, TALL + (NAMES if named and few else 0))


def _tall(strips: Sequence[Strip]) -> int:
    return len(strips) * (NAME + STRIP + GAP)


def _across(count: int) -> Spec:
    scale = {"domain": [-0.5, count - 0.5], "nice": False}
    return {"type": "quantitative", "title": None, "axis": None, "scale": scale}


def _cells(strips: Sequence[Strip], order: np.ndarray, at: Spec, theme: Theme) -> list[Spec]:
    """One line of cells a strip under its name; all share one symmetric scale."""
    ink, layers = Ink.of(theme), []
    most = max(float(np.abs(strip.values).max()) for strip in strips) or 1.0
    colour = {
        "type": "quantitative",
        "legend": None,
        "scale": {
            "range": colour_scale(theme, signed=True),
            "domain": [-most, most],
            "domainMid": 0,
            "interpolate": "rgb",
        },
    }
    rows = [
        {"at": index, "dimension": int(one), **_page_numbers(strips, int(one))}
        for index, one in enumerate(order)
    ]
    for index, strip in enumerate(strips):
        top = index * (NAME + STRIP + GAP)
        layers.append(
            layer(
                "text",
                [{"text": strip.name}],
                {"x": {"value": 0}, "y": {"value": top + NAME - 5}, "text": {"field": "text"}},
                align="left",
                baseline="bottom",
                fontSize=12,
                color=ink.quiet,
            )
        )
        layers.append(
            _bars_around(
                layer(
                    "rect",
                    rows,
                    {
                        "x": {**at, "field": "from"},
                        "x2": {"field": "to"},
                        "y": {"value": top + NAME - 2},
                        "y2": {"value": top + NAME - 2 + STRIP},
                        "color": {**colour, "field": f"strip{index}"},
                        "tooltip": _tips(strips),
                    },
                )
            )
        )
    return layers


def _bars_around(marks: Spec) -> Spec:
    """A layer whose marks reach half a dimension to both sides."""
    return marks | {
        "transform": [
            {"calculate": "datum.at - 0.46", "as": "from"},
            {"calculate": "datum.at + 0.46", "as": "to"},
        ]
    }


def _page_numbers(strips: Sequence[Strip], dimension: int) -> Spec:
    return {
        f"strip{index}": float(strip.values[dimension]) for index, strip in enumerate(strips)
    } | {f"told{index}": number(strip.values[dimension]) for index, strip in enumerate(strips)}


def _tips(strips: Sequence[Strip]) -> list[Spec]:
    return [
        whole_tip("dimension", "dimension"),
        *(text_tip(f"told{index}", strip.name) for index, strip in enumerate(strips)),
    ]


def _figure(layers: Sequence[Spec], height: int) -> Spec:
    """Layers whose colours have scales of their own."""
    whole = figure(layers, height)
    return whole | {
        "resolve": {"scale": {"color": "independent"}},
        "config": whole["config"] | {"font": '"Source Sans", sans-serif'},
    }
