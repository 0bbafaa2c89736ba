"""The measurement that the page shows first: `make bottleneck` (`python -m dashboard.why.experiment`) makes it anew.

No attention, Luong's dot and Luong's general, the same otherwise, several seeds each, two at a time in processes of
their own; kept are quality by the source's length, and the alignment of one long sentence.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from core.training import Run, create_run
from core.training.worker import work
from dashboard.why.learned import Learned, Sentence, sentence
from dashboard.why.setting import Setting

KEPT = Path(__file__).with_name("kept")
STEPS, SEEDS, AT_ONCE, FRAMES = 900, 5, 2, 9
MODELS = (None, "dot", "general")


@dataclass(frozen=True)
class Result:
    """What was measured: under which setting, of which models, and on what machine."""

    setting: Setting
    steps: int
    learned: tuple[Learned, ...]
    sentence: Sentence
    machine: str


def load() -> Result:
    """The kept measurement."""
    data = json.loads((KEPT / "result.json").read_text("utf-8"))
    kept = data["sentence"]
    said = {None if score == "none" else score: tuple(words) for score, words in kept["said"].items()}
    frames = load_file(KEPT / "alignment.safetensors")
    shown = Sentence(tuple(kept["source"]), tuple(kept["target"]), said,
                     tuple((int(step), frames[step].astype(np.float32)) for step in sorted(frames, key=int)))
    return Result(Setting(**data["setting"]), data["steps"], tuple(map(Learned.from_json, data["learned"])), shown,
                  data["machine"])


def save(result: Result, folder: Path = KEPT) -> None:
    folder.mkdir(exist_ok=True)
    shown = result.sentence
    said = {score or "none": words for score, words in shown.said.items()}
    data: dict[str, Any] = {
        "machine": result.machine, "setting": vars(result.setting), "steps": result.steps,
        "sentence": {"source": shown.source, "target": shown.target, "said": said},
        "learned": [one.to_json() for one in result.learned]}
    (folder / "result.json").write_text(json.dumps(data, ensure_ascii=False) + "\n", "utf-8")
    save_file({str(step): weights.astype(np.float16) for step, weights in shown.frames},
              folder / "alignment.safetensors")


def measure(setting: Setting, steps: int, seeds: int, folder: Path) -> Result:
    """Train every model with every seed in `folder`; the sentence is that of the first seed."""
    runs = {(score, seed): create_run(replace(setting, seed=seed).counted(score, steps), folder)
            for seed in range(seeds) for score in MODELS}
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_ONCE, fresh, torch.set_num_threads, (1,)) as pool:
        for (score, seed), state in zip(runs, pool.map(work, [run.path for run in runs.values()]), strict=True):
            print(f"{score or 'no attention'}, seed {seed}: {state}, {_told(runs[score, seed])}", flush=True)
    learned = tuple(Learned.of(run.config(), run.records()) for run in runs.values())
    first = {score: (runs[score, 0], runs[score, 0].records()) for score in MODELS[:2]}
    shown = sentence(first, FRAMES)
    if shown is None or not all(one.buckets for one in learned):
        raise RuntimeError("A run ended before its last measurement.")
    return Result(setting, steps, learned, shown, machine())


def _told(run: Run) -> str:
    return "; ".join(f"{b.lengths} {b.bleu:.0f}/{100 * b.exact:.0f}" for b in run.records()[-1].buckets)


def machine() -> str:
    """Where and how it was measured."""
    return (f"{os.cpu_count()} CPU cores, one thread a run, {AT_ONCE} runs at a time, PyTorch "
            f"{torch.__version__.partition('+')[0]}, {platform.system()} {platform.machine()}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard.why.experiment", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        save(measure(Setting(), chosen.steps, chosen.seeds, Path(folder)))


if __name__ == "__main__":
    main()
