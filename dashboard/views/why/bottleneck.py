"""The saved measurement of the page; `make bottleneck` measures it again.

One vector, Luong's dot, Luong's general and one vector of twice the size, equal otherwise, from several seeds each, two
at a time in processes of their own. Saved: quality by the source's length, and the alignment of one long sentence.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from core.runs.runs import Run, create_run
from core.runs.worker import work
from core.studies.racing import machine
from dashboard.views.why.controls import Controls, Model
from dashboard.views.why.trained_models import Sentence, TrainedModel, models, sentence

SAVED = Path(__file__).with_name("kept")
STEPS, SEEDS, AT_ONCE = 900, 3, 2
CONTROLS = Controls()
MODELS = (
    Model(None, 2 * CONTROLS.d_model),
    *CONTROLS.pair,
    Model("general", CONTROLS.d_model),
)  # the slowest first


@dataclass(frozen=True)
class Result:
    """The setting, the trained models, their sentence, the seconds of processor time a run, and the machine."""

    setting: Controls
    learned: tuple[TrainedModel, ...]
    sentence: Sentence
    seconds: dict[Model, float]
    machine: str


def load() -> Result:
    """The saved measurement."""
    data = json.loads((SAVED / "result.json").read_text("utf-8"))
    saved, frames = data["sentence"], load_file(SAVED / "alignment.safetensors")
    sentence = Sentence(
        tuple(saved["source"]),
        tuple(saved["target"]),
        {Model(*model): tuple(words) for model, words in saved["said"]},
        tuple((int(step), frames[step].astype(np.float32)) for step in sorted(frames, key=int)),
    )
    return Result(
        Controls(**data["setting"]),
        tuple(map(TrainedModel.from_json, data["learned"])),
        sentence,
        {Model(*model): value for model, value in data["seconds"]},
        data["machine"],
    )


def save(result: Result, folder: Path = SAVED) -> None:
    folder.mkdir(exist_ok=True)
    sentence = result.sentence
    data: dict[str, Any] = {
        "machine": result.machine,
        "setting": vars(result.setting),
        "seconds": list(result.seconds.items()),
        "sentence": {
            "source": sentence.source,
            "target": sentence.target,
            "said": list(sentence.outputs.items()),
        },
        "learned": [one.to_json() for one in result.learned],
    }
    (folder / "result.json").write_text(json.dumps(data, ensure_ascii=False) + "\n", "utf-8")
    alignment = folder / "alignment.safetensors"
    save_file(
        {str(step): weights.astype(np.float16) for step, weights in sentence.frames}, alignment
    )
    alignment.chmod(0o644)


def measure(setting: Controls, steps: int, seeds: int, folder: Path) -> Result:
    """Train every model with every seed in `folder`; the sentence is that of the first seed."""
    runs = {
        (model, seed): create_run(replace(setting, seed=seed).counted(model, steps), folder)
        for model in MODELS
        for seed in range(seeds)
    }
    spent: dict[Model, float] = dict.fromkeys(MODELS, 0.0)
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, processes, torch.set_num_threads, (1,)) as pool:
        for (model, seed), seconds in zip(
            runs, pool.map(train, [run.path for run in runs.values()]), strict=True
        ):
            spent[model] += seconds / seeds
            scores = "; ".join(
                f"{bucket.lengths} {bucket.bleu:.0f}/{100 * bucket.exact:.0f}"
                for bucket in runs[model, seed].records()[-1].buckets
            )
            print(
                f"{model.score or 'one vector'} {model.d_model}, seed {seed}: {scores}", flush=True
            )
    learned = tuple(TrainedModel.of(run.config(), run.records()) for run in runs.values())
    longest = sentence(
        {
            m: (runs[m, 0], runs[m, 0].records())
            for m in models(learned)
            if m in (*setting.pair, MODELS[0])
        }
    )
    assert longest is not None  # every run has finished
    return Result(
        setting,
        learned,
        longest,
        {m: round(spent[m], 1) for m in models(learned)},
        machine(threads=1),
    )


def train(path: Path) -> float:
    """Train the run in this folder to its end; seconds of processor time, with measuring."""
    before = time.process_time()
    run = Run(path)
    if work(path) != "finished" or run.records()[-1].step < run.config().steps:
        raise RuntimeError(
            f"{run.status().message} All models need equal steps; measure on a quieter machine."
        )
    return time.process_time() - before


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dashboard.views.why.bottleneck",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        save(measure(CONTROLS, options.steps, options.seeds, Path(folder)))


if __name__ == "__main__":
    main()
