"""Downloads of the drawn maps, made only when pressed."""

from __future__ import annotations

import streamlit as st

from core.trace import AttentionTrace
from dashboard.widgets.export import head_csv, map_svg, trace_npz

MOST_SVG = 128  # tokens: a longer map would be a file of many megabytes, and no better than the view's own PNG


def export_popover(trace: AttentionTrace, layer: int, head: int) -> None:
    """One head as CSV and SVG, all heads as NPZ; a PNG is made by the view itself."""
    item = trace.map(layer)
    name = f"attention-L{trace.number(layer)}H{head}"
    with st.popover("Export", icon=":material/download:"):
        st.download_button("This head, CSV", lambda: head_csv(item, head), f"{name}.csv", "text/csv", on_click="ignore")
        if len(item.keys) <= MOST_SVG:
            st.download_button("This head, SVG", lambda: map_svg(item.weights[head], item.queries, item.keys),
                               f"{name}.svg", "image/svg+xml", on_click="ignore")
        st.download_button("All heads, NPZ", lambda: trace_npz(trace), "attention.npz", on_click="ignore")
        st.caption("PNG stands under each picture.")
