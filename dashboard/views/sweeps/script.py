"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from dashboard.draw.scripts import Cell, Script
from dashboard.runtime.run_data import path_code
from dashboard.views.sweeps.compute import SweepData

SEEDS = "The final number of every seed, the mean of each value with its 95 % interval, and the tests of all pairs."
LINES = "The mean over the seeds during training."
STATS = """
config, outcomes = sweep.config(), sweep.outcomes()  # an outcome for each (index of the value, seed)
groups = {value_text(config.axis, value): [outcomes[cell] for cell in config.cells
                                           if cell[0] == index and cell in outcomes]
          for index, value in enumerate(config.values)}
stats = {name: result for name, group in groups.items()
         if (result := seed_stats([outcome.last(measure) for outcome in group], MEASURES[measure]))}
for name, each in stats.items():
    print(name, "mean", each.mean, "95 % interval", each.interval, "seeds", each.values)
tests = sweep_comparisons(config, outcomes, measure)  # paired by seed, corrected for all pairs (Bonferroni)
for test in tests:
    print(f"{list(groups)[test.first]} {test.sign} {list(groups)[test.second]}: {test.difference:.3g} "
          f"[{test.low:.3g}, {test.high:.3g}], p = {test.p:.2g}")
"""
MEANS = """
from core.training.seed_stats import line

lines = {name: line([outcome.points(measure, over) for outcome in group if outcome.state == "finished"],
                    over == config.equal == "steps")
         for name, group in groups.items() if any(outcome.state == "finished" for outcome in group)}
"""
DRAW_SEEDS = """
import altair as alt
import pandas as pd

rows = [(name, value) for name, each in stats.items() for value in each.values]
alt.Chart(pd.DataFrame(rows, columns=["value", measure])).mark_tick().encode(x=measure, y="value")
"""
DRAW_LINES = """
rows = [(name, *point) for name, mean in lines.items() for point in zip(mean.x, mean.mean)]
alt.Chart(pd.DataFrame(rows, columns=["value", over, measure])).mark_line().encode(x=over, y=measure, color="value")
"""


def script(data: SweepData, measure: str, over: str) -> Script:
    """The statistics of the drawn measure over the seeds of each value, and its curves."""
    code = f"""
from pathlib import Path

from core.training.seed_stats import seed_stats
from core.runs.sweeps import MEASURES
from core.runs.sweeps import Sweep
from core.runs.sweeps import sweep_comparisons
from core.training.sweeps import value_text

sweep = Sweep(Path({path_code(data.sweep.path)}))  # `python -m core.training sweep` trains one
measure, over = {measure!r}, {over!r}
"""
    values = range(len(data.names))
    stats = [each for value in values if (each := data.stats(value, measure)) is not None]
    lines = {
        value: mean
        for value in values
        if any(one.state == "finished" for one in data.outcomes_of(value))
        and (mean := data.line(value, measure, over)) is not None
    }
    results = {
        "[each.mean for each in stats.values()]": np.array([each.mean for each in stats]),
        "[value for each in stats.values() for value in each.values]": np.array(
            [value for each in stats for value in each.values]
        ),
        **{
            f"lines[{data.names[value]!r}].mean": np.array(each.mean)
            for value, each in lines.items()
        },
    }
    if not data.live:
        results["[test.p for test in tests]"] = np.array(
            [test.p for test in data.comparisons(measure)]
        )
    return Script(
        (
            Cell(SEEDS, code + STATS.lstrip(), DRAW_SEEDS if stats else "", "sweeps:seeds"),
            Cell(LINES, MEANS, DRAW_LINES if lines else "", "sweeps:lines"),
        ),
        results,
    )
