"""Train and watch: train a small model in a worker process, and see its attention form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, preset
from core.attention.config import heads_that_divide
from core.attention.presets import distinct_names
from core.entries import Param, Value
from core.interpret.trace import Kind
from core.memory import is_small
from core.models import ModelConfig, sentence_spans
from core.models.config import RECURRENT, STACKED
from core.models.model_summary import NAMES
from core.models.transformer import encoder_masks, exact_fallbacks
from core.runs.executor import line
from core.runs.folder import Status
from core.runs.runs import Run
from core.studies.train import time_needed
from core.tasks import TASKS, Task, TaskConfig, TaskEntry, make_task, task_entry, task_of
from core.training import recommended
from core.training.config import AUTO, BOUNDS, OPTIMIZERS, PRECISIONS, SCHEDULES, RunConfig, devices
from core.training.diagnosis import Finding, diagnose
from core.training.evaluate import best_head, source_weights, watched_examples
from core.training.loop import PASS, train
from core.training.record import Prediction, Record
from dashboard.draw import grids, tables
from dashboard.draw.attention_view import READS, attention_view
from dashboard.draw.curves import Curve, balanced_points, legend, loss_curves, points, step_chart
from dashboard.draw.formats import duration, number, percent, plain, score
from dashboard.draw.page_exports import Cell, Script, add_script, attention_import, source_of
from dashboard.draw.palette import Ink
from dashboard.draw.tables import DocumentWeights, lines
from dashboard.draw.vega import Spec, axis_style, figure, layer, split_data
from dashboard.navigation import step_of
from dashboard.server import jobs, people
from dashboard.server.limits import LimitReached, most_seconds, most_steps, within
from dashboard.ui import run_controls, run_data, uploads as data_upload
from dashboard.ui.fields import HERE, Fields, Number, Select, SelectSlider
from dashboard.ui.layer_pattern import adopt_pattern, attention_key, layer_pattern, pattern_changes
from dashboard.ui.links import (
    KEEP,
    between,
    forget_other_runs,
    is_new,
    link_param,
    link_value,
    one_of,
    take_link,
    went_back,
    write_link,
)
from dashboard.ui.mechanism import (
    from_text,
    keep_heads,
    mechanism,
    note_heads,
    param_widget,
    preset_label,
    preset_of,
    to_text,
)
from dashboard.ui.models import one_thread
from dashboard.ui.panels import (
    Move,
    Question,
    caption,
    chart_title,
    details,
    draw_chart,
    entries_panel,
    fact,
    next_page,
    paragraph,
    picture,
    placeholder,
    predict,
    presenting,
    room,
    source_panel,
    theme,
    title,
    try_this,
)
from dashboard.ui.progress import flash_errors
from dashboard.ui.run_controls import poll
from dashboard.ui.run_data import (
    EXAMPLE_RUN,
    MODEL_NAMES,
    RunData,
    config_from_link,
    copy_run,
    count_parameters,
    damage_of,
    linked_run,
    linked_run_id,
    load_run,
    path_code,
    select_example,
    select_run,
)

# The sentences of the page Train, and examples as text; makes no st call.


Baselines = Sequence[tuple[str, float]]


def separator(task: Task) -> str:
    """The separator of a source's tokens on one line."""
    return task.separator or ("" if task.input == "tokens" else " · ")


def series(prediction: Prediction) -> tuple[list[float], list[float], list[float]]:
    """The past, the target and the forecast of a series."""
    return (
        [*map(float, prediction.source)],
        [*map(float, prediction.target)],
        [*map(float, prediction.predicted)],
    )


def fact_text(
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
    if record.token_accuracy is None:
        return ""
    if task.form == "label":
        balanced = (
            "" if record.balanced is None else f", balanced accuracy **{percent(record.balanced)}**"
        )
        others = "; " * bool(baselines) + " and ".join(
            f"{plain(name)} reaches {percent(share)}" for name, share in baselines
        )
        return (
            f"accuracy is **{percent(record.token_accuracy)}** on {record.held_out:,} held-out {task.whole}"
            f"{balanced}{others}."
        )
    text = f"{task.unit} accuracy is {percent(record.token_accuracy)}"
    if task.form == "text":
        return (
            f"{text}; the loss is {number(record.loss)} nats per {task.unit}, a random guess gives "
            f"{number(task.baseline_loss)}.{_unknown(record, task)}"
        )
    if record.sequence_accuracy is None:
        return text + "."
    join = (
        "but sequence accuracy only"
        if record.token_accuracy - record.sequence_accuracy > 0.2
        else "and sequence accuracy"
    )
    text += f", {join} {percent(record.sequence_accuracy)}"
    scores = [
        f"{name} is {score(value)}"
        for name, value in (("BLEU", record.bleu), ("chrF", record.chrf))
        if value is not None
    ]
    text += f"; {' and '.join(scores)}." if scores else "."
    if record.cut:
        text += (
            f" {record.cut:,} of {record.held_out:,} outputs {'was' if record.cut == 1 else 'were'} cut at "
            f"{task.max_target + 1} tokens, before an end token."
        )
    return text + _unknown(record, task)


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
    share = min(1.0, max(last.step / config.steps, last.elapsed / config.max_seconds))
    text = f"Step {last.step:,} of {config.steps:,}"
    if last.final:
        return 1.0, text
    if last.step and last.elapsed:
        left = min(
            last.elapsed * (config.steps - last.step) / last.step, config.max_seconds - last.elapsed
        )
        text += f", about {max(1, round(left))} s left"
    return share, text


def ending_text(status: Status, records: Sequence[Record], config: RunConfig | None = None) -> str:
    """How a run ended, why before its last step, and its sequence accuracy."""
    last = next((r for r in reversed(records) if r.sequence_accuracy is not None), None)
    if last is None or status.state == "failed":
        return status.message
    accuracy, early = last.sequence_accuracy or 0.0, ""
    # A limit of time is in the message already.
    if config and status.state == "finished" and not last.capped and last.step < config.steps:
        if config.finish_early and accuracy >= PASS:
            early = f"at least {percent(PASS)} of the sequences were correct"
        elif config.patience:
            early = "the validation loss no longer fell"
        early = early and f" It ended before step {config.steps:,}, since {early}."
    return (
        f"{status.message}{early} Sequence accuracy is {percent(accuracy)} on {last.held_out:,} "
        "held-out items."
    )


def pace(record: Record, machine: str = "") -> str:
    """Time, speed and share of data making at a step, and the machine."""
    parts = [f"{duration(record.elapsed)} elapsed, {duration(record.train_seconds)} of training"]
    if record.tokens_per_second:
        parts.append(f"{record.tokens_per_second:,.0f} tokens/s")
    if record.data_share is not None:
        parts.append(f"{percent(record.data_share)} of the training time spent on batches")
    if record.gradient is not None:
        parts.append(f"gradient norm {number(record.gradient)}")
    if machine:
        parts.append(f"on {plain(machine)}")
    return " · ".join(parts)


# The attention of one held-out example over training time, and where it attends on a picture or a series.


@dataclass(frozen=True)
class Head:
    """The head that is drawn: its example, type of attention, layer and index; `shape` is (layers, heads) of the type.

    `to_source`: whether outputs attend to their source by this type, so that records measure it.
    """

    example: int
    kind: Kind
    layer: int
    head: int
    shape: tuple[int, int]
    to_source: bool = True

    @property
    def name(self) -> str:
        return head_name(self.layer, self.head, self.shape)


def head_name(layer: int, head: int, shape: tuple[int, int]) -> str:
    """A head of (layers, heads) in a sentence."""
    return f"head {head}" if shape[0] == 1 else f"head L{layer}·H{head}"


@dataclass(frozen=True)
class Moment:
    """The selected step of the run, and the head that is drawn with its weights (T, S) at that step.

    `latest`: no step was picked, so all figures follow a live run.
    """

    step: int
    head: Head | None = None
    weights: np.ndarray | None = None
    latest: bool = True


def attention_over_time(data: RunData) -> Moment:
    """Draw the map, its filmstrip and its slider; without attention a plain slider over the records."""
    steps = data.steps
    head = _choose_head(data, steps[-1]) if steps else None
    if head is None:
        return _no_attention(data)
    step_key, step_name = f"train:wish:{data.run.id}", f"train:step:{data.run.id}"
    take_link(step_key, one_of(steps), name=step_name)
    if went_back(step_name):
        forget_step(data.run.id)
    start = st.session_state.get(step_key)
    key = f"train:map:{data.run.id}:{head.example}:{head.kind}"
    picked = st.session_state.get(f"{key}:view", {}).get("frame")
    frames = run_data.head_over_time(
        data.run, steps, head.example, head.kind, head.layer, head.head, picked or start
    )
    if not frames:
        return _no_attention(data)
    last_step, last = frames[-1]
    state = attention_view(
        run_data.head_trace(data, head.example, head.kind, head.layer, last, head.shape[1]),
        key=key,
        layout="frames",
        layer=head.layer,
        head=head.head,
        frame=start,
        frames=frames,
        live=data.live,
        title=f"Held-out example, {head.name}",
        reads=READS[head.kind],
        height=300,
    )
    step = last_step if state.frame is None else state.frame
    write_link(step_name, None if step == last_step else str(step))
    return Moment(step, head, dict(frames).get(step), state.frame is None)


def forget_step(run_id: str) -> None:
    """Forget the step that a person had picked: the figures show the latest one."""
    st.session_state.pop(f"train:wish:{run_id}", None)
    for key in map(str, st.session_state):
        if key.startswith(f"train:map:{run_id}") and key.endswith(":view"):
            st.session_state[key]["frame"] = None


def _no_attention(data: RunData) -> Moment:
    steps = [r.step for r in data.records]
    if data.config is not None and data.config.model.attention is None:
        st.markdown("**No attention**")
        st.caption(
            "The decoder of this model reads only the encoder's last state, so there is no attention map."
        )
    if len(steps) < 2 or data.live:
        return Moment(steps[-1])
    return Moment(FIELDS.draw("step", into=HERE, steps=steps, run=data.run.id).step)


def _choose_head(data: RunData, step: int) -> Head | None:
    """Choose a held-out example, a type of attention and a head, at first the best one; None without maps."""
    examples = range(run_data.count_examples(data.run, step))
    row = st.grid("auto", min_column_width=room(190), gap="small")
    example = FIELDS.draw("example", into=row, data=data, examples=examples).example or 0
    sizes = run_data.sizes(data.run, step, example)
    if not sizes:
        return None
    first, given = next(iter(sizes)), {"data": data, "kinds": list(sizes)}
    kind = FIELDS.draw("attention", into=row, **given).attention or first
    best = best_head(data.records[-1]) if kind == first else (0, 0)
    layers, heads = shape = sizes[kind]
    best = best if best[0] < layers and best[1] < heads else (0, 0)
    drawn = FIELDS.draw("head", into=row, **given, kind=kind, shape=shape, best=best)
    layer, head = drawn.head or (0, 0)
    return Head(example, kind, layer, head, shape, kind == first)


def example_label(data: RunData, example: int) -> str:
    """A held-out example in a list."""
    task, config = data.task(), data.required_config
    source, target = task.display_tokens(
        watched_examples(config.task, config.num_examples)[example]
    )
    if task.input in ("patches", "series"):
        answer = f": {task.separator.join(target)}" if task.input == "patches" else ""
        return f"Example {example + 1}{answer}"
    return separator(task).join(source)


def source_figures(data: RunData, moment: Moment, ink: Ink) -> None:
    """Pictures tinted by the weights of each output, or a series with its forecast."""
    task, head, config = data.task(), moment.head, data.config
    if task.input not in ("patches", "series") or config is None:
        return
    example = 0 if head is None else head.example
    sample = watched_examples(config.task, config.num_examples)[example]
    outputs: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    if head is not None and moment.weights is not None:
        rows, _ = run_data.tokens(data, example, head.kind)
        outputs, weights = source_weights(
            config.model, head.kind, moment.weights, rows, len(sample.source)
        ) or ((), None)
    if task.input == "patches" and weights is not None:
        chart_title(f"What it attends to, step {moment.step:,}")
        st.html(grids.tiles(sample.source, task.shape.grid, outputs, weights, theme(), ink))
        st.caption(
            f"The largest weight of a patch is {number(weights.max())}; uniform attention gives each patch "
            f"{number(1 / weights.shape[1])}."
        )
    decoded = data.decoded_at(moment.step)
    if task.form == "series" and decoded is not None and len(decoded.examples) > example:
        past, target, output = series(decoded.examples[example])
        chart_title(f"Forecast at step {decoded.step:,}")
        chart = grids.forecast_chart(past, target, output, task.naive(past), weights, ink, theme())
        draw_chart(
            st, chart, key="train:forecast", alt="The past values, the target and the forecast."
        )
        st.caption(
            "Gray: past values; the size of a dot is its attention weight. Black or white: the target. Blue: "
            "the forecast. Dashed: the last season repeated."
        )


# The curves of a run: loss, the scores of its task, and its training; each with the picked step.


SMALL = 140  # pixels
LEVELS = (
    0.25,
    0.5,
    1.01,
)  # where the axis of shares may end: all of the weight may be a rounding over one
MAX_HEADS = 4  # lines that can be told apart
FORMS_IN_NATS = ("pairs", "text", "label")
SINGLE = {  # charts of one curve: their title, the name of the curve, and its value in a record
    "gradient": ("Gradient norm, before clipping", "all weights", "gradient"),
    "rate": ("Learning rate", "rate", "rate"),
    "speed": ("Tokens a second, while it trains", "tokens", "tokens_per_second"),
    "indexer": (
        "Loss of the indexer, which predicts full attention",
        "mean of all layers",
        "indexer_loss",
    ),
}


def findings(data: RunData, step: int) -> dict[str, list[Finding]]:
    """What goes wrong up to a step, by the name of the curve that shows it."""
    result: dict[str, list[Finding]] = {}
    if data.config is not None:
        failure = data.status.message if data.status.state == "failed" else ""
        for finding in diagnose(data.until(step), data.config, data.task().baseline_loss, failure):
            result.setdefault(finding.beside, []).append(finding)
    return result


def show_findings(findings: Sequence[Finding]) -> None:
    """The measurement and the advice of each finding."""
    for each in findings:
        st.markdown(f":small[**{plain(each.text)}** {plain(each.advice)}]")


def loss(data: RunData, step: int, ink: Ink, findings: Sequence[Finding]) -> None:
    """Validation and training loss, and the loss of guessing.

    The axis ends at three times guessing or at the start, so that a spike does not flatten the rest.
    """
    task, losses = data.task(), [r.loss or 0.0 for r in data.records]
    guess, curves = task.baseline_loss, loss_curves(data.records)
    guesses = {"label": "class frequencies", "series": "the mean"}
    chart_title(
        "Loss" if task.form in FORMS_IN_NATS else "Squared error", legend=legend(curves, ink)
    )
    _draw(
        data,
        "loss",
        curves,
        step,
        ink,
        "Validation and training loss over training.",
        guess=(guess, f"{guesses.get(task.form, f'a random {task.unit}')}: {number(guess)}"),
        high=max(guess, losses[0] or guess, min(max(losses), 3 * guess)),
    )
    show_findings(findings)


def metric(data: RunData, step: int, ink: Ink) -> None:
    """The scores of the task on held-out items."""
    task, records = data.task(), data.records
    if task.form == "series":
        chart_title("Validation error, % of the error of repeating the last season")
        _draw(
            data,
            "sequence_accuracy",
            [Curve("error", points(records, "error", 100))],
            step,
            ink,
            "Validation error over training, compared with repeating the last season.",
            guess=(100.0, "last season repeated"),
        )
        return
    scores = [
        Curve(name, points(records, key))
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if any(getattr(r, key) is not None for r in records)
    ]
    curves = [
        *[Curve("sequence accuracy", points(records, "sequence_accuracy", 100))]
        * (task.form == "pairs"),
        Curve(
            "accuracy" if task.form == "label" else f"{task.unit} accuracy",
            points(records, "token_accuracy", 100),
        ),
        *[Curve("balanced accuracy", balanced_points(records))] * (task.form == "label"),
        *scores,
    ]
    short = [replace(curve, name=curve.name.removesuffix(" accuracy")) for curve in curves]
    name = curves[0].name if len(curves) == 1 else "scores" if scores else "accuracy"
    chart_title(f"Validation {name}", legend=legend(short, ink))
    best = max(data.baselines(records[-1].held_out), key=lambda baseline: baseline[1], default=None)
    guess = None if best is None else (100 * best[1], f"{best[0]}: {percent(best[1])}")
    _draw(
        data,
        "sequence_accuracy",
        curves,
        step,
        ink,
        f"Accuracy on held-out {task.whole} over training.",
        high=100,
        percent=not scores,
        guess=guess,
    )


def charts_details(
    data: RunData, step: int, ink: Ink, findings: Mapping[str, Sequence[Finding]]
) -> None:
    """The weight on expected positions, the gradients over time and by part of the model, and the learning rate."""
    names = ["gradient", "parts", "rate", "speed"]
    if any(r.expected for r in data.records):
        names = ["expected", *names[:-1]]
    if any(r.indexer_loss is not None for r in data.records):
        names.append("indexer")
    cells = [cell for _ in names[::2] for cell in st.columns(2, gap="medium")]
    for cell, name in zip(cells, names, strict=False):
        with cell:
            if name == "expected":
                last = next(r for r in reversed(data.records) if r.expected)
                assert last.expected is not None
                heads = sorted(
                    (
                        (w, layer, h)
                        for layer, row in enumerate(last.expected)
                        for h, w in enumerate(row)
                    ),
                    reverse=True,
                )
                curves = [
                    Curve(
                        f"L{layer}·H{h}",
                        [
                            (r.step, r.expected[layer][h] if r.expected else None)
                            for r in data.records
                        ],
                    )
                    for _, layer, h in heads[:MAX_HEADS]
                ]
                chart_title(f"Weight on {data.task().expected_name}", legend=legend(curves, ink))
                most = max(w for r in data.records for row in r.expected or () for w in row)
                even = (
                    (last.even, f"uniform: {number(last.even)}") if last.even is not None else None
                )
                _draw(
                    data,
                    "expected",
                    curves,
                    step,
                    ink,
                    high=next(level for level in LEVELS if most <= level),
                    guess=even,
                )
                if len(heads) > MAX_HEADS:
                    st.caption(
                        f"The {MAX_HEADS} of {len(heads)} heads with the largest weight at the end."
                    )
            elif name == "parts":
                _parts(data, step, ink)
            else:
                heading, curve, key = SINGLE[name]
                chart_title(heading)
                values, guess = points(data.records, key), None
                if name == "gradient":
                    clip = data.required_config.clip
                    largest = max(value or 0.0 for _, value in values)
                    if clip <= 5 * max(largest, 1e-9):
                        guess = (clip, f"clipped at {clip:g}")
                _draw(data, name, [Curve(curve, values)], step, ink, guess=guess)
            show_findings(findings.get(name, ()))


def _parts(data: RunData, step: int, ink: Ink) -> None:
    """The norm in each part of the model, first part on top: where it grows or fades with depth."""
    record = next((r for r in reversed(data.until(step)) if r.gradients), None)
    if record is None:
        chart_title("Gradient norm by part of the model")
        st.caption("Measured from the first step.")
        return
    chart_title(f"Gradient norm by part, step {record.step:,} (logarithmic)")
    draw_chart(
        st,
        _parts_spec(record.gradients, ink),
        key="train:parts",
        alt="Gradient norm of each part of the model.",
    )


def _parts_spec(gradients: dict[str, float], ink: Ink) -> Spec:
    """Bars on a logarithmic axis, one for each part, from the input down to the output."""
    most = max(gradients.values()) or 1.0
    low = min([value for value in gradients.values() if value > 0] or [most]) / 3
    rows = []
    for path, value in gradients.items():
        above, _, last = path.rpartition(".")
        name = {"source": "Source embedding"}.get(path) or NAMES.get(path, path.capitalize())
        if last.isdecimal():  # such as encoder.layers.0
            name = f"{'Encoder' if above.startswith('encoder') else 'Decoder'} layer {last}"
        rows.append({"part": name, "norm": max(value, low), "label": number(value), "low": low})
    axes = {
        "y": {
            "field": "part",
            "type": "nominal",
            "sort": None,
            "title": None,
            "axis": {**axis_style(ink), "labelLimit": 150, "labelOverlap": False},
        },
        "x": {
            "field": "norm",
            "type": "quantitative",
            "axis": None,
            "scale": {"type": "log", "domain": [low, most * 4], "nice": False},
        },
    }
    return figure(
        [
            layer(
                "bar",
                rows,
                {**axes, "x2": {"field": "low"}},
                color=ink.series[0],
                height={"band": 0.6},
            ),
            layer(
                "text",
                rows,
                {**axes, "text": {"field": "label", "type": "nominal"}},
                align="left",
                dx=4,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        height=max(SMALL, 17 * len(gradients)),
    )


def _draw(
    data: RunData,
    key: str,
    curves: Sequence[Curve],
    step: int,
    ink: Ink,
    alt: str = "",
    **options: Any,
) -> None:
    """Curves over the steps of the run, all of them while it is live; `options` are those of `step_chart`.

    `alt` names no step: the browser builds a chart anew when its words change. Without it the chart is a small one.
    """
    last_x = data.required_config.steps if data.live else data.records[-1].step
    options = options if alt else {"height": SMALL, **options}
    spec = step_chart(curves, ink=ink, last_x=last_x, step=step, **options)
    draw_chart(st, *split_data(spec), key=f"train:{key}", alt=alt or f"{key} over training.")


# The attention that is trained: a published one by name, any choice on the six axes, or none.


RECOMMENDED, OWN, NONE = "recommended", "own", "none"
PLAIN = "plain"  # in a link: the default attention, which has no text
LABELS = {RECOMMENDED: "Recommended", OWN: "Custom", NONE: "No attention"}
AXES_OF = {
    **dict.fromkeys(STACKED, tuple(AXES)),
    **dict.fromkeys(RECURRENT, tuple(axis for axis in AXES if axis != "position")),
}


def choose_attention(
    name: str,
    start: ModelConfig,
    kind: str,
    d_model: int,
    heads: int,
    cell: DeltaGenerator,
    axes: DeltaGenerator,
) -> AttentionConfig | None:
    """Draw the list of mechanisms and the popover of the axes; the attention at those sizes, None for none.

    Raises ConfigError, after the widgets are drawn, when the mechanism cannot have those sizes.
    """
    usual = start.attention and start.attention.with_(d_model=d_model, num_heads=heads)
    link = partial(
        link_value,
        attention_key(name),
        usual,
        lambda text: (
            None if text == NONE else from_text("" if text == PLAIN else text, (d_model, heads))
        ),
        lambda config: NONE if config is None else to_text(config) or PLAIN,
    )
    link()
    config, problem = st.session_state.get(attention_key(name), usual), None
    try:
        config = config and config.with_(d_model=d_model, num_heads=heads)
    except ConfigError as error:
        config, problem = usual, error
    popover = axes.popover(
        "Six axes",
        icon=":material/tune:",
        width="stretch",
        on_change="rerun",
        key=f"{name}:axes",
        help="Projection, score, position, mask, normalizer and kernel of the attention.",
    )
    if popover.open:
        before = config or AttentionConfig(d_model, heads, "identity")
        with popover:
            edited = mechanism(f"{name}:attention", before, axes=AXES_OF[kind], presets=False)
        if edited is None:
            problem = ConfigError(
                "The mechanism cannot be trained. The reason is beside one of the six axes."
            )
        elif edited != before:  # an unchanged one keeps its problem
            st.session_state[attention_key(name)] = config = edited
            problem = None
        link()  # what has just been changed
    with cell:
        # The list of names, which agrees with the axes: choosing a name sets them
        sizes = (d_model, heads)
        options = [RECOMMENDED, *(item.key for item in PRESETS if fits(item.key, kind, sizes))]
        options += [NONE] if kind == "recurrent" else []
        current = (
            NONE if config is None else RECOMMENDED if config == usual else preset_of(config) or OWN
        )
        if current not in options:
            options.append(current)
        labels = LABELS | {item.key: preset_label(item.key) for item in PRESETS}

        def select() -> None:
            key = st.session_state[f"{name}:mechanism"]
            if key != OWN:
                special = {RECOMMENDED: usual, NONE: None}
                config = special[key] if key in special else preset(key).config(*sizes)
                st.session_state[attention_key(name)] = config

        st.session_state[f"{name}:mechanism"] = current
        st.selectbox(
            "Mechanism",
            options,
            key=f"{name}:mechanism",
            on_change=select,
            format_func=labels.__getitem__,
            **KEEP,
            help="The attention mechanism. A published name sets all six axes.",
        )
    if problem is not None:
        raise problem
    return config


@lru_cache(maxsize=1024)
def fits(key: str, kind: Any, sizes: tuple[int, int]) -> bool:
    """Whether a preset is made for that type of model, and can have those sizes."""
    try:
        config = preset(key).config(*sizes)
        ModelConfig(kind, *sizes, config)
    except ConfigError:
        return False
    return (config.projection.key == "identity") == (kind in ("recurrent", "hierarchical"))


def summary(model: ModelConfig) -> str:
    """The six choices, and where the kernel gives way to the exact one."""
    config = model.attention
    if config is None:
        return "No attention: the decoder reads only the encoder's last state."
    names = " · ".join(entry(axis, getattr(config, axis).key).name for axis in AXES_OF[model.kind])
    sentences = [f"{names}."]
    if len(set(model.pattern)) > 1:
        sentences = [
            f"First layer: {names}. The layers in turn: {'; '.join(distinct_names(model.pattern))}."
        ]
    if model.kind == "transformer":
        if exact := exact_fallbacks(config):
            kernel = entry("kernel", config.kernel.key).name
            verb = "use" if exact[1:] else "uses"
            sentences.append(
                f"{kernel} is used in the encoder; {' and '.join(exact)} {verb} the exact kernel."
            )
        if masks := encoder_masks(config):
            sentences.append(
                f"{' and '.join(masks)} applies to the encoder only: it needs the length, which a decoder "
                "does not know."
            )
    if model.kind in ("transformer", "hybrid") and config.has("projection", "one sequence"):
        name = entry("projection", config.projection.key).name
        sentences.append(f"{name} applies to self-attention only; cross-attention uses multi-head.")
    return " ".join(sentences)


# The parameters of a model and of its training, in groups; the values of a closed group are the session's.


WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
RATES = (1e-5, 1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.3, 1.0)
MAX_LAYERS = 12

MODEL_SETTINGS = {
    param.key: param
    for param in (
        Param(
            "layers",
            "Layers",
            1,
            1,
            MAX_LAYERS,
            1,
            meaning="the number of encoder layers, and of decoder layers",
        ),
        Param(
            "norm",
            "Norm position",
            "post",
            choices=("post", "pre"),
            labels=("post-norm: after the residual sum", "pre-norm: before the layer"),
            meaning="post-norm is the original (Vaswani 2017); with pre-norm deep models train more easily (Xiong 2020)",
        ),
        Param(
            "normalization",
            "Norm",
            "layer",
            choices=("layer", "rms"),
            labels=("LayerNorm", "RMSNorm"),
            meaning="LayerNorm subtracts the mean, RMSNorm does not (Zhang & Sennrich 2019)",
        ),
        Param(
            "activation",
            "Activation",
            "relu",
            choices=("relu", "gelu", "swiglu"),
            labels=("ReLU", "GELU", "SwiGLU"),
            meaning="the function between the two feed-forward layers; SwiGLU adds a gate (Shazeer 2020)",
        ),
        Param(
            "d_ff",
            "Feed-forward width",
            64,
            0,
            4096,
            16,
            meaning="d_ff: the number of hidden units of the feed-forward network; 0 leaves it out",
        ),
        Param(
            "cell",
            "Cell",
            "gru",
            choices=("gru", "lstm"),
            labels=("GRU", "LSTM"),
            meaning="the recurrent cell of encoder and decoder",
        ),
        Param(
            "bidirectional",
            "Bidirectional encoder",
            True,
            meaning="the encoder reads the source in both directions",
        ),
        Param(
            "feeding",
            "Input feeding",
            "none",
            choices=("none", "input", "bahdanau"),
            labels=("none", "attentional vector (Luong)", "context vector (Bahdanau)"),
            meaning="which result of attention the decoder cell receives at the next step",
        ),
        Param(
            "pool",
            "Pooling",
            "first",
            choices=("first", "mean"),
            labels=("[CLS] token", "mean of all tokens"),
            meaning="which vector the class is computed from",
        ),
        Param(
            "dropout",
            "Dropout",
            0.0,
            0.0,
            0.6,
            0.05,
            meaning="the share of values set to zero during training",
        ),
        Param(
            "tied",
            "Tied embeddings",
            False,
            meaning="the target embedding and the output layer share one matrix",
        ),
        Param(
            "output_bias",
            "Output bias",
            True,
            meaning="a learned number for each token, added to its logit",
        ),
    )
}
# What a setting is called and means in a hierarchical model.
HIERARCHICAL: dict[str, dict[str, Any]] = {
    "layers": {"meaning": "the number of layers of cells at each of the two levels"},
    "cell": {"meaning": "the recurrent cell at both levels, over words and over sentences"},
    "bidirectional": {
        "name": "Bidirectional",
        "meaning": "the cells read words, and sentences, in both directions",
    },
}
# Only these kinds of models have the setting.
KINDS_WITH = {
    **dict.fromkeys(("norm", "normalization", "activation", "d_ff"), STACKED),
    **dict.fromkeys(("cell", "bidirectional"), RECURRENT),
    "feeding": tuple(kind for kind in RECURRENT if kind != "hierarchical"),
    "pool": ("classifier",),
    "tied": ("transformer", "decoder", "recurrent", "hybrid"),
    "output_bias": ("transformer", "decoder"),
}
TRAINING_SETTINGS = {  # by group
    "Duration": (
        Param(
            "steps",
            "Maximum steps",
            1000,
            *BOUNDS["steps"],
            100,
            meaning="the largest number of updates of the weights",
        ),
        Param(
            "max_seconds",
            "Maximum seconds",
            900.0,
            *BOUNDS["max_seconds"],
            5.0,
            meaning="the longest time of the run, evaluation included",
        ),
        Param(
            "patience",
            "Early stopping patience",
            0,
            *BOUNDS["patience"],
            5,
            meaning="records without a smaller validation loss after which training stops; 0 never stops early",
        ),
        Param(
            "keep_best",
            "Keep the best weights",
            False,
            meaning="the final figures and the other pages use the weights with the smallest validation loss",
        ),
        Param(
            "finish_early",
            "Finish at 99 %",
            True,
            meaning="training ends after two records in a row with a validation sequence accuracy of 99 %",
        ),
    ),
    "Optimization": (
        Param(
            "optimizer",
            "Optimizer",
            "adamw",
            choices=OPTIMIZERS,
            labels=("AdamW", "Adam", "RMSprop", "SGD"),
            meaning="the rule by which gradients change the weights; SGD has momentum 0.9 and needs a larger rate",
        ),
        Param(
            "schedule",
            "Learning rate schedule",
            "cosine",
            choices=SCHEDULES,
            labels=("constant", "cosine, to a tenth", "1/√step (Vaswani 2017)"),
            meaning="how the learning rate changes after the warm-up",
        ),
        Param(
            "warmup",
            "Warm-up steps",
            50,
            *BOUNDS["warmup"],
            10,
            meaning="the first steps, in which the learning rate rises from 0",
        ),
        Param(
            "batch_size",
            "Batch size",
            64,
            *BOUNDS["batch_size"],
            8,
            meaning="the number of examples in one update",
        ),
        Param(
            "clip",
            "Clip gradients at",
            1.0,
            *BOUNDS["clip"],
            0.1,
            meaning="the largest allowed gradient norm; a very large number never clips",
        ),
        Param(
            "weight_decay",
            "Weight decay",
            0.01,
            *BOUNDS["weight_decay"],
            0.01,
            meaning="how strongly each step pulls the weights towards zero",
        ),
        Param(
            "label_smoothing",
            "Label smoothing",
            0.0,
            *BOUNDS["label_smoothing"],
            0.05,
            meaning="the share of the target probability spread over all tokens (Szegedy 2016)",
        ),
    ),
    "Hardware": (
        Param("device", "Device", "auto", choices=devices(), labels=("automatic",), meaning=AUTO),
        Param(
            "precision",
            "Precision",
            "fp32",
            choices=PRECISIONS,
            labels=("float32", "bfloat16"),
            meaning="bfloat16 is for wide models: on a CPU with AMX from a width of about 256; below, it is slower",
        ),
        Param(
            "checkpointing",
            "Gradient checkpointing",
            False,
            meaning="each layer is computed again in the backward pass: less memory, more time",
        ),
    ),
}


def group(label: str, icon: str, key: str) -> Any:
    """A popover whose body runs only while it is open."""
    return st.popover(label, icon=icon, width="stretch", on_change="rerun", key=key)


def setting_key(name: str, param: Param) -> str:
    """The key of a setting's widget, which is in links: there the most seconds are still called `seconds`."""
    return f"{name}:{'seconds' if param.key == 'max_seconds' else param.key}"


def parameters_values(params: Iterable[Param], key: str, visible: bool) -> dict[str, Value]:
    """Each parameter's value: of its widget while the group is visible, else of the session. All are in the link."""
    params = tuple(params)
    for param in params:
        link_param(param, setting_key(key, param))
    if visible:
        return {
            param.key: param_widget(param, key=setting_key(key, param), keep=KEEP)
            for param in params
        }
    return {
        param.key: st.session_state.get(setting_key(key, param), param.default) for param in params
    }


def of_model(start: ModelConfig) -> tuple[Param, ...]:
    """The parameters of a type of model beside its width and its attention; their defaults are the recipe's."""
    words = HIERARCHICAL if start.kind == "hierarchical" else {}
    return tuple(
        replace(param, default=getattr(start, key), **words.get(key, {}))
        for key, param in MODEL_SETTINGS.items()
        if start.kind in KINDS_WITH.get(key, (start.kind,))
    )


def of_training(base: RunConfig, form: str) -> dict[str, tuple[Param, ...]]:
    """The settings of a run by group, without those that do not apply to it; their defaults are the recipe's."""
    excluded = ["label_smoothing"] * (form == "series")
    excluded += ["checkpointing"] * (base.model.kind in RECURRENT)
    excluded += ["finish_early"] * (form in ("text", "series"))
    most = {"steps": most_steps(), "max_seconds": most_seconds()}
    return {
        name: tuple(
            replace(param, default=getattr(base, param.key), high=most.get(param.key, param.high))
            for param in params
            if param.key not in excluded
        )
        for name, params in TRAINING_SETTINGS.items()
    }


def changes(values: dict[str, Value], params: Iterable[Param]) -> list[str]:
    """The settings that differ from their defaults, as text."""
    texts = []
    for param in params:
        value = values[param.key]
        text = param.label(value) if isinstance(value, str) else f"{value:g}"
        if isinstance(value, bool):
            text = "on" if value else "off"
        if value != param.default:
            texts.append(f"{param.name.lower()} {text}")
    return texts


# The controls of Train: a task, a model, its mechanism and the training; the frozen `Controls` is core's RunConfig.


BY_INPUT = {
    ("transformer", "patches"): "Image to text",
    ("classifier", "patches"): "Vision Transformer",
}
TASK = "train:task"
MAX_HEADS_ON_OFFER, MAX_WIDTH = 16, 1024
CELLS = (  # of the controls: those that are wide, those of the task, those with long names, and the others
    (False, ("task", "told", "own")),
    (True, ("param", "more")),
    (False, ("model", "mechanism")),
    (True, ("axes", "pattern", "heads", "rate", "seed", "sizes", "training")),
)


def heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= MAX_HEADS_ON_OFFER]


def nearest_heads(d_model: int, most: int) -> int:
    """The largest number of heads on offer up to `most`."""
    return max(heads for heads in heads_of(d_model) if heads <= most)


FIELDS = Fields(
    "train",
    kind=Select(
        "Model",
        lambda values: {
            kind: BY_INPUT.get((kind, values.input), MODEL_NAMES[kind]) for kind in values.kinds
        },
        key=lambda values: f"{values.task}:kind",
        hidden=True,
        help="The architecture that is trained. Each has settings of its own.",
    ),
    heads=SelectSlider(
        "Heads",
        lambda values: heads_of(values.d_model),
        lambda values: nearest_heads(values.d_model, values.most),
        key=lambda values: f"{values.name}:heads:{values.d_model}",
        hidden=True,
        help="The number of attention heads in each layer. Only numbers that divide d_model.",
    ),
    seed=Number(
        "Seed",
        0,
        0,
        2**31 - 1,
        hidden=True,
        help="Fixes the first weights, the data and its order: the same seed gives the same run.",
    ),
    example=Select(
        "Held-out example",
        lambda values: {at: example_label(values.data, at) for at in values.examples},
        hidden=True,
        help="An input that the model is not trained on; the map shows its attention.",
    ),
    attention=Select(
        "Attention",
        lambda values: {kind: run_data.NAMES[kind] for kind in values.kinds},
        key=lambda values: f"kind:{values.data.run.id}",
        when=lambda values: len(values.kinds) > 1,
        hidden=True,
        help="Cross-attention: from outputs to the input. Self-attention: within one of them. A "
        "hierarchical model attends to sentences, and to the words of each.",
    ),
    head=Select(
        "Head",
        lambda values: {
            (layer, head): head_name(layer, head, values.shape)
            for layer in range(values.shape[0])
            for head in range(values.shape[1])
        },
        lambda values: values.best,
        key=lambda values: f"head:{values.data.run.id}:{values.kind}",
        when=lambda values: values.shape != (1, 1),
        hidden=True,
        help="At first the head with the most weight on the expected position.",
    ),
    step=SelectSlider(
        "Training step",
        lambda values: values.steps,
        lambda values: values.steps[-1],
        key=lambda values: f"step:{values.run}",
        hidden=True,
        help="The training step that all figures show.",
    ),
    more=Number(
        "More steps",
        lambda values: min(values.most, max(100, values.reached)),
        1,
        lambda values: values.most,
        100,
        key=lambda values: f"more:{values.run}",
        hidden=True,
        help="Training continues from the last saved weights.",
    ),
)


def controls() -> RunConfig | None:
    """Draw the controls; the config of the run, or None with the reason on the page."""
    cells: dict[str, DeltaGenerator] = {}
    with st.container(gap="small"):
        for in_grid, names in CELLS:
            # in one column beside the pictures, in two on a phone
            columns: Any = 1 if presenting() else "auto"
            grid: Any = st.grid(columns, min_column_width=150, gap="small") if in_grid else HERE
            with grid:
                cells |= {name: st.container() for name in names}
    keys = [entry.key for entry in TASKS]
    link_value(
        TASK, keys[0], one_of(keys), always="run" in st.query_params
    )  # a run alone brings its own set-up
    key = cells["task"].selectbox(
        "Task",
        keys,
        format_func=lambda k: task_entry(k).name,
        key=TASK,
        **KEEP,
        help="What the model learns. The tasks on your own data come last.",
    )
    entry, config = task_entry(key), None
    try:
        task = task_of(_task(entry, cells))
    except (ConfigError, ValueError) as error:
        cells["own"].error(plain(str(error)))
        return None
    if task.notes:
        cells["own"].caption(plain(" ".join(task.notes)))
    try:
        config = _run(task, cells)
    except ConfigError as error:
        st.error(plain(str(error)))
    attends = config is None or config.model.attention is not None
    cells["told"].caption(f"{entry.meaning} {entry.look if attends else ''}")
    return config


def adopt(config: RunConfig) -> None:
    """Set the widgets to the config of a run that a link brought."""
    config = within(config)
    task, model = config.task, config.model
    name = f"train:{task.key}:{model.kind}"
    values: dict[str, Any] = {
        TASK: task.key,
        f"train:{task.key}:kind": model.kind,
        "train:seed": config.seed,
        attention_key(name): model.attention,
        f"{name}:rate": config.learning_rate,
        f"{name}:d_model": model.d_model,
        f"{name}:heads:{model.d_model}": nearest_heads(model.d_model, model.num_heads),
    }
    values |= {f"{name}:{param.key}": getattr(model, param.key) for param in of_model(model)}
    values |= adopt_pattern(name, model)
    for params in of_training(config, "pairs").values():
        values |= {setting_key(name, param): getattr(config, param.key) for param in params}
    st.session_state.pop(f"train:{task.key}:first", None)
    st.session_state.update(
        values | {f"train:{task.key}:{key}": value for key, value in task.params}
    )


def _task(entry: TaskEntry, cells: dict[str, DeltaGenerator]) -> TaskConfig:
    """The config of the task: all parameters of a person's own data, or the first one with the others in a popover."""
    values: dict[str, Value] = {}
    name, others = f"train:{entry.key}", entry.params[1:]
    if any(param.key == data_upload.DATA for param in entry.params):
        with cells["own"]:
            return TaskConfig.of(entry.key, seed=0, **_own_data(entry, name))
    with cells["param"]:
        values |= parameters_values(entry.params[:1], name, True)
    if others:
        with cells["more"]:
            panel = group("Task settings", ":material/tune:", f"{name}:group")
        with panel:
            values |= parameters_values(others, name, panel.open)
    return TaskConfig.of(entry.key, seed=0, **values)


def _own_data(entry: TaskEntry, name: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for param in entry.params:
        key = f"{name}:{param.key}"
        if param.key == data_upload.DATA:
            values[param.key] = data_upload.data_widget(param, key)
        elif param.key in data_upload.UNNAMED:
            names = data_upload.names_of(str(values[data_upload.DATA]), str(values["header"]))
            link_value(key, "", one_of(["", *names]))
            values[param.key] = data_upload.column_widget(param, names, key)
        elif param.key == data_upload.COLUMNS:
            texts = {name: str(value) for name, value in values.items()}
            link_value(key, "", str)
            values[param.key] = data_upload.columns_widget(param, texts, key)
            link_value(key, "", str)
        else:
            link_param(param, key)
            values[param.key] = param_widget(param, key=key, keep=KEEP)
    return values


def _run(task: Task, cells: dict[str, DeltaGenerator]) -> RunConfig:
    # Where other data has another first recommended model, select it, unless a person had selected another
    state, kinds = st.session_state, list(task.recommended)
    key, first = f"train:{task.key}:kind", f"train:{task.key}:first"
    if state.get(first, kinds[0]) != kinds[0] and state.get(key) == state[first]:
        state[key] = kinds[0]
    state[first] = kinds[0]
    kind = FIELDS.draw(
        "kind", into=cells["model"], task=task.key, kinds=kinds, input=task.input
    ).kind
    base = within(recommended(task, kind))
    name = f"train:{task.key}:{kind}"  # each task and model keeps its own settings
    with cells["sizes"]:
        # The popover of the model: its width, and the parameters of its type
        panel = group("Model settings", ":material/layers:", f"{name}:sizes")
        params = of_model(base.model)
        link_value(f"{name}:d_model", base.model.d_model, between(1, MAX_WIDTH))
        with panel:
            width = st.session_state.get(f"{name}:d_model", base.model.d_model)
            if panel.open:
                width = st.select_slider(
                    "d_model",
                    sorted({*WIDTHS, base.model.d_model, width}),
                    base.model.d_model,
                    key=f"{name}:d_model",
                    **KEEP,
                    **keep_heads(
                        f"{name}:d_model", lambda width: f"{name}:heads:{width}", heads_of
                    ),
                    help="The length of each token's vector.",
                )
            values = parameters_values(params, name, panel.open)
        _show_changes(
            [f"d_model {width}"] * (width != base.model.d_model) + changes(values, params)
        )
        sizes = {"d_model": width, **values}
    d_model, heads = sizes["d_model"], 1
    if kind not in RECURRENT or base.model.num_heads > 1:
        most = base.model.num_heads
        given = {"name": name.removeprefix("train:"), "d_model": d_model, "most": most}
        heads = FIELDS.draw("heads", into=cells["heads"], **given).heads
        note_heads(f"{name}:d_model", d_model, heads)
    with cells["training"]:
        # The popover of the training, in its groups
        panel = group("Training settings", ":material/model_training:", f"{name}:training")
        groups, training = of_training(base, task.form), dict[str, Any]()
        with panel:
            for title, params in groups.items():
                if panel.open:
                    st.markdown(f"**{title}**")
                training |= parameters_values(params, name, panel.open)
        _show_changes([text for params in groups.values() for text in changes(training, params)])
    link_value(f"{name}:rate", base.learning_rate, between(*BOUNDS["learning_rate"], float))
    current = state.get(f"{name}:rate", base.learning_rate)
    rate = cells["rate"].select_slider(
        "Learning rate",
        sorted({*RATES, base.learning_rate, current}),
        base.learning_rate,
        # No two rates have the same text, by which the slider tells them apart.
        format_func=lambda rate: np.format_float_scientific(rate, trim="-", exp_digits=1).replace(
            "+", ""
        ),
        key=f"{name}:rate",
        **KEEP,
        help="The size of each update of the weights.",
    )
    seed = FIELDS.draw("seed", into=cells["seed"]).seed
    attention = choose_attention(
        name, base.model, kind, d_model, heads, cells["mechanism"], cells["axes"]
    )
    if attention is not None and kind in STACKED:
        attention = attention.with_(dropout=sizes["dropout"])
    model = replace(base.model, num_heads=heads, attention=attention, **sizes)
    pattern = layer_pattern(name, model, cells["pattern"])
    with cells["pattern"]:
        _show_changes(pattern_changes(pattern))
    model = replace(model, **pattern)
    caption(f"{summary(model)} {count_parameters(model, task.shape):,} parameters.")
    return recommended(task, kind, model=model, learning_rate=rate, seed=seed, **training)


def _show_changes(changes: list[str]) -> None:
    """The changed settings, which a closed popover hides."""
    if changes:
        st.caption(plain(f"Changed: {', '.join(changes)}."))


# What the page computes as Python: from the folder of the run that is drawn, with what trains it again.


CURVES = "The records of the run: a row for each step at which it was measured. `train(config)` gives them again."
STEP = "One step: the scores, and the attention of one head on a held-out example."
SCRIPT_NAMES = (
    "loss",
    "train_loss",
    "sequence_accuracy",
    "token_accuracy",
    "error",
    "gradient",
    "rate",
)
DRAW_CURVES = """
import altair as alt

alt.Chart(table.reset_index()).transform_fold(["loss", "train_loss"]).mark_line(point=True).encode(
    x="step:Q", y="value:Q", color="key:N")
"""
DRAW_MAP = """
from core.show import show_maps

show_maps({f"Step {step}": weights}, rows, columns)
"""


def script(data: RunData, moment: Moment) -> Script:
    """The curves of the run, and the picked step with its map."""
    records, record, head = data.records, data.at(moment.step), moment.head
    names = [
        name for name in SCRIPT_NAMES if any(getattr(one, name) is not None for one in records)
    ]
    config = source_of(data.required_config)
    attention = "AttentionConfig" in config or "Choice" in config
    curves = f"""import pandas as pd

{f"{attention_import(config)}{chr(10)}" * attention}from core.models import ModelConfig
from core.tasks import TaskConfig, make_task
from core.training.config import RunConfig
from core.training.record import one_a_step
from core.runs.runs import open_run

config = {config}
task = make_task(config.task)
# from core.training import train; records = list(train(config))  # trains it again
run = open_run({path_code(data.run.path)})
records = one_a_step(run.records())
names = {names}
table = pd.DataFrame([[getattr(record, name) for name in names] for record in records], columns=names,
                     index=pd.Index([record.step for record in records], name="step"))
print(table.tail(), "guessing has a loss of", task.baseline_loss)
"""
    step = f"""
step = {moment.step}
record = next(one for one in records if one.step == step)
print(record.loss, record.sequence_accuracy, record.expected)
"""
    results = {
        f"table[{name!r}].to_numpy(float)": np.array(
            [value for _, value in points(records, name)], dtype=float
        )
        for name in names
    }
    results |= {
        "task.baseline_loss": np.array(data.task().baseline_loss),
        "int(config == run.config())": np.array(1),
    }
    if record.expected:
        results["record.expected"] = np.array(record.expected)
        results["record.even"] = np.array(record.even)
    shown = Cell(STEP.partition(",")[0] + ".", step)
    if head is not None and moment.weights is not None:
        key = f"{head.example}:{head.kind}"
        code = f"""from core.models import map_tokens
from core.training.evaluate import axis_tokens
{step}
frame = run.frame(step)  # by example and type of attention: (layers, H, T, S)
weights = frame[{key!r}][{head.layer}, {head.head}]  # (T, S)
tokens = axis_tokens(task, task.held_out(config.num_examples)[{head.example}])
rows, columns = map_tokens(config.model, {head.kind!r}, *tokens)
rows, columns = rows[:weights.shape[0]], columns[:weights.shape[1]]
"""
        shown = Cell(STEP, code, DRAW_MAP, f"train:map:{data.run.id}:{key}")
        results["weights"] = moment.weights
    return Script((Cell(CURVES, curves, DRAW_CURVES, "train:loss"), shown), results)


# The page Train: the run bar and the controls on the left, the figures of the run on the right.


HALF = 0.5
WEIGHT_PANEL = "Weight on the expected position, gradients and learning rate"
AFTER = ("questions", "lessons")  # pages for those who have walked the path
MEANING = (
    "Nobody programs where a model attends. The loss rewards correct outputs; its gradient changes $W_q$ and "
    "$W_k$ until the query of an output matches the key of the input that helps. The map above therefore starts "
    "nearly uniform and becomes sharp while the loss falls."
)

PAGE = "train"
RESTART_HELP: dict[run_controls.RunState, str] = {
    "live": "Stop this run and start a new one with these settings",
    "paused": "Leave this run and start a new one with these settings",
}

LONG = 24  # tokens
LONG_TABLE = 300  # pixels
PICTURE = 48

PAGE_CURVES = "train:curves"  # the panel of further curves

# On a phone the run bar comes first, then the figures, then the settings; in Streamlit's order the settings are second.
PHONE_STYLE = """<style>@media (max-width: 640px) {
.st-key-train-board > * > [data-testid=stHorizontalBlock] {
  > :first-child, > :first-child > [data-testid=stVerticalBlock] { display: contents }
  > :last-child { order: 1 }
  > :first-child > [data-testid=stVerticalBlock] > :not(:first-child) { order: 2; flex: 1 1 100% }
}}</style>"""


def page() -> None:
    title(
        "Train and watch",
        "Attention forms while a small model trains. Drag the step to any moment.",
    )
    jobs.warm_up()
    run, trouble = linked_run(linked_run_id())
    forget_other_runs("train", run.id)
    if trouble:
        st.warning(trouble)
    if (linked := config_from_link(run)) is not None and not is_new(
        TASK
    ):  # else the link has a set-up
        adopt(linked)
    data = load_run(run)
    with st.container(key="train:board"):
        st.html(PHONE_STYLE)
        left, right = st.columns([0.3, 0.7], gap="medium")
    with right:  # before the controls: the browser gets the figures first
        poll(lambda: load_run(run), _figures, data.live, "train:figures")
    with left:
        first = st.container()  # on a phone Stop comes before everything else
        config = controls()
        st.caption("Changed settings apply to the next run.")
        with first:
            run_bar(data, config)
            if config is not None:
                # last, because it times a few steps
                with st.spinner("Timing a few steps"), one_thread():  # as the run has
                    sentence = time_needed(config)
                if sentence:
                    st.caption(plain(sentence))
    # A question about the run, runs to try, and what the figures mean
    if data.config is not None and not data.live and (question := run_question(data)):
        predict("train", question)
    try_this("train", moves())
    paragraph(f"**What it means.** {MEANING}")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("The path ends here. Test what you know, or read on below:", width="content")
        for step in map(step_of, AFTER):
            st.page_link(step.page(), label=step.title, icon=step.icon, query_params={})

    def source() -> None:
        if config is not None and config.model.attention is not None:
            entries_panel([entry("score", config.model.attention.score.key)])
        source_panel(train)

    details("Equation, paper and training loop", source, "train:source")
    next_page("train")


def _figures(data: RunData) -> None:
    """The figures of a run, or why there are none yet."""
    if damage := damage_of(data.run):
        st.warning(damage)
    if data.trouble:
        st.error(plain(data.trouble))
        st.button("Show the example run", key="train:example-instead", on_click=select_example)
    elif data.records:
        draw(data)
    elif not data.live:
        placeholder("This run ended before its first measurement. Press Train to start another.")
    elif jobs.place(data.run) is not None:
        placeholder("Waiting for a free worker.")
    else:
        placeholder("The first numbers appear within a second.")


def draw(data: RunData) -> None:
    """The attention over training time beside the curves; below the examples, all at one step."""
    ink = Ink.of(theme())
    paragraph(f"**{data.task().name}.** {task_entry(data.task().key).meaning}")
    with st.container(gap="small"):
        left, right = st.columns(2, gap="medium")
        below = st.container()
    with left, picture("train"):
        moment = attention_over_time(data)
        source_figures(data, moment, ink)
    add_script(partial(script, data, moment))
    problems = findings(data, moment.step)
    with right:
        loss(data, moment.step, ink, problems.get("loss", ()))
        metric(data, moment.step, ink)
        # What the step shows; while the run trains, the way back to the latest step
        record, head = data.at(moment.step), moment.head
        index = (head.layer, head.head) if head and head.to_source else best_head(record)
        fact(fact_text(record, data.task(), index, data.baselines(record.held_out)))
        if (
            data.live and head
        ):  # a button: a switch that the browser draws late would send its default
            st.button(
                "Follow the latest step",
                key="train:follow",
                on_click=forget_step,
                args=(data.run.id,),
                disabled=moment.latest,
                help="All figures show the latest step until you pick one.",
            )
    with below:
        # The outputs at the step, correct and wrong, and how fast it went
        decoded = data.decoded_at(moment.step)
        if decoded is not None:
            examples(data, decoded, ink)
        if record.confusion and len(record.confusion) == len(data.task().classes):
            chart_title(f"Confusion matrix at step {record.step:,}")
            st.html(tables.confusion(record.confusion, data.task().classes, ink))
        if record.buckets:
            chart_title("Accuracy by source length")
            st.html(tables.lengths(record.buckets, ink.hairline))
        caption(pace(record, line(data.run.metadata().get("machines"))))
    document_figure(data, moment, ink)  # as wide as both columns: a sentence is a line
    if problems.keys() - {"loss"}:  # what is wrong is not folded away
        st.session_state.setdefault(PAGE_CURVES, True)
    details(
        WEIGHT_PANEL
        if any(r.expected for r in data.records)
        else "Gradients, learning rate and speed",
        partial(charts_details, data, moment.step, ink, problems),
        PAGE_CURVES,
    )


# A classified document with the weights of its sentences and of their words, beside what decides its class.


def document_figure(data: RunData, moment: Moment, ink: Ink) -> None:
    """Draw the document of the picked example; nothing for a task without sentences, or before the first maps."""
    task, config = data.task(), data.config
    if config is None or moment.head is None or not task.shape.sentence_end:
        return
    example = watched_examples(config.task, config.num_examples)[moment.head.example]
    tokens, _ = task.display_tokens(example)
    head, weights = moment.head, None
    if config.model.kind == "hierarchical":  # whose two levels are saved
        frame = data.run.frame(moment.step)
        words, sentences = (frame.get(f"{head.example}:{kind}") for kind in ("words", "sentences"))
        if words is not None and sentences is not None:
            weights = DocumentWeights(tokens, words[0, 0].sum(0), sentences[0, 0, 0])
    elif moment.weights is not None:  # a Transformer's row of the class, summed over each sentence
        rows, _ = run_data.tokens(data, head.example, head.kind)
        named = source_weights(config.model, head.kind, moment.weights, rows, len(tokens))
        if named is not None:
            row = np.asarray(named[1][0], dtype=np.float32)
            weights = DocumentWeights.of_words(tokens, row)
    if weights is None:
        return
    deciding, decoded, classes = task.deciding(example), data.decoded_at(moment.step), None
    if decoded is not None and moment.head.example < len(decoded.examples):
        prediction = decoded.examples[moment.head.example]
        classes = " ".join(map(str, prediction.target)), " ".join(prediction.predicted)
    chart_title(f"Document at step {moment.step:,}")
    st.html(lines(weights, None if deciding is None else deciding[0], theme(), ink))
    caption(document(weights, deciding, classes))


# Held-out examples at a step: text with errors marked, pictures, rows of a table, or a series.


def examples(data: RunData, record: Record, ink: Ink) -> None:
    """Draw the watched examples with the model's answers in a record."""
    task, predictions = data.task(), record.examples
    chart_title(f"Examples at step {record.step:,}")
    if task.form == "series":
        errors = []  # the mean absolute error of each forecast, and of repeating the last season
        for past, target, output in map(series, predictions):
            both = np.array([output, task.naive(past)]) - target
            errors.append(tuple(np.abs(both).mean(1).tolist()))
        st.html(tables.forecasts(errors, ink.hairline))
        return
    long = (
        max(len(e.source) + len(e.predicted) for e in predictions) > 2 * LONG
        and task.input == "tokens"
    )
    # Long sentences scroll, so that the fact below them stays in sight.
    with st.container(height=LONG_TABLE if long else "content", border=False):
        st.html(_table(data, task, predictions, ink))


def _table(data: RunData, task: Task, predictions: Sequence[Prediction], ink: Ink) -> str:
    look = task.separator, ink.pick, ink.hairline
    if task.input == "patches":
        config, grid, images = data.required_config, task.shape.grid, []
        watched = watched_examples(config.task, config.num_examples)
        for example in watched[: len(predictions)]:
            pixels = grids.tinted(
                grids.picture(example.source, grid), grid, None, theme(), ink.text
            )
            images.append(grids.image(pixels, "the picture", PICTURE))
        return tables.answers(images, predictions, *look)
    if task.form == "label":
        sources = [tables.escaped(separator(task).join(each.source)) for each in predictions]
        return tables.answers(sources, predictions, *look)
    return (tables.continued if task.form == "text" else tables.outputs)(predictions, *look)


# The run bar of Train: start, stop, pause, continue, train longer, and the run's progress.


def run_bar(data: RunData, config: RunConfig | None) -> None:
    """Draw the buttons of the run, and its progress; `config` is what Train would start."""
    run_controls.start_run(
        PAGE, config, jobs.start, select_run, ends=data.run if data.live else None
    )
    run = data.run
    own = not data.is_example and people.mine(run)
    state = run_controls.state_of(run, data.status) if own else "ended"
    row = st.container(horizontal=True, gap="small")
    run_controls.run_buttons(
        row,
        run,
        PAGE,
        state,
        start="Train",
        start_key="train:train",
        config=config,
        proceed=_continue,
        restart_help=RESTART_HELP,
    )
    if state == "ended" and own and run.checkpoint_steps() and data.config is not None:
        with row:
            _train_longer(data, data.config)
    if run_controls.anothers_note(run) and data.config is not None:
        st.button(
            "Copy to my runs",
            icon=":material/content_copy:",
            key="train:copy",
            on_click=_copy,
            args=(run,),
            help="The copy is yours: continue it, name it or download it.",
        )
    run_controls.limits_line()
    if is_small() and state == "ended":
        # Where memory is short no worker waits.
        st.caption(
            "Memory is short on this server, so that a run starts a few seconds after Train is pressed."
        )
    run_controls.show_flash(PAGE)
    poll(lambda: load_run(run), _progress, data.live, "train:progress")
    if (
        state == "ended"
        and not data.is_example
        and data.records
        and data.config is not None
        and data.config.task.key == EXAMPLE_RUN.config().task.key
    ):
        st.page_link(
            step_of("compare_runs").page(),
            label="Compare with the example run",
            icon=step_of("compare_runs").icon,
            query_params={"runs": f"{EXAMPLE_RUN.id},{data.run.id}"},
        )


def _train_longer(data: RunData, config: RunConfig) -> None:
    """A popover for more steps, from the last checkpoint."""
    panel = st.popover(
        "Train longer",
        icon=":material/forward:",
        width="stretch",
        on_change="rerun",
        key="train:longer",
        help="Continue training for more steps.",
    )
    if not panel.open:
        return
    reached, most = data.run.checkpoint_steps()[-1], most_steps()
    with panel:
        if reached >= most:
            st.caption(f"This run has reached {most:,} steps, the most that a run can have here.")
            return
        given = {"run": data.run.id, "reached": reached, "most": most - reached}
        more = FIELDS.draw("more", into=HERE, **given).more
        st.caption(
            f"From step {reached:,} to {reached + more:,}, for at most {config.max_seconds:g} more seconds. "
            f"The learning rate schedule ({config.schedule}) covers all steps."
        )
        st.button(
            "Continue training",
            icon=":material/resume:",
            key="train:go-on",
            on_click=_continue,
            args=(data.run, more),
        )


def _copy(run: Run) -> None:
    """Copy a run of another person, and show the copy."""
    flash_errors(
        PAGE,
        "The run could not be copied: ",
        lambda: select_run(copy_run(run, run.name)),
        LimitReached,
        OSError,
    )


def _continue(run: Run, more: int = 0) -> None:
    """Continue a run for `more` steps and as many seconds again; a paused run (0) as it was."""
    changes: dict[str, Any] = {}
    if more:
        data = load_run(run)
        seconds = sum(record.elapsed for record in data.records[-1:])
        changes = {
            "steps": run.checkpoint_steps()[-1] + more,
            "finish_early": False,
            "patience": 0,
            "max_seconds": min(most_seconds(), seconds + data.required_config.max_seconds),
        }
    if run_controls.continue_run(PAGE, run, **changes):
        forget_step(run.id)


def _progress(data: RunData) -> None:
    if data.is_example:
        st.caption("This is an example run. Press Train to start your own.")
    elif data.config is not None or not data.live:
        ending = plain(ending_text(data.status, data.records, data.config))
        run_controls.show_progress(
            data.run,
            data.status,
            ending=ending,
            progress=lambda: progress(data.records, data.required_config),
        )


# What Train offers a learner: a question that its run answers, and runs to try.


def run_question(data: RunData) -> Question | None:
    """Whether accuracy or the weight on the correct position reaches one half first; None where the run says neither,
    and for a class, of which guessing may reach one half.

    The curve of that weight is one click away on the page, so that it does not tell the answer.
    """
    unit = data.task().unit
    values = {
        f"{unit.capitalize()} accuracy": [(r.step, r.token_accuracy) for r in data.records],
        "The weight on the correct position": [
            (r.step, max(map(max, r.expected)) if r.expected else None) for r in data.records
        ],
    }
    steps = {
        name: next((step for step, value in points if value is not None and value >= HALF), None)
        for name, points in values.items()
    }
    if data.task().form == "label" or None in steps.values() or len(set(steps.values())) == 1:
        return None
    order = sorted(steps, key=lambda name: steps[name] or 0)
    first, second = (f"{name[0].lower()}{name[1:]} at step {steps[name]:,}" for name in order)
    options = tuple(steps)
    return Question(
        "Which reaches one half first while this model trains?",
        options,
        options.index(order[0]),
        (f"In this run: {first}, {second}. The weight has its curve in “{WEIGHT_PANEL}”.",)
        * len(options),
    )


@lru_cache(maxsize=1)
def moves() -> tuple[Move, ...]:
    """Runs to try on the first task; each sets the controls, and Train starts it."""
    task = make_task(TaskConfig.of("reverse"))
    base = recommended(task, "transformer")
    name = "train:reverse:transformer"
    start = {
        TASK: "reverse",
        "train:reverse:kind": "transformer",
        f"{name}:rate": base.learning_rate,
        attention_key(name): base.model.attention,
    }
    assert base.model.attention is not None
    longer = recommended(task, "recurrent").steps
    unordered = base.model.attention.with_(position=Choice.of("none"))
    return (
        Move(
            "Remove the positions",
            {**start, attention_key(name): unordered},
            "The encoder no longer knows the order of the letters. Press **Train**. When it has ended, open **Compare "
            "with the example run** below the button: compare sequence accuracy and the sharpness of the map.",
        ),
        Move(
            "Remove the attention",
            {
                TASK: "reverse",
                "train:reverse:kind": "recurrent",
                attention_key("train:reverse:recurrent"): None,
            },
            "A Transformer cannot compute without attention, so the model is now a recurrent one, whose decoder reads "
            f"only the last state of the encoder. It may take {longer:,} steps instead of {base.steps:,}. Press "
            "**Train**. When it has ended, open **Compare with the example run** and compare how many each needs.",
        ),
        Move(
            "Increase the learning rate tenfold",
            {**start, f"{name}:rate": 10 * base.learning_rate},
            "Every update is ten times as large. Press **Train**, then watch the loss and the gradient norm.",
        ),
        Move(
            "Translate number words",
            {TASK: "numbers"},
            "A task with real words, which takes longer. Press **Train**, then compare the map with the sentence "
            "under the task, which says what its attention should look like.",
        ),
    )
