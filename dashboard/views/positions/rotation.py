"""Encodings that turn queries and keys: each pair's hand, and how turning apart lowers a score."""

from __future__ import annotations

import numpy as np

from core.attention import AttentionConfig
from core.positions import measure
from dashboard.charts.lines import Curve, line_chart
from dashboard.charts.numbers import latex, number
from dashboard.components.position_dials import dials, said, some
from dashboard.runtime.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.controls import Chosen, key
from dashboard.views.positions.text import Equation, chart, ink, listed
from dashboard.widgets.panels import fact


def encoding(asked: Chosen, config: AttentionConfig) -> Equation:
    """Each pair of dimensions as a hand that turns from place to place."""
    found = measure.pairs(cached(compute.turns_of, config, asked.seed, asked.places))
    shown, plain = some(found), compute.unscaled(config)
    before = measure.pairs(cached(compute.turns_of, plain, asked.seed, asked.places)) if plain else ()
    dials(shown, asked.places, ink(), key=key("dials"), before=before,
          label=f"{len(shown)} pairs of dimensions turning over {asked.places} places")
    between = f" ({len(found) - len(shown)} more pairs lie between)" if len(found) > len(shown) else ""
    still = config.qk_dim - 2 * len(found)
    rest = f" {still} of {config.qk_dim} dimensions never turn." if still else ""
    slowest = max((pair.wavelength for pair in before), default=None)
    instead = f", instead of {said(slowest)} with a factor of 1 (faint)" if slowest else ""
    fact(f"The fastest pair makes a whole circle in **{said(shown[0].wavelength)}** places, the slowest in "
         f"**{said(shown[-1].wavelength)}**{instead}{between}.{rest}")
    return (asked.item.latex, rf"\theta = ({listed([abs(p.angle) for p in shown])})\ \text{{rad a place}}")


def distance(asked: Chosen, config: AttentionConfig) -> Equation:
    """The score of one vector with itself, turned apart: mean over all directions, and two single pairs."""
    turns = cached(compute.turns_of, config, asked.seed, asked.places)
    alike = measure.alignment(turns).numpy()
    rows = [np.diagonal(alike, d) for d in range(len(alike))]
    spread = max(float(np.ptp(row)) for row in rows)
    shown = some(measure.pairs(turns))
    series = [Curve("all directions", [(d, float(row.mean())) for d, row in enumerate(rows)])]
    series += [Curve(f"pair {p.first}, {p.second}", [(d, float(np.cos(d * p.angle))) for d in range(len(rows))])
               for p in dict.fromkeys((shown[0], shown[-1]))]
    far = min(5, len(rows) - 1)
    chart(line_chart("A vector of length 1 and itself, turned apart", "places between them", series, ink()), "alike",
          "Similarity against distance")
    fact(f"A query and an equal key, of length 1 and {far} places apart, score "
         f"**{number(float(rows[far].mean()))}** on average over all directions; at one place they score "
         f"{number(float(rows[0].mean()))}. The distance alone decides it: at one distance it differs by "
         f"{number(spread)} at most.")
    return (r"\overline{(R_i u)^\top (R_j u)} = \tfrac{1}{D}\,\mathrm{tr}(R_i^\top R_j)",
            rf"|i - j| = {far}:\ {latex(float(rows[far].mean()))}")
