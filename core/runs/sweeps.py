"""Train a sweep from a shell, its runs in worker processes, a few side by side; and a claim made of a sweep: a Python
file that compares two of its values with new seeds, and works as a plug-in."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import fmean
from string import Template
from typing import Any

from filelock import FileLock

from core.entries import quote, refuse_if
from core.files import SWEEPS, read_object, runs_folder, text_of, write_atomically
from core.runs.executor import Worker, executor
from core.runs.folder import ENDED, RUN_ID, UNDER_WAY
from core.runs.runs import Run, create_run, find_run, new_id
from core.runs.store import forget
from core.serialization import Count, Finite, read, renamed
from core.tasks import METRICS
from core.training import (
    Cell,
    Comparison,
    Record,
    RunConfig,
    SweepConfig,
    compare,
    name_of,
    one_a_step,
    seed_stats,
    with_settings,
)

MAX_SWEEPS = 50
# with their units; the first available one ranks the values
MEASURES = {
    "sequence_accuracy": "share",
    "bleu": "score",
    "chrf": "score",
    "error": "positive",
    "token_accuracy": "share",
    "loss": "positive",
    "expected": "share",
}
LARGEST = {"share": 1.001, "score": 100.1, "positive": 1e30}  # by unit, with room for rounding


def measures() -> dict[str, str]:
    """The unit of each measure by its name, those of plug-ins at the end."""
    return MEASURES | {key: metric.unit for key, metric in METRICS.items()}


DIGITS = 5


@dataclass(frozen=True)
class Outcome:
    """The state of a run, and the measures of its records by name.

    Every column has one number (or None) a record; the last of a finished run is over more held-out items. `even` is
    the weight that uniform attention puts on the expected position, the measure "expected" that of the best head.
    """

    state: str
    message: str = ""
    steps: tuple[Count, ...] = ()
    train_seconds: tuple[Finite, ...] = ()
    measures: Mapping[str, tuple[Finite | None, ...]] = field(default_factory=dict)
    held_out: Count = 0
    even: Finite | None = None
    elapsed: Finite = 0.0  # seconds with measuring

    @classmethod
    def of(cls, run: Run | None) -> "Outcome":
        """The current outcome of a run; None stands for a deleted folder."""
        if run is None:
            return cls("lost", "Its folder was deleted before it ended.")
        status, records = run.status(), one_a_step(run.records())
        names = (*measures(), "train_seconds", "even", "elapsed")
        columns = {name: tuple(_measure(record, name) for record in records) for name in names}
        seconds, evens, elapsed = (columns.pop(name) for name in names[-3:])
        return cls(
            status.state,
            status.message,
            tuple(r.step for r in records),
            seconds,
            {name: column for name, column in columns.items() if {*column} - {None}},
            records[-1].held_out if records else 0,
            next((even for even in evens if even is not None), None),
            elapsed[-1] if elapsed else 0.0,
        )

    @property
    def ended(self) -> bool:
        return self.state not in UNDER_WAY

    def last(self, measure: str) -> float | None:
        """The last number of a measure, or of "train_seconds"; None unless the run has finished."""
        columns = {**self.measures, "train_seconds": self.train_seconds}
        column = columns.get(measure, ()) if self.state == "finished" else ()
        return next((value for value in reversed(column) if value is not None), None)

    def points(self, measure: str, over: str = "steps") -> list[tuple[float, float]]:
        """The points (x, y) of a measure over "steps" or over "train_seconds"."""
        ys = self.measures.get(measure, ())
        return [(x, y) for x, y in zip(getattr(self, over), ys, strict=False) if y is not None]

    @classmethod
    def from_json(cls, data: object) -> "Outcome":
        """The outcome in a sweep's file; ConfigError for anything else."""
        if isinstance(data, Mapping):
            data = renamed(data, "record")
            if isinstance(data.get("measures"), Mapping):
                data = data | {"measures": renamed(data["measures"], "record")}
        outcome = read(data, cls, "A sweep's outcome")
        refuse_if(
            outcome.state not in (*UNDER_WAY, *ENDED, "lost"),
            f"A sweep's outcome has no state {quote(outcome.state)}.",
        )
        refuse_if(
            {len(outcome.train_seconds), *map(len, outcome.measures.values())}
            != {len(outcome.steps)},
            "A sweep's outcome has columns of different lengths.",
        )
        for name, column in outcome.measures.items():
            most = LARGEST[measures()[name]] if name in measures() else -1
            refuse_if(
                not all(value is None or 0 <= value <= most for value in column),
                f"A sweep's outcome has no such {quote(name)}.",
            )
        return replace(outcome, message=text_of(outcome.message))


def _measure(record: Record, name: str) -> Any:
    value = getattr(record, name)
    value = max(map(max, value)) if value and name == "expected" else value
    return None if value is None else float(f"{value:.{DIGITS}g}")


@dataclass(frozen=True)
class Sweep:
    """One sweep's file, read again at each call, so that tabs and shells agree."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.stem

    def data(self) -> dict[str, Any]:
        """The contents of the file; an empty dict when it cannot be read."""
        return read_object(self.path)

    def _cells(self, name: str) -> dict[Cell, Any]:
        data = self.data().get(name, {})
        refuse_if(
            not isinstance(data, dict), f"The {name} of a sweep are an object; got {quote(data)}."
        )
        wrong = next((key for key in data if not re.fullmatch("[0-9]{1,2}:[0-9]{1,10}", key)), None)
        refuse_if(
            wrong is not None,
            f"A run of a sweep is named by index and seed, such as 0:1; got {quote(wrong)}.",
        )
        cells = {key: key.split(":") for key in data}
        return {(int(index), int(seed)): data[key] for key, (index, seed) in cells.items()}

    def config(self) -> SweepConfig:
        """The sweep's config; ConfigError when the file does not hold one."""
        return SweepConfig.from_json(self.data().get("config"))

    def outcomes(self) -> dict[Cell, Outcome]:
        """The outcome of every run, saved in the file once it has finished or failed; ConfigError for a broken file."""
        saved = {cell: Outcome.from_json(value) for cell, value in self._cells("outcomes").items()}
        runs, names = self.runs(), self._cells("runs")
        fresh = {cell: Outcome.of(runs.get(cell)) for cell in names if cell not in saved}
        ends = ("finished", "failed")  # a stopped run may continue
        lasting = {cell: outcome for cell, outcome in fresh.items() if outcome.state in ends}
        if lasting:
            with self._lock():
                data = self.data()
                data.setdefault("outcomes", {}).update(
                    {_key(cell): asdict(value) for cell, value in lasting.items()}
                )
                self._write(data)
        return saved | fresh

    def pending(self) -> list[str]:
        """The ids of its runs without a saved outcome; none of a broken file."""
        runs, outcomes = (self.data().get(name) for name in ("runs", "outcomes"))
        if not isinstance(runs, dict) or not isinstance(outcomes, dict):
            return []
        return [str(name) for cell, name in runs.items() if cell not in outcomes]

    def runs(self) -> dict[Cell, Run]:
        """Its runs whose folders exist; ConfigError for a broken file."""
        folder = self.path.parent
        root = folder.parent if folder.name == SWEEPS else None  # beside the folder of sweeps
        names = self._cells("runs").items()
        return {cell: run for cell, name in names if (run := find_run(name, root)) is not None}

    def add_runs(self, runs: Mapping[Cell, Run]) -> None:
        """Set the runs of cells and delete their earlier outcomes."""
        with self._lock():
            data = self.data()
            for cell, run in runs.items():
                data.setdefault("runs", {})[_key(cell)] = run.id
                data.setdefault("outcomes", {}).pop(_key(cell), None)
            self._write(data)

    def missing(self) -> list[Cell]:
        """The cells whose runs have not finished and are not under way, in order."""
        outcomes = self.outcomes()
        return [
            cell
            for cell in self.config().cells
            if cell not in outcomes or (outcomes[cell].ended and outcomes[cell].state != "finished")
        ]

    def _write(self, data: dict[str, Any]) -> None:
        write_atomically(
            self.path, json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        )

    def _lock(self) -> FileLock:
        return FileLock(self.path.with_suffix(".lock"))


def _key(cell: Cell) -> str:
    return f"{cell[0]}:{cell[1]}"


def sweep_comparisons(
    config: SweepConfig, outcomes: Mapping[Cell, Outcome], measure: str
) -> list[Comparison]:
    """Every pair of a sweep's values tested on one measure, paired by seed (core.training.seed_stats); of two axes,
    the values of the first, each where it is best (`best_of_each`)."""
    groups: list[dict[int, float]] = [{} for _ in config.combinations]
    compared = best_of_each(config, outcomes, measure)
    for index, seed in config.cells:
        if (
            index in compared
            and (index, seed) in outcomes
            and (value := outcomes[index, seed].last(measure)) is not None
        ):
            groups[index][seed] = value
    held_out = max((outcome.held_out for outcome in outcomes.values()), default=0)
    highest = {"sequence_accuracy": 1.0, "token_accuracy": 1.0, "bleu": 100.0, "chrf": 100.0}.get(
        measure, 0.0
    )
    # the share of one held-out item
    return compare(groups, measures()[measure], highest / held_out if held_out else 0.0)


def best_of_each(config: SweepConfig, outcomes: Mapping[Cell, Outcome], measure: str) -> list[int]:
    """The combinations that are compared: all, or with two axes for each value of the first that with the best mean."""
    each = len(config.second_values) if config.second and not config.paired else 1
    means, sign = list[float](), -1 if lower_is_better(measure) else 1
    for index in range(len(config.combinations)):
        of_seeds = (outcomes[index, seed] for seed in config.seeds if (index, seed) in outcomes)
        values = [value for one in of_seeds if (value := one.last(measure)) is not None]
        means.append(sign * fmean(values) if values else -inf)
    places = (range(at, at + each) for at in range(0, len(means), each))
    return [max(place, key=means.__getitem__) for place in places]


def at_the_end(config: SweepConfig, outcomes: Mapping[Cell, Outcome], measure: str) -> str:
    """A sentence on the values that are best at the least or the largest number of the second setting; "" for none."""
    numbers = config.second_values
    if not config.second or config.paired or not all(type(one) in (int, float) for one in numbers):
        return ""
    ends, width = (min(numbers), max(numbers)), len(numbers)
    measured = {index for (index, _), one in outcomes.items() if one.last(measure) is not None}
    names = [
        config.names[index]
        for index in best_of_each(config, outcomes, measure)
        if index in measured and numbers[index % width] in ends
    ]
    setting = name_of(config.second, config.base.task).lower()
    if not names:
        return ""
    return (
        f"Best with the least or the largest {setting} that was tried: {'; '.join(names)}. One beyond it may be "
        "better."
    )


def sweeps_folder(root: Path | None = None) -> Path:
    return (root or runs_folder()) / SWEEPS


def create_sweep(config: SweepConfig, path: Path | None = None) -> Sweep:
    """A new sweep's file among the others, of which the oldest are deleted, or exactly at `path`."""
    sweep = Sweep(path or sweeps_folder() / f"{new_id()}.json")
    sweep.path.parent.mkdir(parents=True, exist_ok=True)
    sweep._write({"config": config.to_json(), "created": time.time(), "runs": {}, "outcomes": {}})
    if path is None:
        others = [other for other in list_sweeps() if other != sweep]
        for old in others[: max(0, len(others) - MAX_SWEEPS + 1)]:
            _unlink(old)  # in a store it stays
    return sweep


def find_sweep(sweep_id: object, root: Path | None = None) -> Sweep | None:
    """The sweep of this id, or None; anything that is no sweep's id is never joined to a path."""
    if not isinstance(sweep_id, str) or not RUN_ID.fullmatch(sweep_id):
        return None
    path = sweeps_folder(root) / f"{sweep_id}.json"
    return Sweep(path) if path.is_file() else None


def list_sweeps() -> list[Sweep]:
    """Every sweep, oldest first."""
    paths = sorted(sweeps_folder().glob("*.json"))
    return [sweep for path in paths if (sweep := find_sweep(path.stem)) is not None]


def delete_sweep(sweep: Sweep) -> None:
    """Delete a sweep's file, in the store too; its runs stay."""
    _unlink(sweep)
    forget(sweep.path.parent, sweep.id)


def _unlink(sweep: Sweep) -> None:
    for path in (sweep.path, sweep.path.with_suffix(".lock")):
        path.unlink(missing_ok=True)


def start(
    file: str | RunConfig,
    changes: dict[str, Any],
    to: Path | None,
    settings: Mapping[str, Any] | None = None,
) -> Sweep:
    """The sweep of that name or file, or a new one of a config or of that in the file, saved at `to` or among the others.

    The file describes a sweep, or a run to be varied by `changes`; `settings` change that run. A sweep that there is goes
    on as it is. Raises ConfigError and OSError.
    """
    if isinstance(file, RunConfig):
        base = with_settings(file, settings or {}).to_json()
        return create_sweep(SweepConfig.from_json({"base": base} | changes), to)
    sweep = find_sweep(file)
    data = sweep.data() if sweep else json.loads(Path(file).read_text("utf-8"))
    refuse_if(
        not isinstance(data, dict),
        "A sweep is described by an object with base, axis, values and seeds.",
    )
    if sweep or "outcomes" in data:
        given = [*changes, *(settings or ()), *(["to"] if to else [])]
        refuse_if(given, f"{file} has begun, and goes on as it is: leave out {', '.join(given)}.")
        return sweep or Sweep(Path(file))
    data = data.get("config", data)
    data = data if "base" in data else {"base": data}
    if settings:
        data["base"] = with_settings(RunConfig.from_json(data["base"]), settings).to_json()
    return create_sweep(SweepConfig.from_json(data | changes), to)


def run_sweep(sweep: Sweep, workers: int) -> bool:
    """Train the unfinished runs, `workers` at a time; True when all finished. Ctrl-C stops and saves the runs."""
    config, cells = sweep.config(), sweep.missing()
    config.try_models()
    children: list[Worker] = []

    def train(cell: Cell) -> None:
        run = create_run(config.run(*cell), sweep={"id": sweep.id, "value": cell[0]})
        run.set_status("starting")  # a queued run would be started by an open page
        sweep.add_runs({cell: run})
        children.append(child := executor().start(run))
        child.wait()
        outcome = Outcome.of(run)
        result = (
            "  ".join(measure_texts([outcome])) if outcome.state == "finished" else outcome.message
        )
        print(
            f"{config.names[cell[0]]}, seed {cell[1]}: {result}\n",
            end="",
        )

    pool = ThreadPoolExecutor(workers)
    try:
        list(pool.map(train, cells))
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        print("Stopped; the same command with the name of the sweep continues it.")
        return False
    return all(outcome.state == "finished" for outcome in sweep.outcomes().values())


def summary(sweep: Sweep) -> list[str]:
    """A line for each value with its mean and 95 % interval, then the tests of all pairs of values."""
    config, outcomes = sweep.config(), sweep.outcomes()
    values, lines = config.names, []
    for index, value in enumerate(values):
        of_value = [
            outcomes[cell] for cell in config.cells if cell[0] == index and cell in outcomes
        ]
        finished = sum(outcome.state == "finished" for outcome in of_value)
        parts = [f"{value}:", f"{finished} of {len(config.seeds)} seeds", *measure_texts(of_value)]
        lines.append("  ".join(parts))
    # The differences of all pairs on the measure that ranks the values, once all runs have ended.
    names = {name for outcome in outcomes.values() for name in outcome.measures}
    measure = next((name for name in measures() if name in names), None)
    if measure is None or not all(outcome.ended for outcome in outcomes.values()):
        return lines
    differences = [
        f"{values[pair.first]} {'/' if pair.unit == 'times' else '-'} {values[pair.second]}: {measure} "
        f"{pair.difference:.4g} (interval {pair.low:.4g} to {pair.high:.4g})  p {pair.p:.3g}  n {pair.count}  "
        f"{'significant' if pair.significant else 'not significant'}"
        for pair in sweep_comparisons(config, outcomes, measure)
    ]
    if end := at_the_end(config, outcomes, measure):
        lines.append(end)
    if differences:
        lines.append(
            "Differences (ratios of losses and errors) by two-sided t tests paired by seed; p and the 95 % "
            "intervals are corrected for all pairs (Bonferroni). A difference that is not significant need "
            "not be zero."
        )
    return lines + differences


def measure_texts(outcomes: Sequence[Outcome]) -> list[str]:
    """Each measure as name, mean and 95 % interval."""
    return [
        f"{name} {s.mean:.4g}"
        + ("" if s.interval is None else " [{:.4g}, {:.4g}]".format(*s.interval))
        for name, unit in measures().items()
        if (s := seed_stats([outcome.last(name) for outcome in outcomes], unit)) is not None
    ]


CLAIMED = {  # what a claim made of a sweep may compare, in words
    "sequence_accuracy": "share of whole answers",
    "token_accuracy": "share of single answers",
    "bleu": "BLEU",
    "chrf": "chrF",
    "loss": "validation loss",
    "error": "error",
}


def lower_is_better(measure: str) -> bool:
    own = METRICS.get(measure)
    return measure in ("loss", "error") or (own is not None and own.lower_is_better)


@dataclass(frozen=True)
class SweepClaim:
    """That one value of a sweep is better than another by more than `bound`; ConfigError for what cannot be compared.

    `first` and `second` are indices of the sweep's values, `measure` a key of CLAIMED; `bound` is in its unit.
    """

    sweep: SweepConfig
    first: int
    second: int
    measure: str
    bound: float
    author: str = "Reader"

    def __post_init__(self) -> None:
        refuse_if(
            self.measure not in CLAIMED,
            f"measure = {quote(self.measure)}; take one of {', '.join(CLAIMED)}.",
        )
        refuse_if(
            self.first == self.second
            or not {self.first, self.second} <= set(range(len(self.sweep.names))),
            "A claim compares two values of the sweep that differ.",
        )
        refuse_if(not self.bound >= 0, f"bound = {self.bound:g}; expected a number from 0.")

    @property
    def names(self) -> tuple[str, str]:
        return self.sweep.names[self.first], self.sweep.names[self.second]

    @property
    def statement(self) -> str:
        """Such as: with Dot product the share of whole answers is higher by more than 0.02 than with Additive."""
        way = "lower" if lower_is_better(self.measure) else "higher"
        return (
            f"With {self.names[0]} the {CLAIMED[self.measure]} is {way} by more than {self.bound:g} than with "
            f"{self.names[1]}."
        )

    @property
    def key(self) -> str:
        """A key of the names, in small letters and digits."""
        return re.sub(r"[^a-z0-9]+", "_", f"my {self.sweep.axis} {' '.join(self.names)}".lower())[
            :60
        ].strip("_")

    def file(self) -> str:
        """The claim as the text of a plug-in."""
        pair = zip(*(self.sweep.combinations[at] for at in (self.first, self.second)), strict=True)
        values: dict[str, Any] = dict(zip(("values", "second_values"), pair, strict=False))
        sweep = replace(self.sweep, **values, paired=bool(self.sweep.second))
        sign = -1 if lower_is_better(self.measure) else 1
        return TEMPLATE.substitute(
            key=self.key,
            names=repr(self.names),
            measure=repr(self.measure),
            name=repr(CLAIMED[self.measure]),
            bound=repr(float(self.bound)),
            statement=repr(self.statement),
            author=repr(self.author),
            sign=sign,
            sweep=repr(json.dumps(sweep.to_json())),
            year=time.gmtime().tm_year,
            unit=(unit := MEASURES[self.measure]),
            difference={"share": "gain", "score": "score gain", "positive": "number"}[unit],
            tried=repr(
                f"A sweep of {len(self.sweep.names)} values from the seeds "
                f"{', '.join(map(str, self.sweep.seeds))}, of which this claim was made."
            ),
        )


TEMPLATE = Template('''\
"""A claim made of a sweep. Put this file into the folder of ATTENTION_LAB_PLUGINS; Claims then has it."""

import json
from dataclasses import replace

from core.claims.base import Claim, Figure, Part, Pick, Source
from core.claims.catalogue import register_claim
from core.claims.experiment import trained
from core.entries import Param
from core.training.config import BOUNDS
from core.training.sweeps import SweepConfig

SWEEP = SweepConfig.from_json(json.loads($sweep))
NAMES = $names  # of its two values
MEASURE, NAME = $measure, $name
BOUND = $bound  # written before any run: the difference must lie above it
NEW_SEEDS = 1000  # the sweep had the seeds below; a claim is tested on others
STEPS = () if SWEEP.equal == "seconds" else (
    Param("steps", "Training steps", default=SWEEP.base.steps, low=int(BOUNDS["steps"][0]), high=int(BOUNDS["steps"][1]),
          step=1, meaning="how long each model is trained"),)


def measure(condition, seed, settings, stop):
    """The measure of one value of the sweep, trained from a seed that the sweep had not."""
    config = SWEEP.run(NAMES.index(condition), NEW_SEEDS + seed)
    if STEPS:
        config = replace(config, steps=settings["steps"])
    yield MEASURE, getattr(trained(config, seed + NEW_SEEDS, stop).last, MEASURE), None


def difference(seed):
    """How much better the first value is than the second."""
    return $sign * (seed.one(NAMES[0], MEASURE) - seed.one(NAMES[1], MEASURE))


def answer(results):
    first, second = (results.mean(name, MEASURE) for name in NAMES)
    return 0 if $sign * (first - second) > BOUND else 1 if $sign * (second - first) > BOUND else 2


register_claim(Claim(
    key="$key",
    name=f"{NAMES[0]} against {NAMES[1]}",
    subject="Your own",
    statement=$statement,
    source=Source($author, $statement, $year, ""),
    refutation=f"The whole interval of the difference lies below {BOUND:g}.",
    guess=Pick(f"Which value is better by more than {BOUND:g}?", (*NAMES, "Neither"), answer),
    settings=STEPS,
    conditions=lambda settings: NAMES,
    measure=measure,
    parts=(Part($statement, difference, f"difference of the {NAME}", low=BOUND, unit="$difference", resolution=1e-6),),
    figures=(Figure(NAME[0].upper() + NAME[1:], MEASURE, unit="$unit"),),
    limits="One task, one size of model, and the settings of one sweep.",
    tried=$tried,
    no_published="This claim was made here.",
))
''')
