"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.views.start.compute import Lookup
from dashboard.views.start.controls import Controls

TEXT = (
    "The translator's weights: one head of its cross-attention, a row for each output word.",
    "One query looks up three keys: the soft look-up of a dictionary.",
)


def script(
    data: Mapping[str, Any], item: Mapping[str, Any], controls: Controls, result: Lookup
) -> Script:
    """The arrows of the translator on the picked sentence, and the look-up."""
    layer, head = data["layer"], data["head"]
    translator = f"""
from core.pretrained import load_lab_model, read

trace = read(load_lab_model({data["model"]!r}), {" ".join(item["source"])!r}).trace.of("cross")
weights = trace.head({layer}, {head})  # (T, S)
print("mean of the largest weight of each output word:", weights.max(-1).mean())
"""
    dictionary = f"""
import torch

from core.attention import attend

q = torch.tensor([[[{source_of(controls.query)}]]])  # (B, H, T, D)
k = torch.tensor([[{source_of(controls.keys)}]])  # (B, H, S, D)
v = torch.tensor({source_of(controls.values)}).reshape(1, 1, -1, 1)
steps = attend(q, k, v)  # softmax(q · k / √D) · v
print("weights", steps.weights.flatten().tolist(), "output", float(steps.out))
"""
    draw = f"""
from core.show import show

show(trace, layer={layer}, head={head})
"""
    return Script(
        (Cell(TEXT[0], translator, draw, "start:translation"), Cell(TEXT[1], dictionary)),
        {
            "weights.round(4)": np.array(item["weights"]),
            "(q @ k.mT).flatten()": np.array(result.products),
            "steps.scores.flatten()": np.array(result.scores),
            "steps.weights.flatten()": np.array(result.weights),
            "float(steps.out)": np.array(result.output),
        },
    )
