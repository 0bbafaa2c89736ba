"""What the page computes as Python: the measurement of its curves, and the implied weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.attention import AttentionConfig, Choice
from core.attention.cost import attention_cost, output_error
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached
from dashboard.views.efficient.compute import D_MODEL, HEADS, SEED, Implied, Result
from dashboard.views.efficient.controls import ROUNDS

TIMES = "The time of a call and its peak memory by the number of tokens, as they were measured."
COSTS = (
    "FLOPs and memory in closed form at each kernel's longest length, and the error of its output."
)
WEIGHTS = (
    "The weights that give each kernel's outputs: of one layer with seeded weights, by kernel."
)
SAVED = """
import json

file = lab_path("dashboard/views/efficient/example.json")  # `make measured` measures all of it again
saved = json.loads(file.read_text("utf-8"))["points"]
points = [point for point in saved if point["name"] in configs and not point["skipped"]]
"""
MEASURE = """
from dataclasses import asdict

from core.attention.cost import race

reports = race(configs, {lengths}, rounds={rounds}, backward={backward}, device={device!r})
points = [asdict(point) for report in reports for point in report.points if not point.skipped]
"""
PRINT = """for point in points:
    print(point["name"], point["length"], point["seconds"], "s", point["bytes"], "bytes")
"""
DRAW = """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(points)).mark_line(point=True).encode(
    x=alt.X("length", scale=alt.Scale(type="log")), y=alt.Y("{}", scale=alt.Scale(type="log")), color="name")
"""
COST = f"""
from core.attention.cost import attention_cost
from core.attention.cost import output_error

costs = {{}}
for key, config in configs.items():
    length = max(point["length"] for point in points if point["name"] == key)
    costs[key] = attention_cost(config, length, length)
    print(key, length, "tokens:", costs[key].flops, "FLOPs,", costs[key].bytes, "bytes")
errors = {{key: output_error(config, seed={SEED}) for key, config in configs.items()}}
print(errors)
"""


def benchmark(result: Result, kernels: Sequence[str], is_saved: bool) -> Script:
    """The points of the curves, read from the saved file or measured again, and what is exact of the table."""
    configs = {kernel: result.controls.config(kernel) for kernel in kernels}
    points = {kernel: result.of(kernel) for kernel in kernels}
    made, controls = source_of(configs), result.controls
    lengths = sorted({point.length for each in points.values() for point in each})
    code = (
        SAVED
        if is_saved
        else MEASURE.format(
            lengths=lengths, rounds=ROUNDS, backward=controls.backward, device=controls.device
        )
    )
    imports, _, body = code.partition("\n\n") if is_saved else ("", "", code)
    first = f"{imports}\n\n{attention_import(made)}\n\nconfigs = {made}\n{body}{PRINT}"
    costs = [
        attention_cost(configs[kernel], points[kernel][-1].length, points[kernel][-1].length)
        for kernel in kernels
    ]
    results = {
        "[(cost.flops, cost.bytes) for cost in costs.values()]": np.array(
            [(c.flops, c.bytes) for c in costs]
        ),
        "list(errors.values())": np.array(
            [cached(output_error, configs[kernel], SEED) for kernel in kernels]
        ),
    }
    if is_saved:
        measured = [point for point in result.points if point.name in configs and not point.skipped]
        results['[(point["seconds"], point["bytes"]) for point in points]'] = np.array(
            [(point.seconds, point.bytes) for point in measured]
        )
    return Script(
        (
            Cell(TIMES, first, DRAW.format("seconds"), "efficient:ms"),
            Cell(COSTS, COST, DRAW.format("bytes"), "efficient:MB"),
        ),
        results,
    )


def implied_script(
    choices: Sequence[Choice],
    implied: Sequence[Implied],
    tokens: tuple[str, ...],
    causal: bool,
    head: int,
) -> Script:
    """The maps of the kernels that have them, and their errors."""
    drawn = [choice for choice in choices if choice.key in [each.kernel for each in implied]]
    made = source_of(
        [
            AttentionConfig(D_MODEL, HEADS, mask="causal" if causal else "none", kernel=choice)
            for choice in drawn
        ]
    )
    code = f"""
{attention_import(made)}
from core.seeding import seeded_layer
from core.tokens import embed, labels

tokens = {source_of(tokens)}
layers = {made}
x = embed(tokens, {D_MODEL}, seed={SEED})  # (1, T, C)
weights = {{config.kernel.key: seeded_layer(config, {SEED})(x).weights[0] for config in layers}}  # (H, T, T)
differences = {{key: float((each - weights["exact"]).abs().mean()) for key, each in weights.items()}}
print("mean difference from the weights of exact attention", differences)
"""
    draw = f"""
from core.show import show_maps

show_maps({{key: each[{head}] for key, each in weights.items()}}, labels(tokens), labels(tokens))
"""
    return Script(
        (Cell(WEIGHTS, code, draw, "efficient:maps"),),
        {f"weights[{each.kernel!r}]": each.weights for each in implied}
        | {"list(differences.values())": np.array([each.mean_error for each in implied])},
    )
