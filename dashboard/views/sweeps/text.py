"""What the Sweeps page says: names, numbers with their intervals, the fact, the caption; makes no st call."""

from __future__ import annotations

import csv
import io

from core.models.config import RECURRENT
from core.training.seed_stats import SeedStats
from core.training.sweep_files import MEASURES, Outcome
from core.training.sweeps import Cell, SweepConfig
from dashboard.views.sweeps.compute import HIGHER, SweepData
from dashboard.views.sweeps.differences import verdict
from dashboard.views.sweeps.units import NARROW, SHARES, places, plain_number, scaled


def measure_name(measure: str, data: SweepData) -> str:
    """A measure as a picker and a column call it."""
    task = data.task()
    return {"exact": f"whole {task.whole}", "letters": f"single {task.unit}s", "bleu": "BLEU", "chrf": "chrF",
            "loss": "held-out loss", "error": "error", "expected": "weight in place", "trained": "seconds"}[measure]


def figure_title(measure: str, data: SweepData) -> str:
    """A measure as a figure is headed."""
    name = measure_name(measure, data)
    long = {"exact": f"{name} right, %", "letters": f"{name} right, %", "error": "error, of repeating the last season",
            "expected": "weight on the expected position"}.get(measure, name)
    return long[0].upper() + long[1:]


def number(stats: SeedStats, measure: str) -> str:
    """99.4 ± 0.5, the mean and half of its 95 % interval, with as many places as that can carry."""
    mean, half = scaled(stats.mean, measure), stats.half_width
    digits = places(measure, mean, None if half is None else scaled(half, measure))
    if half is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f}{NARROW}±{NARROW}{scaled(half, measure):.{digits}f}"


def _unit(measure: str, data: SweepData) -> str:
    return {"exact": f"{NARROW}% of whole {data.task().whole} right", "bleu": " BLEU", "chrf": " chrF",
            "letters": f"{NARROW}% of single {data.task().unit}s right", "loss": " of held-out loss",
            "error": " of the error of repeating the last season", "expected": " of the weight in the right place"
            }[measure]


def fact(data: SweepData, measure: str) -> str:
    """The best and the worst mean with their intervals, which values differ significantly, and what one seed gave."""
    stats = {place: s for place in range(len(data.names)) if (s := data.spread(place, measure)) is not None}
    if len(stats) < 2 or min(len(s.values) for s in stats.values()) < 2:
        return (f"**{data.finished}** of {len(data.config.cells)} runs have finished. A value is compared once two "
                "of its seeds have, so that no lucky run is.")
    ranked = sorted(stats, key=lambda place: stats[place].mean, reverse=HIGHER[measure])
    best, worst = ranked[0], ranked[-1]
    text = (f"**{data.names[best]}** reaches **{number(stats[best], measure)}**{_unit(measure, data)}, "
            f"**{data.names[worst]}** **{number(stats[worst], measure)}**. ")
    text += "Differences are tested when all runs have ended. " if data.live else ""
    result = verdict(data, measure, ranked)
    wide = max(ranked, key=lambda place: stats[place].high - stats[place].low)
    alone = (f"A single run of {data.names[wide]} gave {plain_number(stats[wide].low, measure)}, another "
             f"{plain_number(stats[wide].high, measure)}." if stats[wide].high > stats[wide].low else "")
    return f"{text}{result} {alone}".replace("  ", " ").strip()


def caption(data: SweepData, over: str) -> str:
    """The conditions: task, model, how long, how many seeds, and what the figures draw."""
    config, task, model = data.config, data.task(), data.config.base.model
    held = max((outcome.held_out for outcome in data.outcomes.values()), default=0)
    equal = f"{config.base.steps:,} steps each" if config.equal == "steps" else f"{config.seconds:g} s of training each"
    sizes = f"d_model {model.d_model}"
    if model.kind not in RECURRENT:
        sizes += f", {_many(model.num_heads, 'head')}, {_many(model.layers, 'layer')}"
    parts = [f"{task.name}, {model.kind}, {sizes}", f"{equal}, {_many(len(config.seeds), 'seed')} a value",
             f"{held:,} held-out items at the end" if held else ""]
    drawn = ("Lines are means, bands reach from the worst seed to the best; below, a mark is one seed, the rule "
             "the 95 % interval of their mean (Student's t); ± is half of that interval.")
    if over == "trained":
        drawn += " Over seconds a line ends with the first of its seeds to end."
    return " · ".join(part for part in parts if part) + f". {drawn}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def table(data: SweepData) -> tuple[list[str], list[list[str]]]:
    """Head and rows: each value, every measure with its 95 % interval, seconds, and how many seeds finished."""
    measures = data.measures()
    columns = [m for m in measures if m != "letters" or "exact" not in measures] + ["trained"]
    head = [data.setting.lower() if data.setting.istitle() else data.setting,
            *(measure_name(m, data) + (" %" if m in SHARES else "") for m in columns), "seeds"]
    rows = []
    for place, name in enumerate(data.names):
        spreads = [data.spread(place, measure) for measure in columns]
        cells = ["–" if s is None else number(s, measure) for s, measure in zip(spreads, columns, strict=True)]
        rows.append([name, *cells, _seeds(data, place)])
    return head, rows


def _seeds(data: SweepData, place: int) -> str:
    """How many of a value's seeds finished, and how many failed."""
    states = [outcome.state for outcome in data.of(place)]
    done, failed, total = states.count("finished"), states.count("failed"), len(data.config.seeds)
    return (f"{done}" if done == total else f"{done} of {total}") + (f", {failed} failed" if failed else "")


def failures(data: SweepData) -> list[str]:
    """A sentence for each run that failed, with its own words."""
    return [f"{data.names[place]}, seed {seed}: {outcome.message}" for (place, seed), outcome in
            sorted(data.outcomes.items()) if outcome.state == "failed"]


def run_line(data: SweepData, cell: Cell, outcome: Outcome) -> str:
    """One run in a line: its value, its seed, what it came to."""
    measure = data.measures()[0] if data.measures() else "loss"
    last = outcome.last(measure)
    reached = outcome.message or outcome.state
    if last is not None:
        unit = f"{NARROW}%" if measure in SHARES else ""
        reached = f"{measure_name(measure, data)} {plain_number(last, measure)}{unit}"
    return f"{data.names[cell[0]]}, seed {cell[1]}: {reached}"


def progress(data: SweepData, workers: int) -> tuple[float, str]:
    """How far the whole sweep is, 0 to 1, and in words; what is left is judged by the runs that have finished."""
    count, outcomes = len(data.config.cells), data.outcomes.values()
    done = sum(_share(outcome, data.config) for outcome in outcomes)
    ended = sum(outcome.ended for outcome in outcomes)
    line = f"{ended} of {count} runs done, {sum(o.state in ('starting', 'running') for o in outcomes)} training"
    took = [outcome.elapsed for outcome in outcomes if outcome.state == "finished"]
    if took:
        seconds = (count - done) * sum(took) / len(took) / workers
        about = f"{max(1, round(seconds))}{NARROW}s" if seconds < 90 else f"{round(seconds / 60)}{NARROW}min"
        line += f", about {about} left"
    return min(1.0, done / count), line


def _share(outcome: Outcome, config: SweepConfig) -> float:
    """How much of a run is done."""
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
    return f"{data.finished} of {count} runs have finished; what was reached is kept."


def numbers_csv(data: SweepData) -> bytes:
    """Every run in a row: value, seed, how it ended, and its last numbers."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([data.config.axis, "seed", "state", "steps", "trained_seconds", *MEASURES])
    for (place, seed), outcome in sorted(data.outcomes.items()):
        last = [outcome.last(measure) for measure in MEASURES]
        writer.writerow([data.names[place], seed, outcome.state, outcome.steps[-1] if outcome.steps else 0,
                         outcome.trained[-1] if outcome.trained else 0,
                         *("" if value is None else value for value in last)])
    return out.getvalue().encode("utf-8")
