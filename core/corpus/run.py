"""A measurement of a corpus is a folder, like a run: a worker appends to it, and pages read it while it grows.

run.json                 the config under "corpus", the creation time, the number of texts, what is left out
inputs.jsonl             one text a line
values.f32               every measure of every head: (M, L, H) for each text so far
statistics.safetensors   running means and sums over the texts so far; replaced whole
status.json, stop, lock  as in core.runs.runs
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core.corpus.config import CorpusConfig
from core.corpus.measures import MEASURES
from core.corpus.statistics import Corpus, RunningMean, measure_texts
from core.corpus.texts import from_json, inputs_of, to_json
from core.files import CORPORA, runs_folder, write_atomically
from core.pretrained.base import ModelInputs, Pretrained
from core.pretrained.finetune import folder_of, name_of
from core.pretrained.load import load_folder
from core.roles.roles import ROLES
from core.roles.scores import RoleSums
from core.runs.runs import Run, new_id

KEY = "corpus"
SAVE_SECONDS = 0.25
STATISTICS, VALUES, INPUTS = "statistics.safetensors", "values.f32", "inputs.jsonl"
MEAN = tuple(field.name for field in fields(RunningMean))
ROLE_SUMS = tuple(field.name for field in fields(RoleSums))
OnText = Callable[[Corpus], None]


def corpora_folder() -> Path:
    """The folder of measurements, within that of runs, whose list they stay out of."""
    return runs_folder() / CORPORA


def create(config: CorpusConfig, path: Path | None = None) -> Run:
    """A new measurement under a fresh id, or exactly at `path`.

    ConfigError without texts, PretrainedError without the model.
    """
    inputs, notes = inputs_of(config)
    folder_of(config.model)
    run = Run(path or corpora_folder() / new_id())
    run.path.mkdir(parents=True)
    write_atomically(run.path / INPUTS, "".join(f"{to_json(item)}\n" for item in inputs).encode())
    data = {
        KEY: config.to_json(),
        "created": time.time(),
        "texts": len(inputs),
        "notes": notes,
        "measures": [one.key for one in MEASURES],
        "roles": [one.key for one in ROLES],
    }
    write_atomically(run.path / "run.json", json.dumps(data, indent=1).encode())
    return run


def is_corpus(run: Run) -> bool:
    return KEY in run.metadata()


def config_of(run: Run) -> CorpusConfig:
    """The measurement's config; ConfigError when the file does not describe one."""
    return CorpusConfig.from_json(run.metadata().get(KEY))


def load_inputs(run: Run) -> tuple[ModelInputs, ...]:
    """The texts of a measurement, in order."""
    lines = (run.path / INPUTS).read_text("utf-8").split("\n")[:-1]
    return tuple(map(from_json, lines))


def load_pretrained(model: str) -> Pretrained:
    """The model of a config; PretrainedError when it cannot be loaded."""
    return load_folder(folder_of(model), name_of(model))


def work(
    run: Run, stop: Callable[[], bool], on_text: OnText = lambda corpus: None
) -> tuple[str, str]:
    """Measure the texts that are left; returns the final state and its message."""
    config, inputs, corpus, keys = (
        config_of(run),
        load_inputs(run),
        load(run),
        [one.key for one in MEASURES],
    )
    if list(measure_keys(run)) != keys:  # by an older version
        corpus = Corpus()
        run.update_metadata(measures=keys, roles=[one.key for one in ROLES])
    _cut_values(run, corpus)
    saved, before, pretrained = 0.0, corpus.texts, load_pretrained(config.model)
    began = time.monotonic()
    with open(run.path / VALUES, "ab") as file:
        for record in measure_texts(pretrained, inputs[before:], config.kind, config.ablation):
            corpus.add(record)
            corpus.seconds = (time.monotonic() - began) / (corpus.texts - before)
            if record.values is not None:
                file.write(record.values.astype("<f4").tobytes())
            on_text(corpus)
            if time.monotonic() - saved > SAVE_SECONDS:
                file.flush()
                save_statistics(run, corpus)
                saved = time.monotonic()
            if stop():
                break
    save_statistics(run, corpus)
    if not corpus.read and corpus.texts:
        return "failed", f"No text could be read. {corpus.error}"
    if corpus.texts < len(inputs):
        return (
            "stopped",
            f"Stopped after {corpus.texts:,} of {len(inputs):,} texts, which are saved.",
        )
    return "finished", f"Measured {corpus.texts:,} texts."


def _cut_values(run: Run, corpus: Corpus) -> None:
    """Delete the values of texts after the last saved statistics, which are measured again."""
    with open(run.path / VALUES, "ab") as file:
        file.truncate(0 if corpus.means is None else 4 * corpus.read * corpus.means.mean.size)


def save_statistics(run: Run, corpus: Corpus) -> None:
    """Replace the statistics by those of the texts so far."""
    run.require()
    facts = {
        "texts": corpus.texts,
        "cut": corpus.cut,
        "failed": corpus.failed,
        "error": corpus.error,
        "numbers": corpus.numbers,
        "seconds": corpus.seconds,
    }
    arrays: dict[str, np.ndarray] = {}
    if corpus.means is not None and corpus.roles is not None:
        arrays = {f"mean.{name}": value for name, value in vars(corpus.means).items()}
        arrays |= {f"roles.{name}": value for name, value in vars(corpus.roles).items()}
    write_atomically(run.path / STATISTICS, save(arrays, {"facts": json.dumps(facts)}))


def load(run: Run) -> Corpus:
    """The statistics so far; empty before the first text, and where the file cannot be read.

    Measures that were added since are unmeasured in it.
    """
    data = run.metadata()
    try:
        with safe_open(run.path / STATISTICS, "np") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        keys = measure_keys(run)
        now, roles = [one.key for one in MEASURES], [one.key for one in ROLES]
        parts = {
            "mean": {name: _arrange(arrays[f"mean.{name}"], keys, now) for name in MEAN if arrays},
            "roles": {
                name: _arrange(arrays[f"roles.{name}"], data["roles"], roles)
                for name in ROLE_SUMS
                if arrays
            },
        }
        return Corpus(
            RunningMean(**parts["mean"]) if parts["mean"] else None,
            RoleSums(**parts["roles"]) if parts["roles"] else None,
            tuple(facts["numbers"]),
            int(facts["texts"]),
            int(facts["cut"]),
            list(facts["failed"]),
            str(facts["error"]),
            float(facts.get("seconds", 0.0)),
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return Corpus()


def _arrange(values: np.ndarray, keys: Sequence[str], order: Sequence[str]) -> np.ndarray:
    """The arrays of `keys` in this order, zero for new ones."""
    arranged = np.zeros((len(order), *values.shape[1:]), values.dtype)
    for index, key in enumerate(order):
        if key in keys:
            arranged[index] = values[list(keys).index(key)]
    return arranged


def measure_keys(run: Run) -> tuple[str, ...]:
    """The measures of a measurement, in the order of its arrays."""
    return tuple(run.metadata().get("measures", ()))


def values_of(
    run: Run, corpus: Corpus, measure: str, head: tuple[int, int]
) -> Float[np.ndarray, " N"]:
    """One measure of one head on each text so far; nan where a text cannot show it or could not be read."""
    values = np.full(corpus.texts, np.nan, dtype=np.float32)
    keys = measure_keys(run)
    if corpus.means is None or measure not in keys:
        return values
    shape = corpus.read, len(keys), *corpus.means.mean.shape[1:]
    rows = np.memmap(run.path / VALUES, "<f4", "r", shape=shape)
    values[np.setdiff1d(np.arange(corpus.texts), corpus.failed)] = rows[
        :, keys.index(measure), *head
    ]
    return values
