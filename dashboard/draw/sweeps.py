"""Sweeps: its numbers as text, the verdict of their tests, its table and its sentences."""

from collections import Counter
from functools import partial
from math import isinf
from statistics import fmean

from core.models.base import RECURRENT
from core.runs.sweeps import Outcome, at_the_end, lower_is_better, measures
from core.studies.runs import SweepData
from core.tasks import METRICS
from core.training.seed_stats import Comparison, SeedStats
from core.training.sweeps import Cell, SweepConfig, name_of, value_text
from dashboard.draw.curves import Scale, lines, seeds
from dashboard.draw.figures import Spec, Theme
from dashboard.draw.formats import SPACE, about_duration, lower_name, number, plural, score, written
from dashboard.draw.picture_files import csv_file

SHARES = ("sequence_accuracy", "token_accuracy")  # shown in percent


TOP = {**dict.fromkeys((*SHARES, "bleu", "chrf"), 100.0), "expected": 1.0}


TENTHS = (*SHARES, "bleu", "chrf", "train_seconds")  # in which runs differ


def scaled(value: float, measure: str) -> float:
    return 100 * value if measure in SHARES else value


def places(measure: str, mean: float, width: float | None) -> int:
    """Decimal places that a number of this size and uncertainty can carry."""
    if measure in TENTHS:
        return 1 if width is None or width < 9.95 else 0
    return 3 if abs(mean) < 0.1 or (width is not None and width < 0.01) else 2


def plain_number(value: float, measure: str) -> str:
    """One value, of a share in percent: a loss or a weight by the rule of all pages, the others to the tenth."""
    return score(value) if measure in TENTHS else number(value)


def verdict(data: SweepData, measure: str, ranked: list[int]) -> str:
    """Which values the best differs from, by the tests of all pairs; `ranked` are the values' indices, best first."""
    tests, best = data.comparisons(measure), ranked[0]
    of_best = [each if each.first == best else each.swapped() for each in tests]
    pairs = {pair.second: pair for pair in of_best if pair.first == best}
    if not pairs:
        return ""
    equal = "which does not prove that they are equal"
    if len(ranked) == 2:
        (pair,) = pairs.values()
        return (
            f"The {'ratio' if pair.unit == 'times' else 'difference'} of "
            f"{_signed(pair.difference, pair, measure)} (95{SPACE}% interval {_interval(pair, measure)}, "
            f"{_probability(pair.p)}) is {'significant' if pair.significant else f'not significant, {equal}'}."
        )
    ahead, level = (
        [
            data.names[value]
            for value in ranked
            if value in pairs and pairs[value].significant == significant
        ]
        for significant in (True, False)
    )
    differs = f"**{data.names[best]}** differs significantly from {_join(ahead)}"
    if not level:
        return f"{differs}."
    if not ahead:
        ends = [scaled(end(data.stats(measure)[ranked[-1]].values), measure) for end in (min, max)]
        spread = " to ".join(map(number, ends))
        return (
            f"That may be chance: the seeds of {data.names[ranked[-1]]} reach from {spread}. No value differs from "
            f"{data.names[best]} by more than chance (all {len(tests)} pairs tested), {equal}."
        )
    return f"{differs}; no difference from {_join(level)} is significant, {equal}."


def _join(names: list[str]) -> str:
    return ", ".join([*names[:-2], " and ".join(names[-2:])])


def _probability(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".") if p < 0.9995 else "p = 1"


def _signed(value: float, pair: Comparison, measure: str) -> str:
    if isinf(value):
        return number(value)
    value = scaled(value, measure)
    if pair.unit == "times":
        return written(f"{number(value)}{SPACE}×", value)
    return written(f"{value:+.{places(measure, value, None)}f}".replace("-", "−"), value)


def _interval(pair: Comparison, measure: str) -> str:
    return written(
        f"{_signed(pair.low, pair, measure)} to {_signed(pair.high, pair, measure)}",
        {", low": scaled(pair.low, measure), ", high": scaled(pair.high, measure)},
    )


def pairs(data: SweepData, measure: str) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{data.names[each.first]} {each.sign} {data.names[each.second]}",
            _signed(each.difference, each, measure),
            _interval(each, measure),
            written(_probability(each.p).removeprefix("p = ").removeprefix("p "), each.p),
            written(f"{each.count}{'' if each.paired else ', unpaired'}", {"": each.count}),
            "significant" if each.significant else "not significant",
        ]
        for each in sorted(data.comparisons(measure), key=lambda pair: pair.p)
    ]
    ratio = any(each.unit == "times" for each in data.comparisons(measure))
    return ["pair", "ratio" if ratio else "difference", "95 % interval", "p", "n", "at 5 %"], rows


def measure_name(measure: str, data: SweepData) -> str:
    task = data.task()
    return {
        "sequence_accuracy": "accuracy" if task.form == "label" else "sequence accuracy",
        "token_accuracy": f"{task.unit} accuracy",
        "bleu": "BLEU",
        "chrf": "chrF",
        "loss": "validation loss",
        "error": "error",
        "expected": "expected weight",
        "train_seconds": "seconds",
    }.get(measure) or METRICS[measure].name


def figure_title(measure: str, data: SweepData) -> str:
    name = measure_name(measure, data) + (", %" if measure in SHARES else "")
    return {
        "error": "Error, relative to repeating the last season",
        "expected": "Weight on the expected position",
    }.get(measure, name[0].upper() + name[1:])


def number_text(stats: SeedStats, measure: str) -> str:
    """99.4 [98.7–99.7], the mean and its 95 % interval, with as many places as that can carry."""
    mean, ends = scaled(stats.mean, measure), [scaled(end, measure) for end in stats.interval or ()]
    digits = places(measure, mean, (ends[1] - ends[0]) / 2 if ends else None)
    interval = "–".join(f"{end:.{digits}f}" for end in ends)
    return written(
        f"{mean:.{digits}f}{interval and f'{SPACE}[{interval}]'}",
        {"": mean, **dict(zip((", low", ", high"), ends, strict=False))},
    )


def fact_text(data: SweepData, measure: str) -> str:
    stats = data.stats(measure)
    if len(stats) < 2 or min(len(s.values) for s in stats.values()) < 2:
        return (
            f"**{data.finished}** of {len(data.config.cells)} runs have finished. Values are compared when each "
            "has two finished seeds."
        )
    ranked = sorted(stats, key=lambda value: stats[value].mean)
    ranked = ranked if lower_is_better(measure) else ranked[::-1]
    unit = {
        "error": " of the error of repeating the last season",
        "expected": " of the weight on the expected position",
    }.get(measure, f"{f'{SPACE}%' if measure in SHARES else ''} {measure_name(measure, data)}")
    best, worst = (
        f"**{data.names[value]}** reaches **{number_text(stats[value], measure)}**"
        for value in (ranked[0], ranked[-1])
    )
    live = "Differences are tested when all runs have ended."
    tested = live if data.live else verdict(data, measure, ranked)
    return f"{best}{unit}, {worst}. {tested}".strip()


def caption_text(data: SweepData, measure: str, over: str) -> str:
    config, model = data.config, data.config.base.model
    held = max((outcome.held_out for outcome in data.outcomes.values()), default=0)
    equal = {
        "steps": f"{config.base.steps:,} steps",
        "seconds": f"{config.seconds:g}{SPACE}s of training",
    }
    what = f"{data.task().name}, {model.kind}, d_model {model.d_model}"
    if model.kind not in RECURRENT:
        what += f", {plural(model.num_heads, 'head')}, {plural(model.layers, 'layer')}"
    parts = [what, f"{equal[config.equal]} per run, {plural(len(config.seeds), 'seed')} per value"]
    if held:
        parts.append(f"{held:,} held-out items at the end")
    text = (
        f"{' · '.join(parts)}. Lines are means over seeds; bands reach from the lowest seed to the highest. At the top, "
        f"each mark is one seed and the bar, as the bracket in the text, is the 95 % confidence interval of the "
        f"mean (Student's t on a scale that keeps it within the bounds of the measure)."
    )
    if data.config.second and not data.config.paired:
        first, second = (name_of(axis, config.base.task) for axis in config.axes)
        text += (
            f" Each {lower_name(first)} is drawn and tested with its best {lower_name(second)}, which these seeds "
            "chose: on new ones it is a little worse. The table has all."
        )
        end = at_the_end(config, data.outcomes, measure)
        text += end and f" {end}"
    if data.config.early:
        text += " A run ends early where its loss no longer falls, or as its task is learned."
    if over == "train_seconds":
        text += " Over seconds, a line ends where the first of its seeds ends."
    return text


def table_text(data: SweepData, measure: str) -> tuple[list[str], list[list[str]]]:
    """All measures of each value; of two axes one measure, a row a value of the first and a column one of the second."""
    config = data.config
    if config.second and not config.paired:
        every, width = data.stats(measure, every=True), len(config.second_values)
        texts = [
            number_text(every[at], measure) if at in every else "–"
            for at in range(len(config.combinations))
        ]
        names = [value_text(config.axis, value) for value in config.values]
        columns = [value_text(config.second, value) for value in config.second_values]
        cells = [texts[at : at + width] for at in range(0, len(texts), width)]
        return [data.setting, *columns], [
            [name, *row] for name, row in zip(names, cells, strict=True)
        ]
    measures, total = data.measures(), len(data.config.seeds)
    if "sequence_accuracy" in measures:
        measures = [measure for measure in measures if measure != "token_accuracy"]
    stats = {measure: data.stats(measure) for measure in (*measures, "train_seconds")}
    head = [
        data.setting.lower() if data.setting.istitle() else data.setting,
        *(measure_name(m, data) + (" %" if m in SHARES else "") for m in stats),
        "seeds",
    ]
    rows = []
    for value, name in enumerate(data.names):
        states = Counter(outcome.state for outcome in data.outcomes_of(value))
        seeds = f"{states['finished']}{'' if states['finished'] >= total else f' of {total}'}"
        numbers = [
            number_text(each[value], measure) if value in each else "–"
            for measure, each in stats.items()
        ]
        failed = f", {states['failed']} failed" if states["failed"] else ""
        rows.append([name, *numbers, seeds + failed])
    return head, rows


def table_of(data: SweepData, measure: str) -> str:
    """What the numbers of the table are."""
    two = data.config.second and not data.config.paired
    return f"mean {measure_name(measure, data)}" if two else "mean"


def failures(data: SweepData) -> list[str]:
    return [
        f"{data.names[value]}, seed {seed}: {outcome.message}"
        for (value, seed), outcome in sorted(data.outcomes.items())
        if outcome.state == "failed"
    ]


def run_line(data: SweepData, cell: Cell, outcome: Outcome) -> str:
    measure = (data.measures() or ["loss"])[0]
    result = outcome.message or outcome.state
    if (last := outcome.last(measure)) is not None:
        shown = plain_number(scaled(last, measure), measure)
        result = f"{measure_name(measure, data)} {shown}{f'{SPACE}%' if measure in SHARES else ''}"
    return f"{data.names[cell[0]]}, seed {cell[1]}: {result}"


def progress(data: SweepData, workers: int) -> tuple[float, str]:
    """How far the sweep is, 0 to 1, and a line with the time left by the mean time of the finished runs."""
    count, outcomes = len(data.config.cells), data.outcomes.values()
    done = sum(_share(outcome, data.config) for outcome in outcomes)
    line = (
        f"{sum(outcome.ended for outcome in outcomes)} of {count} runs done, "
        f"{sum(o.state in ('starting', 'running') for o in outcomes)} training"
    )
    if took := [outcome.elapsed for outcome in outcomes if outcome.state == "finished"]:
        line += f", about {about_duration((count - done) * fmean(took) / workers)} left"
    return min(1.0, done / count), line


def _share(outcome: Outcome, config: SweepConfig) -> float:
    by_steps = config.equal == "steps"
    done = outcome.steps if by_steps else outcome.train_seconds
    if outcome.ended or not done:
        return float(outcome.ended)
    return min(1.0, done[-1] / (config.base.steps if by_steps else config.seconds))


def charts(data: SweepData, measure: str, over: str, theme: Theme) -> dict[str, tuple[Spec, str]]:
    """The lines over training, and the last value of every seed on the same scale, by their keys: spec and what it shows."""
    shown = data.compared(measure)
    names = [data.names[value] for value in shown]
    means = {shown.index(value): line for value, line in data.lines(measure, over).items()}
    ends = {shown.index(value): stats for value, stats in data.stats(measure).items()}
    if not means:
        return {}
    if measure in SHARES:
        means = {value: line.in_percent() for value, line in means.items()}
        ends = {value: stats.in_percent() for value, stats in ends.items()}
    extremes = [v for line in means.values() for v in (*line.low, *line.high)]
    if measure not in TOP:
        extremes += [stats.interval[1] for stats in ends.values() if stats.interval]
    scale, name = Scale.around(extremes, TOP.get(measure)), figure_title(measure, data)
    write, config = partial(plain_number, measure=measure), data.config
    # as far as each run goes, where that is equal over this axis
    last = {
        ("steps", "steps"): config.base.steps,
        ("train_seconds", "seconds"): config.seconds,
    }.get((over, config.equal), max(line.x[-1] for line in means.values()) or 1.0)
    x_title = "step" if over == "steps" else "seconds of training"
    drawn = {
        "sweeps:lines": (
            lines(name, x_title, last, names, means, scale, theme, write),
            f"{name} over training, a line each: {', '.join(names)}.",
        )
    }
    if ends:
        title = f"Final value of every seed: {lower_name(name)}"
        drawn["sweeps:seeds"] = (
            seeds(title, names, ends, scale, theme, write),
            f"Final {name} of every seed, by {data.setting}.",
        )
    return drawn


def numbers_csv(data: SweepData) -> bytes:
    return csv_file(
        [data.config.axis, "seed", "state", "steps", "trained_seconds", *measures()],
        [
            [
                data.names[value],
                seed,
                outcome.state,
                *(column[-1] if column else 0 for column in (outcome.steps, outcome.train_seconds)),
                *("" if (last := outcome.last(name)) is None else last for name in measures()),
            ]
            for (value, seed), outcome in sorted(data.outcomes.items())
        ],
    )


DRAW = {  # how a notebook draws the two pictures
    "sweeps:seeds": """
import altair as alt
import pandas as pd

rows = [(name, value) for name, each in numbers.seeds.items() for value in each]
alt.Chart(pd.DataFrame(rows, columns=["value", "measure"])).mark_tick().encode(x="measure", y="value")
""",
    "sweeps:lines": """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, mean in numbers.lines.items() for point in zip(mean.x, mean.mean)]
alt.Chart(pd.DataFrame(rows, columns=["value", "over", "measure"])).mark_line().encode(
    x="over", y="measure", color="value")
""",
}
HOW = r"""
$$
\bar x \pm t_{.975,\,n-1} \frac{s}{\sqrt n} \qquad d_i = x_i^{(a)} - x_i^{(b)} \qquad
t = \frac{\bar d}{s_d / \sqrt n}
$$

Every value is trained from the same seeds. The difference of two values is computed for each seed and tested by a
paired t test (Student 1908) over all $n$ seeds; losses and errors by the differences of their logarithms, shares on a
scale that ends at ±1. The p-values and the intervals of all pairs are corrected together (Bonferroni; Dunn 1961): if
all values are equal, the chance of claiming any difference is at most 5 %, and an interval leaves out no difference
exactly where p is below 5 %. If the differences of all seeds are equal, their standard deviation is taken as one
held-out item."""
