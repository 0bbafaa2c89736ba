"""What the page computes as Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.interpret.map_transform import HeadChange
from dashboard.draw.scripts import Cell, Script
from dashboard.runtime.fine_tune_data import FineTuneData
from dashboard.runtime.run_data import path_code
from dashboard.ui import fine_tuned_models
from dashboard.views.fine_tune.compute import BeforeAfter
from dashboard.widgets.model_picker.code import import_block, model_lines
from dashboard.widgets.model_picker.models import ModelRef

CURVES = "The validation loss and accuracy of a fine-tuning run at each step that was measured."
HEADS = "One head before training and after it, and the heads whose attention changed most."
DRAW_CURVES = """
import altair as alt

alt.Chart(table.reset_index()).mark_line(point=True).encode(x="step", y="loss")
"""
CHANGED = """
heads = changes(first, now)  # the largest change first
print([(change.name, round(change.moved, 3)) for change in heads[:5]])
before, after = first.head({layer}, {head}), now.head({layer}, {head})  # (T, S)
difference = after - before
"""
DRAW_HEADS = """
from core.show import show_maps

show_maps({"Before training": before, "After training": after}, first.map(0).queries, first.map(0).keys)
"""


def script(data: FineTuneData, both: BeforeAfter | None, head: HeadChange | None) -> Script:
    """The curves of the run, and the picked head before and after."""
    code = f"""
import pandas as pd

from core.pretrained.finetune_run import about, config_of
from core.runs.runs import open_run

run = open_run({path_code(data.run.path)})
config = config_of(run)  # `attention-lab finetune {data.config.task if data.config else "classify"} RUN_DIR` trains
table = pd.DataFrame([{{"step": record.step, "loss": record.loss, "exact": record.exact}}
                      for record in run.records()]).set_index("step")
print(table.tail())
"""
    results = {
        "table['loss'].to_numpy(float)": np.array(
            [record.loss for record in data.records], dtype=float
        ),
        "table['exact'].to_numpy(float)": np.array(
            [record.exact for record in data.records], dtype=float
        ),
    }
    cells = [Cell(CURVES, code, DRAW_CURVES, "fine_tune:loss")]
    if both is None or head is None:
        return Script(tuple(cells), results)
    kind, changed = both.now.kinds[0], CHANGED.format(layer=head.layer, head=head.head)
    cells.append(
        Cell(
            HEADS,
            _traces(data, both, kind) + changed.lstrip(),
            DRAW_HEADS,
            f"fine_tune:maps:{kind}",
        )
    )
    before, after = (tile.weights for tile in both.tiles(head))
    return Script(
        tuple(cells),
        {
            **results,
            "before": before,
            "after": after,
            "difference": after - before,
            "[change.moved for change in heads]": np.array([change.moved for change in both.heads]),
        },
    )


def _traces(data: FineTuneData, both: BeforeAfter, kind: str) -> str:
    """The traces `first` and `now`: from the run's folder, or read by both models."""
    if both.sentence is not None:
        return f"""
from core.interpret.map_transform import changes
from core.pretrained.finetune_run import trace_of

sentence = about(run)["sentences"][{both.sentence}]
print(sentence["text"])
first, now = (trace_of(run.frame(step), {both.sentence}, sentence, f"step {{step}}").of({kind!r})
              for step in ({data.steps[0]}, {both.step}))
"""
    assert data.config is not None and data.model is not None
    tuned = ModelRef("folder", Path(data.model).as_posix())
    refs = {"model": fine_tuned_models.before(data.config.model), "tuned": tuned}
    lines = {name: model_lines(ref, name) for name, ref in refs.items()}
    imports = {
        f"from core.{line}"
        for line in (
            "difference import changes",
            "pretrained import ModelInputs",
            "pretrained import read",
        )
    }
    loads = "\n".join(load for _, load in lines.values())
    return f"""
{import_block(imports.union(*(more for more, _ in lines.values())))}

{loads}
first, now = (read(one, ModelInputs({both.text!r})).trace.of({kind!r}) for one in (model, tuned))
"""
