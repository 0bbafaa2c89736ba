"""Claim: a statement about attention as an experiment in one file, from its source to results and verdict."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from core.entries import Param, Value, filled
from core.serialization import Count, Finite, read
from core.training.seed_stats import LEVEL, SeedStats, mean_interval as interval, seed_stats

Key = tuple[str, str, float | None]  # condition, measure, x


@dataclass(frozen=True)
class CellResult:
    """The numbers of one condition and one seed: (measure, value, x or None), and the seconds of a core they took."""

    condition: str
    seed: Count
    seconds: Finite
    values: tuple[tuple[str, Finite, Finite | None], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "condition": self.condition,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
            "values": [[measure, float(f"{value:.6g}"), x] for measure, value, x in self.values],
        }

    @classmethod
    def from_json(cls, data: object) -> "CellResult":
        """The cell in a line of a file; ConfigError for anything else."""
        return read(data, cls, "A cell")


class SeedValues(dict[Key, float]):
    """The numbers of one seed, of all conditions."""

    def one(self, condition: str, measure: str, x: float | None = None) -> float:
        """One number; KeyError where it was not measured."""
        return self[condition, measure, x]

    def curve(self, condition: str, measure: str) -> dict[float, float]:
        """A measure over x, in the order of x."""
        places = sorted(
            x for of, name, x in self if (of, name) == (condition, measure) and x is not None
        )
        return {x: self[condition, measure, x] for x in places}


@dataclass(frozen=True)
class Results:
    """The cells so far, in any order."""

    cells: tuple[CellResult, ...]

    @cached_property
    def by_seed(self) -> dict[int, SeedValues]:
        """The numbers of each seed, in the order of the seeds."""
        by_seed = {seed: SeedValues() for seed in sorted({cell.seed for cell in self.cells})}
        for cell in self.cells:
            by_seed[cell.seed].update(
                {(cell.condition, name, x): value for name, value, x in cell.values}
            )
        return by_seed

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.by_seed)

    def complete(self, conditions: Sequence[str]) -> "Results":
        """Only the seeds that have all conditions: those that can be paired."""
        measured = {(cell.seed, cell.condition) for cell in self.cells}
        done = [seed for seed in self.seeds if measured >= {(seed, one) for one in conditions}]
        return Results(tuple(cell for cell in self.cells if cell.seed in done))

    def values(self, condition: str, measure: str, x: float | None = None) -> list[float]:
        """One number of every seed that has it, in the order of the seeds."""
        place = condition, measure, x
        return [seed[place] for seed in self.by_seed.values() if place in seed]

    def mean(self, condition: str, measure: str, x: float | None = None) -> float:
        """One number, averaged over the seeds that have it; ZeroDivisionError where none has."""
        values = self.values(condition, measure, x)
        return sum(values) / len(values)

    def mean_of(self, quantity: "Quantity") -> float:
        """A quantity of one seed, averaged over the seeds."""
        return sum(map(quantity, self.by_seed.values())) / len(self.seeds)

    def xs(self, condition: str, measure: str) -> list[float]:
        """Where a measure's curve was measured."""
        return sorted({x for seed in self.by_seed.values() for x in seed.curve(condition, measure)})


Quantity = Callable[[SeedValues], float]
Place = tuple[str, str] | tuple[str, str, float | None]  # condition, measure and, of a curve, x


def difference(first: Place, second: Place) -> Quantity:
    """The quantity of a seed that is one number less another."""
    return lambda seed: seed.one(*first) - seed.one(*second)


def ratio(first: Place, second: Place) -> Quantity:
    """The quantity of a seed that is one number over another."""
    return lambda seed: seed.one(*first) / seed.one(*second)


def first_below(quantity: Quantity, *limits: float) -> Callable[[Results], int]:
    """The answer of a Pick whose options go up: the first limit that the mean lies below, or the last option."""
    return lambda results: sum(results.mean_of(quantity) >= limit for limit in limits)


def first_above(quantity: Quantity, *limits: float) -> Callable[[Results], int]:
    """The answer of a Pick whose options go down: the first limit that the mean lies above, or the last option."""
    return lambda results: sum(results.mean_of(quantity) <= limit for limit in limits)


Stop = Callable[[], bool]
ClaimSettings = Mapping[str, Value]
# a measure, its value, and the x where the measure is a curve
Number = tuple[str, float, float | None]
MIN_SEEDS = 5  # of a verdict
# a claim has its default
SEEDS = Param(
    "seeds",
    "Seeds",
    default=MIN_SEEDS,
    low=2,
    high=20,
    step=1,
    meaning="how many times everything is repeated with other "
    f"random numbers; the interval is over them, a verdict needs {MIN_SEEDS}",
)
LEARNED_SHARE = 0.8  # of the seeds, in which a model must have learned


@dataclass(frozen=True)
class Source:
    """The work that made the claim; `authors` as BibTeX writes them ("Last, First and …"), `part` the section."""

    authors: str
    title: str
    year: int
    url: str
    part: str = ""

    @property
    def text(self) -> str:
        """Such as: Vaswani et al. 2017, section 3.2.1; with the authors' last names, of more than two the first."""
        last = [author.split(",")[0].strip() for author in self.authors.split(" and ")]
        names = f"{last[0]} et al." if len(last) > 2 else " and ".join(last)
        return f"{names} {self.year}{f', {self.part}' if self.part else ''}"

    @property
    def bibtex(self) -> str:
        url = f"  url = {{{self.url}}},\n" if self.url else ""
        key = f"{self.authors.split(',')[0].lower()}{self.year}"
        return (
            f"@misc{{{key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  year = {{{self.year}}},\n{url}}}\n"
        )


@dataclass(frozen=True, kw_only=True)
class Published:
    """Figures of a paper, shown as the paper's beside ours: the table's place, its columns and rows, its setting."""

    place: str
    url: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    setting: str


@dataclass(frozen=True)
class Learned:
    """When models have learned: `measure` (at x, or at the end of its curve) is at least `low` and at most `high`.

    It must in LEARNED_SHARE of the seeds, for each of `conditions`, or where none is named for at least one condition.
    """

    measure: str
    low: float = -math.inf
    high: float = math.inf
    x: float | None = None
    conditions: tuple[str, ...] = ()
    unit: str = "share"

    def lacking(
        self, seeds: Sequence[SeedValues], conditions: Sequence[str]
    ) -> tuple[str, int] | None:
        """The condition that keeps the models from having learned, and in how many seeds it has; None where they have.

        Without named conditions it is the one that learned in most seeds.
        """

        def reached(seed: SeedValues, condition: str) -> bool:
            end = (
                max(seed.curve(condition, self.measure), default=None) if self.x is None else self.x
            )
            return self.low <= seed.get((condition, self.measure, end), math.nan) <= self.high

        counts = {
            condition: sum(reached(seed, condition) for seed in seeds)
            for condition in self.conditions or conditions
        }
        condition = (min if self.conditions else max)(counts, key=lambda one: counts[one])
        return (
            None
            if counts[condition] >= LEARNED_SHARE * len(seeds)
            else (condition, counts[condition])
        )


@dataclass(frozen=True)
class Part:
    """One testable statement of a claim: a quantity of each seed, and where its mean must lie.

    It holds where the whole interval of the mean lies between `low` and `high`, is refuted where the whole interval
    lies outside, and cannot be told in between; nor where the models have not `learned`, nor where the task leaves no
    `room` for it: where the largest value that the quantity could take in these seeds lies below `low`. `unit` is a key
    of core.training.seed_stats.UNITS: "share" (0 to 1), "gain" (a difference of shares), "times" (a ratio),
    "correlation", "positive", "score" (0 to 100), "seeds" (0 or 1 in each seed) or "number". `resolution` is the
    smallest standard deviation that is believed, such as that of one held-out item. `note` is what a reader has to know
    where it is refuted.
    """

    statement: str
    quantity: Quantity
    name: str
    _: KW_ONLY
    low: float = -math.inf
    high: float = math.inf
    unit: str = "number"
    resolution: float = 0.0
    learned: Learned | None = None
    room: Quantity | None = None
    note: str = ""


@dataclass(frozen=True)
class Pick:
    """A guess among options; `answer` computes the right one from the results."""

    question: str
    options: tuple[str, ...]
    answer: Callable[[Results], int]


@dataclass(frozen=True)
class Sketch:
    """A guess drawn as a line: the measure of one condition at each x of its curve, between `low` and `high`."""

    question: str
    measure: str
    condition: str
    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """How a measure is drawn: a line over x for each condition, or without `x` a mark a condition, with intervals.

    `log` names the logarithmic axes: "", "x", "y" or "xy".
    """

    title: str
    measure: str
    _: KW_ONLY
    x: str = ""
    unit: str = "number"
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim. `conditions` are compared; `measure` gives the numbers of one condition and one seed.

    `measure(condition, seed, settings, stop)` yields (measure, value, x or None) and ends early, with Stopped or by
    returning, once `stop()` is true. `timed` claims measure seconds, so their conditions never run side by side.
    `refutation` and `parts` are written before any run; `tried` lists all settings that were run before the shipped
    ones, and what they gave. `scope` says in what models it was measured, as the verdict does: "in models of …".
    """

    key: str
    name: str
    subject: str
    statement: str
    source: Source
    refutation: str
    guess: Pick | Sketch
    settings: tuple[Param, ...]
    conditions: Callable[[ClaimSettings], tuple[str, ...]]
    measure: Callable[[str, int, ClaimSettings, Stop], Iterable[Number]]
    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]
    limits: str
    tried: str
    published: tuple[Published, ...] = ()
    no_published: str = ""  # said where the source prints no figure
    timed: bool = False
    seeds: int = MIN_SEEDS
    scope: str = ""

    @property
    def params(self) -> tuple[Param, ...]:
        """All settings, the number of seeds first."""
        return replace(SEEDS, default=self.seeds), *self.settings

    def settle(self, values: Mapping[str, object] | None = None) -> dict[str, Value]:
        """All settings by key, the defaults where `values` has none; ConfigError for an unknown or invalid one."""
        return filled(self.params, values or {}, f"claim = {self.key}", "setting ")


State = Literal["holds", "holds in part", "does not hold", "cannot be told here"]
Outcome = Literal["holds", "refuted", "cannot be told"]


@dataclass(frozen=True)
class Effect:
    """A part's quantity over the seeds: its mean, the interval of the mean, and what follows for the statement.

    Where the interval says nothing yet, `reason` says why: too few seeds, models that have not learned, no room. Of a
    refuted part it is the part's note.
    """

    part: Part
    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    state: State
    effects: tuple[Effect, ...]

    @property
    def reasons(self) -> str:
        """Why parts cannot be told, and notes on refuted ones, a sentence each after a space; often empty."""
        reasons = dict.fromkeys(effect.reason for effect in self.effects if effect.reason)
        return "".join(f" {reason[0].upper()}{reason[1:]}." for reason in reasons)


def verdict(claim: Claim, settings: ClaimSettings, results: Results) -> Verdict:
    """The verdict on a claim from the seeds that have every condition.

    Intervals (core.training.seed_stats.interval) are paired by seed where a quantity is a difference or a ratio, and
    cover all parts together: 95 % after Bonferroni's correction for their number.
    """
    conditions = claim.conditions(settings)
    seeds = [*results.complete(conditions).by_seed.values()]
    effects = tuple(
        effect(
            part,
            [part.quantity(seed) for seed in seeds],
            LEVEL / len(claim.parts),
            why_not(part, seeds, conditions),
        )
        for part in claim.parts
    )
    return Verdict(combine([each.outcome for each in effects]), effects)


@dataclass(frozen=True, eq=False)
class ClaimResult:
    """Results of a claim, with the settings that they were measured with."""

    claim: Claim
    settings: ClaimSettings
    results: Results

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.claim, self.settings, self.results)

    @property
    def conditions(self) -> tuple[str, ...]:
        return self.claim.conditions(self.settings)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that have every condition."""
        return self.results.complete(self.conditions).seeds

    def stats(self, condition: str, figure: Figure, x: float | None = None) -> SeedStats | None:
        """A figure's measure over the seeds that have it; None before the first."""
        return seed_stats(self.results.values(condition, figure.measure, x), figure.unit)


def judge(result: ClaimResult) -> Verdict:
    """The verdict on a claim by the mean of each of its parts over the seeds, and by its interval."""
    return result.verdict


def effect(part: Part, values: Sequence[float], level: float, reason: str = "") -> Effect:
    """The mean of a quantity, its interval, and the outcome; it cannot be told where there is a `reason`."""
    measured = interval(values, part.unit, level, part.resolution)
    if measured is None:
        reason = reason or "a value is no finite number within the bounds of its unit"
        return Effect(part, tuple(values), math.nan, -math.inf, math.inf, "cannot be told", reason)
    result: Outcome = "cannot be told" if reason else outcome(part, measured.low, measured.high)
    return Effect(
        part, tuple(values), *measured, result, reason or part.note * (result == "refuted")
    )


def why_not(part: Part, seeds: Sequence[SeedValues], conditions: Sequence[str]) -> str:
    """Why an interval says nothing of a statement; empty where it does."""
    if len(seeds) < MIN_SEEDS:
        return f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'} of the {MIN_SEEDS} that a verdict needs"
    if part.learned and (lacking := part.learned.lacking(seeds, conditions)):
        condition, count = lacking
        return (
            f"the models have not learned: {criterion(part.learned)} in {count} of {len(seeds)} seeds of "
            f"{condition}{'' if part.learned.conditions else ', the best'}"
        )
    if part.room is not None and (room := sum(map(part.room, seeds)) / len(seeds)) < part.low:
        return f"the task leaves no room: {part.name} could be {written(room, part.unit)} at most"
    return ""


def verdict_line(claim: Claim, judged: Verdict, seeds: int) -> str:
    """Such as: Verdict: holds in part, over 5 seeds, in models of d_model 64 with 2 layers."""
    scope = f", {claim.scope}" if claim.scope else ""
    return f"Verdict: {judged.state}, over {seeds} seeds{scope}.{judged.reasons}"


def rule_lines(claim: Claim) -> list[str]:
    """When the models of a claim count as having learned, a sentence a criterion."""
    return [
        f"The models count as trained if {criterion(one)} in at least {100 * LEARNED_SHARE:.0f} % of the seeds of "
        f"{' and of '.join(one.conditions) or 'at least one condition'}."
        for one in dict.fromkeys(part.learned for part in claim.parts)
        if one is not None
    ]


def criterion(learned: Learned) -> str:
    """Such as: accuracy on recall is at least 95 %."""
    at = "" if learned.x is None else f" at {learned.x:g}"
    low, high = (
        math.isfinite(end) and written(end, learned.unit) for end in (learned.low, learned.high)
    )
    bounds = " and ".join([f"at least {low}"] * bool(low) + [f"at most {high}"] * bool(high))
    first, name = learned.measure[:2], learned.measure
    return f"{name if first.isupper() else name[0].lower() + name[1:]}{at} is {bounds}"


def written(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit in ("share", "gain", "seeds") else f"{value:.3g}"


def outcome(part: Part, low: float, high: float) -> Outcome:
    """What an interval says of a statement."""
    if part.low <= low and high <= part.high:
        return "holds"
    return "refuted" if high < part.low or low > part.high else "cannot be told"


def combine(outcomes: Sequence[Outcome]) -> State:
    """All parts hold; some do; none does and one is refuted; or nothing can be told."""
    if all(one == "holds" for one in outcomes):
        return "holds"
    if "holds" in outcomes:
        return "holds in part"
    return "does not hold" if "refuted" in outcomes else "cannot be told here"


VASWANI = Source(
    authors="Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and "
    "Gomez, Aidan N. and Kaiser, Łukasz and Polosukhin, Illia",
    title="Attention Is All You Need",
    year=2017,
    url="https://arxiv.org/abs/1706.03762",
)
