"""The measurement that the page shows first: `make bottleneck` makes it anew.

One vector, Luong's dot, Luong's general and one vector of twice the size, the same otherwise, several seeds each, two
at a time in processes of their own; kept are quality by the source's length, and the alignment of one long sentence.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from core.training import Run, create_run
from core.training.worker import work
from dashboard.views.why.controls import Controls, Model
from dashboard.views.why.trained_models import Sentence, TrainedModel, models, sentence

SAVED = Path(__file__).with_name("kept")
STEPS, SEEDS, AT_ONCE = 900, 3, 2
CONTROLS = Controls()
MODELS = (Model(None, 2 * CONTROLS.d_model), *CONTROLS.pair, Model("general", CONTROLS.d_model))  # the slowest first


@dataclass(frozen=True)
class Result:
    """What was measured: under which setting, of which models, with how many seconds of processor time, and where."""

    setting: Controls
    learned: tuple[TrainedModel, ...]
    sentence: Sentence
    seconds: dict[Model, float]
    machine: str


def load() -> Result:
    """The saved measurement."""
    data = json.loads((SAVED / "result.json").read_text("utf-8"))
    sentence, frames = data["sentence"], load_file(SAVED / "alignment.safetensors")
    shown = Sentence(tuple(sentence["source"]), tuple(sentence["target"]),
                     {Model(*model): tuple(words) for model, words in sentence["said"]},
                     tuple((int(step), frames[step].astype(np.float32)) for step in sorted(frames, key=int)))
    seconds = {Model(*model): value for model, value in data["seconds"]}
    return Result(Controls(**data["setting"]), tuple(map(TrainedModel.from_json, data["learned"])), shown, seconds,
                  data["machine"])


def save(result: Result, folder: Path = SAVED) -> None:
    folder.mkdir(exist_ok=True)
    shown = result.sentence
    data: dict[str, Any] = {
        "machine": result.machine, "setting": vars(result.setting), "seconds": list(result.seconds.items()),
        "sentence": {"source": shown.source, "target": shown.target, "said": list(shown.outputs.items())},
        "learned": [one.to_json() for one in result.learned]}
    (folder / "result.json").write_text(json.dumps(data, ensure_ascii=False) + "\n", "utf-8")
    alignment = folder / "alignment.safetensors"
    save_file({str(step): weights.astype(np.float16) for step, weights in shown.frames}, alignment)
    alignment.chmod(0o644)


def measure(setting: Controls, steps: int, seeds: int, folder: Path) -> Result:
    """Train every model with every seed in `folder`; the sentence is that of the first seed."""
    runs = {(model, seed): create_run(replace(setting, seed=seed).counted(model, steps), folder)
            for model in MODELS for seed in range(seeds)}
    spent: dict[Model, float] = dict.fromkeys(MODELS, 0.0)
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, fresh, torch.set_num_threads, (1,)) as pool:
        for (model, seed), seconds in zip(runs, pool.map(trained, [run.path for run in runs.values()]), strict=True):
            spent[model] += seconds / seeds
            print(f"{model.score or 'one vector'} {model.d_model}, seed {seed}: {_scores_text(runs[model, seed])}",
                  flush=True)
    learned = tuple(TrainedModel.of(run.config(), run.records()) for run in runs.values())
    shown = sentence({m: (runs[m, 0], runs[m, 0].records()) for m in models(learned)
                      if m in (*setting.pair, MODELS[0])})
    assert shown is not None  # every run has finished
    return Result(setting, learned, shown, {m: round(spent[m], 1) for m in models(learned)}, machine())


def trained(path: Path) -> float:
    """Train the run in this folder to its end; seconds of processor time with measuring."""
    before = time.process_time()
    run = Run(path)
    if work(path) != "finished" or run.records()[-1].step < run.config().steps:
        raise RuntimeError(f"{run.status().message} All models need equal steps; measure on a quieter machine.")
    return time.process_time() - before


def _scores_text(run: Run) -> str:
    return "; ".join(f"{b.lengths} {b.bleu:.0f}/{100 * b.exact:.0f}" for b in run.records()[-1].buckets)


def machine() -> str:
    """Where it was measured."""
    return (f"{os.cpu_count()} CPU cores, one thread a run, PyTorch {torch.__version__.partition('+')[0]}, "
            f"{platform.system()} {platform.machine()}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard.views.why.bottleneck", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        save(measure(CONTROLS, chosen.steps, chosen.seeds, Path(folder)))


if __name__ == "__main__":
    main()
