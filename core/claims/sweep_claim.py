"""A claim made of a sweep: a Python file that compares two of its values with new seeds, and works as a plug-in."""

import json
import re
import time
from dataclasses import dataclass, replace
from string import Template

from core.entries import quote, refuse_if
from core.runs.sweeps import MEASURES as UNITS
from core.training.sweeps import SweepConfig, value_text

MEASURES = {
    "sequence_accuracy": "share of whole answers",
    "token_accuracy": "share of single answers",
    "bleu": "BLEU",
    "chrf": "chrF",
    "loss": "validation loss",
    "error": "error",
}
LOWER_IS_BETTER = ("loss", "error")


@dataclass(frozen=True)
class SweepClaim:
    """That one value of a sweep is better than another by more than `bound`; ConfigError for what cannot be compared.

    `first` and `second` are indices of the sweep's values, `measure` a key of MEASURES; `bound` is in its unit.
    """

    sweep: SweepConfig
    first: int
    second: int
    measure: str
    bound: float
    author: str = "Reader"

    def __post_init__(self) -> None:
        refuse_if(
            self.measure not in MEASURES,
            f"measure = {quote(self.measure)}; take one of {', '.join(MEASURES)}.",
        )
        refuse_if(
            self.first == self.second
            or not {self.first, self.second} <= set(range(len(self.sweep.values))),
            "A claim compares two values of the sweep that differ.",
        )
        refuse_if(not self.bound >= 0, f"bound = {self.bound:g}; expected a number from 0.")

    @property
    def names(self) -> tuple[str, str]:
        axis, values = self.sweep.axis, self.sweep.values
        return value_text(axis, values[self.first]), value_text(axis, values[self.second])

    @property
    def statement(self) -> str:
        """Such as: with Dot product the share of whole answers is higher by more than 0.02 than with Additive."""
        way = "lower" if self.measure in LOWER_IS_BETTER else "higher"
        return (
            f"With {self.names[0]} the {MEASURES[self.measure]} is {way} by more than {self.bound:g} than with "
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
        sweep = replace(
            self.sweep, values=tuple(self.sweep.values[at] for at in (self.first, self.second))
        )
        sign = -1 if self.measure in LOWER_IS_BETTER else 1
        return TEMPLATE.substitute(
            key=self.key,
            names=repr(self.names),
            measure=repr(self.measure),
            name=repr(MEASURES[self.measure]),
            bound=repr(float(self.bound)),
            statement=repr(self.statement),
            author=repr(self.author),
            sign=sign,
            sweep=repr(json.dumps(sweep.to_json())),
            year=time.gmtime().tm_year,
            unit=(unit := UNITS[self.measure]),
            difference={"share": "gain", "score": "score gain", "positive": "number"}[unit],
            tried=repr(
                f"A sweep of {len(self.sweep.values)} values from the seeds "
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
    Param("steps", "Training steps", SWEEP.base.steps, *map(int, BOUNDS["steps"]), 1,
          meaning="how long each model is trained"),)


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
