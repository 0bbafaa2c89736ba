"""Encodings that rotate queries and keys: each pair of dimensions as a dial, and the score by distance."""

from __future__ import annotations

import numpy as np

from core.attention import AttentionConfig
from core.attention import properties as measure
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.formats import latex, listed, number
from dashboard.draw.page_views import dials, sample_pairs, wavelength_text
from dashboard.server.cache import cached
from dashboard.views.positions import compute
from dashboard.views.positions.charts import Equation, chart, ink
from dashboard.views.positions.controls import Controls, key
from dashboard.widgets.panels import caption, fact


def encoding(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw each pair of dimensions as a hand that rotates from position to position."""
    rotations = cached(compute.rotations_of, config, controls.seed, controls.positions)[
        : row_length(config)
    ]
    pairs = measure.rotation_pairs(rotations)
    examples, plain = sample_pairs(pairs), compute.unscaled(config)
    unscaled = (
        ()
        if plain is None
        else measure.rotation_pairs(
            cached(compute.rotations_of, plain, controls.seed, controls.positions)
        )
    )
    dials(
        examples,
        len(rotations),
        ink(),
        key=key("dials"),
        before=unscaled,
        label=f"{len(examples)} pairs of dimensions rotating over {len(rotations)} positions",
    )
    between = (
        f" ({len(pairs) - len(examples)} more pairs lie between)"
        if len(pairs) > len(examples)
        else ""
    )
    still = config.qk_dim - 2 * len(pairs)
    rest = f" {still} of {config.qk_dim} dimensions do not rotate." if still else ""
    if still and row_length(config):
        rest = f" These are the columns of one row. The other {still} dimensions rotate from row to row."
    slowest = max((pair.wavelength for pair in unscaled), default=None)
    instead = (
        f", instead of {wavelength_text(slowest)} with a factor of 1 (faint)" if slowest else ""
    )
    fastest, slowest_text = (
        wavelength_text(pair.wavelength) for pair in (examples[0], examples[-1])
    )
    caption(pairing(examples[0].first, examples[0].second, controls))
    fact(
        f"The fastest pair completes a circle in **{fastest}** positions, the slowest in "
        f"**{slowest_text}**{instead}{between}.{rest}"
    )
    return (
        controls.item.latex,
        rf"\theta = ({listed([abs(p.angle) for p in examples])})\ \text{{rad per position}}",
    )


def row_length(config: AttentionConfig) -> int | None:
    """How many positions lie in one row, of a rotation by rows and columns; None where all lie in one line."""
    columns = dict(config.position.params).get("columns")
    return None if columns is None else int(columns)


def pairing(first: int, second: int, controls: Controls) -> str:
    """What the name of a pair means, and where the layout takes its two numbers from."""
    layouts = {
        "halves": "a number of the first half and one of the second half",
        "interleaved": "two neighbours",
    }
    layout = str(dict(controls.config.position.params).get("layout", "")) if controls.config else ""
    why = f" Each pair has {layouts[layout]} (Layout: {layout})." if layout in layouts else ""
    return f"“{first}, {second}” are the numbers {first} and {second} of a query or key, which rotate together.{why}"


def distance(controls: Controls, config: AttentionConfig) -> Equation:
    """Draw the score of a vector with itself, rotated apart: mean over all directions, and two single pairs."""
    rotations = cached(compute.rotations_of, config, controls.seed, controls.positions)[
        : row_length(config)
    ]
    similarity = measure.alignment(rotations).numpy()
    rows = [np.diagonal(similarity, d) for d in range(len(similarity))]
    variation = max(float(np.ptp(row)) for row in rows)
    examples = sample_pairs(measure.rotation_pairs(rotations))
    series = [Curve("all directions", [(d, float(row.mean())) for d, row in enumerate(rows)])]
    series += [
        Curve(
            f"pair {p.first}, {p.second}",
            [(d, float(np.cos(d * p.angle))) for d in range(len(rows))],
        )
        for p in dict.fromkeys((examples[0], examples[-1]))
    ]
    far = min(5, len(rows) - 1)
    unit = "columns" if row_length(config) else "positions"
    chart(
        line_chart(
            "Score of a unit vector and itself, rotated apart", f"distance in {unit}", series, ink()
        ),
        "alike",
        "Similarity against distance",
    )
    fact(
        f"A query and an equal key, both of length 1 and {far} {unit} apart, have a mean score of "
        f"**{number(float(rows[far].mean()))}** over all directions; at the same position it is "
        f"{number(float(rows[0].mean()))}. The score depends only on the distance: at equal distance it varies by at "
        f"most {number(variation)}."
    )
    return (
        r"\overline{(R_i u)^\top (R_j u)} = \tfrac{1}{D}\,\mathrm{tr}(R_i^\top R_j)",
        rf"|i - j| = {far}:\ {latex(float(rows[far].mean()))}",
    )
