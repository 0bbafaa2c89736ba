"""The settings in which runs differ, what each reached, and the measured sentence, as text; makes no st call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.training.config import RunConfig
from dashboard.draw.formats import duration, number, percent, score
from dashboard.views.compare_runs.compute import ComparedRun, Measure, Value, expected, latest
from dashboard.widgets.panels import plain

MISSING = "–"
LONGEST = 40
REPEATED = tuple(
    f"model.attention.{name}" for name in ("d_model", "num_heads", "dropout")
)  # the model's own


def settings(config: RunConfig) -> dict[str, str]:
    """Every setting of a run by its name, such as model.attention.score."""
    return dict(_flat(config.to_json(), ""))


def _flat(data: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(data, dict):
        return [
            pair
            for key, value in data.items()
            for pair in _flat(value, name if key == "key" else f"{name}.{key}".lstrip("."))
        ]
    if isinstance(data, list):
        return [
            pair for index, value in enumerate(data) for pair in _flat(value, f"{name}.{index + 1}")
        ]
    text = (
        {None: "none", True: "yes", False: "no"}.get(data, str(data))
        if not isinstance(data, float | int) or isinstance(data, bool)
        else f"{data:g}"
    )
    return [
        (name.replace(".params.", "."), text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
    ]


def differences(sides: Sequence[ComparedRun]) -> tuple[list[list[str]], int]:
    """A row for each setting in which the runs differ, and how many they share."""
    settings_by_run = [settings(side.data.required_config) for side in sides]
    names = [
        name
        for name in dict.fromkeys(name for each in settings_by_run for name in each)
        if name not in REPEATED
    ]
    rows = [
        [name.removeprefix("model."), *(each.get(name, MISSING) for each in settings_by_run)]
        for name in names
    ]
    different = [row for row in rows if len(set(row[1:])) > 1]
    return different, len(rows) - len(different)


VALUES: tuple[tuple[str, Value, Callable[[float], str]], ...] = (
    ("loss", lambda r: r.loss, number),
    ("accuracy", lambda r: r.exact, percent),
    ("BLEU", lambda r: r.bleu, score),
    ("chrF", lambda r: r.chrf, score),
    ("error", lambda r: r.error, percent),
)
HEAD = (
    "run",
    "parameters",
    "steps",
    "training",
    *(name for name, _, _ in VALUES),
    "expected weight",
    "tokens/s",
)


def results(
    sides: Sequence[ComparedRun], parameters: Sequence[int | None]
) -> tuple[list[str], list[list[str]]]:
    """A row a run with what it reached; a measure that none of them has is left out."""
    rows = [_row(side, count) for side, count in zip(sides, parameters, strict=True)]
    columns = [i for i in range(len(HEAD)) if i < 5 or any(row[i] != MISSING for row in rows)]
    return [HEAD[i] for i in columns], [[row[i] for i in columns] for row in rows]


def _row(side: ComparedRun, parameters: int | None) -> list[str]:
    def last(value: Value) -> float | None:
        return latest(side.records, value, lambda _: True)

    weight, even, speed = (
        last(expected),
        last(lambda r: r.even),
        last(lambda r: r.tokens_per_second),
    )
    end = side.records[-1] if side.records else None
    return [
        side.name,
        MISSING if parameters is None else f"{parameters:,}",
        f"{end.step:,}" if end else MISSING,
        duration(end.trained) if end else MISSING,
        *(
            MISSING if (reached := last(value)) is None else write(reached)
            for _, value, write in VALUES
        ),
        MISSING if weight is None or even is None else f"{number(weight)} (uniform {number(even)})",
        MISSING if not speed else f"{speed:,.0f}",
    ]


def _value_text(value: float | None, measure: Measure) -> str:
    if value is None:
        return "no measurement"
    return (
        percent(value)
        if measure.share
        else score(value)
        if measure.key in ("bleu", "chrf")
        else number(value)
    )


def fact(sides: Sequence[ComparedRun], measure: Measure, step: int) -> str:
    """The value of each run at equal steps, and at equal seconds of training."""
    sides = [side for side in sides if side.records]
    if len(sides) < 2:
        return "Only one of these runs has measurements yet."
    seconds = min(side.records[-1].trained for side in sides)
    by_step = [
        _value_text(latest(side.records, measure.value, lambda r: r.step <= step), measure)
        for side in sides
    ]
    by_time = [
        _value_text(latest(side.records, measure.value, lambda r: r.trained <= seconds), measure)
        for side in sides
    ]
    at_step = ", ".join(
        f"**{value}** for {plain(side.name)}" for side, value in zip(sides, by_step, strict=True)
    )
    name = (
        measure.name[0].lower() + measure.name[1:]
        if measure.key not in ("bleu", "chrf")
        else measure.name
    )
    return (
        f"At step :primary[**{step:,}**], {name}: {at_step}. After {duration(seconds)} of training, it is "
        f"{', '.join(by_time[:-1])} and {by_time[-1]}, in that order."
    )


def no_maps(others: Sequence[ComparedRun], some: bool) -> str:
    """Why `others` have no map; `some` runs have one."""
    if not some:
        return "None of these runs has saved attention maps."
    names = ", ".join(plain(side.name) for side in others)
    return f"No map of {names}: none is saved, or the run learns another task with other examples."


def conditions(step: int) -> str:
    """The conditions of the maps and the numbers."""
    return (
        f"Each map was saved at step {step:,}, or at the last step before it; the decoder reads the correct target "
        "(teacher forcing). Seconds count training only, on the machine of each run. Each side is one run, and "
        "results vary with the seed: use a sweep to test a small difference."
    )
