"""TaskConfig: which task, with which parameters; TaskEntry, one task of the menu; and the menu, which core.tasks fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from core import plugins
from core.entries import ConfigError, Param, Value, filled, quote, quote_name
from core.serialization import convert


@dataclass(frozen=True)
class Metric:
    """A measure of outputs: the mean of `of(source, target, predicted)`, tokens each, over held-out examples; None leaves
    an example out. The unit is a share from 0 to 1, a score from 0 to 100, or positive, a number from 0."""

    key: str
    name: str
    of: Callable[[tuple[str, ...], tuple[str, ...], tuple[str, ...]], float | None]
    unit: Literal["share", "score", "positive"] = "share"
    lower_is_better: bool = False


# Those that the lab does not measure for each task, by key: of plug-ins, and the first of tasks with `longest_trained`.
METRICS = {
    "longer": Metric("longer", "accuracy on longer sources", lambda _, target, out: target == out)
}
# fields of core.training.Record, and what else a sweep measures: a metric has another key
MEASURED = frozenset(
    "step train_loss loss token_accuracy sequence_accuracy bleu chrf expected even error cut unknown known_loss "
    "indexer_loss gradient gradients changes rate tokens_per_second data_share elapsed train_seconds held_out final "
    "capped best examples buckets confusion maps scores steps".split()
)


@dataclass(frozen=True)
class TaskEntry:
    """One task in the menu; `look` says in one sentence what its attention should look like. `source` is the file that
    registered it, "" for the lab's own."""

    key: str
    name: str
    _: KW_ONLY
    meaning: str
    look: str
    build: Callable[[TaskConfig], Any]  # a Task
    params: tuple[Param, ...] = ()
    check: Callable[..., None] = lambda **params: None
    metrics: tuple[Metric, ...] = ()
    source: str = ""


TASKS: list[TaskEntry] = []


def task_entry(key: str) -> TaskEntry:
    """The task of that key; ConfigError lists the keys there are."""
    for entry in TASKS:
        if entry.key == key:
            return entry
    raise ConfigError(
        f"task = {quote(key)}; expected one of {', '.join(entry.key for entry in TASKS)}."
        f"{plugins.why_missing()}"
    )


@dataclass(frozen=True)
class TaskConfig:
    """A task, its parameters (completed by defaults) and its seed; ConfigError for a wrong one."""

    key: str = "reverse"
    params: tuple[tuple[str, Value], ...] = ()
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0

    def __post_init__(self) -> None:
        convert(self.seed, TaskConfig, "seed", f"task = {quote_name(self.key)}: ")
        entry = task_entry(self.key)
        params = filled(entry.params, dict(self.params), f"task = {self.key}")
        object.__setattr__(self, "params", tuple(sorted(params.items())))
        entry.check(**params)

    @classmethod
    def of(cls, key: str, seed: int = 0, **params: Value) -> TaskConfig:
        return cls(key, tuple(sorted(params.items())), seed)

    def __getitem__(self, name: str) -> Value:
        return dict(self.params)[name]

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "params": dict(self.params), "seed": self.seed}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskConfig:
        """The config of a run, which may predate some parameters (Param.before); ConfigError where it is none."""
        if not isinstance(data, Mapping) or not isinstance(data.get("key"), str):
            raise ConfigError(f"A task is an object with a key; got {quote(data)}.")
        if not isinstance(data.get("params", {}), Mapping):
            raise ConfigError(
                f"task = {quote_name(data['key'])}: params is an object of names and "
                f"values; got {quote(data['params'])}."
            )
        params = {
            param.key: param.before
            for param in task_entry(data["key"]).params
            if param.before is not None
        }
        params |= data.get("params", {})
        return cls(data["key"], tuple(sorted(params.items())), data.get("seed", 0))
