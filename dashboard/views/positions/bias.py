"""Encodings that change the scores: maps of the change, and its mean by distance."""

from __future__ import annotations

import numpy as np

from core.attention import AttentionConfig
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import latex, number
from dashboard.draw.multiples import Tile, multiples
from dashboard.runtime.link_values import read_linked, write_linked
from dashboard.server.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.charts import Equation, chart, ink, mean_by_distance
from dashboard.views.positions.controls import Controls, key
from dashboard.widgets.panels import fact

MAX_HEADS = 4  # maps and curves at once
MAP = 230  # pixels
BACK = 8  # positions, of the example in the sentence


def encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the change of each score, a map a head, all on one scale."""
    changes = cached(compute.score_changes, config, controls.seed, controls.positions)
    heads = range(min(MAX_HEADS, len(changes)))
    row = min(BACK, controls.positions - 1)
    span = float(np.abs(changes[: len(heads)]).max()) or 1.0
    tiles = [
        Tile(
            f"Head {h}", f"mean {number(float(changes[h].mean()))}", changes[h], span=(-span, span)
        )
        for h in heads
    ]
    pin = read_linked("positions", key("cell"), (controls.positions, controls.positions), "bias")
    write_linked(
        "positions",
        key("cell"),
        multiples(
            tiles,
            [str(index) for index in range(controls.positions)],
            key=key("bias"),
            signed=True,
            pin=pin,
            noun="change of the score",
            query=row,
            column=0,
            height=MAP,
        ),
    )
    means = [mean_by_distance(change, -row) for change in changes]
    most, least = int(np.argmax(np.abs(means))), int(np.argmin(np.abs(means)))
    std = cached(compute.score_std, config, controls.seed, controls.positions)
    others = f" and by {number(means[least])} in head {least}" if most != least else ""
    fact(
        f"The score of a key {row} positions before the query changes by **{number(means[most])}** in head {most}"
        f"{others}. Without the encoding the standard deviation of the scores is {number(std)}."
    )
    return (
        compute.latex_of(config, controls.seed),
        rf"\Delta s_{{{row},\,{row - 2}}} = {latex(changes[0, row, row - 2])}\ \text{{in head }} 0",
    )


def distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the mean change of a score against the distance of the key, a curve a head."""
    changes = cached(compute.score_changes, config, controls.seed, controls.positions)
    last = controls.positions - 1
    series, widest = [], 0.0
    for h, change in enumerate(changes[:MAX_HEADS]):
        rows = [(d, np.diagonal(change, d)) for d in range(-last, last + 1)]
        widest = max(widest, *(float(np.ptp(row)) for _, row in rows))
        series.append(
            Curve(
                f"head {h}",
                [(d, float(row.mean())) for d, row in rows],
                [(float(row.min()), float(row.max())) for _, row in rows],
            )
        )
    row = min(BACK, last)
    near, far = mean_by_distance(changes[0], -1), mean_by_distance(changes[0], -row)
    spec = line_chart(
        "Change of the score by distance",
        "position of the key minus position of the query",
        series,
        ink(),
        rule=0,
    )
    chart(spec, "cost", "Change of the score against distance")
    alone = (
        f"It depends only on the distance, to within {number(widest)}."
        if widest < 1e-3
        else f"It does not depend only on the distance: at equal distance it varies by up to {number(widest)}."
    )
    fact(
        f"In head 0 the score of the key just before the query changes by **{number(near)}**, that of a key {row} "
        f"positions before by **{number(far)}**. {alone}"
    )
    return (
        compute.latex_of(config, controls.seed),
        rf"\overline{{\Delta s}}(j - i = -{row}) = {latex(far)}\ \text{{in head }} 0",
    )
