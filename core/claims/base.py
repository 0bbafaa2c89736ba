"""Claim: one statement about attention as an experiment, in one file: source, refutation, measurement and rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from core.claims.results import Results, SeedValues
from core.entries import ConfigError, Param, quote
from core.params import Value

Stop = Callable[[], bool]
ClaimSettings = Mapping[str, Value]
Number = tuple[str, float, float | None]  # a measure, its value, and the x where the measure is a curve
SEEDS = Param("seeds", "Seeds", 5, 2, 10, 1, meaning="how many times everything is repeated with other random numbers; "
              "the interval is over them")  # its default is the claim's


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
        return (f"@misc{{{key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
                f"  year = {{{self.year}}},\n{url}}}\n")


@dataclass(frozen=True)
class Published:
    """Figures of a paper, shown as the paper's beside ours: the table's place, its columns and rows, its setting."""

    place: str
    url: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    setting: str


@dataclass(frozen=True)
class Part:
    """One testable statement of a claim: a quantity of each seed, and where its mean must lie.

    It holds where the whole interval of the mean lies between `low` and `high`, is refuted where the whole interval
    lies outside, and cannot be told in between. `resolution` is the smallest standard deviation that is believed, such
    as that of one held-out item. `unit` says how the quantity is written: "share", "number" or "times" (a ratio).
    """

    statement: str
    quantity: Callable[[SeedValues], float]
    name: str
    low: float = -inf
    high: float = inf
    unit: str = "number"
    resolution: float = 0.0


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
    ones, and what they gave.
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
    seeds: int = 5

    @property
    def params(self) -> tuple[Param, ...]:
        """All settings, the number of seeds first."""
        return replace(SEEDS, default=self.seeds), *self.settings

    def settle(self, values: Mapping[str, object] | None = None) -> dict[str, Value]:
        """All settings by key, the defaults where `values` has none; ConfigError for an unknown or invalid one."""
        values, params = values or {}, {param.key: param for param in self.params}
        if unknown := sorted(set(values) - set(params)):
            raise ConfigError(f"The claim {self.key} has no setting {quote(unknown[0])}; it has {', '.join(params)}.")
        return {key: param.check(values.get(key, param.default), self.key)  # type: ignore[arg-type]
                for key, param in params.items()}
