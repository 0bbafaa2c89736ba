"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.attention import AttentionConfig
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.draw.step_view import Reading
from dashboard.server.cache import cached
from dashboard.views.one_query.compute import measure_scaling
from dashboard.views.one_query.controls import Controls
from dashboard.views.one_query.session import SEED

STEPS = (
    "A layer with seeded weights, and every step of one of its heads; the picked query is one row."
)
ROOT = "The mean of each row's largest weight, without √D and with it, as the number of dimensions D grows."
SCALING = f"""
from core.attention import attend
from core.seeding import seeded_generator

generator, largest = seeded_generator({SEED}, "scaling"), {{}}
for dims in (2**power for power in range(10)):
    a, b = (torch.randn(1, 1, 64, dims, generator=generator) for _ in range(2))  # queries and keys
    largest[dims] = [float(attend(a, b, b, scale=scale).weights.max(-1).values.mean()) for scale in (1.0, None)]
for dims, pair in largest.items():
    print(dims, *pair)
"""
DRAW = """
from core.show import show_maps

show_maps({"Scores": scores, "Weights": weights}, queries, keys, row=query)
"""


def script(controls: Controls, config: AttentionConfig, reading: Reading) -> Script:
    """The steps of the picked head on the picked input, and what √D does."""
    each = config.score_heads // config.num_heads
    head, score_head = controls.head, controls.head * each + controls.half
    of_scores = "head" if each == 1 else f"{score_head}"
    code = f"""
import torch

{attention_import(source_of(config))}
from core.seeding import seeded_layer
{_input(controls, config)}
layer = seeded_layer(config, {controls.seed})
steps = {_call(controls)}
query, head = {controls.query}, {head}{f"  # its scores are those of {score_head} of {config.score_heads}" * (each > 1)}
q, k, v = steps.q[0, {of_scores}], steps.k[0, {of_scores}], steps.v[0, head]  # (T, D), (S, D), (S, D)
raw, scores = steps.raw[0, {of_scores}], steps.scores[0, {of_scores}]  # (T, S): q · k, then scaled and with the bias
allowed = torch.ones_like(scores, dtype=torch.bool) if steps.mask is None else (
    steps.mask.expand(steps.scores.shape)[0, {of_scores}])
weights, out = steps.weights[0, head], steps.out[0, head]  # (T, S), and their sum of the values (T, D)
print("weights of the query", weights[query].tolist(), "output", out[query].tolist())
"""
    points = cached(measure_scaling, SEED)
    return Script(
        (Cell(STEPS, code, DRAW, "one:view"), Cell(ROOT, SCALING)),
        {
            "q": reading.q,
            "k": reading.k,
            "v": reading.v,
            "raw": reading.raw,
            "scores": reading.scores,
            "allowed": reading.allowed,
            "weights": reading.weights,
            "out": reading.out,
            "list(largest.values())": np.array(
                [[point.largest, point.scaled_largest] for point in points]
            ),
        },
    )


def _input(controls: Controls, config: AttentionConfig) -> str:
    source = controls.source
    assert source is not None
    padding = (
        ""
        if controls.real is None
        else (f"\nkey_mask = (torch.arange({len(source.keys)}) < {controls.real})[None]")
    )
    if source.matrices is None:
        return f"""from core.tokens import embed, labels

tokens = {source_of(source.tokens)}
queries = keys = labels(tokens)
config = {source_of(config)}
x = embed(tokens, {config.d_model}, seed={controls.seed})  # (1, T, C){padding}"""
    rows = (source.matrices.q, source.matrices.k, source.matrices.v)
    q, k, v = (f"torch.tensor({source_of(part, 17)})[None, None]" for part in rows)
    return f"""
q = {q}  # (1, 1, T, D)
k = {k}
v = {v}
queries, keys = {source_of(source.queries)}, {source_of(source.keys)}
config = {source_of(config)}{padding}"""


def _call(controls: Controls) -> str:
    assert controls.source is not None
    key_mask = "" if controls.real is None else ", key_mask=key_mask"
    return (
        f"layer(x{key_mask})"
        if controls.source.matrices is None
        else f"layer.attend_heads(q, k, v{key_mask})"
    )
