"""The end of the page: each mechanism's equation with its numbers, its paper, the code that ran; export."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from core.attention import AttentionConfig, Entry, entry
from core.attention.kernels import exact
from core.trace import AttentionMap, AttentionTrace
from dashboard.views.compare import text
from dashboard.views.compare.compute import MapResult, Tokens
from dashboard.views.compare.controls import Controls, Pair
from dashboard.widgets.export import head_csv, map_svg, trace_npz
from dashboard.widgets.panels import entries_panel, plain, source_panel

MOST_SVG = 128  # tokens: a larger drawing has more cells than a vector program opens


def sources(controls: Controls, names: Sequence[str], results: Sequence[MapResult], tokens: Tokens, cell: Pair) -> None:
    """Draw the cell's numbers in every mechanism, equations and papers, and the code."""
    query, key = tokens.names[cell[0]], tokens.names[cell[1]]
    for config, name, each in zip(controls.mechanisms, names, results, strict=True):
        st.markdown(f"### {plain(name)}")
        if not each.error:
            st.latex(text.equation(each, query, key, cell))
        entries_panel(entries_of(config))
    st.markdown("### The code that just ran")
    source_panel(exact)


def entries_of(config: AttentionConfig) -> list[Entry]:
    """The entries of the changed axes, each part of a mask; of the plain dot product, score and normalizer."""
    axes = text.changed_axes(config) or ["score", "normalizer"]
    return [entry(axis, part.key) for axis in axes for part in getattr(config, axis).parts or (getattr(config, axis),)]


def export(controls: Controls, names: Sequence[str], results: Sequence[MapResult], tokens: Tokens) -> None:
    """Draw the downloads, each made on request."""
    panel = st.popover("Export", icon=":material/download:", key="compare:export", on_change="rerun")
    if not panel.open:
        return
    maps = {name: each.weights for name, each in zip(names, results, strict=True) if not each.error}
    a, b = controls.minus
    if a != b and not results[a].error and not results[b].error:
        maps[f"{names[a]} − {names[b]}"] = results[a].weights - results[b].weights
    item = AttentionMap("self", 0, np.stack(list(maps.values())), tokens.names, tokens.names)
    with panel:
        index = st.selectbox("Map", range(len(maps)), format_func=list(maps).__getitem__, key="compare:exported",
                             help="The map that the files below hold.")
        st.download_button("This map, CSV", lambda: head_csv(item, index), "map.csv", "text/csv", on_click="ignore")
        if len(tokens.names) <= MOST_SVG:
            weights = item.weights[index]
            end = float(np.abs(weights).max()) or 1.0 if weights.min() < 0 else None
            st.download_button("This map, SVG", lambda: map_svg(weights, tokens.names, tokens.names, signed=end),
                               "map.svg", "image/svg+xml", on_click="ignore")
        st.download_button("All maps in this order, NPZ", lambda: trace_npz(AttentionTrace((item,), "side by side")),
                           "maps.npz", on_click="ignore")
