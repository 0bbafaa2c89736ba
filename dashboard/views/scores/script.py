"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import AttentionConfig
from core.attention.properties import score_properties
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached
from dashboard.views.scores import measurement
from dashboard.views.scores.compute import ScoreMaps
from dashboard.views.scores.controls import SEED, Controls

MAPS = "Every score on the same queries and keys."
PROPERTIES = "What each score can express, and its saved time and memory (`make scores` measures them again)."
MEASURE = f"""
import json

from core.attention import Choice
from core.attention.properties import score_properties

properties = [score_properties(Choice(config.score.key), {SEED}) for config in configs]
ranks, doubling = [each.rank for each in properties], [each.doubling for each in properties]
times = json.loads(lab_path("dashboard/views/scores/times.json").read_text("utf-8"))["times"]
for config, each in zip(configs, properties):
    print(config.score.key, each, times.get(config.score.key))
"""


def script(controls: Controls, maps: Sequence[ScoreMaps]) -> Script:
    """The maps of every score, and what each can express."""
    configs = source_of(
        [AttentionConfig(controls.dims, 1, score=choice) for choice in controls.choices]
    )
    shown = "weights" if controls.show == "weights" else "scores"
    stretch = "" if controls.stretch == 1.0 else f"{controls.stretch!r} * "
    code = f"""
import torch

{attention_import(configs)}
from core.seeding import seeded_layer
from core.tokens import embed, labels

tokens = {source_of(controls.tokens)}
configs = {configs}
x = embed(tokens, {controls.dims}, seed={SEED})  # (1, T, C)
scores, weights = {{}}, {{}}
for config in configs:
    layer = seeded_layer(config, {SEED})
    q, k, v = layer.projection(x, x)  # (1, 1, T, D), the same for every score
    steps = layer.attend_heads({stretch}q, k, v, x, x)
    scores[config.score.key], weights[config.score.key] = steps.scores[0, 0], steps.weights[0, 0]  # (T, T)
"""
    draw = f"""
from core.show import show_maps

show_maps({shown}, labels(tokens), labels(tokens))
"""
    properties = [
        cached(score_properties, type(choice)(choice.key), SEED) for choice in controls.choices
    ]
    times = cached(measurement.load).times
    results = {
        "torch.stack(list(scores.values()))": np.stack([each.scores for each in maps]),
        "torch.stack(list(weights.values()))": np.stack([each.weights for each in maps]),
        "ranks": np.array([each.rank for each in properties]),
        "doubling": np.array([each.doubling for each in properties]),
        "[each['seconds'] for each in times.values()]": np.array(
            [each.seconds for each in times.values()]
        ),
    }
    return Script((Cell(MAPS, code, draw, "scores:maps0"), Cell(PROPERTIES, MEASURE)), results)
