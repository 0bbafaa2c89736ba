"""The page Inside one weight, from the model picker to the equation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st

from core.interpret.weight_breakdown import LayerAttention, WeightBreakdown, break_down_weight
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import number
from dashboard.draw.palette import Ink, Theme, colour_scale
from dashboard.draw.vega import Spec, axis_style, figure, layer, quoted, text_tip, whole_tip
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.ui.presentation import draw_chart
from dashboard.views.inside_weight import text
from dashboard.views.inside_weight.compute import Cell, cell_attention
from dashboard.views.inside_weight.controls import KEY, MAP, QUERY, draw_controls, order_field
from dashboard.views.inside_weight.script import script
from dashboard.widgets.model_picker import ModelChoice, choose_model
from dashboard.widgets.panels import details, fact, next_page, plain, source_panel, theme, title

NAME, STRIP, GAP, BARS = (
    18,
    16,
    6,
    150,
)  # pixels: a strip's name, its height, what is left under it; the bars
TALL, NAMES = 110, 62  # pixels: a row of bars, and the names of its keys
MOST_NAMES = 48  # keys; beyond, their positions are written


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Inside one weight",
        "See how a query and a key give one attention weight, number by number.",
    )
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
        fact(text.weight_fact(trace.label(cell.layer, cell.head), one, query, key))
        _row(item.keys, one, cell.key)
    _products(cell, one, query, key)
    st.markdown("## What the weight carries")
    strips = [
        Strip(f"v · {key}", one.value),
        Strip("α · v", one.contribution),
        Strip(f"output of {query}, the sum over all keys", one.out),
    ]
    _draw(
        strips_alone(strips, theme()), "carried", f"What the weight carries from {key} to {query}"
    )
    fact(text.carried_fact(one, query, key))
    for line in text.equation(cell, layer, one, query, key):
        st.latex(line)
    own = float(item.weights[cell.head, cell.query, cell.key])
    note = reading.note if one.sink is None else None  # a sink has a sentence of its own
    st.caption(
        " ".join(filter(None, (text.conditions(reading.trace.source, cell, layer, one, own), note)))
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
    by_size = order_field() == "largest"
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
        fact(text.rotation_fact(one, cell))


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
            **_numbers(strips, int(one)),
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


def strips_alone(strips: Sequence[Strip], theme: Theme) -> Spec:
    """Vectors of the same dimensions on one scale."""
    order = np.arange(len(strips[0].values))
    return _figure(_cells(strips, order, _across(len(order)), theme), _tall(strips))


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
    few = len(tokens) <= MOST_NAMES
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
        {"at": index, "dimension": int(one), **_numbers(strips, int(one))}
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


def _numbers(strips: Sequence[Strip], dimension: int) -> Spec:
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
