"""The state of a training run, and its conversion to tensors, from which a run continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from core.models import Model, build_model
from core.tasks import Example, Task, make_task
from core.training.config import RunConfig, resolve_device
from core.training.optimizers import Optimizer, make_optimizer
from core.training.record import Record


@dataclass
class Progress:
    """Counters of a run; `elapsed` are seconds with measuring, `trained` without."""

    step: int = 0
    passes: int = 0  # records in a row with an exact match of 99 %
    best: float = float("inf")  # the smallest validation loss
    waited: int = 0  # records since
    elapsed: float = 0.0
    trained: float = 0.0


@dataclass
class Interval:
    """Sums over the steps since the last record."""

    loss: float = 0.0
    gradient: float = 0.0
    indexer: float = 0.0
    tokens: int = 0
    busy: float = 0.0  # seconds
    data: float = 0.0  # seconds of them spent on making batches
    count: int = 0

    def add(self, tokens: int, busy: float, data: float) -> None:
        self.tokens += tokens
        self.busy += busy
        self.data += data
        self.count += 1

    def clear(self) -> None:
        vars(self).update(vars(Interval()))


@dataclass(frozen=True)
class Best:
    """The weights at the step of the smallest validation loss."""

    step: int
    weights: dict[str, Tensor]


@dataclass
class Session:
    """A task, a model, its optimizer and the data generator; `record` is that of the step it was restored at."""

    config: RunConfig
    task: Task
    model: Model
    optimizer: Optimizer
    data: torch.Generator
    device: str
    held_out: tuple[Example, ...]
    progress: Progress
    best: Best | None = None
    interval: Interval = field(default_factory=Interval)
    record: Record | None = None

    def note_best(self) -> None:
        """Copy the current weights as those of the smallest validation loss."""
        self.best = Best(self.progress.step, self._copy_weights())

    def _copy_weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    @contextmanager
    def best_weights(self) -> Iterator[int | None]:
        """Use the best weights inside the block; gives their step, or None where those are the last ones."""
        if self.best is None or self.best.step == self.progress.step:
            yield None
            return
        last = self._copy_weights()
        self.model.load_state_dict(self.best.weights)
        try:
            yield self.best.step
        finally:
            self.model.load_state_dict(last)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The state as tensors by name (model.*, optimizer.*, generator.*), and the progress as text."""
        tensors = {
            f"model.{name}": value.detach() for name, value in self.model.state_dict().items()
        }
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{name}": torch.as_tensor(value)
                for name, value in values.items()
                if value is not None
            }
        tensors |= {
            "generator.data": self.data.get_state(),
            "generator.torch": torch.get_rng_state(),
        }
        if self.device == "cuda":
            tensors["generator.cuda"] = torch.cuda.get_rng_state()
        text = {name: repr(value) for name, value in vars(self.progress).items()}
        text |= {f"interval.{name}": repr(value) for name, value in vars(self.interval).items()}
        # Tied weights are one tensor twice, which a safetensors file cannot hold: hence clone().
        return (
            {name: value.cpu().contiguous().clone() for name, value in tensors.items()},
            text | {"optimizer": self.config.optimizer},
        )

    def restore_best(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Take the best weights from a checkpoint."""
        self.best = Best(
            step,
            {name: value.to(self.device) for name, value in _within(tensors, "model.").items()},
        )

    def restore(self, tensors: dict[str, Tensor], text: dict[str, str]) -> None:
        """Restore a state; another optimizer than its own starts anew. ValueError when the weights do not fit."""
        try:
            self.model.load_state_dict(_within(tensors, "model."))
        except RuntimeError as error:
            raise ValueError(misfit(error)) from error
        if text.get("optimizer") == self.config.optimizer:
            self._restore_optimizer(_within(tensors, "optimizer."))
        self.data.set_state(tensors["generator.data"])
        torch.set_rng_state(tensors["generator.torch"])
        if self.device == "cuda" and "generator.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["generator.cuda"])
        kinds: dict[str, Any] = {name: type(value) for name, value in vars(Progress()).items()}
        self.progress = Progress(**{name: kind(text[name]) for name, kind in kinds.items()})
        for name, usual in vars(Interval()).items():  # missing in checkpoints of older versions
            setattr(self.interval, name, type(usual)(text.get(f"interval.{name}", usual)))

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, part = name.split(".", 1)
            state.setdefault(int(index), {})[part] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread; the caller's number is put back afterwards.

    The last bits of a sum depend on the number of threads, and with them all later numbers of a run.
    """
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@one_thread()
def prepare(config: RunConfig) -> Session:
    """Seed torch globally, and build the task, the model and its optimizer on one thread."""
    device = resolve_device(config.device)
    torch.manual_seed(config.seed)
    task = make_task(config.task)
    model = build_model(config.model, task.shape).to(device)
    if config.checkpointing:
        model.checkpointing = True
    data = torch.Generator().manual_seed(config.seed)
    return Session(
        config,
        task,
        model,
        make_optimizer(config, model),
        data,
        device,
        task.held_out(config.held_out),
        Progress(),
    )


def misfit(error: RuntimeError) -> str:
    """A sentence for weights that `load_state_dict` refuses, with the first of the lines in which it says why."""
    first, *reasons = str(error).splitlines()
    return f"The saved weights do not fit this model: {(reasons or [first])[0].strip()[:300]}"


def parts_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters by part of the model, in order: "source", "encoder.layers.0", …, "output"."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        words = name.split(".")[:-1]
        numbered = [i for i, word in enumerate(words) if word.isdecimal()]
        parts.setdefault(
            ".".join(words[: numbered[0] + 1] if numbered else words[:1] or [name]), []
        ).append(weight)
    return parts


def _within(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)
    }
