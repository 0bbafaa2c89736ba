"""Tested differences as text: the sentence, the table of pairs and the test; makes no st call."""

from __future__ import annotations

from math import isinf

from core.training.seed_stats import Comparison
from dashboard.draw.formats import number
from dashboard.views.sweeps.compute import SweepData
from dashboard.views.sweeps.units import NARROW, join, places, scaled

EQUAL = "which does not prove that they are equal"


def verdict(data: SweepData, measure: str, ranked: list[int]) -> str:
    """Which values the best differs from, by the tests of all pairs; `ranked` are the values' indices, best first."""
    tests, best = data.comparisons(measure), ranked[0]
    pairs = {
        pair.second: pair
        for each in tests
        if best in (each.first, each.second)
        for pair in [each if each.first == best else each.swapped()]
    }
    if not pairs:
        return ""
    if len(data.config.values) == 2:
        (pair,) = pairs.values()
        numbers = (
            f"{_signed(pair.difference, pair, measure)} (95{NARROW}% interval {_interval(pair, measure)}, "
            f"{_probability(pair.p)}, {_method(tests)})"
        )
        what = "ratio" if pair.unit == "times" else "difference"
        return f"The {what} of {numbers} is {'significant' if pair.significant else f'not significant, {EQUAL}'}."
    ahead = [data.names[value] for value in ranked if value in pairs and pairs[value].significant]
    level = [
        data.names[value] for value in ranked if value in pairs and not pairs[value].significant
    ]
    parts = [f"**{data.names[best]}** differs significantly from {join(ahead)}"] if ahead else []
    parts += (
        [
            f"no difference from {join(level) if ahead else 'any other value'} is significant, {EQUAL}"
        ]
        if level
        else []
    )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]} ({_method(tests)}, {len(tests)} pairs, Bonferroni's correction)."


def _method(tests: list[Comparison]) -> str:
    """The test and its number of seeds, such as paired t test, n = 3."""
    counts, paired = sorted({pair.count for pair in tests}), {pair.paired for pair in tests}
    name = (
        "paired and Welch's t tests"
        if len(paired) > 1
        else "paired t test"
        if True in paired
        else "Welch's t test"
    )
    return f"{name}, n = {counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'}"


def _probability(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".") if p < 0.9995 else "p = 1"


def _signed(value: float, pair: Comparison, measure: str) -> str:
    """A difference with its sign, or a ratio; ∞ where no test could be made."""
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    if pair.unit == "times":
        return f"{number(value)}{NARROW}×"
    value = scaled(value, measure)
    return f"{value:+.{places(measure, value, None)}f}".replace("-", "−")


def _interval(pair: Comparison, measure: str) -> str:
    return f"{_signed(pair.low, pair, measure)} to {_signed(pair.high, pair, measure)}"


def pairs(data: SweepData, measure: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows: every pair of values with its difference, interval, corrected p and seeds; smallest p first."""
    rows = [
        [
            f"{data.names[each.first]} {each.sign} {data.names[each.second]}",
            _signed(each.difference, each, measure),
            _interval(each, measure),
            _probability(each.p).removeprefix("p = ").removeprefix("p "),
            f"{each.count}" if each.paired else f"{each.count}, unpaired",
            "significant" if each.significant else "not significant",
        ]
        for each in sorted(data.comparisons(measure), key=lambda pair: pair.p)
    ]
    ratio = any(each.unit == "times" for each in data.comparisons(measure))
    return ["pair", "ratio" if ratio else "difference", "95 % interval", "p", "n", "at 5 %"], rows
