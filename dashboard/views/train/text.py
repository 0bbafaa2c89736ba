"""The sentences of the page Train, and examples as text; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence

from core.tasks import Task
from core.training.config import RunConfig
from core.training.record import Prediction, Record
from core.training.runs import Status
from dashboard.charts.numbers import duration, number, percent, score
from dashboard.widgets.panels import plain

Baselines = Sequence[tuple[str, float]]


def separator(task: Task) -> str:
    """The separator of a source's tokens on one line."""
    return task.separator or ("" if task.input == "tokens" else " · ")


def series(prediction: Prediction) -> tuple[list[float], list[float], list[float]]:
    """The past, the target and the forecast of a series."""
    past, target, output = ([float(token) for token in tokens] for tokens in
                            (prediction.source, prediction.target, prediction.predicted))
    return past, target, output


def forecast_errors(task: Task, prediction: Prediction) -> tuple[float, float]:
    """The mean absolute error of a forecast, and of repeating the last season."""
    past, target, output = series(prediction)

    def error(values: Sequence[float]) -> float:
        return sum(abs(a - b) for a, b in zip(values, target, strict=True)) / len(target)

    return error(output), error(task.naive(past))


def fact(record: Record, task: Task, head: tuple[int, int] | None, baselines: Baselines = ()) -> str:
    """The fact about a step, in Markdown: the weight of the (layer, head) `head`, and the scores beside `baselines`."""
    sentence, step = "", f":primary[**{record.step:,}**]"
    if record.expected and head is not None and record.even is not None:
        layer, index = head
        weight = record.expected[layer][index]
        only = len(record.expected) * len(record.expected[0]) == 1
        where = "" if only else f" in head L{layer}·H{index}"
        right = f"the right {task.unit}" if task.form == "pairs" else "the expected place"
        sentence = f"At step {step} {right} gets **{number(weight)}** of the weight{where}; "
        sentence += f"even attention would give it {number(record.even)}. "
    return sentence + _scores(record, task, "So " if sentence else f"At step {step}, ", baselines)


def _scores(record: Record, task: Task, start: str, baselines: Baselines) -> str:
    """The scores of the task's form, beside what they have to beat."""
    if record.error is not None:
        return (f"{start}the forecast is off by **{percent(record.error)}** of what repeating the last season is off "
                "by.")
    if task.form == "series":
        return f"{start}the squared error is **{number(record.loss)}**; the mean gives {number(task.baseline_loss)}."
    if record.letters is None:
        return ""
    if task.form == "label":
        balanced = "" if record.balanced is None else f", balanced accuracy **{percent(record.balanced)}**"
        others = "; " * bool(baselines) + " and ".join(f"{plain(name)} gets {percent(share)}"
                                                       for name, share in baselines)
        return (f"{start}**{percent(record.letters)}** of the {record.held_out:,} held-out {task.whole} are "
                f"right{balanced}{others}.")
    text = f"{start}{percent(record.letters)} of the {task.unit}s are right"
    if task.form == "text":
        return f"{text}; the loss is {number(record.loss)} nats a {task.unit}, where guessing gives " \
               f"{number(task.baseline_loss)}.{_unknown(record, task)}"
    if record.exact is None:
        return text + "."
    join = ", but only " if record.letters - record.exact > 0.2 else " and "
    text += f"{join}{percent(record.exact)} of whole {task.whole}"
    scores = [f"{name} is {score(value)}" for name, value in (("BLEU", record.bleu), ("chrF", record.chrf))
              if value is not None]
    text += f"; {' and '.join(scores)}." if scores else "."
    return text + _cut(record, task) + _unknown(record, task)


def _cut(record: Record, task: Task) -> str:
    """How many outputs were cut, as a sentence; empty where none was."""
    if not record.cut:
        return ""
    return (f" {record.cut:,} of {record.held_out:,} outputs {'was' if record.cut == 1 else 'were'} cut at "
            f"{task.max_target + 1} tokens, before an end mark.")


def _unknown(record: Record, task: Task) -> str:
    """What unknown tokens do to the loss, as a sentence; empty where all are known."""
    if record.unknown is None:
        return ""
    return (f" {percent(record.unknown)} of the held-out {task.unit}s are unknown to the model, which cannot write "
            f"them: the loss is {number(record.known_loss or 0.0)} without them, {number(record.loss)} with them.")


def progress(records: Sequence[Record], config: RunConfig) -> tuple[float, str]:
    """How far a run is, 0 to 1, and a line with the time left."""
    if not records:
        return 0.0, "Setting up…"
    last = records[-1]
    share = min(1.0, max(last.step / config.steps, last.elapsed / config.seconds))
    text = f"Step {last.step:,} of {config.steps:,}"
    if last.final:
        return 1.0, text
    if last.step and last.elapsed:
        left = min(last.elapsed * (config.steps - last.step) / last.step, config.seconds - last.elapsed)
        text += f", about {max(1, round(left))} s left"
    return share, text


def waiting(position: int) -> str:
    before = "a run ends" if position == 1 else f"{position} runs end"
    return f"Waiting: place {position} in the queue. It begins when {before}."


def ending(status: Status, records: Sequence[Record]) -> str:
    """How a run ended, with its exact match."""
    last = next((r for r in reversed(records) if r.exact is not None), None)
    if last is None or status.state == "failed":
        return status.message
    return f"{status.message} {percent(last.exact or 0.0)} of {last.held_out:,} held-out exact."


def pace(record: Record, machine: str = "") -> str:
    """Time, speed and share of data making at a step, and the machine."""
    parts = [f"{duration(record.elapsed)} in, {duration(record.trained)} of it training"]
    if record.tokens_per_second:
        parts.append(f"{record.tokens_per_second:,.0f} tokens/s")
    if record.data_share is not None:
        parts.append(f"{percent(record.data_share)} of the training time makes batches")
    if record.gradient is not None:
        parts.append(f"gradient norm {number(record.gradient)}")
    if machine:
        parts.append(f"on {plain(machine)}")
    return " · ".join(parts)


def nothing_yet(live: bool, queued: bool) -> str:
    """Why a run has no figures yet."""
    if live:
        return "Waiting for a free worker." if queued else "The first numbers come within a second."
    return "This run ended before its first measurement. Press Train to begin another."
