"""The config of a fine-tuning run: a model, labelled rows and the training settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.entries import ConfigError, check_fields, quote
from core.training.config import DEVICES, check_number

TASKS = {"classify": ("text", "label"), "pairs": ("source", "target")}
MINILM = "minilm"
LAB = "lab:"

# name -> (lowest, highest)
BOUNDS: dict[str, tuple[float, float]] = {
    "epochs": (1, 100),
    "batch_size": (2, 64),
    "layers": (0, 48),
    "learning_rate": (1e-6, 1e-2),
    "seconds": (1, 900),
    "seed": (0, 2**31 - 1),
}
# The defaults of each task; a run on our own rows takes ten to twenty seconds on one core.
USUAL: dict[str, dict[str, Any]] = {
    "classify": {
        "model": MINILM,
        "layers": 6,
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 2e-4,
    },
    "pairs": {"model": f"{LAB}numbers", "epochs": 30, "batch_size": 16, "learning_rate": 2e-3},
}
OWN = {"classify": "messages", "pairs": "numbers"}
RECORDS = 16  # of a run, about
MOST_WATCHED = 200  # characters


@dataclass(frozen=True)
class FineTuneConfig:
    """A pretrained model, labelled rows and training settings; ConfigError for values that cannot run.

    `task` is "classify" (text, label) or "pairs" (source, target); `data` is the text of the CSV. `model` is "minilm",
    "lab:" with the name of one of the lab's own, or a folder. Labels train the head and the last `layers` layers, never
    the embeddings; pairs train every weight. The attention on the sentence `watch` is recorded. `device` is "auto"
    (CUDA if available, else the CPU) or a device's name.
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
        if not isinstance(self.task, str) or self.task not in TASKS:
            raise ConfigError(
                f"task = {quote(self.task)} is not known; take one of {', '.join(TASKS)}."
            )
        for name in ("data", "model", "watch"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a text.")
        if self.device not in DEVICES:
            raise ConfigError(
                f"device = {quote(self.device)} is not known; take one of {', '.join(DEVICES)}."
            )
        if len(self.watch) > MOST_WATCHED:
            raise ConfigError(
                f"The sentence to watch has {len(self.watch):,} characters; at most {MOST_WATCHED} are "
                "allowed."
            )
        for name, (low, high) in BOUNDS.items():
            check_number(
                name, getattr(self, name), low, high, whole=name not in ("learning_rate", "seconds")
            )

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> FineTuneConfig:
        """The config in a dict; ConfigError for a missing or unknown name or an invalid value."""
        return cls(**check_fields(cls, data, "A fine-tuning run", ("task", "data")))


def own_rows(task: str) -> str:
    """The lab's own CSV: messages to label, or number words to write in figures."""
    return (Path(__file__).parent / f"{OWN[task]}.csv").read_text("utf-8")


def usual(task: str, **changes: Any) -> FineTuneConfig:
    """A task's default rows, model and settings, with changes."""
    return FineTuneConfig(**{"task": task, "data": own_rows(task), **USUAL[task], **changes})
