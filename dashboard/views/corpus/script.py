"""What the page computes as Python, from the folder of its measurement."""

from __future__ import annotations

import numpy as np

from core.corpus.joint_map import joint_map, nearness
from core.corpus.measures import COPYING
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.runtime.run_data import path_code
from dashboard.views.corpus import compute
from dashboard.views.corpus.compute import MAP_TEXTS, MAP_TOKENS, Measurement
from dashboard.views.corpus.controls import Controls, HeadControls
from dashboard.widgets.model_picker.code import model_cell

READ = "The measurement of every head on every text, as its worker left it."
POINTS = "Two measures of every head: the means over the texts, and half of their 95 % intervals."
HEAD = "One head on every text, and its mean."
PLANE = "The head's queries and keys on the first texts, in the plane of most variance."
CHOICES = {
    "strongest": ("ranked", "ranked(values)[:{count}]", "largest", "largest"),
    "weakest": ("ranked", "ranked(values)[::-1][:{count}]", "smallest", "smallest"),
    "typical": (
        "decile_texts",
        "[text for _, text in decile_texts(values)]",
        "nearest_to",
        "nearest_to(float(values[text]))",
    ),
}


def script(measurement: Measurement, controls: Controls, chosen: HeadControls) -> Script:
    """The scatter of all heads, the picked head's values, and its texts or its map."""
    config, corpus = measurement.config, measurement.corpus
    again = source_of(config).replace("\n", "\n# ")
    read = f"""
from core.corpus.run import load
from core.runs.runs import open_run

run = open_run({path_code(measurement.run.path)})
# core.corpus.run.create(config, folder) and python -m core.runs.worker FOLDER measure it again, for the config
# {again}
corpus = load(run)
print(corpus.texts, "texts,", corpus.cut, "cut")
"""
    axes = {"x": controls.x, "y": controls.y}
    points = "".join(_axis(name, measure.key, config.kind) for name, measure in axes.items())
    imports = "from core.corpus.copying import copying\n" if COPYING in axes.values() else ""
    results: dict[str, np.ndarray] = {}
    for name, measure in axes.items():
        axis = compute.axis_of(measurement, controls.ref, measure)
        results |= {name: axis.mean} | ({} if measure == COPYING else {f"{name}_half": axis.half})
    more, shown = (
        _map(measurement, controls, chosen)
        if chosen.view == "map"
        else _texts(measurement, controls, chosen)
    )
    cells = (
        model_cell(controls.ref),
        Cell(READ, read),
        Cell(POINTS, imports + points, _SCATTER, "corpus:scatter"),
        Cell(HEAD, _head(chosen), _HISTOGRAM, "corpus:histogram"),
        more,
    )
    head = chosen.head
    results |= {
        "values": measurement.values(chosen.measure, head),
        "mean": corpus.mean(chosen.measure.key)[head],
        "half": corpus.interval(chosen.measure.key)[head],
    }
    return Script(cells, {name: np.asarray(value) for name, value in (results | shown).items()})


def _axis(name: str, measure: str, kind: str) -> str:
    if measure == COPYING.key:
        return f"{name} = copying(model, {kind!r}, corpus.roles.mean.shape[1:])  # {measure}, from the weights alone\n"
    return (
        f"{name} = corpus.mean({measure!r})  # (layers, heads)\n"
        f"{name}_half = corpus.interval({measure!r})\n"
    )


def _head(chosen: HeadControls) -> str:
    measure = chosen.measure.key
    return f"""
from core.corpus.run import values_of

head = {chosen.head}
values = values_of(run, corpus, {measure!r}, head)  # (texts,)
mean, half = corpus.mean({measure!r})[head], corpus.interval({measure!r})[head]
print(f"{measure} of {{head}}: {{mean:.3f}} ± {{half:.3f}}")
"""


def _texts(
    measurement: Measurement, controls: Controls, chosen: HeadControls
) -> tuple[Cell, dict[str, np.ndarray]]:
    """The texts that show the head, with one row of each map."""
    kind, measure = measurement.config.kind, chosen.measure
    choose, texts, function, row = CHOICES[chosen.view]
    examples = {
        "strongest": compute.strongest,
        "weakest": compute.weakest,
        "typical": compute.typical,
    }[chosen.view](measurement, controls.ref, measure, chosen.head)
    code = f"""
from core.corpus.examples import {", ".join(sorted((choose, function, "marked_row")))}
from core.corpus.measures import BY_KEY
from core.corpus.run import load_inputs
from core.corpus.statistics import read_text, shorten

inputs, short = load_inputs(run), shorten(model)  # which reads at most 128 tokens of a text
rows = {{int(text): marked_row(read_text(short, inputs[text], {kind!r}), {kind!r}, BY_KEY[{measure.key!r}], head,
                             {row}) for text in {texts.format(count=compute.EXAMPLES)}}}
for text, row in rows.items():
    print(f"{{values[text]:.3f}} {{inputs[text].text}}: {{row.line.tokens[row.query]}} -> {{row.line.tokens[row.key]}}")
"""
    return Cell(f"The {chosen.view} texts of the head, each with one row of its map.", code), {
        "[values[text] for text in rows]": np.array([one.value for one in examples]),
        "[weight for row in rows.values() for weight in row.weights]": np.concatenate(
            [one.row.weights for one in examples]
        )
        if examples
        else np.zeros(0),
    }


def _map(
    measurement: Measurement, controls: Controls, chosen: HeadControls
) -> tuple[Cell, dict[str, np.ndarray]]:
    """The joint map of queries and keys; empty while it is not read."""
    layer, head = chosen.head
    code = f"""
from core.corpus.joint_map import head_vectors, joint_map, nearness
from core.corpus.run import load_inputs
from core.corpus.statistics import shorten

vectors = head_vectors(shorten(model), load_inputs(run)[:{MAP_TEXTS}], {measurement.config.kind!r}, {MAP_TOKENS})
points = joint_map(*vectors.head({layer}, {head}))  # queries and keys (N, 2), and each axis's share of the variance
near = nearness(points, vectors, {layer}, {head})  # correlation of the distance in the plane with q·k
print(points.share, near)
"""
    key = compute.vectors_key(measurement, controls.ref)
    if measurement.live or not compute.has_vectors(key):
        return Cell(PLANE, code), {}
    vectors = compute.vectors_of(key)
    points = joint_map(*vectors.head(layer, head))
    return Cell(PLANE, code, _PLANE, "corpus:map"), {
        "points.q": points.q,
        "points.k": points.k,
        "points.share": np.array(points.share),
        "near": np.array(nearness(points, vectors, layer, head)),
    }


_SCATTER = """
import altair as alt
import pandas as pd

heads = pd.DataFrame({"layer": [layer for layer, row in enumerate(x) for _ in row], "x": x.ravel(), "y": y.ravel()})
alt.Chart(heads).mark_circle().encode(x="x:Q", y="y:Q", color="layer:O")
"""
_HISTOGRAM = """
alt.Chart(pd.DataFrame({"value": values})).mark_bar().encode(x=alt.X("value:Q", bin=alt.Bin(maxbins=30)), y="count()")
"""
_PLANE = """
plane = pd.concat([pd.DataFrame(one, columns=["x", "y"]).assign(of=name)
                   for name, one in (("queries", points.q), ("keys", points.k))])
alt.Chart(plane).mark_point().encode(x="x:Q", y="y:Q", color="of:N", shape="of:N")
"""
