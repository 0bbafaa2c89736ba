"""Encodings that are added to the input: the table, the similarity of two positions, and a shift as a linear map."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.attention import AttentionConfig
from core.attention import properties as measure
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import latex, listed, number
from dashboard.draw.multiples import Tile, multiples
from dashboard.draw.page_views import dials, sample_pairs
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.server.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.charts import Equation, chart, ink, mean_by_distance
from dashboard.views.positions.controls import Controls, key
from dashboard.widgets.panels import fact

CURVE_COUNT = 4  # curves
HANDS, SLOWEST = (
    4,
    8,
)  # pairs that are drawn as hands; times the positions: a slower hand would not seem to move
EXAMPLE = 3  # the position in the equation
TALL = 380  # pixels of a map
CLOSE = 0.05  # of the largest cosine
SAME = 1e-3  # of a vector's length; a map that misses by less is the map


def encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw what is added as a map of positions and dimensions, and some dimensions as curves."""
    table = cached(compute.table_of, config, controls.seed, controls.positions)
    positions, dims = table.shape
    example = min(EXAMPLE, positions - 1)
    pin = read_linked("positions", key("cell"), (positions, dims), "table")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            [Tile("What is added", f"{positions} positions × {dims} dimensions", table.numpy())],
            [str(i) for i in range(positions)],
            [str(m) for m in range(dims)],
            key=key("table"),
            signed=True,
            pin=pin,
            noun="number added",
            reads="position (row) · dimension (column)",
            height=TALL,
        ),
    )
    indices = sorted(
        {round(step * (dims - 2) / (CURVE_COUNT - 1) / 2) * 2 for step in range(CURVE_COUNT)}
    )
    series = [
        Curve(f"dimension {m}", [(i, float(v)) for i, v in enumerate(table[:, m])]) for m in indices
    ]
    chart(
        line_chart("Some dimensions at each position", "position", series, ink()),
        "curves",
        "Dimensions over positions",
    )
    similarity = measure.cosines(table).numpy()
    fact(
        f"The vectors of neighbouring positions have a cosine of **{number(mean_by_distance(similarity, 1))}**, those "
        f"of the first and last of these {positions} positions {number(float(similarity[0, -1]))}."
    )
    return (controls.item.latex, rf"P_{{{example}}} = ({listed(table[example].tolist())})")


def waves(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw some pairs of sine and cosine as hands of a clock, and what one pair and all pairs say of two positions."""
    table = cached(compute.table_of, config, controls.seed, controls.positions)
    pairs = measure.sinusoid_pairs(table)
    st.markdown("## Why waves of many lengths")
    moving = [pair for pair in pairs if pair.wavelength <= SLOWEST * controls.positions] or pairs[
        :1
    ]
    hands = sample_pairs(moving, HANDS)
    dials(
        hands,
        controls.positions,
        ink(),
        key=key("hands"),
        label=f"{len(hands)} of {len(pairs)} pairs of sine and cosine over {controls.positions} positions",
    )
    example = min(EXAMPLE, controls.positions - 1)
    alone = np.cos(pairs[0].angle * (np.arange(controls.positions) - example))
    alone[example] = -1.0
    close = np.flatnonzero(alone >= alone.max() - CLOSE)
    twin = int(close[np.abs(close - example).argmin()])  # the nearest, which a phone shows too
    together = float(measure.cosines(table)[example, twin])
    fact(
        f"Each pair of the numbers that are added rotates like the hand of a clock. By the fastest hand alone, "
        f"position {example} looks like position {twin} (cosine **{number(float(alone[twin]))}**). The slower hands "
        f"tell them apart: with all {len(pairs)} the cosine is **{number(together)}**."
    )
    return (controls.item.latex, rf"P_{{{example}}} = ({listed(table[example].tolist())})")


def distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the cosine of two positions' vectors against their distance, mean and range."""
    similarity = measure.cosines(
        cached(compute.table_of, config, controls.seed, controls.positions)
    ).numpy()
    rows = [np.diagonal(similarity, d) for d in range(len(similarity))]
    mean = [(d, float(row.mean())) for d, row in enumerate(rows)]
    band = [(float(row.min()), float(row.max())) for row in rows]
    far = min(5, len(rows) - 1)
    variation = max(high - low for low, high in band)
    series = [Curve("mean, range", mean, band)]
    chart(
        line_chart("Cosine of the vectors of two positions", "distance", series, ink()),
        "alike",
        "Similarity against distance",
    )
    alone = (
        "It depends only on the distance"
        if variation < 0.01
        else "It does not depend only on the distance"
    )
    fact(
        f"The vectors of two positions {far} apart have a cosine of **{number(mean[far][1])}**, those of neighbours "
        f"{number(mean[min(1, far)][1])}. {alone}: at equal distance it varies by at most {number(variation)}."
    )
    return (
        r"\frac{P_i^\top P_j}{\|P_i\|\,\|P_j\|}",
        rf"\text{{mean at }} |i - j| = {far}:\ {latex(mean[far][1])}",
    )


def shift(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw P(i + k) as a linear map of P(i): the rotation, the least-squares map, and the residual of each."""
    maps = cached(compute.linear_maps, config, controls.seed, controls.shift)
    k, closed, fit, unseen, still = next(row for row in maps.rows if row[0] == controls.shift)
    names = [str(m) for m in range(config.d_model)]
    pin = read_linked("positions", key("cell"), (config.d_model, config.d_model), "linear")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            [
                Tile("Closed form", f"rotations, from P({k})", maps.closed),
                Tile("Least squares", "fitted to seven eighths of the table", maps.fitted),
            ],
            names,
            key=key("linear"),
            signed=True,
            noun="entry of M",
            height=280,
            pin=pin,
            reads="dimension of P(i + k) (row) · of P(i) (column)",
        ),
    )
    lines = ("closed form", "fit", "fit, held out", "P(i) itself")
    series = [
        Curve(name, [(row[0], row[n]) for row in maps.rows]) for n, name in enumerate(lines, 1)
    ]
    spec = line_chart(
        "Error of the map, as a share of the length", "shift k", series, ink(), log=True, rule=k
    )
    chart(spec, "misses", "Residual of the linear map against the shift")
    verb = "is" if closed < SAME else "is not"
    fact(
        f"The vector {k} positions later {verb} a rotation of this one: the error of the closed form is "
        f"**{number(closed)}** of its length, that of P(i) itself {number(still)}. A map fitted by least squares has "
        f"an error of {number(fit)}, and of {number(unseen)} on held-out positions."
    )
    return (
        r"P_{i+k} = M_k P_i,\quad M_k = \begin{pmatrix}\cos k\theta_m & \sin k\theta_m\\ "
        r"-\sin k\theta_m & \cos k\theta_m\end{pmatrix}_m",
        rf"\frac{{\|M_{{{k}}}P_i - P_{{i+{k}}}\|}}{{\|P_{{i+{k}}}\|}} = {latex(closed)}",
    )
