"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.interpret.weight_breakdown import WeightBreakdown
from dashboard.draw.scripts import Cell, Script
from dashboard.views.inside_weight.controls import Controls
from dashboard.widgets.model_picker.code import model_cell

WEIGHT = "The queries, keys and values of each layer; one weight of one head in its parts."
CARRIED = "What the weight carries: the value of the key, its part of the output, and the sum over all keys."


def script(controls: Controls, one: WeightBreakdown) -> Script:
    """The head's map, the score and the weight of the open cell dimension by dimension, and what it carries."""
    kind, cell = controls.kind, controls.cell
    weight = f"""
from core.interpret.weight_breakdown import break_down_weight, find_layer, layer_attentions

trace = reading.trace.of({kind!r})
weights = trace.head({cell.layer}, {cell.head})  # (T, S)
layer = find_layer(layer_attentions(model, inputs), {kind!r}, {cell.layer})  # q (H, T, D), k and v (G, S, D)
one = break_down_weight(layer, head={cell.head}, query={cell.query}, key={cell.key})
print(f"q·k = {{one.dot:.3f}}, score {{one.score:.3f}}, weight {{one.weight:.3f}}")
"""
    draw = f"""
from core.show import show

show(trace, layer={cell.layer}, head={cell.head}, query={cell.query})
"""
    carried = """
import numpy as np

along = one.contribution @ one.out / (one.out @ one.out)  # the share of the output that came through this weight
print(f"α·v has the length {np.linalg.norm(one.contribution):.3f} and is {along:.0%} of the output")
"""
    bars = """
import altair as alt
import pandas as pd

products = pd.DataFrame({"dimension": range(len(one.products)), "product": one.products})
alt.Chart(products).mark_bar().encode(x="dimension:O", y="product:Q", color=alt.condition(
    "datum.product > 0", alt.value("#316E3D"), alt.value("#8143A0")))
"""
    names = (
        "q",
        "k",
        "products",
        "dot",
        "score",
        "scores",
        "weights",
        "value",
        "contribution",
        "out",
    )
    rotated = ("unrotated_q", "unrotated_k") if one.unrotated_q is not None else ()
    results = {f"one.{name}": np.asarray(getattr(one, name)) for name in (*names, *rotated)}
    return Script(
        (
            model_cell(controls.ref, controls.inputs),
            Cell(WEIGHT, weight, draw, "inside_weight:map"),
            Cell(CARRIED, carried, bars, "inside_weight:meeting"),
        ),
        {"weights": controls.trace.head(cell.layer, cell.head), **results},
    )
