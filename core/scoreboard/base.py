"""A board: mechanisms, skills and how each is trained, all in one file; its cells, and what they say together."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import comb
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from core.attention.cost import ShapesOnly
from core.attention.text import pattern_from_text
from core.entries import ConfigError, quote, refuse_if
from core.models import ModelConfig, build_model
from core.models.base import Shape
from core.serialization import Count, Finite, check_types, read
from core.tasks import TaskConfig, task_of
from core.training import RunConfig
from core.training.seed_stats import LEVEL, Interval, mean_interval

SETTINGS = Path(__file__).with_name("settings.json")


@dataclass(frozen=True)
class Mechanism:
    """A row: attention as text (core.attention.text), with a semicolon between the layers of a pattern.

    `without` is the row that is the same but for its short convolution, "" where there is none.
    """

    key: str
    name: str
    attention: str
    without: str = ""


@dataclass(frozen=True)
class Skill:
    """A column: a task, and when it is learned: `measure` of a record reaches `passes` within `steps`.

    `published` is what a paper reports of the task, in its own setting.
    """

    key: str
    name: str
    task: dict[str, Any]
    measure: str
    passes: Finite
    steps: Count
    source: str
    published: str = ""

    @property
    def config(self) -> TaskConfig:
        return TaskConfig.from_json(self.task)


class Cell(NamedTuple):
    """One training: a mechanism, a skill, a learning rate and a seed."""

    mechanism: str
    skill: str
    rate: float
    seed: int


@dataclass(frozen=True)
class CellResult:
    """What one training gave. `id` is the checksum of all that decides it, `board` that of the settings.

    `value` is the skill's measure over 1,000 held-out sources at the end, `curve` that over 200 along the steps;
    `within` the share of whole sources no longer than those of training that are right, where longer ones are measured.
    `seconds` are of one core. `note` says why a training ended before its time.
    """

    mechanism: str
    skill: str
    rate: Finite
    seed: Count
    id: str
    board: str
    value: Finite
    steps: Count
    seconds: Finite
    curve: tuple[tuple[Count, Finite], ...]
    within: Finite | None = None
    note: str = ""

    @property
    def cell(self) -> Cell:
        return Cell(self.mechanism, self.skill, self.rate, self.seed)

    @classmethod
    def from_json(cls, data: object) -> "CellResult":
        """The result in a line of a file; ConfigError for anything else."""
        return read(data, cls, "A cell")


@dataclass(frozen=True)
class Board:
    """All that decides the numbers of a board, fixed before it is measured.

    `model` are fields of ModelConfig, `training` of RunConfig. A rate is chosen for each mechanism and skill on
    `rate_seeds`, and then judged on `seeds`, which are others.
    """

    model: dict[str, Any]
    training: dict[str, Any]
    rates: tuple[Finite, ...]
    rate_seeds: tuple[Count, ...]
    seeds: tuple[Count, ...]
    mechanisms: tuple[Mechanism, ...]
    skills: tuple[Skill, ...]
    reference: str = ""  # the attention by which all are made as large; without one the first row's

    def __post_init__(self) -> None:
        check_types(self)
        refuse_if(
            bool({*self.rate_seeds} & {*self.seeds}),
            "The seeds that choose a rate cannot judge it, too: give rate_seeds others than seeds.",
        )
        for rows in (self.mechanisms, self.skills):
            keys = [one.key for one in rows]
            refuse_if(len({*keys}) < len(keys), f"The keys {quote(keys)} must differ.")

    @cached_property
    def hash(self) -> str:
        """Of what decides a cell's numbers; which rows and columns there are does not."""
        return checksum([self.model, self.training, self.rates, self.rate_seeds, self.seeds])

    def mechanism(self, key: str) -> Mechanism:
        return one_of(self.mechanisms, key, "mechanism")

    def skill(self, key: str) -> Skill:
        return one_of(self.skills, key, "skill")

    def only(self, mechanisms: Iterable[str] = (), skills: Iterable[str] = ()) -> "Board":
        """The board of these rows and columns; without any, of all."""
        rows = tuple(map(self.mechanism, mechanisms)) or self.mechanisms
        columns = tuple(map(self.skill, skills)) or self.skills
        reference = self.reference or self.mechanisms[0].attention
        return replace(self, mechanisms=rows, skills=columns, reference=reference)

    def run(self, cell: Cell) -> RunConfig:
        """The training of a cell; every mechanism has as many parameters as the board's first one."""
        skill = self.skill(cell.skill)
        settings = {**self.training, "steps": skill.steps}
        settings.setdefault("record_every", max(1, skill.steps // 30))
        attention = self.mechanism(cell.mechanism).attention
        shape = task_of(skill.config).shape
        reference = self.reference or self.mechanisms[0].attention
        model = equal_model(attention, reference, shape, checkable(self.model))
        return RunConfig(
            skill.config,
            model,
            learning_rate=cell.rate,
            seed=cell.seed,
            num_examples=1,
            finish_early=False,
            device="cpu",
            **settings,
        )

    def id(self, cell: Cell) -> str:
        """The checksum of a cell's training and of when it has learned."""
        if cell not in self._ids:
            skill = self.skill(cell.skill)
            data = [self.run(cell).to_json(), skill.measure, skill.passes]
            self._ids[cell] = checksum(data)
        return self._ids[cell]

    @cached_property
    def _ids(self) -> dict[Cell, str]:
        """Those that were computed, a millisecond each."""
        return {}

    def trials(self, mechanism: str, skill: str) -> list[Cell]:
        """The trainings that choose the rate of one mechanism and skill."""
        return [Cell(mechanism, skill, *one) for one in product(self.rates, self.rate_seeds)]

    def pending(self, mechanism: str, skill: str, results: Mapping[Cell, CellResult]) -> list[Cell]:
        """What is left to train of one mechanism and skill: first each rate, then each seed at the best rate."""
        trials = self.trials(mechanism, skill)
        if left := [cell for cell in trials if cell not in results]:
            return left
        rate = best_rate([results[cell] for cell in trials])
        every = [Cell(mechanism, skill, rate, seed) for seed in self.seeds]
        return [cell for cell in every if cell not in results]

    def score(
        self, mechanism: str, skill: str, results: Mapping[Cell, CellResult]
    ) -> "Score | None":
        """What the cells so far say of one mechanism and skill; None before all rates were tried."""
        trials = self.trials(mechanism, skill)
        if not all(cell in results for cell in trials):
            return None
        tried = [results[cell] for cell in trials]
        rate, passes = best_rate(tried), self.skill(skill).passes
        cells = (results.get(Cell(mechanism, skill, rate, seed)) for seed in self.seeds)
        works = {one.rate for one in tried if one.value >= passes}
        return Score(rate, tuple(filter(None, cells)), passes, tuple(sorted(works)))


@dataclass(frozen=True)
class Score:
    """A cell of the matrix: the trainings at the chosen rate, one a seed, and the rates that worked."""

    rate: float
    results: tuple[CellResult, ...]
    passes: float
    rates: tuple[float, ...]

    @property
    def passed(self) -> int:
        """In how many seeds it was learned."""
        return sum(one.value >= self.passes for one in self.results)

    @property
    def share(self) -> Interval | None:
        """The share of seeds that learned it, with its exact interval (Clopper and Pearson 1934); None for one seed."""
        return mean_interval([float(one.value >= self.passes) for one in self.results], "seeds")

    @property
    def median(self) -> float:
        return median(one.value for one in self.results)

    @property
    def best(self) -> float:
        return max(one.value for one in self.results)


def best_rate(tried: Sequence[CellResult]) -> float:
    """The rate with the best median; of equals the one that needed the fewest steps."""
    by_rate: dict[float, list[CellResult]] = {}
    for one in tried:
        by_rate.setdefault(one.rate, []).append(one)
    return max(
        by_rate,
        key=lambda rate: (
            median(one.value for one in by_rate[rate]),
            -median(one.steps for one in by_rate[rate]),
        ),
    )


def differs(one: Score, other: Score, comparisons: int) -> bool:
    """Whether two shares differ beyond chance: Fisher's exact test, Bonferroni's correction for all comparisons."""
    # not by scipy.stats, of which a server would hold 20 MB, and wait a second for
    sizes, passed = (len(one.results), len(other.results)), one.passed + other.passed
    ways = [
        comb(sizes[0], k) * comb(sizes[1], passed - k)
        for k in range(max(0, passed - sizes[1]), min(sizes[0], passed) + 1)
    ]
    here = comb(sizes[0], one.passed) * comb(sizes[1], other.passed)
    return sum(way for way in ways if way <= here) / sum(ways) < LEVEL / comparisons


def one_of(rows: Iterable[Any], key: str, what: str) -> Any:
    """The row of that key; ConfigError lists those that there are."""
    known = {one.key: one for one in rows}
    if key not in known:
        raise ConfigError(f"{what} = {quote(key)}; expected one of {', '.join(known)}.")
    return known[key]


def checksum(data: object) -> str:
    """16 hexadecimal digits of the SHA-256 of a JSON value."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def checkable(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(settings.items()))


@lru_cache(maxsize=512)
def equal_model(
    attention: str, reference: str, shape: Shape, settings: tuple[tuple[str, Any], ...]
) -> ModelConfig:
    """The decoder with this attention whose feed-forward width makes it as large as the reference's, as near as it can."""
    model, like = (decoder(one, dict(settings)) for one in (attention, reference))
    wider = replace(model, d_ff=2 * model.d_ff)
    size, target, wide = (parameters(one, shape) for one in (model, like, wider))
    unit = (wide - size) / model.d_ff
    return replace(model, d_ff=max(1, round(model.d_ff + (target - size) / unit)))


def decoder(attention: str, settings: Mapping[str, Any]) -> ModelConfig:
    sizes = settings["d_model"], settings["num_heads"]
    first, *following = pattern_from_text(attention, sizes)
    values = {"kind": "decoder", **settings}
    return ModelConfig(attention=first, following=tuple(following), **values)


def parameters(model: ModelConfig, shape: Shape) -> int:
    with ShapesOnly():
        return sum(weight.numel() for weight in build_model(model, shape).parameters())


def read_board(path: Path = SETTINGS) -> Board:
    """The board in a file of settings; ConfigError for what is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path.name} is no file of settings: {error}.") from error
    return read(data, Board, "A board")


def plain(result: CellResult) -> dict[str, Any]:
    """A result as JSON values, its curve to three digits."""
    curve = [[step, float(f"{value:.3g}")] for step, value in result.curve]
    return asdict(replace(result, value=float(f"{result.value:.4g}"))) | {
        "seconds": round(result.seconds, 1),
        "curve": curve,
    }
