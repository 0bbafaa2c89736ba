"""What the page says of several runs: how they differ, what each reached, and the measured sentence; no st call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.training.config import RunConfig
from dashboard.charts.numbers import duration, number, percent, score
from dashboard.views.compare_runs.charts import Measure
from dashboard.views.compare_runs.compute import ComparedRun, expected, latest
from dashboard.widgets.panels import plain

MISSING = "–"
LONGEST = 40
REPEATED = tuple(f"model.attention.{name}" for name in ("d_model", "num_heads", "dropout"))  # the model's own


def settings(config: RunConfig) -> dict[str, str]:
    """Every setting of a run by its name, such as model.attention.score."""
    return dict(_flat(config.to_json(), ""))


def _flat(data: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(data, dict):
        return [pair for key, value in data.items()
                for pair in _flat(value, name if key == "key" else f"{name}.{key}".lstrip("."))]
    text = {None: "none", True: "yes", False: "no"}.get(data, str(data)) if not isinstance(data, float | int) or \
        isinstance(data, bool) else f"{data:g}"
    return [(name.replace(".params.", "."), text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")]


def differences(sides: Sequence[ComparedRun]) -> tuple[list[list[str]], int]:
    """A row for each setting in which the runs differ, and how many they share."""
    settings_by_run = [settings(side.data.config) for side in sides]
    names = [name for name in dict.fromkeys(name for each in settings_by_run for name in each) if name not in REPEATED]
    rows = [[name.removeprefix("model."), *(each.get(name, MISSING) for each in settings_by_run)] for name in names]
    apart = [row for row in rows if len(set(row[1:])) > 1]
    return apart, len(rows) - len(apart)


HEAD = ("run", "parameters", "steps", "training", "loss", "exact", "BLEU", "chrF", "error",
        "expected place", "tokens/s")


def results(sides: Sequence[ComparedRun], parameters: Sequence[int | None]) -> tuple[list[str], list[list[str]]]:
    """A row a run with what it reached; a measure that none of them has is left out."""
    rows = [_row(side, count) for side, count in zip(sides, parameters, strict=True)]
    keep = [at for at in range(len(HEAD)) if at < 5 or any(row[at] != MISSING for row in rows)]
    return [HEAD[at] for at in keep], [[row[at] for at in keep] for row in rows]


def _row(side: ComparedRun, parameters: int | None) -> list[str]:
    def last(value: Any) -> float | None:
        return latest(side.records, value, lambda _: True)

    loss, exact = last(lambda r: r.loss), last(lambda r: r.exact)
    bleu, chrf, error = last(lambda r: r.bleu), last(lambda r: r.chrf), last(lambda r: r.error)
    place, even, speed = last(expected), last(lambda r: r.even), last(lambda r: r.tokens_per_second)
    end = side.records[-1] if side.records else None
    return [side.name, MISSING if parameters is None else f"{parameters:,}", f"{end.step:,}" if end else MISSING,
            duration(end.trained) if end else MISSING, MISSING if loss is None else number(loss),
            MISSING if exact is None else percent(exact), MISSING if bleu is None else score(bleu),
            MISSING if chrf is None else score(chrf),
            MISSING if error is None else percent(error),
            MISSING if place is None or even is None else f"{number(place)} (even {number(even)})",
            MISSING if not speed else f"{speed:,.0f}"]


def value_text(value: float | None, measure: Measure) -> str:
    if value is None:
        return "nothing measured"
    return percent(value) if measure.share else score(value) if measure.key in ("bleu", "chrf") else number(value)


def fact(sides: Sequence[ComparedRun], measure: Measure, step: int) -> str:
    """What each run has at equal steps, and at equal seconds of training."""
    able = [side for side in sides if side.records]
    if len(able) < 2:
        return "Only one of these runs has measured anything yet."
    seconds = min(side.records[-1].trained for side in able)
    by_step = [latest(side.records, measure.value, lambda r: r.step <= step) for side in able]
    by_time = [latest(side.records, measure.value, lambda r: r.trained <= seconds) for side in able]
    at_step, at_time = ([value_text(value, measure) for value in values] for values in (by_step, by_time))
    named = ", ".join(f"**{value}** for {plain(side.name)}" for side, value in zip(able, at_step, strict=True))
    same = ", ".join(at_time[:-1]) + f" and {at_time[-1]}"
    what = measure.name[0].lower() + measure.name[1:] if measure.key not in ("bleu", "chrf") else measure.name
    return (f"At step :primary[**{step:,}**], {what}: {named}. After the same {duration(seconds)} of training it is "
            f"{same}, in that order.")


def no_maps(others: Sequence[ComparedRun], some: bool) -> str:
    """Why some of the runs have no map beside the others."""
    names = ", ".join(plain(side.name) for side in others)
    if not some:
        return "None of these runs kept any attention to draw."
    return f"No map here of {names}: it kept none, or it learns another task and watches other examples."


def conditions(step: int) -> str:
    """What the maps and the numbers are of."""
    return (f"Each map is what a run kept at step {step:,}, or at its last step before; the right past is given. "
            "Seconds are of training alone, on the machine each run was trained on. One run a side: seeds differ, so "
            "take a sweep before you believe a small difference.")
