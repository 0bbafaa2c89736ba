"""The sentences of the page Train, and examples as text; makes no st call."""

from __future__ import annotations

from collections.abc import Sequence

from core.models import sentence_spans
from core.models.model_summary import NAMES
from core.runs.folder import Status
from core.tasks import Task, task_entry
from core.training.config import RunConfig
from core.training.loop import PASS
from core.training.record import Prediction, Record
from dashboard.draw.formats import duration, number, percent, score
from dashboard.draw.tables import DocumentWeights
from dashboard.widgets.panels import plain

Baselines = Sequence[tuple[str, float]]


def task_line(task: Task) -> str:
    """What the run of the figures learns."""
    return f"**{task.name}.** {task_entry(task.key).meaning}"


def separator(task: Task) -> str:
    """The separator of a source's tokens on one line."""
    return task.separator or ("" if task.input == "tokens" else " · ")


def part_name(path: str) -> str:
    """The name of a part of the model by its path, such as encoder.layers.0."""
    above, _, last = path.rpartition(".")
    if last.isdecimal():
        return f"{'Encoder' if above.startswith('encoder') else 'Decoder'} layer {last}"
    return {"source": "Source embedding"}.get(path) or NAMES.get(path, path.capitalize())


def series(prediction: Prediction) -> tuple[list[float], list[float], list[float]]:
    """The past, the target and the forecast of a series."""
    past, target, output = (
        [float(token) for token in tokens]
        for tokens in (prediction.source, prediction.target, prediction.predicted)
    )
    return past, target, output


def forecast_errors(task: Task, prediction: Prediction) -> tuple[float, float]:
    """The mean absolute error of a forecast, and of repeating the last season."""
    past, target, output = series(prediction)

    def error(values: Sequence[float]) -> float:
        return sum(abs(a - b) for a, b in zip(values, target, strict=True)) / len(target)

    return error(output), error(task.naive(past))


def fact(
    record: Record, task: Task, head: tuple[int, int] | None, baselines: Baselines = ()
) -> str:
    """The fact about a step, in Markdown: the weight in the (layer, head) `head`, and the scores and `baselines`."""
    sentence, step = "", f":primary[**{record.step:,}**]"
    if record.expected and head is not None and record.even is not None:
        layer, index = head
        weight = record.expected[layer][index]
        only = len(record.expected) * len(record.expected[0]) == 1
        where = "" if only else f" in head L{layer}·H{index}"
        right = f"the correct {task.unit}" if task.form == "pairs" else task.expected_name
        sentence = f"At step {step}, {right} gets **{number(weight)}** of the weight{where}; "
        sentence += f"uniform attention gives {number(record.even)}. "
    text = _scores(record, task, baselines)
    return sentence + (
        text[:1].upper() + text[1:] if sentence else text and f"At step {step}, {text}"
    )


def document(
    weights: DocumentWeights,
    deciding: tuple[range, tuple[int, ...]] | None,
    classes: tuple[str, str] | None,
) -> str:
    """What the drawing of a document means, in Markdown; the weight on what decides, beside uniform attention's."""
    words = [
        "The bar is the weight of a sentence, the colour of a word its weight within its sentence."
    ]
    if deciding is not None:
        span, places = deciding
        index, within = (
            sentence_spans(weights.tokens).index(span),
            sum(weights.words[place] for place in places),
        )
        names = " and ".join(f"“{plain(weights.tokens[place])}”" for place in places)
        words.append(
            f"The outlined sentence decides: it gets {number(weights.sentences[index])} of the weight, and "
            f"{names} {number(within)} of the weight within it; uniform attention gives "
            f"{number(1 / len(weights.sentences))} and {number(len(places) / len(span))}."
        )
    if classes is not None:
        words.append(
            f"The class is **{plain(classes[0])}**, the prediction **{plain(classes[1])}**."
        )
    return " ".join(words)


def _scores(record: Record, task: Task, baselines: Baselines) -> str:
    """The scores of the task's form, compared with their baselines."""
    if record.error is not None:
        return f"the forecast error is **{percent(record.error)}** of the error of repeating the last season."
    if record.loss is None:
        return ""
    if task.form == "series":
        return (
            f"the squared error is **{number(record.loss)}**; predicting the mean gives "
            f"{number(task.baseline_loss)}."
        )
    if record.letters is None:
        return ""
    if task.form == "label":
        balanced = (
            "" if record.balanced is None else f", balanced accuracy **{percent(record.balanced)}**"
        )
        others = "; " * bool(baselines) + " and ".join(
            f"{plain(name)} reaches {percent(share)}" for name, share in baselines
        )
        return (
            f"accuracy is **{percent(record.letters)}** on {record.held_out:,} held-out {task.whole}"
            f"{balanced}{others}."
        )
    text = f"{task.unit} accuracy is {percent(record.letters)}"
    if task.form == "text":
        return (
            f"{text}; the loss is {number(record.loss)} nats per {task.unit}, a random guess gives "
            f"{number(task.baseline_loss)}.{_unknown(record, task)}"
        )
    if record.exact is None:
        return text + "."
    join = (
        "but sequence accuracy only"
        if record.letters - record.exact > 0.2
        else "and sequence accuracy"
    )
    text += f", {join} {percent(record.exact)}"
    scores = [
        f"{name} is {score(value)}"
        for name, value in (("BLEU", record.bleu), ("chrF", record.chrf))
        if value is not None
    ]
    text += f"; {' and '.join(scores)}." if scores else "."
    return text + _cut(record, task) + _unknown(record, task)


def _cut(record: Record, task: Task) -> str:
    """How many outputs were cut, as a sentence; empty where none was."""
    if not record.cut:
        return ""
    return (
        f" {record.cut:,} of {record.held_out:,} outputs {'was' if record.cut == 1 else 'were'} cut at "
        f"{task.max_target + 1} tokens, before an end token."
    )


def _unknown(record: Record, task: Task) -> str:
    """What unknown tokens do to the loss, as a sentence; empty where all are known."""
    if record.unknown is None or record.loss is None:
        return ""
    return (
        f" {percent(record.unknown)} of the held-out {task.unit}s are not in the vocabulary, so the model "
        f"cannot output them: the loss is {number(record.known_loss or 0.0)} without them, {number(record.loss)} "
        "with them."
    )


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
        left = min(
            last.elapsed * (config.steps - last.step) / last.step, config.seconds - last.elapsed
        )
        text += f", about {max(1, round(left))} s left"
    return share, text


def ending(status: Status, records: Sequence[Record], config: RunConfig | None = None) -> str:
    """How a run ended, why before its last step, and its sequence accuracy."""
    last = next((r for r in reversed(records) if r.exact is not None), None)
    if last is None or status.state == "failed":
        return status.message
    early = _early(last, config) if config is not None and status.state == "finished" else ""
    return (
        f"{status.message}{early} Sequence accuracy is {percent(last.exact or 0.0)} on {last.held_out:,} held-out "
        "items."
    )


def _early(last: Record, config: RunConfig) -> str:
    """Why a finished run has fewer steps than it might have had; a limit of time is in its message already."""
    if last.capped or last.step >= config.steps:
        return ""
    if config.finish_early and (last.exact or 0.0) >= PASS:
        return f" It ended before step {config.steps:,}, since at least {percent(PASS)} of the sequences were correct."
    return (
        f" It ended before step {config.steps:,}, since the validation loss no longer fell."
        * bool(config.patience)
    )


def pace(record: Record, machine: str = "") -> str:
    """Time, speed and share of data making at a step, and the machine."""
    parts = [f"{duration(record.elapsed)} elapsed, {duration(record.trained)} of training"]
    if record.tokens_per_second:
        parts.append(f"{record.tokens_per_second:,.0f} tokens/s")
    if record.data_share is not None:
        parts.append(f"{percent(record.data_share)} of the training time spent on batches")
    if record.gradient is not None:
        parts.append(f"gradient norm {number(record.gradient)}")
    if machine:
        parts.append(f"on {plain(machine)}")
    return " · ".join(parts)


# Where memory is short no worker waits.
SLOW_START = (
    "Memory is short on this server, so that a run starts a few seconds after Train is pressed."
)


def nothing_yet(live: bool, queued: bool) -> str:
    """Why a run has no figures yet."""
    if live:
        return (
            "Waiting for a free worker." if queued else "The first numbers appear within a second."
        )
    return "This run ended before its first measurement. Press Train to start another."
