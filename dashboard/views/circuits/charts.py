"""Composition as a graph over layers × heads, grids of measures, and singular values: arrays to Vega-Lite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dashboard.draw.formats import number, signed
from dashboard.draw.grids import effect_grid
from dashboard.draw.palette import Ink, Theme
from dashboard.draw.vega import PICKED, Spec, axis_style, figure, layer
from dashboard.views.circuits.compute import Circuits, Edge, Head

ROW, LEAST = 48, 200  # pixels of a layer in the graph, and of the whole graph
THIN, WIDE = 1.0, 7.0  # pixels of the weakest edge that is drawn, and of the strongest


def graph(circuits: Circuits, edges: Sequence[Edge], picked: Head, theme: Theme) -> Spec:
    """Heads as points, the first layer below, and edges, strongest first, wider where stronger; a click picks a head.

    Edges of the picked head are drawn in the accent. There may be no edges.
    """
    ink, scores = Ink.of(theme), [edge.score for edge in edges] or [0.0]
    most, least = scores[0], scores[-1]
    lines = [
        {
            "x": edge.source[1],
            "y": edge.source[0],
            "x2": edge.target[1],
            "y2": edge.target[0],
            "own": picked in (edge.source, edge.target),
            "wide": THIN + (WIDE - THIN) * (edge.score - least) / (most - least or 1.0),
            "name": f"{circuits.name(edge.source)} → {circuits.name(edge.target)}",
            "by": f"{edge.kind} {signed(edge.score)}",
        }
        for edge in edges
    ]
    nodes: list[Spec] = [
        {
            "x": head,
            "y": row,
            "layer": circuits.layer_name(row),
            "head": str(head),
            "name": circuits.name((row, head)),
            "own": (row, head) == picked,
            "linked": any((row, head) in (edge.source, edge.target) for edge in edges),
        }
        for row, head in circuits.all()
    ]
    at = {
        "x": _axis(
            "x", "head", [str(head) for head in range(max(node["x"] for node in nodes) + 1)], ink
        ),
        "y": _axis(
            "y", None, [circuits.layer_name(row) for row in range(len(circuits.heads))], ink
        ),
    }
    colour = {"condition": {"test": "datum.own", "value": ink.pick}, "value": ink.series[0]}
    tips = [{"field": "name", "title": "heads"}, {"field": "by", "title": "composition"}]
    strokes = layer(
        "rule",
        lines,
        {
            **at,
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "color": colour,
            "tooltip": tips,
            "strokeWidth": {"field": "wide", "type": "quantitative", "scale": None},
            "opacity": {"condition": {"test": "datum.own", "value": 0.95}, "value": 0.45},
        },
        strokeCap="round",
    )
    dots = layer(
        "circle",
        nodes,
        {
            **at,
            "color": colour,
            "tooltip": [{"field": "name", "title": "head"}],
            "opacity": {
                "condition": {"test": "datum.own || datum.linked", "value": 1},
                "value": 0.35,
            },
            "size": {"condition": {"test": "datum.own", "value": 260}, "value": 130},
        },
        cursor="pointer",
    )
    select = {"type": "point", "fields": ["layer", "head"], "on": "click", "toggle": False}
    return figure([strokes, dots | {"name": "cells"}], max(LEAST, ROW * len(circuits.heads))) | {
        "params": [{"name": PICKED, "views": ["cells"], "select": select}]
    }


def _axis(name: str, title: str | None, labels: Sequence[str], ink: Ink) -> Spec:
    """Whole numbers with a name each."""
    named = "[" + ",".join(f"'{label}'" for label in labels) + "][datum.value]"
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [-0.5, len(labels) - 0.5], "nice": False, "zero": False},
        "axis": {
            **axis_style(ink),
            "values": list(range(len(labels))),
            "labelExpr": named,
            "grid": False,
        },
    }


def measure_grid(
    circuits: Circuits,
    values: Mapping[Head, float],
    picked: Head,
    title: str,
    theme: Theme,
    has_sign: bool = True,
) -> Spec:
    """Layers × heads by one measure; heads without a value stay empty."""
    rows = [
        {
            "layer": circuits.layer_name(row),
            "head": str(head),
            "change": value,
            "name": circuits.name((row, head)),
            "by": signed(value) if has_sign else number(value),
        }
        for (row, head), value in values.items()
    ]
    heads = max(len(one.w_v) for one in circuits.heads)
    layers = [circuits.layer_name(row) for row in range(len(circuits.heads))]
    return effect_grid(
        rows,
        layers,
        [str(head) for head in range(heads)],
        (layers[picked[0]], str(picked[1])),
        theme,
        title=title,
        tips=(("name", "head"), ("by", title)),
        has_sign=has_sign,
    )


def singular_bars(values: np.ndarray, theme: Theme) -> Spec:
    """A bar for each singular value, largest first."""
    ink = Ink.of(theme)
    rows = [
        {"rank": index + 1, "value": float(value), "text": number(float(value))}
        for index, value in enumerate(values)
    ]
    at = {
        "x": {
            "field": "rank",
            "type": "ordinal",
            "title": None,
            "axis": {**axis_style(ink), "labelAngle": 0, "labelOverlap": True, "grid": False},
        },
        "y": {
            "field": "value",
            "type": "quantitative",
            "title": None,
            "axis": {**axis_style(ink), "tickCount": 3, "grid": False},
        },
        "tooltip": [
            {"field": "rank", "title": "direction"},
            {"field": "text", "title": "singular value"},
        ],
    }
    return figure([layer("bar", rows, at, color=ink.series[0], cornerRadius=1)], 110)
