"""What the page computes as Python: from the folder of the run that is drawn, with what trains it again."""

from __future__ import annotations

import numpy as np

from dashboard.draw.curves import points
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.runtime.run_data import RunData, path_code
from dashboard.views.train.attention import Moment

CURVES = "The records of the run: a row for each step at which it was measured. `train(config)` gives them again."
STEP = "One step: the scores, and the attention of one head on a held-out example."
NAMES = ("loss", "train_loss", "exact", "letters", "error", "gradient", "rate")
DRAW_CURVES = """
import altair as alt

alt.Chart(table.reset_index()).transform_fold(["loss", "train_loss"]).mark_line(point=True).encode(
    x="step:Q", y="value:Q", color="key:N")
"""
DRAW_MAP = """
from core.show import show_maps

show_maps({f"Step {step}": weights}, rows, columns)
"""


def script(data: RunData, moment: Moment) -> Script:
    """The curves of the run, and the picked step with its map."""
    names = [
        name for name in NAMES if any(getattr(record, name) is not None for record in data.records)
    ]
    config = source_of(data.required_config)
    imports = (
        [attention_import(config)] if "AttentionConfig" in config or "Choice" in config else []
    )
    imports += [
        "from core.models import ModelConfig",
        "from core.tasks import TaskConfig, make_task",
        "from core.training.config import RunConfig",
        "from core.training.record import one_a_step",
        "from core.runs.runs import open_run",
    ]
    curves = (
        "import pandas as pd\n\n"
        + "\n".join(imports)
        + f"""

config = {config}
task = make_task(config.task)
# from core.training import train; records = list(train(config))  # trains it again
run = open_run({path_code(data.run.path)})
records = one_a_step(run.records())
names = {names}
table = pd.DataFrame([[getattr(record, name) for name in names] for record in records], columns=names,
                     index=pd.Index([record.step for record in records], name="step"))
print(table.tail(), "guessing has a loss of", task.baseline_loss)
"""
    )
    results = {
        f"table[{name!r}].to_numpy(float)": np.array(
            [value for _, value in points(data.records, name)], dtype=float
        )
        for name in names
    }
    results |= {
        "task.baseline_loss": np.array(data.task().baseline_loss),
        "int(config == run.config())": np.array(1),
    }
    step, shown = _step(data, moment)
    return Script((Cell(CURVES, curves, DRAW_CURVES, "train:loss"), step), {**results, **shown})


def _step(data: RunData, moment: Moment) -> tuple[Cell, dict[str, np.ndarray]]:
    """The record of the picked step, and where there is attention the drawn map with its tokens."""
    record, head = data.at(moment.step), moment.head
    code = f"""
step = {moment.step}
record = next(one for one in records if one.step == step)
print(record.loss, record.exact, record.expected)
"""
    results = (
        {}
        if not record.expected
        else {"record.expected": np.array(record.expected), "record.even": np.array(record.even)}
    )
    if head is None or moment.weights is None:
        return Cell(STEP.partition(",")[0] + ".", code), results
    key = f"{head.example}:{head.kind}"
    code = (
        f"from core.models import map_tokens\nfrom core.training.evaluate import axis_tokens\n{code}"
        + f"""
frame = run.frame(step)  # by example and type of attention: (layers, H, T, S)
weights = frame[{key!r}][{head.layer}, {head.head}]  # (T, S)
tokens = axis_tokens(task, task.held_out(config.watch)[{head.example}])
rows, columns = map_tokens(config.model, {head.kind!r}, *tokens)
rows, columns = rows[:weights.shape[0]], columns[:weights.shape[1]]
"""
    )
    return Cell(STEP, code, DRAW_MAP, f"train:map:{data.run.id}:{key}"), results | {
        "weights": moment.weights
    }
