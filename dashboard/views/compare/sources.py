"""The end of the page: each mechanism's equation with its numbers, its paper, the code that ran."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.attention import AttentionConfig, Entry, entry
from core.attention.kernels import exact
from dashboard.views.compare import text
from dashboard.views.compare.compute import MapResult, Tokens
from dashboard.views.compare.controls import Controls, Pair
from dashboard.widgets.panels import entries_panel, plain, source_panel


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
