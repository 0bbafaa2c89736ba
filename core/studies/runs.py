"""Runs that were trained: compared at one step, those of a sweep, and what their sublayers read over depth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.attention import ConfigError
from core.entries import refuse_if
from core.interpret.trace import AttentionMap, AttentionTrace, Head, Kind
from core.models import (
    DepthAttention,
    Model,
    ModelConfig,
    Residual,
    StreamMixing,
    hooked,
    map_tokens,
    sentence_spans,
)
from core.pretrained.finetune import FineTuneConfig
from core.runs.folder import Status, stamp_of
from core.runs.runs import METRICS, Run
from core.runs.sweeps import (
    Outcome,
    Sweep,
    best_of_each,
    measures as sweep_measures,
    sweep_comparisons,
)
from core.studies.decode import Checkpoint
from core.tasks import METRICS as TASK_METRICS, Example, Task, task_of
from core.training import (
    Cell,
    Record,
    RunConfig,
    SourceMaps,
    SweepConfig,
    axis_tokens,
    best_head,
    name_of,
    one_a_step,
    source_maps,
    source_weights,
    watched_examples,
)
from core.training.seed_stats import Comparison, Line, SeedStats, line, seed_stats
from core.training.settings import SETTINGS
from core.training.sweeps import FIELDS
from core.training.watch import WatchedModel

Value = Callable[[Record], float | None]


Config = TypeVar("Config", RunConfig, FineTuneConfig)


@dataclass(frozen=True)
class RunView(Generic[Config]):
    """What a run's folder held when it was read; `trouble` is the error where its config could not be read.

    Two are equal where their folders and the steps with maps are.
    """

    run: Run
    config: Config | None = field(compare=False)
    status: Status = field(compare=False)
    records: tuple[Record, ...] = field(compare=False)
    steps: tuple[int, ...]  # with maps
    trouble: str = field(default="", compare=False)

    @classmethod
    def read(
        cls,
        run: Run,
        config: Callable[[Run], Config],
        check: Callable[[Config], object],
        **more: Any,
    ) -> Self:
        """Read a run's folder; an error of `config`, or of `check` with it, becomes `trouble`."""
        status, valid, trouble = run.status(), None, ""
        try:
            check(valid := config(run))
        except (ConfigError, TypeError, ValueError, KeyError) as error:
            valid, trouble = None, f"This run's settings cannot be read: {error}"
        records = tuple(one_a_step(records_of(run)))
        measured = {record.step for record in records}
        steps = tuple(step for step in run.frame_steps() if step in measured)
        return cls(run, valid, status, records, steps, trouble, **more)

    @property
    def live(self) -> bool:
        """Whether it waits or trains."""
        return not self.status.ended

    @property
    def required_config(self) -> Config:
        """The config of a run whose config could be read."""
        assert self.config is not None
        return self.config

    def at(self, step: int | None) -> Record:
        """The record at a step, or the last one."""
        return next((r for r in self.records if r.step == step), self.records[-1])


class RunData(RunView[RunConfig]):
    """A run that was trained here on a task."""

    @classmethod
    def of(cls, run: Run, **more: Any) -> Self:
        """Read a run's folder; an unreadable config, or one whose task cannot be made, becomes `trouble`."""
        return cls.read(run, Run.config, lambda config: task_of(config.task), **more)

    @cached_property
    def watched_model(self) -> WatchedModel | None:
        """What a training in a loop of one's own says of itself; such a run has no config."""
        return WatchedModel.of(self.run) if self.run.job == "watched" else None

    @property
    def subject(self) -> object:
        """What its maps are of: its task, or the inputs of a model that is watched."""
        if (model := self.watched_model) is None:
            return self.required_config.task
        return model.inputs, [(group.kind, group.rows, group.columns) for group in model.groups]

    @property
    def task(self) -> Task:
        return task_of(self.required_config.task)

    @property
    def watched(self) -> tuple[Example, ...]:
        """The held-out examples that it records."""
        return watched_examples(self.required_config.task, self.required_config.num_examples)

    def tokens(self, example: int, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those of the rows and of the columns of a map."""
        return map_tokens(
            self.required_config.model, kind, *axis_tokens(self.task, self.watched[example])
        )

    def trace(
        self, example: int, kind: Kind, layer: int, weights: np.ndarray, heads: int
    ) -> AttentionTrace:
        """The map (T, S) of one head as that of all heads and layers up to `layer`, for a view that shows one."""
        rows, columns = (
            names[:size]
            for names, size in zip(self.tokens(example, kind), weights.shape, strict=True)
        )
        mask = None  # which cells may have weight; None where all may
        if kind == "causal":  # what comes later is hidden
            mask = np.tri(*weights.shape, dtype=np.bool_)
        elif kind == "words":  # as are the other sentences
            mask = np.array(
                [
                    [column in span for column in range(len(columns))]
                    for span in sentence_spans(columns)
                ]
            )
        each = np.broadcast_to(weights, (heads, *weights.shape))
        return AttentionTrace(
            tuple(AttentionMap(kind, i, each, rows, columns, mask) for i in range(layer + 1)),
            source=f"run {self.run.id}",
        )

    def until(self, step: int) -> tuple[Record, ...]:
        """The records up to a step."""
        return tuple(record for record in self.records if record.step <= step)

    def decoded_at(self, step: int) -> Record | None:
        """The last record up to a step in which the model ran free."""
        return next((r for r in reversed(self.until(step)) if r.examples), None)


@dataclass(frozen=True)
class Moment:
    """A step of a run, and of a held-out example the (layer, head) that is drawn, with its weights (T, S) at that step.

    `measured`: records say how much weight that type of attention puts on the expected position. `latest`: no step was
    picked, so all figures follow a live run.
    """

    data: RunData
    step: int
    example: int = 0
    kind: Kind | None = None  # None without a map
    head: Head | None = None
    measured: bool = False
    weights: np.ndarray | None = None
    latest: bool = True

    def on_source(self, length: int) -> tuple[tuple[str, ...], np.ndarray] | None:
        """The outputs and their weights on a source of that length, in the head that is drawn; None without any."""
        if self.weights is None or self.kind is None:
            return None
        rows, _ = self.data.tokens(self.example, self.kind)
        return source_weights(
            self.data.required_config.model, self.kind, self.weights, rows, length
        )


@dataclass(frozen=True)
class ComparedRun(RunData):
    """One of several runs; its `index` gives its colour and marker."""

    index: int = field(kw_only=True)
    name: str = field(kw_only=True)


def records_of(run: Run) -> tuple[Record, ...]:
    """A run's records in file order, parsed again only after the file has changed."""
    return read_records(run, stamp_of(run.path, (METRICS,)))[0]


@lru_cache(maxsize=16)
def read_records(run: Run, _stamp: str) -> tuple[tuple[Record, ...], int]:
    """A run's records, and how many lines of their file are damaged."""
    records, damaged = run.read_records()
    return tuple(records), damaged


def compared_runs(runs: Mapping[str, Run]) -> list[ComparedRun]:
    """The runs by their names, as their folders have them: settings, records, and the steps with maps."""
    return [
        ComparedRun.of(run, index=index, name=name)
        for index, (name, run) in enumerate(runs.items())
    ]


def expected(record: Record) -> float | None:
    """The weight on the expected position in the head that puts most there."""
    return max(map(max, record.expected)) if record.expected else None


def latest(
    records: Sequence[Record], value: Value, until: Callable[[Record], bool]
) -> float | None:
    """The last measured value among the records for which `until` holds."""
    values = (value(record) for record in reversed(records) if until(record))
    return next((each for each in values if each is not None), None)


@dataclass(frozen=True)
class Measure:
    """A value that records hold; a `share` of 1 is drawn in percent."""

    key: str
    name: str
    value: Value
    share: bool = True


MEASURES = (
    Measure("sequence_accuracy", "Sequence accuracy", lambda r: r.sequence_accuracy),
    Measure("error", "Error, relative to repeating the last season", lambda r: r.error),
    Measure("token_accuracy", "Token accuracy", lambda r: r.token_accuracy),
    Measure("bleu", "BLEU", lambda r: r.bleu, False),
    Measure("chrf", "chrF", lambda r: r.chrf, False),
    Measure("loss", "Validation loss", lambda r: r.loss, False),
    Measure("train_loss", "Training loss", lambda r: r.train_loss, False),
    Measure("expected", "Expected weight, best head", expected, False),
)


def _every() -> tuple[Measure, ...]:
    def measured(key: str) -> Callable[[Record], float | None]:
        return lambda record: record.scores.get(key)

    own = (
        Measure(key, metric.name, measured(key), metric.unit == "share")
        for key, metric in TASK_METRICS.items()
    )
    return (*MEASURES, *own)


def measures(sides: Sequence[ComparedRun]) -> list[Measure]:
    """The measures that any of the runs has, named after the task where it is the same in all."""
    names = {measure.key: measure.name for measure in _every()}
    if len({side.config.task for side in sides if side.config is not None}) == 1:
        task = next(side.task for side in sides if side.config is not None)
        names["token_accuracy"] = f"{task.unit} accuracy".capitalize()
        if task.form == "label":
            names["sequence_accuracy"] = "Accuracy"
    every = _every()
    measured = {
        measure.key: [
            any(measure.value(record) is not None for record in side.records) for side in sides
        ]
        for measure in every
    }
    mixed = len({side.run.job for side in sides}) > 1  # then what both have comes first
    return [
        replace(measure, name=names[measure.key])
        for measure in sorted(every, key=lambda one: mixed and not all(measured[one.key]))
        if any(measured[measure.key])
    ]


def curves_of(sides: Sequence[ComparedRun], measure: str) -> dict[str, Float[np.ndarray, "N 3"]]:
    """One measure of each run at every step, by its name: step, seconds of training, and value (NaN: not measured)."""
    value = next(one.value for one in _every() if one.key == measure)
    return {
        side.name: np.array(
            [(record.step, record.train_seconds, value(record)) for record in side.records], float
        ).reshape(-1, 3)
        for side in sides
    }


def split_by_task(sides: Sequence[ComparedRun]) -> tuple[list[ComparedRun], list[ComparedRun]]:
    """The runs that log the same held-out examples, so that their maps can be compared, and the others."""
    subject = next((side.subject for side in sides if side.steps), None)
    same = [side for side in sides if side.steps and side.subject == subject]
    return same, [side for side in sides if side not in same]


def steps(sides: Sequence[ComparedRun]) -> tuple[int, ...]:
    """The steps of which any of the runs has maps."""
    return tuple(sorted({step for side in sides for step in side.steps}))


def examples(side: ComparedRun) -> list[str]:
    """The held-out examples that a run watches, as one line each; of a watched model its groups of maps."""
    if (model := side.watched_model) is not None:
        return [
            f"{len(one.layers)} × {len(one.heads)} {one.kind} maps, {len(one.rows)} × {len(one.columns)}"
            for one in model.groups
        ]
    task = side.task
    return [task.separator.join(task.display_tokens(example)[0]) for example in side.watched]


def source_at(side: ComparedRun, step: int, example: int) -> tuple[int, SourceMaps | None]:
    """The last step with maps up to that one (-1 without any), and the maps; None where none is of its source."""
    step = max((each for each in side.steps if each <= step), default=-1)
    if (model := side.watched_model) is not None and step >= 0:
        group = model.groups[example]
        weights = side.run.frame(step).get(f"{example}:{group.kind}")
        return step, None if weights is None else SourceMaps(weights, group.rows, group.columns)
    config, watched = side.required_config, side.watched
    if step < 0 or example >= len(watched):
        return step, None
    frame = side.run.frame(step)
    return step, source_maps(config.model, side.task, frame, watched[example], example)


def heads(side: ComparedRun) -> list[Head]:
    """The heads of a run's maps, the one with most weight on the expected position first."""
    _, result = source_at(side, side.steps[-1], 0)
    if result is None:
        return []
    best = best_head(next((record for record in reversed(side.records) if record.expected), None))
    return sorted(np.ndindex(result.weights.shape[:2]), key=lambda head: head != best)


@dataclass(frozen=True, eq=False)
class RunMap:
    """The attention (T, S) of one head of a run, at the step of the note."""

    run: ComparedRun
    note: str
    weights: np.ndarray


class Maps(NamedTuple):
    """Maps of one shape with the tokens of their rows and columns, and the runs whose maps have another shape."""

    maps: list[RunMap]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    others: list[ComparedRun]


def maps_at(
    sides: Sequence[ComparedRun], step: int, example: int, heads: Sequence[Head | None]
) -> Maps:
    """The map of each run's head at a step, as far as it has the shape of the first one."""
    items = [
        (side, at, attention, head)
        for side, head in zip(sides, heads, strict=True)
        if head is not None
        for at, attention in (source_at(side, step, example),)
        if attention is not None
    ]
    maps = Maps([], items[0][2].rows, items[0][2].columns, []) if items else Maps([], (), (), [])
    for side, at, attention, (layer, head) in items:
        weights = attention.weights[layer, head]
        if weights.shape == (len(maps.rows), len(maps.columns)):
            of = "" if attention.weights.shape[:2] == (1, 1) else f" · L{layer}·H{head}"
            maps.maps.append(RunMap(side, f"step {at:,}{of}", weights))
        else:
            maps.others.append(side)
    return maps


def difference_of(maps: Maps, first: int, second: int) -> Float[np.ndarray, "T S"]:
    """The weights of one map minus those of another."""
    return maps.maps[first].weights - maps.maps[second].weights


@lru_cache(maxsize=4)
def maps_over_time(
    sides: tuple[ComparedRun, ...], example: int, heads: tuple[Head | None, ...]
) -> list[list[RunMap]]:
    """The maps of `maps_at` at each of the `steps`."""
    return [maps_at(sides, step, example, heads).maps for step in steps(sides)]


# The settings of a run by name, and those in which runs differ.


MISSING = "–"  # in place of a setting that a config has not
NAMES = {key: param.name for key, param in SETTINGS.items()} | FIELDS
NAMES |= {
    "following": "layer pattern",
    "data": "rows",
    "axis": "varied setting",
    "second": "second setting",
    "second_values": "values of the second setting",
    "paired": "one for each value",
    "early": "stop early",
}
# What limits a run, or says how often it is measured: not what the model is or how it learns.
LIMITS = frozenset(
    "max_seconds max_train_seconds record_every decode_every held_out num_examples "
    "logged_example".split()
)


def settings(data: Any, name: str = "") -> dict[str, str]:
    """Every setting of a config in JSON as text, by its name, such as model.attention.score."""
    if isinstance(data, dict | list | tuple):
        inner = {
            (name if key == "key" else f"{name}.{key}".lstrip(".")): part
            for key, part in (data.items() if isinstance(data, dict) else enumerate(data, 1))
        }
        return {
            each: text for key, part in inner.items() for each, text in settings(part, key).items()
        }
    text = {"None": "none", "": "none", "True": "yes", "False": "no"}.get(str(data), str(data))
    text = f"{data:g}" if isinstance(data, float) else text
    return {name.replace(".params.", "."): text}


def differing(configs: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """The settings in which configs differ, in words, each with its text in every config; LIMITS are left out.

    A choice stands for its parameters: another task has another length, another position another base.
    """
    each = [settings(config.to_json()) for config in configs]
    texts = {name: tuple(one.get(name, MISSING) for one in each) for one in each for name in one}
    apart = {name: row for name, row in texts.items() if len(set(row)) > 1}
    result = dict[str, tuple[str, ...]]()
    for name, row in apart.items():
        above = name.split(".")
        if above[-1] in LIMITS or any(".".join(above[:at]) in apart for at in range(1, len(above))):
            continue
        name = name.removeprefix("base.")  # of a sweep
        parts = [part for part in name.split(".") if part not in ("model", "attention")]
        first, *more = parts or above[-1:]
        if first == "task" and more:
            words = name_of(name, getattr(configs[0], "base", configs[0]).task)
        else:
            of = more and not more[0].isdecimal()  # a parameter of the choice on an axis
            words = f"{NAMES.get(first, first)}{f' {more[0]}' if of else ''}"
        result.setdefault(words.lower(), row)
    return result


EXAMPLE = " (example)"  # after the name of a run that comes with the lab


@dataclass(frozen=True)
class RunSummary:
    """One run in a line; `trouble` is the error where its config cannot be read."""

    run: Run
    name: str
    named: bool
    config: RunConfig | None  # None for a fine-tuning run, too
    task: str
    status: Status
    created: float
    steps: int
    train_seconds: float
    loss: float | None
    curve: tuple[float, ...]  # held-out loss
    last: Record | None  # the latest in which the model ran free
    checkpoint_steps: tuple[int, ...]  # at which weights are saved
    bytes: int
    parent: str = ""
    sweep: str = ""
    trouble: str = ""
    tuned: FineTuneConfig | None = None
    watched: WatchedModel | None = None
    loss_name: str = "validation loss"  # of a watched run without one the training loss
    planned_steps: int = 0
    example: bool = False  # whether it comes with the lab

    @property
    def plain_name(self) -> str:
        return self.name.removesuffix(EXAMPLE)

    @property
    def live(self) -> bool:
        return not self.status.ended


def rival(item: RunSummary, items: Sequence[RunSummary]) -> RunSummary | None:
    """The best of the runs of the same task with another config."""
    if item.config is None or item.last is None:
        return None
    same = [
        other
        for other in items
        if other.config is not None
        and other.config.task == item.config.task
        and other.config != item.config
        and other.last is not None
    ]
    return max(same, key=lambda other: (score_of(other), -other.train_seconds), default=None)


def score_of(item: RunSummary) -> float:
    """How well a run has learned, by its last free-running measurement: the larger, the better."""
    assert item.last is not None
    return -item.last.error if item.last.error is not None else item.last.sequence_accuracy or 0.0


COLUMNS = (
    "step",
    "loss",
    "train_loss",
    "sequence_accuracy",
    "token_accuracy",
    "error",
    "gradient",
    "rate",
)


def records_table(run: Run) -> dict[str, np.ndarray]:
    """The records of a run by columns, one row a step (`core.training.train(run.config())` trains it again).

    Those of COLUMNS that any record has, NaN where it was not measured.
    """
    records = one_a_step(records_of(run))
    columns = {name: [getattr(record, name) for record in records] for name in COLUMNS}
    return {
        name: np.array(column, float) for name, column in columns.items() if set(column) != {None}
    }


EXAMPLE_SWEEP = Sweep(Path(__file__).parent / "data" / "sweeps.json")


@dataclass(frozen=True)
class SweepData:
    """A sweep's config and the outcomes of its runs, read once a redraw."""

    sweep: Sweep
    config: SweepConfig
    outcomes: dict[Cell, Outcome]

    @property
    def is_example(self) -> bool:
        return self.sweep == EXAMPLE_SWEEP

    @property
    def live(self) -> bool:
        """Whether any of its runs waits or trains."""
        return not self.is_example and any(not outcome.ended for outcome in self.outcomes.values())

    @property
    def finished(self) -> int:
        return sum(outcome.state == "finished" for outcome in self.outcomes.values())

    @property
    def setting(self) -> str:
        """The name of the varied setting."""
        return " × ".join(name_of(axis, self.config.base.task) for axis in self.config.axes)

    @property
    def names(self) -> list[str]:
        return self.config.names

    def task(self) -> Task:
        return task_of(self.config.base.task)

    def measures(self) -> list[str]:
        """The measures that any run has, in the order of core.runs.sweeps.measures."""
        return [
            name
            for name in sweep_measures()
            if any(name in each.measures for each in self.outcomes.values())
        ]

    def outcomes_of(self, value: int) -> list[Outcome]:
        """The started runs of the value of that index, by seed."""
        return [
            self.outcomes[cell]
            for cell in self.config.cells
            if cell[0] == value and cell in self.outcomes
        ]

    def compared(self, measure: str) -> list[int]:
        """The indices that pictures and tests compare: of two axes, each value of the first where it is best."""
        return best_of_each(self.config, self.outcomes, measure)

    def stats(self, measure: str, every: bool = False) -> dict[int, SeedStats]:
        """Mean and interval of a measure over the finished seeds, by the index of those that are compared, or of every."""
        unit = sweep_measures().get(measure, "positive")
        stats = {
            value: seed_stats([each.last(measure) for each in self.outcomes_of(value)], unit)
            for value in (range(len(self.names)) if every else self.compared(measure))
        }
        return {value: each for value, each in stats.items() if each is not None}

    def comparisons(self, measure: str) -> list[Comparison]:
        """Tests of every pair of values; none before all runs have ended, as testing again and again finds a false
        difference too often."""
        return [] if self.live else sweep_comparisons(self.config, self.outcomes, measure)

    def lines(self, measure: str, over: str) -> dict[int, Line]:
        """The mean over training of each value's finished seeds, or before any has finished the seed trained longest."""
        shared = over == "steps" and self.config.equal == "steps" and not self.config.early
        lines = {}
        for value in self.compared(measure):
            started = [outcome for outcome in self.outcomes_of(value) if outcome.steps]
            finished = [outcome for outcome in started if outcome.state == "finished"]
            longest = sorted(started, key=lambda outcome: outcome.train_seconds[-1])[-1:]
            points = [outcome.points(measure, over) for outcome in finished or longest]
            if (mean := line(points, shared)) is not None:
                lines[value] = mean
        return lines


def load_sweep(sweep: Sweep) -> SweepData | str:
    """Read a sweep's file and its runs (`attention-lab sweep` trains one); the error as text when it cannot be read."""
    try:
        config = sweep.config()
        cells = set(config.cells)
        return SweepData(
            sweep, config, {cell: each for cell, each in sweep.outcomes().items() if cell in cells}
        )
    except ConfigError as error:
        return f"This sweep's file cannot be read: {error}"


@dataclass(frozen=True)
class SweepNumbers:
    """One measure of a sweep by the names of its values: of every seed, the means, and the means over training.

    `differences` and `p` are of the `pairs`, tested by seed and corrected together (Bonferroni).
    """

    seeds: dict[str, tuple[float, ...]]
    means: dict[str, float]
    lines: dict[str, Line]
    pairs: tuple[str, ...]
    differences: tuple[float, ...]
    p: tuple[float, ...]


def sweep_numbers(data: SweepData, measure: str, over: str) -> SweepNumbers:
    """The final number of every seed, the mean of each value, the tests of all pairs, and the means over training."""
    names, stats, tests = data.names, data.stats(measure), data.comparisons(measure)
    return SweepNumbers(
        {names[value]: each.values for value, each in stats.items()},
        {names[value]: each.mean for value, each in stats.items()},
        {names[value]: each for value, each in data.lines(measure, over).items()},
        tuple(f"{names[one.first]} {one.sign} {names[one.second]}" for one in tests),
        tuple(one.difference for one in tests),
        tuple(one.p for one in tests),
    )


PARTS = {
    "attention": "attention",
    "causal": "attention",
    "cross": "cross-attention",
    "feed_forward": "feed-forward",
}
EMBEDDING, OUTPUT = "embedding", "output"


@dataclass(frozen=True, eq=False)
class DepthMap:
    """A stack of N − 1 sublayers: `shares` (T, N, N) of what each token reads at a sublayer (row), and at the end, of the
    embedding and each sublayer's output (column).

    A share is the weight with which that output enters, over the sum of the row's weights: the norm that follows takes
    out their sum. Rows sum to 1; what comes later has 0. With plain residuals all weights are 1.
    """

    stack: str
    tokens: tuple[str, ...]
    readers: tuple[str, ...]
    outputs: tuple[str, ...]
    shares: Float[Tensor, "T N N"]

    def trace(self, token: int | None = None) -> AttentionTrace:
        """The map of one token, or the mean over all of them."""
        one = self.shares.mean(0) if token is None else self.shares[token]
        visible = torch.ones_like(one, dtype=torch.bool).tril()
        shown = AttentionMap(
            "causal", 0, one[None].numpy(), self.readers, self.outputs, visible.numpy()
        )
        return AttentionTrace((shown,), source="over depth")


@torch.no_grad()
def depth_maps(
    model: Model, config: ModelConfig, task: Task, example: Example
) -> tuple[DepthMap, ...]:
    """One map a stack, the encoder's first, from one pass over an example.

    ConfigError for post-norm, which rescales the sum after each sublayer, so that no weights lead back to the outputs.
    """
    refuse_if(
        config.norm == "post",
        "A post-norm model rescales the sum after each sublayer, so no weights say what of an earlier output is left; "
        "take norm = pre.",
    )
    recorded, batch = dict[str, tuple[Tensor, ...]](), task.collate([example])

    def record(path: str, module: nn.Module, inputs: object, output: tuple[Tensor, ...]) -> None:
        recorded[path] = output

    with hooked(
        module.register_forward_hook(partial(record, path))
        for path, module in model.named_modules()
        if isinstance(module, DepthAttention | StreamMixing)
    ):
        model.eval()(batch.source, batch.source_mask, batch.target_in)
    around = [path for path, module in model.named_modules() if isinstance(module, Residual)]
    maps = []
    for stack, prefix, kind in (("encoder", "encoder.", "self"), ("decoder", "", "causal")):
        paths = [path for path in around if path.startswith("encoder.") == bool(prefix)]
        if not paths:
            continue
        tokens, _ = map_tokens(config, kind, *axis_tokens(task, example))
        rows = _rows(recorded, paths, prefix, len(tokens))
        shares = torch.zeros(len(rows[0]), len(rows), len(rows))
        for at, row in enumerate(rows):
            shares[:, at, : at + 1] = row / row.sum(-1, keepdim=True)
        names = tuple(map(sublayer_name, paths))
        maps.append(DepthMap(stack, tokens, (*names, OUTPUT), (EMBEDDING, *names), shares))
    return tuple(maps)


def _rows(
    recorded: Mapping[str, tuple[Tensor, ...]], paths: Sequence[str], prefix: str, length: int
) -> list[Float[Tensor, "T n"]]:
    """The weights of the outputs so far, at each sublayer and at the end of a stack."""
    if f"{paths[0]}.read" in recorded:  # attention over depth: its own weights
        return [recorded[f"{path}.read"][1][0] for path in (*paths, f"{prefix}norm")]
    if f"{paths[0]}.mixing" not in recorded:  # the plain sum
        return [torch.ones(length, count) for count in range(1, len(paths) + 2)]
    # Hyper-connections: what each stream holds of each output, followed through all mixing
    mixing = [[one[0] for one in recorded[f"{path}.mixing"]] for path in paths]
    length, streams = mixing[0][0].shape
    shares, rows = torch.ones(length, streams, 1), list[Tensor]()  # (T, n, outputs so far)
    for read, write, mix in mixing:
        rows.append((read[:, None] @ shares)[:, 0])
        shares = torch.cat((mix @ shares, write[..., None]), dim=-1)
    return [*rows, shares.mean(1)]


def sublayer_name(path: str) -> str:
    """Such as L2 attention, of layers.2.around_causal."""
    above, _, part = path.rpartition(".around_")
    return f"L{above.rpartition('.')[2]} {PARTS[part]}"


def of_checkpoint(checkpoint: Checkpoint, example: int) -> tuple[DepthMap, ...]:
    """The maps of a run's weights on one of its watched examples."""
    run = Run(checkpoint.path)
    config = run.config()
    model, task = run.model(checkpoint.step)
    watched = watched_examples(config.task, config.num_examples)
    return depth_maps(model, config.model, task, watched[example])


@dataclass(frozen=True)
class Reading:
    """The share of an output in what a sublayer reads, and the share if all were equal."""

    reader: str
    output: str
    share: float
    equal: float


def farthest(depth: DepthMap) -> Reading:
    """The reading that is most above an equal share, of all that skip the latest output."""
    mean = depth.shares.mean(0)
    equal = 1 / torch.arange(1, len(mean) + 1.0)[:, None]
    row, column = divmod(int((mean / equal).tril(-1).argmax()), len(mean))
    return Reading(
        depth.readers[row], depth.outputs[column], float(mean[row, column]), float(equal[row])
    )
