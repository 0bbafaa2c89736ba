"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.runs.runs import Run
from core.training.record import Record, one_a_step
from dashboard.draw.curves import points
from dashboard.draw.scripts import Cell, Script
from dashboard.runtime.run_data import path_code

CURVES = "The records of one run: a row for each step at which it was measured."
NAMES = ("loss", "train_loss", "exact", "letters", "error")
DRAW = """
import altair as alt

alt.Chart(table.reset_index()).transform_fold(["loss", "train_loss"]).mark_line(point=True).encode(
    x="step:Q", y="value:Q", color="key:N")
"""


def script(run: Run) -> Script:
    """The curves of the first selected run."""
    records = one_a_step(run.records())
    names = [name for name in NAMES if any(getattr(record, name) is not None for record in records)]
    code = f"""
import pandas as pd

from core.training.record import one_a_step
from core.runs.runs import open_run

run = open_run({path_code(run.path)})
records = one_a_step(run.records())
# for record in core.training.train(run.config()): print(record.step, record.loss)  # trains it again
table = pd.DataFrame([{{"step": record.step, {", ".join(f'"{name}": record.{name}' for name in names)}}}
                      for record in records]).set_index("step")
print(table.tail())
"""
    return Script(
        (Cell(CURVES, code, DRAW, "runs:loss"),),
        {f"table[{name!r}].dropna()": _values(records, name) for name in names},
    )


def _values(records: list[Record], name: str) -> np.ndarray:
    return np.array([value for _, value in points(records, name) if value is not None], dtype=float)
