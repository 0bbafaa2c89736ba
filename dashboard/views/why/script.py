"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from dashboard.draw.scripts import Cell, Script
from dashboard.runtime.run_data import path_code
from dashboard.views.why.compute import Comparison
from dashboard.views.why.trained_models import by_length

EXACT = "Exact match in percent by the words in the source: the mean over the seeds of each model."
ALIGNMENT = "The attention of one long sentence at the last step: a row for each output word."
SAVED = """
import json

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

saved = lab_path("dashboard/views/why/kept")  # `make bottleneck` trains all of these models again
data = json.loads((saved / "result.json").read_text("utf-8"))
rows = pd.DataFrame([
    {"model": f"{score or 'one vector'} {size}", "words": bucket["lengths"], "exact": 100 * bucket["exact"]}
    for one in data["learned"] for score, size in [one["model"]] for bucket in one["buckets"]])
exact = rows.pivot_table(index="model", columns="words", values="exact", sort=False)
print(exact.round(1))
"""
RUNS = """
import pandas as pd

from core.runs.runs import open_run

runs = [open_run(path) for path in [{paths}]]
# core.training.train(runs[0].config()) trains one again, a record after the other
names = [attention.score.key if (attention := run.config().model.attention) else "one vector" for run in runs]
decoded = [[record for record in run.records() if record.examples] for run in runs]
rows = pd.DataFrame([{{"model": name, "words": bucket.lengths, "exact": 100 * bucket.exact}}
                     for name, records in zip(names, decoded) for bucket in records[-1].buckets])
exact = rows.pivot_table(index="model", columns="words", values="exact", sort=False)
print(exact.round(1))
"""
DRAW_EXACT = """
import altair as alt

alt.Chart(rows).mark_line(point=True).encode(x=alt.X("words", sort=None), y="mean(exact)", color="model")
"""
SAVED_ALIGNMENT = """
frames = load_file(saved / "alignment.safetensors")
step = max(frames, key=int)
weights = frames[step].astype(np.float32)  # (T, S)
source, target = data["sentence"]["source"], [*data["sentence"]["target"], "<eos>"]
"""
RUNS_ALIGNMENT = """
run, records = runs[-1], decoded[-1]  # the model with attention
examples = records[0].examples
longest = max(range(len(examples)), key=lambda index: len(examples[index].source))
step = {step}
weights = run.frame(step)[f"{{longest}}:cross"][-1, 0]  # (T, S)
source, target = examples[longest].source, [*examples[longest].target, "<eos>"]
"""
DRAW_ALIGNMENT = """
from core.show import show_maps

show_maps({f"Step {step}": weights}, target, source)
"""


def script(data: Comparison) -> Script:
    """The chart by length, and the alignment once there is one: of the saved measurement, or of the two runs."""
    exact = [
        by_length(data.learned, model, "exact")
        for model in dict.fromkeys(one.model for one in data.learned)
    ]
    cells = [
        Cell(
            EXACT,
            RUNS.format(paths=", ".join(path_code(part.run.path) for part in data.parts))
            if data.parts
            else SAVED,
            DRAW_EXACT,
            "why:exact",
        )
    ]
    results = {
        "exact.to_numpy()": np.array([[stats.mean for stats in each.values()] for each in exact])
    }
    if data.sentence is not None and data.sentence.frames:
        step, weights = data.sentence.frames[-1]
        cells.append(
            Cell(
                ALIGNMENT,
                RUNS_ALIGNMENT.format(step=step) if data.parts else SAVED_ALIGNMENT,
                DRAW_ALIGNMENT,
                f"why:map:{data.name}",
            )
        )
        results["weights"] = weights
    return Script(tuple(cells), results)
