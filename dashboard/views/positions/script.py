"""What the page computes as Python: of each idea, for the stage of the formula at which the encoding enters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from core.attention import AttentionConfig, properties
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached
from dashboard.views.positions import compute, rotation
from dashboard.views.positions.controls import Controls
from dashboard.views.positions.order import FIRST_NUMBERS

LAYER = "A layer with seeded weights and this position encoding."
TEXT = {
    "shuffle": "The same words in another order: how much each word's output changes, as a share of its length.",
    "added": "What attention reads: the vector of each word plus that of its position.",
    "table": "What is added at each position, and the cosine of the vectors of two positions by their distance.",
    "rotations": "The rotation of a query or key at each position, and the mean score of a vector and itself, rotated.",
    "changes": "What the encoding changes each score by.",
    "linear": "P(i + k) as a linear map of P(i): the rotation in closed form, and a least-squares fit.",
    "moved": "The scores of the words at the start, and after other words.",
}
CODE = {
    "shuffle": """
x = embed(tokens, {d_model}, seed={seed})  # (1, T, C)
order = {order}
ordered, shuffled = layer(x), layer(x[:, order])
back = torch.tensor(order).argsort()
weights, restored = ordered.weights[0], shuffled.weights[0][:, back][:, :, back]  # (H, T, T)
change = (shuffled.merged[0, back] - ordered.merged[0]).norm(dim=-1) / ordered.merged[0].norm(dim=-1)
print(dict(zip(tokens, change.tolist())))
""",
    "added": """
from core.attention.properties import additive_table

words, places = x[0], additive_table(layer.position, len(tokens), {d_model})  # (T, C)
""",
    "table": """
from core.attention.properties import additive_table, cosines

table = additive_table(layer.position, {rows}, {d_model})  # (T, C)
similarity = cosines(table)  # (T, T)
by_distance = [float(similarity.diagonal(distance).mean()) for distance in range(len(table))]
print(by_distance)
""",
    "rotations": """
from core.attention.properties import alignment, rotation_matrices, rotation_pairs

rotations = rotation_matrices(layer.position, {positions}, config.qk_dim){cut}  # (T, D, D)
pairs = rotation_pairs(rotations)
wavelengths = [pair.wavelength for pair in pairs]  # positions for each full turn
similarity = alignment(rotations)  # (T, T)
by_distance = [float(similarity.diagonal(distance).mean()) for distance in range(len(rotations))]
print(wavelengths, by_distance)
""",
    "changes": """
steps = layer(embed(tuple(f"word {{index}}" for index in range({positions})), {d_model}, seed={seed}))
changes = (steps.scores - steps.raw * steps.scale)[0]  # (H, T, T)
distances = range(1 - {positions}, {positions})  # of the key from the query
by_distance = [[float(change.diagonal(distance).mean()) for distance in distances] for change in changes]
print("mean change in each head", [each[0] for each in by_distance], "of the farthest key")
""",
    "linear": """
from core.attention.properties import additive_table, fit_shift, shift_error, sinusoid_shift

table, shift = additive_table(layer.position, {table_rows}, {d_model}), {shift}  # (T, C)
fit_length = {fit_length}  # the other positions are held out
closed, fitted = sinusoid_shift(table[shift]), fit_shift(table[:fit_length], shift)  # (C, C)
errors = [shift_error(closed, table, shift), shift_error(fitted, table[:fit_length], shift),
          shift_error(fitted, table[fit_length:], shift)]
print("error as a share of the length: closed form, fit, fit on held-out positions", errors)
""",
    "moved": """
before = tuple(f"before {{index}}" for index in range({shift}))
first = layer(embed(tokens, {d_model}, seed={seed})).scores[0]  # (H, T, T)
later = layer(embed((*before, *tokens), {d_model}, seed={seed})).scores[0, :, {shift}:, {shift}:]
print("largest change of a score", float((later - first).abs().max()))
""",
}
MAPS = """
from core.show import show_maps

show_maps({}, {}, {})
"""
CHART = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame({})).mark_line().encode(x="distance", y="mean"{})
"""
BY_DISTANCE = CHART.format('{"distance": range(len(by_distance)), "mean": by_distance}', "")
CHANGES = CHART.format(
    '[{"head": head, "distance": distance, "mean": mean} for head, row in enumerate(by_distance)\n'
    "                        for distance, mean in zip(distances, row)]",
    ', color="head:N"',
)
WAVES = """
import altair as alt
import pandas as pd

pairs = pd.DataFrame({"pair": range(len(wavelengths)), "wavelength": wavelengths})
alt.Chart(pairs).mark_point().encode(x="pair", y=alt.Y("wavelength", scale=alt.Scale(type="log")))
"""
SUM = f"""
from core.show import show_maps

shown = words[:, :{FIRST_NUMBERS}], places[:, :{FIRST_NUMBERS}]  # of each vector
maps = dict(zip(("Word vectors", "+ position vectors", "= what attention reads"), (*shown, sum(shown))))
show_maps(maps, tokens, [str(m) for m in range(shown[0].shape[1])])
"""
# By the idea and the stage: the parts, the picture, and what draws it.
PAGES: dict[tuple[str, str], tuple[tuple[str, ...], str, str]] = {
    ("shuffle", "x"): (("shuffle", "added"), "sum", SUM),
    ("encoding", "x"): (
        ("table",),
        "table",
        MAPS.format(
            '{"What is added": table}',
            "[str(i) for i in range(len(table))]",
            "[str(m) for m in range(table.shape[1])]",
        ),
    ),
    ("distance", "x"): (("table",), "alike", BY_DISTANCE),
    ("shift", "x"): (
        ("linear",),
        "linear",
        MAPS.format(
            '{"Closed form": closed, "Least squares": fitted}',
            *["[str(m) for m in range(len(closed))]"] * 2,
        ),
    ),
    ("encoding", "q, k"): (("rotations",), "dials", WAVES),
    ("distance", "q, k"): (("rotations",), "alike", BY_DISTANCE),
    ("encoding", "scores"): (
        ("changes",),
        "bias",
        MAPS.format(
            '{f"Head {head}": change for head, change in enumerate(changes[:4])}',
            *["[str(i) for i in range(changes.shape[1])]"] * 2,
        ),
    ),
    ("distance", "scores"): (("changes",), "cost", CHANGES),
}
SHUFFLE = (
    ("shuffle",),
    "maps",
    MAPS.format('{"In order": weights[0], "Sorted back": restored[0]}', "tokens", "tokens"),
)
MOVED = (
    ("moved",),
    "moved",
    MAPS.format('{"At the start": first[0], "Later": later[0]}', "tokens", "tokens"),
)


def script(controls: Controls, config: AttentionConfig) -> Script:
    """The picture of the picked idea, and its numbers."""
    parts, picture, draw = PAGES.get(
        (controls.idea, controls.item.enters), SHUFFLE if controls.idea == "shuffle" else MOVED
    )
    values = _values(controls, config)
    results: dict[str, np.ndarray] = {}
    for part in parts:
        results |= RESULTS[part](controls, config)
    cells = [Cell(TEXT[part], CODE[part].format(**values)) for part in parts]
    cells[-1] = replace(cells[-1], draw=draw, picture=f"positions:{picture}")
    made, words = (
        source_of(config),
        f"tokens = {source_of(controls.tokens)}\n" * (parts[0] in ("shuffle", "moved")),
    )
    embed = "from core.tokens import embed\n" * any("embed(" in cell.code for cell in cells)
    layer = f"""
import torch

{attention_import(made)}
from core.seeding import seeded_layer
{embed}
{words}config = {made}
layer = seeded_layer(config, {controls.seed})
"""
    return Script((Cell(LAYER, layer), *cells), results)


def _values(controls: Controls, config: AttentionConfig) -> dict[str, Any]:
    """What the templates are filled with."""
    row = rotation.row_length(config)
    table, table_rows = (
        len(cached(compute.table_of, config, controls.seed, positions))
        if controls.item.enters == "x"
        else 0
        for positions in (controls.positions, compute.TABLE_POSITIONS)
    )
    order = compute.shuffle(len(controls.tokens), controls.seed, controls.order).tolist()
    return {
        "d_model": config.d_model,
        "seed": controls.seed,
        "order": order,
        "positions": controls.positions,
        "shift": controls.shift,
        "cut": f"[:{row}]" if row else "",
        "rows": table,
        "table_rows": table_rows,
        "fit_length": compute.fit_length(table_rows),
    }


def _shuffle(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    effect = cached(compute.shuffle_effect, config, controls.tokens, controls.seed, controls.order)
    return {
        "weights": effect.ordered,
        "restored": effect.restored,
        "change": effect.change,
        "restored - weights": effect.restored - effect.ordered,
    }


def _added(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    words, places = cached(compute.added_vectors, config, controls.tokens, controls.seed)
    return {"words": words, "places": places, "words + places": words + places}


def _table(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    table = cached(compute.table_of, config, controls.seed, controls.positions)
    return {"table": table.numpy(), "by_distance": _by_distance(properties.cosines(table).numpy())}


def _rotations(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    rotations = cached(compute.rotations_of, config, controls.seed, controls.positions)[
        : rotation.row_length(config)
    ]
    return {
        "wavelengths": np.array([pair.wavelength for pair in properties.rotation_pairs(rotations)]),
        "by_distance": _by_distance(properties.alignment(rotations).numpy()),
    }


def _changes(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    changes = cached(compute.score_changes, config, controls.seed, controls.positions)
    return {
        "changes": changes,
        "by_distance": np.stack([_by_distance(change, 1 - len(change)) for change in changes]),
    }


def _linear(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    maps = cached(compute.linear_maps, config, controls.seed, controls.shift)
    return {
        "closed": maps.closed,
        "fitted": maps.fitted,
        "errors": np.array(next(row for row in maps.rows if row[0] == controls.shift)[1:4]),
    }


def _moved(controls: Controls, config: AttentionConfig) -> Mapping[str, np.ndarray]:
    effect = cached(compute.shift_effect, config, controls.tokens, controls.seed, controls.shift)
    return {"first": effect.first, "later": effect.later}


def _by_distance(cells: np.ndarray, first: int = 0) -> np.ndarray:
    return np.array([np.diagonal(cells, distance).mean() for distance in range(first, len(cells))])


RESULTS = {
    "shuffle": _shuffle,
    "added": _added,
    "table": _table,
    "rotations": _rotations,
    "changes": _changes,
    "linear": _linear,
    "moved": _moved,
}
