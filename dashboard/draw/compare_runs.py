"""Compare runs: its curves, its table of results, the settings that differ, and its measured sentence."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from core.models import count_parameters
from core.studies import runs as study
from dashboard.draw.attention_view import READS, Tile
from dashboard.draw.curves import Curve
from dashboard.draw.figures import Ink
from dashboard.draw.formats import (
    cut,
    duration,
    lower_name,
    number,
    percent,
    plain,
    plural,
    score,
    share_text,
    whole,
    written,
)
from dashboard.draw.runs import names_of
from dashboard.draw.train import reads


def lines(
    sides: Sequence[study.ComparedRun],
    curves: Mapping[str, np.ndarray],
    column: int,
    share: bool,
    ink: Ink,
) -> list[Curve]:
    """A line of each run's measure over that column of its curve; a `share` in percent."""
    factor = 100 if share else 1
    return [
        Curve(
            side.name,
            [
                (row[column], None if np.isnan(row[2]) else row[2] * factor)
                for row in curves[side.name].tolist()
            ],
            colour=ink.series[side.index % len(ink.series)],
            dash=side.index,
        )
        for side in sides
    ]


def tiles(maps: Sequence[study.RunMap]) -> list[Tile]:
    return [Tile(one.run.name, one.note, one.weights, None, one.run.index) for one in maps]


def labels_of(summaries: Sequence[study.RunSummary]) -> list[str]:
    """Names short enough to stand beside a curve, all different, without a task that all have in common."""
    names, tasks = list[str](), {item.task for item in summaries}
    for item in summaries:
        name = item.plain_name
        if len(tasks) == 1 and not item.named:
            name = name.removeprefix(f"{item.task}: ")
            name = name[:1].upper() + name[1:]
        names.append(cut(name, 30))
    return names_of(summaries, names)


def reads_of(maps: study.Maps) -> str:
    side = maps.maps[0].run
    return READS["self"] if side.watched_model is not None else reads(side.task)


def names(sides: Sequence[study.ComparedRun]) -> str:
    return ", ".join(plain(side.name) for side in sides)


def warning(missing: int, shown: int, most: int) -> str:
    """What the link says that the page cannot show: runs that are `missing`, or more than it compares."""
    sentences = []
    if missing:
        verb = "is" if missing == 1 else "are"
        sentences.append(
            f"{missing} of the runs in the link {verb} not on this machine, or cannot be read."
        )
    if shown > most:
        sentences.append(f"At most {most} runs can be compared; these are the first {most}.")
    return " ".join(sentences)


def fact_text(sides: Sequence[study.ComparedRun], measure: study.Measure, step: int) -> str:
    """The value of each run at equal steps, and at equal seconds of training."""
    sides = [side for side in sides if side.records]
    if len(sides) < 2:
        return "Only one of these runs has measurements yet."
    seconds, scores = min(side.records[-1].train_seconds for side in sides), ("bleu", "chrf")
    write = percent if measure.share else score if measure.key in scores else number
    by_step, by_time = (
        [
            "no measurement" if value is None else write(value)
            for side in sides
            for value in (study.latest(side.records, measure.value, until),)
        ]
        for until in (lambda r: r.step <= step, lambda r: r.train_seconds <= seconds)
    )
    at_step = []
    for side, value in zip(sides, by_step, strict=True):
        last = side.records[-1].step
        early = f" (its last, step {last:,})" if last < step else ""
        at_step.append(f"**{value}** for {plain(side.name)}{early}")
    return (
        f"At step :primary[**{step:,}**], {lower_name(measure.name)}: {', '.join(at_step)}. After {duration(seconds)} "
        f"of training, it is {', '.join(by_time[:-1])} and {by_time[-1]}, in that order."
    )


# The settings in which runs differ, and what each reached.


MISSING = study.MISSING


def differences(sides: Sequence[study.ComparedRun]) -> tuple[list[list[str]], int]:
    """The settings that differ, a row each with the value of each run, and how many are equal."""
    table = pd.DataFrame([study.settings(side.required_config.to_json()) for side in sides]).T
    table = table.drop(
        [f"model.attention.{name}" for name in ("d_model", "num_heads", "dropout")], errors="ignore"
    ).fillna(MISSING)
    different = table[table.nunique(axis=1) > 1]
    rows = different.map(lambda text: cut(text, 40))
    rows = rows.rename(lambda name: name.removeprefix("model.")).reset_index()
    return rows.to_numpy().tolist(), len(table) - len(different)


def apart_text(sides: Sequence[study.ComparedRun]) -> str:
    """The settings in which the runs differ, the first with its value in each."""
    if any(side.watched_model is not None for side in sides):
        return (
            "The settings of a watched run are those of its own loop, which the lab does not know."
        )
    apart = study.differing([side.required_config for side in sides])
    if not apart:
        return "These runs have equal settings."
    (first, texts), *others = apart.items()
    values = ", ".join(plain(cut(text, 40)) for text in texts)
    more = f", and in {plural(len(others), 'other setting')}" if others else ""
    return f"They differ in **{plain(first)}** ({values}){more}."


VALUES: tuple[tuple[str, study.Value, Callable[[float], str]], ...] = (
    ("loss", lambda r: r.loss, number),
    ("accuracy", lambda r: r.sequence_accuracy, percent),
    ("BLEU", lambda r: r.bleu, score),
    ("chrF", lambda r: r.chrf, score),
    ("error", lambda r: r.error, percent),
)
HEAD = (
    "run",
    "parameters",
    "steps taken",
    "training",
    *(name for name, _, _ in VALUES),
    "expected weight",
    "tokens/s",
)


def results_table(sides: Sequence[study.ComparedRun]) -> tuple[list[str], list[list[str]]]:
    """The head and a row for each run; a measure that none of them has is left out."""
    rows, names = [_results(side) for side in sides], {m.key: m.name for m in study.measures(sides)}
    accuracy = lower_name(names.get("sequence_accuracy", "accuracy"))
    head = [accuracy if name == "accuracy" else name for name in HEAD]
    shown = [i for i in range(len(HEAD)) if i < 5 or any(row[i] != MISSING for row in rows)]
    return [head[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _results(side: study.ComparedRun) -> list[str]:
    def last(value: study.Value) -> float | None:
        return study.latest(side.records, value, lambda _: True)

    weight, even, speed = map(
        last, (study.expected, lambda r: r.even, lambda r: r.tokens_per_second)
    )
    config, end = side.config, side.records[-1] if side.records else None
    count = count_parameters(config.model, side.task.shape) if config else 0
    if (model := side.watched_model) is not None:
        count = model.parameters
    return [
        side.name,
        whole(count) if count else MISSING,
        whole(end.step) if end else MISSING,
        duration(end.train_seconds) if end else MISSING,
        *(
            MISSING if (reached := last(value)) is None else write(reached)
            for _, value, write in VALUES
        ),
        MISSING
        if weight is None or even is None
        else written(
            f"{share_text(weight)} (uniform {number(even)})", {"": weight, ", uniform": even}
        ),
        MISSING if not speed else written(f"{speed:,.0f}", speed),
    ]
