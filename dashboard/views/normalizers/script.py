"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import AttentionConfig
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached
from dashboard.views.normalizers.compute import RowWeights, sweep
from dashboard.views.normalizers.controls import Controls

ROW = "The same scores through every normalizer, in double precision."
CURVES = "The weight of one key as its score runs from −6 to 6 while the others stay."
DRAW = """
import altair as alt
import pandas as pd

points = pd.DataFrame({key: curve.numpy() for key, curve in curves.items()} | {"score": sweep.numpy()})
alt.Chart(points.melt("score", var_name="normalizer", value_name="weight")).mark_line().encode(
    x="score", y="weight", color="normalizer")
"""


def script(controls: Controls, rows: Sequence[RowWeights], names: Sequence[str]) -> Script:
    """The weights of every normalizer, and the curves of those that are picked."""
    configs = source_of([AttentionConfig(2, 1, normalizer=choice) for choice in controls.choices])
    values = [0.0 if score is None else score for score in controls.scaled]
    row = f"""
import torch

{attention_import(configs)}, entry

configs = {configs}
names = {source_of(controls.names)}
scores = torch.tensor({source_of(values)}, dtype=torch.float64)  # (S,)
mask = torch.tensor({source_of([score is not None for score in controls.scores])})  # True = may attend
normalizers = {{config.normalizer.key: entry("normalizer", config.normalizer.key).build(config).double()
               for config in configs}}
weights = {{key: normalizer(scores[None, None, None], mask[None, None, None])[0, 0, 0].detach()
           for key, normalizer in normalizers.items()}}
for key, each in weights.items():
    print(key, dict(zip(names, each.tolist())), "to no key:", 1 - float(each.sum()))
"""
    picked = [choice for choice in controls.choices if choice.key in names]
    curves = f"""
picked = {controls.picked}  # {controls.names[controls.picked]!r}
sweep = torch.linspace(-6, 6, 97, dtype=torch.float64)
grid, visible = scores.repeat(97, 1), mask.repeat(97, 1)  # (97, S)
grid[:, picked], visible[:, picked] = sweep, True
curves = {{key: normalizers[key](grid[None, None], visible[None, None])[0, 0, :, picked].detach()
          for key in {source_of([choice.key for choice in picked])}}}
"""
    points = [
        cached(sweep, choice, controls.scores, controls.factor, controls.picked)
        for choice in picked
    ]
    results = {"torch.stack(list(weights.values()))": np.stack([each.weights for each in rows])}
    if not picked:
        return Script((Cell(ROW, row),), results)
    results["torch.stack(list(curves.values()))"] = np.array(points)[:, :, 1]
    return Script((Cell(ROW, row), Cell(CURVES, curves, DRAW, "normalizers:chart")), results)
