"""What the page computes as Python."""

from __future__ import annotations

import numpy as np

from core.interpret.trace import Kind
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.runtime.run_data import path_code
from dashboard.views.transformer.compute import BATCH, Measurements
from dashboard.views.transformer.controls import Controls, run_of

TRAINED = "A trained model from a checkpoint of its run."
RANDOM = "A model with random weights from a seed."
SUMMARY = "Parameters, FLOPs and the loss, measured on one forward and backward pass over held-out examples."
ATTENTION = (
    "The attention of every layer and head on the first example, and what the model predicts there."
)
MEASURE = f"""
from core.models.model_summary import summarize
from core.training.evaluate import objective

examples, losses = task.held_out({BATCH})[:{BATCH}], []
batch, goal = task.collate(examples), objective(task)


def loss(logits):
    losses.append(goal.loss(logits, batch))
    return losses[-1]


tree = summarize(model, (batch.source, batch.source_mask, batch.target_in), loss)
print(tree.parameters, "parameters,", tree.flops, "FLOPs, loss", losses[0].item())
for part in tree.children:
    print(part.title, part.parameters)
"""


def script(controls: Controls, result: Measurements, kind: Kind, layer: int, head: int) -> Script:
    """The model of the controls, its size, and the picked kind of attention."""
    read = f"""
from core.training.evaluate import read_example

reading = read_example(model, config, task, examples[0])
trace = reading.trace.of({kind!r})
print(reading.predicted)
"""
    draw = f"""
from core.show import show

show(trace, layer={layer}, head={head})
"""
    results = {
        f"trace.map({index}).weights": item.weights
        for index, item in enumerate(result.trace.of(kind).maps)
    }
    results |= {
        "tree.parameters": np.array(result.tree.parameters),
        "tree.flops": np.array(result.tree.flops),
        "losses[0].item()": np.array(result.loss),
        "[share for _, share in reading.predicted]": np.array(
            [share for _, share in result.predicted]
        ),
    }
    return Script(
        (
            Cell(RANDOM if controls.seeded else TRAINED, _model(controls)),
            Cell(SUMMARY, MEASURE),
            Cell(ATTENTION, read, draw, f"transformer:grid:{kind}"),
        ),
        results,
    )


def _model(controls: Controls) -> str:
    run = None if controls.seeded else run_of(controls.run)
    if run is not None:
        return f"""
from core.runs.runs import open_run

run = open_run({path_code(run.path)})  # core.training.train(run.config()) trains it again
config = run.config().model
model, task = run.model({controls.step})
"""
    made = source_of(controls.config)
    imports = f"{attention_import(made)}\n" if "AttentionConfig" in made or "Choice" in made else ""
    return f"""
{imports}from core.models import ModelConfig, build_model
from core.seeding import seeded_rng
from core.tasks import TaskConfig, make_task

task = make_task({source_of(controls.task)})
config = {made}
with seeded_rng({controls.seed}):
    model = build_model(config, task.shape).eval()
"""
