"""What a fine-tuning run is made of: a model, labelled rows, and how long it learns from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from core.entries import ConfigError, quote, quote_name
from core.training.config import DEVICES, resolve_device

TASKS = {"classify": ("text", "label"), "pairs": ("source", "target")}
MINILM = "minilm"
LAB = "lab:"

# name -> (low, high): the caps a run may never pass, wherever it was asked for
BOUNDS: dict[str, tuple[float, float]] = {
    "epochs": (1, 100),
    "batch_size": (2, 64),
    "layers": (0, 48),
    "learning_rate": (1e-6, 1e-2),
    "seconds": (1, 900),
    "seed": (0, 2**31 - 1),
}
FRACTIONS = ("learning_rate", "seconds")
# What suits each task on our own rows; a run of either takes ten to twenty seconds on one core.
USUAL: dict[str, dict[str, Any]] = {
    "classify": {"model": MINILM, "layers": 6, "epochs": 8, "batch_size": 16, "learning_rate": 2e-4},
    "pairs": {"model": f"{LAB}numbers", "epochs": 30, "batch_size": 16, "learning_rate": 2e-3},
}
OWN = {"classify": "messages", "pairs": "numbers"}
RECORDS = 16  # of a run, about
MOST_WATCHED = 200  # characters of the sentence whose attention is kept along the way


@dataclass(frozen=True)
class FineTuneConfig:
    """A pretrained model and rows to learn; raises ConfigError, in words, when made with what cannot run.

    `task` is "classify" (text, label) or "pairs" (source, target); `data` is the CSV itself, so that a run's folder is
    complete. `model` is "minilm", "lab:" and the name of one of the lab's own, or a folder. `layers` counts from the
    last: with 0 only the head learns; embeddings never do. Pairs teach every weight. `watch` is the sentence whose
    attention is kept along the way. `device` is "auto" (CUDA where it is there, else the CPU) or one by name.
    """

    task: str
    data: str
    model: str = MINILM
    watch: str = ""
    layers: int = 6
    epochs: int = 8
    batch_size: int = 16
    learning_rate: float = 2e-4
    seconds: float = 120.0
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ConfigError(f"task = {quote(self.task)} is not known; take one of {', '.join(TASKS)}.")
        for name in ("data", "model", "watch"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a text.")
        if self.device not in DEVICES:
            raise ConfigError(f"device = {quote(self.device)} is not known; take one of {', '.join(DEVICES)}.")
        if len(self.watch) > MOST_WATCHED:
            raise ConfigError(f"The sentence to watch has {len(self.watch):,} characters; at most {MOST_WATCHED} are "
                              "kept at every step.")
        for name, (low, high) in BOUNDS.items():
            _check(name, getattr(self, name), low, high)

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> FineTuneConfig:
        """The config a dict describes; ConfigError for a missing or unknown name or an impossible value."""
        if not isinstance(data, dict):
            raise ConfigError("a fine-tuning run is described by an object with task, data and settings.")
        if unknown := sorted(set(data) - {field.name for field in fields(cls)}):
            raise ConfigError(f"a fine-tuning run has no setting named {', '.join(map(quote_name, unknown[:3]))}.")
        if missing := sorted({"task", "data"} - set(data)):
            raise ConfigError(f"the run says nothing about {' and '.join(missing)}.")
        return cls(**data)


def _check(name: str, value: object, low: float, high: float) -> None:
    whole = name not in FRACTIONS
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise ConfigError(f"{name} = {quote(value)} must be a {'whole ' if whole else ''}number.")
    if not low <= value <= high:  # also refuses NaN
        raise ConfigError(f"{name} = {quote(value)} lies outside {low:g} to {high:g}.")


def device_of(config: FineTuneConfig) -> str:
    """The device to fine-tune on; ConfigError when this machine lacks it.

    A pretrained model is large enough for a GPU to be faster, so that "auto" takes CUDA.
    """
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return resolve_device(config.device)


def own_rows(task: str) -> str:
    """The rows that come with the lab: messages to label, or number words to write in figures."""
    return (Path(__file__).parent / f"{OWN[task]}.csv").read_text("utf-8")


def usual(task: str, **changes: Any) -> FineTuneConfig:
    """What suits a task: its own rows, model and settings, but for the changes."""
    return FineTuneConfig(**{"task": task, "data": own_rows(task), **USUAL[task], **changes})
