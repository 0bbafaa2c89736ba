"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dashboard.draw.multiples import Tile
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.runtime.run_data import path_code
from dashboard.views.compare_runs.compute import ComparedRun, Maps
from dashboard.views.compare_runs.controls import Controls

CURVES = "One measure of each run at every step, from the folders in which the runs were saved."
MAPS = "The attention of one head of each run on the same held-out example."
EXPECTED = (
    "max(map(max, record.expected))"  # the head with the most weight on the expected position
)
DRAW_CURVES = """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, curve in curves.items() for point in curve]
alt.Chart(pd.DataFrame(rows, columns=["run", "step", "seconds", "value"])).mark_line().encode(
    x="step", y="value", color="run")
"""
READ_MAPS = """
from core.tasks import make_task
from core.training.evaluate import source_maps

maps = {}
for name, (at, layer, head) in picked.items():
    config = runs[name].config()
    task = make_task(config.task)
    watched = task.held_out(config.watch)[example]
    read = source_maps(config.model, task, runs[name].frame(at), watched, example)
    maps[name] = read.weights[layer, head]  # (T, S), the outputs on the source
"""
DRAW_MAPS = """
from core.show import show_maps

show_maps(maps, read.rows, read.columns)
"""


def script(
    sides: Sequence[ComparedRun],
    controls: Controls,
    maps: Maps,
    same: Sequence[ComparedRun],
    pair: tuple[Tile, Tile] | None,
) -> Script:
    """The measure over training, the maps that are drawn, and the difference of two of them."""
    key = controls.measure.key
    value = EXPECTED if key == "expected" else f"record.{key}"
    paths = "\n".join(
        f"    {side.name!r}: open_run({path_code(side.summary.run.path)})," for side in sides
    )
    code = f"""
from core.training.record import one_a_step
from core.runs.runs import open_run

runs = {{
{paths}
}}
curves = {{name: [(record.step, record.trained, {value})
                 for record in one_a_step(run.records()) if record.{key} is not None] for name, run in runs.items()}}
for name, curve in curves.items():
    print(name, curve[-1])  # step, seconds of training, and the measure
"""
    results: dict[str, np.ndarray] = {
        f"curves[{side.name!r}]": np.array(
            [
                (record.step, record.trained, measured)
                for record in side.records
                if (measured := controls.measure.value(record)) is not None
            ]
        )
        for side in sides
    }
    cells = [Cell(CURVES, code, DRAW_CURVES, "compare_runs:step")]
    if maps.tiles:
        picked = {
            side.name: (max(step for step in side.steps if step <= controls.step), *head)
            for side, head in zip(same, controls.heads, strict=True)
            if head is not None and any(tile.name == side.name for tile in maps.tiles)
        }
        size = f"compare_runs:maps:{len(maps.rows)}:{len(maps.columns)}"
        lines = (
            f"example = {controls.example}\npicked = {source_of(picked)}  # step, layer and head"
        )
        read = READ_MAPS.replace("maps = {}\n", f"{lines}\nmaps = {{}}\n")
        if pair is not None:
            read += f"difference = maps[{pair[0].name!r}] - maps[{pair[1].name!r}]\n"
            results["difference"] = pair[0].weights - pair[1].weights
        cells.append(Cell(MAPS, read, DRAW_MAPS, size))
        results |= {f"maps[{tile.name!r}]": tile.weights for tile in maps.tiles}
    return Script(tuple(cells), results)
