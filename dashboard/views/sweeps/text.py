"""The texts of the page Sweeps: names, numbers with intervals, the fact and the caption; makes no st call."""

from __future__ import annotations

from core.models.config import RECURRENT
from core.runs.sweeps import MEASURES, Outcome
from core.training.seed_stats import SeedStats
from core.training.sweeps import Cell, SweepConfig
from dashboard.draw.formats import about_duration
from dashboard.draw.picture_files import csv_file
from dashboard.views.sweeps.compute import LOWER_IS_BETTER, SweepData
from dashboard.views.sweeps.differences import verdict
from dashboard.views.sweeps.units import NARROW, SHARES, places, plain_number, scaled


def measure_name(measure: str, data: SweepData) -> str:
    """The name of a measure in a column."""
    task = data.task()
    return {
        "exact": "accuracy" if task.form == "label" else "sequence accuracy",
        "letters": f"{task.unit} accuracy",
        "bleu": "BLEU",
        "chrf": "chrF",
        "loss": "validation loss",
        "error": "error",
        "expected": "expected weight",
        "trained": "seconds",
    }[measure]


def figure_title(measure: str, data: SweepData) -> str:
    """The title of a measure's figure."""
    name = measure_name(measure, data)
    long = {
        "exact": f"{name}, %",
        "letters": f"{name}, %",
        "error": "error, relative to repeating the last season",
        "expected": "weight on the expected position",
    }.get(measure, name)
    return long[0].upper() + long[1:]


def number(stats: SeedStats, measure: str) -> str:
    """99.4 [98.7–99.7], the mean and its 95 % interval, with as many places as that can carry."""
    mean, ends = scaled(stats.mean, measure), [scaled(end, measure) for end in stats.interval or ()]
    digits = places(measure, mean, (ends[1] - ends[0]) / 2 if ends else None)
    written = f"{mean:.{digits}f}"
    return (
        f"{written}{NARROW}[{'–'.join(f'{end:.{digits}f}' for end in ends)}]" if ends else written
    )


def _unit(measure: str, data: SweepData) -> str:
    return {
        "exact": f"{NARROW}% {measure_name('exact', data)}",
        "bleu": " BLEU",
        "chrf": " chrF",
        "letters": f"{NARROW}% {data.task().unit} accuracy",
        "loss": " validation loss",
        "error": " of the error of repeating the last season",
        "expected": " of the weight on the expected position",
    }[measure]


def fact(data: SweepData, measure: str) -> str:
    """The best and the worst mean with intervals, which values differ significantly, and the widest range of seeds."""
    stats = {
        value: s
        for value in range(len(data.names))
        if (s := data.stats(value, measure)) is not None
    }
    if len(stats) < 2 or min(len(s.values) for s in stats.values()) < 2:
        return (
            f"**{data.finished}** of {len(data.config.cells)} runs have finished. Values are compared when each "
            "has two finished seeds."
        )
    ranked = sorted(
        stats, key=lambda value: stats[value].mean, reverse=measure not in LOWER_IS_BETTER
    )
    best, worst = ranked[0], ranked[-1]
    text = (
        f"**{data.names[best]}** reaches **{number(stats[best], measure)}**{_unit(measure, data)}, "
        f"**{data.names[worst]}** reaches **{number(stats[worst], measure)}**. "
    )
    text += "Differences are tested when all runs have ended. " if data.live else ""
    wide = max(ranked, key=lambda value: stats[value].high - stats[value].low)
    single = (
        f"The seeds of {data.names[wide]} range from {plain_number(stats[wide].low, measure)} to "
        f"{plain_number(stats[wide].high, measure)}."
        if stats[wide].high > stats[wide].low
        else ""
    )
    return f"{text}{verdict(data, measure, ranked)} {single}".replace("  ", " ").strip()


def caption(data: SweepData, over: str) -> str:
    """The conditions: task, model, length, seeds, and the parts of the figures."""
    config, task, model = data.config, data.task(), data.config.base.model
    held = max((outcome.held_out for outcome in data.outcomes.values()), default=0)
    equal = (
        f"{config.base.steps:,} steps"
        if config.equal == "steps"
        else f"{config.seconds:g}{NARROW}s of training"
    )
    sizes = f"d_model {model.d_model}"
    if model.kind not in RECURRENT:
        sizes += f", {_count(model.num_heads, 'head')}, {_count(model.layers, 'layer')}"
    parts = [
        f"{task.name}, {model.kind}, {sizes}",
        f"{equal} per run, {_count(len(config.seeds), 'seed')} per value",
        *[f"{held:,} held-out items at the end"] * bool(held),
    ]
    end = (
        " Over seconds, a line ends where the first of its seeds ends." if over == "trained" else ""
    )
    return (
        f"{' · '.join(parts)}. Lines are means over seeds; bands reach from the lowest seed to the highest. Below, "
        f"each mark is one seed and the bar, as the bracket in the text, is the 95 % confidence interval of the "
        f"mean (Student's t on a scale that keeps it within the bounds of the measure).{end}"
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def table(data: SweepData) -> tuple[list[str], list[list[str]]]:
    """Head and rows: each value, every measure with its 95 % interval, seconds, and how many seeds finished."""
    measures = data.measures()
    columns = [m for m in measures if m != "letters" or "exact" not in measures] + ["trained"]
    head = [
        data.setting.lower() if data.setting.istitle() else data.setting,
        *(measure_name(m, data) + (" %" if m in SHARES else "") for m in columns),
        "seeds",
    ]
    rows = [
        [
            name,
            *(
                "–" if (stats := data.stats(value, measure)) is None else number(stats, measure)
                for measure in columns
            ),
            _seeds(data, value),
        ]
        for value, name in enumerate(data.names)
    ]
    return head, rows


def _seeds(data: SweepData, value: int) -> str:
    """How many of a value's seeds finished, and how many failed."""
    states = [outcome.state for outcome in data.outcomes_of(value)]
    done, failed, total = states.count("finished"), states.count("failed"), len(data.config.seeds)
    return (f"{done}" if done == total else f"{done} of {total}") + (
        f", {failed} failed" if failed else ""
    )


def failures(data: SweepData) -> list[str]:
    """The message of each failed run."""
    return [
        f"{data.names[value]}, seed {seed}: {outcome.message}"
        for (value, seed), outcome in sorted(data.outcomes.items())
        if outcome.state == "failed"
    ]


def run_line(data: SweepData, cell: Cell, outcome: Outcome) -> str:
    """One run in a line: its value, its seed and its result."""
    measure = (data.measures() or ["loss"])[0]
    last, result = outcome.last(measure), outcome.message or outcome.state
    if last is not None:
        unit = f"{NARROW}%" if measure in SHARES else ""
        result = f"{measure_name(measure, data)} {plain_number(last, measure)}{unit}"
    return f"{data.names[cell[0]]}, seed {cell[1]}: {result}"


def progress(data: SweepData, workers: int) -> tuple[float, str]:
    """How far the sweep is, 0 to 1, and a line with the time left by the mean time of the finished runs."""
    count, outcomes = len(data.config.cells), data.outcomes.values()
    done = sum(_share(outcome, data.config) for outcome in outcomes)
    ended = sum(outcome.ended for outcome in outcomes)
    line = f"{ended} of {count} runs done, {sum(o.state in ('starting', 'running') for o in outcomes)} training"
    took = [outcome.elapsed for outcome in outcomes if outcome.state == "finished"]
    if took:
        seconds = (count - done) * sum(took) / len(took) / workers
        line += f", about {about_duration(seconds)} left"
    return min(1.0, done / count), line


def _share(outcome: Outcome, config: SweepConfig) -> float:
    """How much of a run is done, 0 to 1."""
    if outcome.ended or not outcome.steps:
        return float(outcome.ended)
    if config.equal == "steps":
        return min(1.0, outcome.steps[-1] / config.base.steps)
    return min(1.0, outcome.trained[-1] / config.seconds)


def ending(data: SweepData) -> str:
    """How an ended sweep ended."""
    count = len(data.config.cells)
    if data.finished == count:
        return f"All {count} runs have finished."
    return f"{data.finished} of {count} runs have finished. Their results are saved."


def numbers_csv(data: SweepData) -> bytes:
    """A row a run: value, seed, state, and its last numbers."""
    rows = []
    for (value, seed), outcome in sorted(data.outcomes.items()):
        numbers = ("" if (last := outcome.last(measure)) is None else last for measure in MEASURES)
        rows.append(
            [
                data.names[value],
                seed,
                outcome.state,
                outcome.steps[-1] if outcome.steps else 0,
                outcome.trained[-1] if outcome.trained else 0,
                *numbers,
            ]
        )
    return csv_file(
        [data.config.axis, "seed", "state", "steps", "trained_seconds", *MEASURES], rows
    )
