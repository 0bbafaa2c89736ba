"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.models.cards import card
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.cards.compute import LENGTHS, LONG, curves
from dashboard.views.cards.controls import Controls
from dashboard.views.cards.text import read

ONE = "The layers of one published model, its parameters, its cache, and the FLOPs of a token."
SIZES = "Bytes of the cache of one sequence by its length, of this model and of those beside it."
CACHES = """
lengths = [2**power for power in range(10, 21)]  # tokens
sizes = {other.name: [(length, other.cache_bytes(length)) for length in lengths
                      if not other.longest or length <= other.longest]
         for other in map(card, compared) if other.stores}
"""
DRAW = """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, points in sizes.items() for point in points]
alt.Chart(pd.DataFrame(rows, columns=["model", "tokens", "bytes"])).mark_line(point=True).encode(
    alt.X("tokens").scale(type="log", base=2), alt.Y("bytes").scale(type="log"), color="model")
"""


def script(controls: Controls) -> Script:
    """The figures of the chosen card, and the caches of the compared ones."""
    one, tokens = card(controls.model), read(card(controls.model))
    length = min(LONG, one.longest or LONG)
    code = f"""
from core.models.cards import card

one = card({one.key!r})
for layer, count in one.distinct.items():
    print(count, "×", layer.kind)
parameters, active, flops = one.parameters, one.active, one.flops({tokens})  # FLOPs of a token that reads {tokens:,}
cached, size = one.token_bytes, one.cache_bytes({length}) if one.stores else 0  # bytes of a token, of {length:,} tokens
print(f"{{parameters:,}} parameters, {{active:,}} used by a token; {{flops:.3g}} FLOPs, {{size:,}} bytes")
"""
    drawn = curves((controls.model, *controls.compared))
    results = {
        "parameters": np.array(one.parameters),
        "active": np.array(one.active),
        "flops": np.array(one.flops(tokens)),
        "cached": np.array(one.token_bytes),
        "size": np.array(one.cache_bytes(length) if one.stores else 0),
    }
    if not drawn:
        return Script((Cell(ONE, code),), results)
    compared = f"compared = {source_of(list(dict.fromkeys((controls.model, *controls.compared))))}"
    assert tuple(2**power for power in range(10, 21)) == LENGTHS
    return Script(
        (Cell(ONE, code), Cell(SIZES, compared + CACHES, DRAW, "cards:sizes")),
        {**results, **{f"sizes[{name!r}]": np.array(points) for name, points in drawn.items()}},
    )
