"""The joint map of a head's queries and keys."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.corpus.joint_map import HeadVectors, join_vectors, joint_map, nearness
from dashboard.views.corpus import charts, compute, text
from dashboard.views.corpus.compute import Measurement
from dashboard.views.corpus.controls import Controls, HeadControls, draw_colour, key
from dashboard.widgets.panels import caption, chart_title, theme
from dashboard.widgets.presentation import draw_chart
from dashboard.widgets.progress import UNASKED, measure_with_progress


def draw_map(measurement: Measurement, controls: Controls, chosen: HeadControls) -> None:
    """Draw the head's queries and keys as points of one plane."""
    if measurement.live:
        st.info("The map is drawn once the measurement has ended.", icon=":material/info:")
        return
    if (vectors := _vectors(compute.vectors_key(measurement, controls.ref), f"{controls.noun}s")) is None:
        return
    points = joint_map(*vectors.head(*chosen.head))
    colour = draw_colour()
    name = measurement.scores.name(chosen.head)
    chart_title(f"Queries ● and keys ▲ of {name} in the plane of most variance")
    draw_chart(st, charts.joint_chart(points, vectors, colour, theme()), key=key("map"),
               alt=f"Queries and keys of {name} in the plane of most variance")
    near = nearness(points, vectors, *chosen.head)
    caption(text.about(text.map_note(points, name, len(vectors.tokens), int(vectors.texts[-1]) + 1, near),
                       controls.noun))


def _vectors(of: compute.VectorsKey, nouns: str) -> HeadVectors | None:
    """The queries and keys of the texts that were read so far; None without any."""
    if not compute.has_vectors(of):
        with st.spinner("Reading queries and keys"):
            texts = range(len(compute.texts_of_map(of)))
        read = measure_with_progress(compute.VECTORS, of, texts, partial(compute.read_vectors, of), nouns, UNASKED)
        if len(read) < len(texts) and not compute.has_vectors(of):
            return join_vectors(list(read.values())) if read else None
    return compute.vectors_of(of)
