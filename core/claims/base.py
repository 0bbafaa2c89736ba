"""Claim: one statement about attention as an experiment, in one file: source, refutation, measurement and rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from core.claims.results import Results, SeedValues
from core.entries import ConfigError, Param, quote
from core.params import Value

Stop = Callable[[], bool]
ClaimSettings = Mapping[str, Value]
Number = tuple[
    str, float, float | None
]  # a measure, its value, and the x where the measure is a curve
FEWEST_SEEDS = 5  # of a verdict
SEEDS = Param(
    "seeds",
    "Seeds",
    FEWEST_SEEDS,
    2,
    20,
    1,
    meaning="how many times everything is repeated with other "
    f"random numbers; the interval is over them, a verdict needs {FEWEST_SEEDS}",
)  # a claim has its default
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
    def names(self) -> str:
        """The authors as a text cites them: one, two, or the first et al."""
        last = [author.split(",")[0].strip() for author in self.authors.split(" and ")]
        return f"{last[0]} et al." if len(last) > 2 else " and ".join(last)

    @property
    def text(self) -> str:
        """Such as: Vaswani et al. 2017, section 3.2.1."""
        return f"{self.names} {self.year}{f', {self.part}' if self.part else ''}"

    @property
    def bibtex(self) -> str:
        url = f"  url = {{{self.url}}},\n" if self.url else ""
        key = f"{self.authors.split(',')[0].lower()}{self.year}"
        return (
            f"@misc{{{key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  year = {{{self.year}}},\n{url}}}\n"
        )


@dataclass(frozen=True)
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
    low: float = -inf
    high: float = inf
    x: float | None = None
    conditions: tuple[str, ...] = ()
    unit: str = "share"

    def lacking(
        self, seeds: Sequence[SeedValues], conditions: Sequence[str]
    ) -> tuple[str, int] | None:
        """The condition that keeps the models from having learned, and in how many seeds it has; None where they have.

        Without named conditions it is the one that learned in most seeds.
        """
        counts = {
            condition: sum(self._reached(seed, condition) for seed in seeds)
            for condition in self.conditions or conditions
        }
        condition = (min if self.conditions else max)(counts, key=lambda one: counts[one])
        return (
            None
            if counts[condition] >= LEARNED_SHARE * len(seeds)
            else (condition, counts[condition])
        )

    def _reached(self, seed: SeedValues, condition: str) -> bool:
        value = seed.values.get((condition, self.measure, self.x))
        if value is None and self.x is None:
            value = next(reversed(seed.curve(condition, self.measure).values()), None)
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True)
class Part:
    """One testable statement of a claim: a quantity of each seed, and where its mean must lie.

    It holds where the whole interval of the mean lies between `low` and `high`, is refuted where the whole interval
    lies outside, and cannot be told in between; nor where the models have not `learned`, nor where the task leaves no
    `room` for it: where the largest value that the quantity could take in these seeds lies below `low`. `unit` is a key
    of core.training.seed_stats.UNITS: "share" (0 to 1), "gain" (a difference of shares), "times" (a ratio),
    "correlation", "positive", "score" (0 to 100), "seeds" (0 or 1 in each seed) or "number". `resolution` is the
    smallest standard deviation that is believed, such as that of one held-out item.
    """

    statement: str
    quantity: Callable[[SeedValues], float]
    name: str
    low: float = -inf
    high: float = inf
    unit: str = "number"
    resolution: float = 0.0
    learned: Learned | None = None
    room: Callable[[SeedValues], float] | None = None


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
    x: str = ""
    unit: str = "number"
    log: str = ""


@dataclass(frozen=True)
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
    seeds: int = FEWEST_SEEDS
    scope: str = ""

    @property
    def criteria(self) -> tuple[Learned, ...]:
        """When the models count as having learned, each criterion once."""
        return tuple(dict.fromkeys(part.learned for part in self.parts if part.learned is not None))

    @property
    def params(self) -> tuple[Param, ...]:
        """All settings, the number of seeds first."""
        return replace(SEEDS, default=self.seeds), *self.settings

    def settle(self, values: Mapping[str, object] | None = None) -> dict[str, Value]:
        """All settings by key, the defaults where `values` has none; ConfigError for an unknown or invalid one."""
        values, params = values or {}, {param.key: param for param in self.params}
        if unknown := sorted(set(values) - set(params)):
            raise ConfigError(
                f"The claim {self.key} has no setting {quote(unknown[0])}; it has {', '.join(params)}."
            )
        return {
            key: param.check(values.get(key, param.default), self.key)  # type: ignore[arg-type]
            for key, param in params.items()
        }
