"""Encodings that change the scores, and what holds of all that act where q meets k: maps, distance, and a shift."""

from __future__ import annotations

import numpy as np
import streamlit as st

from core.attention import AttentionConfig
from dashboard.charts.lines import Curve, line_chart
from dashboard.charts.numbers import latex, number
from dashboard.components.multiples import Tile, difference_map, multiples
from dashboard.runtime.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.controls import Chosen, key
from dashboard.views.positions.text import Equation, chart, ink, mean_by_distance, without_rounding
from dashboard.widgets.panels import fact

MOST_HEADS = 4  # maps and curves at once
MAP = 230  # pixels
BACK = 8  # places back in the sentence


def encoding(asked: Chosen, config: AttentionConfig) -> Equation:
    """What each score changes by, a map a head, all on one scale."""
    found = cached(compute.changes, config, asked.seed, asked.places)
    heads = range(min(MOST_HEADS, len(found)))
    row = min(BACK, asked.places - 1)
    span = float(np.abs(found[: len(heads)]).max()) or 1.0
    tiles = [Tile(f"Head {h}", f"mean {number(float(found[h].mean()))}", found[h], span=(-span, span)) for h in heads]
    multiples(tiles, [str(place) for place in range(asked.places)], key=key("bias"), signed=True,
              noun="change of the score", query=row, column=0, height=MAP)
    means = [mean_by_distance(change, -row) for change in found]
    most, least = int(np.argmax(np.abs(means))), int(np.argmin(np.abs(means)))
    others = f", and by {number(means[least])} in head {least}" if most != least else ""
    fact(f"A key {row} places back has its score changed by **{number(means[most])}** in head {most}{others}. "
         f"The scores without it spread over {number(cached(compute.spread, config, asked.seed, asked.places))}.")
    return (compute.latex_of(config, asked.seed, asked.item),
            rf"\Delta s_{{{row},\,{row - 2}}} = {latex(found[0, row, row - 2])}\ \text{{in head }} 0")


def distance(asked: Chosen, config: AttentionConfig) -> Equation:
    """The mean change of a score against where the key stands from the query, a curve a head."""
    found = cached(compute.changes, config, asked.seed, asked.places)
    last = asked.places - 1
    series, widest = [], 0.0
    for h, change in enumerate(found[:MOST_HEADS]):
        rows = [(d, np.diagonal(change, d)) for d in range(-last, last + 1)]
        widest = max(widest, *(float(np.ptp(row)) for _, row in rows))
        series.append(Curve(f"head {h}", [(d, float(row.mean())) for d, row in rows],
                            [(float(row.min()), float(row.max())) for _, row in rows]))
    row = min(BACK, last)
    near, far = mean_by_distance(found[0], -1), mean_by_distance(found[0], -row)
    drawn = line_chart("Change of the score by place of the key", "key before (−) or after the query", series, ink(),
                   rule=0)
    chart(drawn, "cost", "Change of the score against distance")
    alone = (f"The distance alone decides it, to within {number(widest)}." if widest < 1e-3 else
             f"The distance does not decide it: at one distance it differs by up to {number(widest)}.")
    fact(f"In head 0 the key before the query has its score changed by **{number(near)}**, the one {row} places back "
         f"by **{number(far)}**. {alone}")
    return (compute.latex_of(config, asked.seed, asked.item),
            rf"\overline{{\Delta s}}(j - i = -{row}) = {latex(far)}\ \text{{in head }} 0")


def shift(asked: Chosen, config: AttentionConfig) -> Equation:
    """The scores of the same words, at the start and some places later."""
    found = cached(compute.moved, config, asked.tokens, asked.seed, asked.shift)
    same = "=" if found.largest < 1e-3 else r"\neq"
    tiles = [Tile("At the start", "scores of head 0", found.first[0]),
             Tile(f"{asked.shift} places later", "after other words", without_rounding(found.later[0], found.first[0]))]
    shown = {"noun": "score", "height": MAP, "link": key("shifted"), "query": len(asked.tokens) - 1}
    left, right = st.columns([5, 2], gap="small")
    with left:
        multiples(tiles, asked.tokens, key=key("moved"), signed=True, **shown)
    with right:
        difference_map(tiles[1], tiles[0], asked.tokens, key=key("difference"), **shown)
    size = float(np.abs(found.first).max())
    kept = "score as before" if found.largest < 1e-3 else "score otherwise"
    fact(f"{asked.shift} places later the same words {kept}: no score changes by more than "
         f"**{number(found.largest)}**, of scores up to {number(size)}. With sinusoids added to the input one changes "
         f"by {number(found.beside)}.")
    return (rf"s_{{i+k,\,j+k}} {same} s_{{ij}}", rf"\max\,|s_{{i+{asked.shift},\,j+{asked.shift}}} - s_{{ij}}| = "
            rf"{latex(found.largest)}")
