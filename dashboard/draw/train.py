"""Train: its sentences of numbers and the curves of a run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from core.attention import (
    AXES,
    distinct_names,
    entry,
)
from core.entries import Param, Value
from core.interpret.trace import head_name
from core.models import (
    RECURRENT,
    STACKED,
    ModelConfig,
    encoder_masks,
    exact_fallbacks,
    sentence_spans,
)
from core.models.model_summary import NAMES
from core.runs.folder import Status
from core.studies import runs as study
from core.tasks import METRICS, SPECIALS, Task, task_entry, task_of
from core.training import (
    PASS,
    Prediction,
    Record,
    RunConfig,
)
from dashboard.draw.attention_view import READS
from dashboard.draw.components import Cell, attention_import, source_of
from dashboard.draw.curves import Curve, balanced_points, loss_curves, points
from dashboard.draw.figures import CATEGORIES, Ink, Spec, Theme
from dashboard.draw.formats import duration, number, percent, plain, plural, score, share_text
from dashboard.draw.grids import bar_figure, image, joined_patches, tinted
from dashboard.draw.tables import (
    DocumentWeights,
    answered,
    answers,
    continued,
    escaped,
    forecasts,
    outputs,
)


def separator(task: Task) -> str:
    return task.separator or ("" if task.input == "tokens" else " · ")


def series(prediction: Prediction) -> tuple[list[float], list[float], list[float]]:
    return (
        [*map(float, prediction.source)],
        [*map(float, prediction.target)],
        [*map(float, prediction.predicted)],
    )


def fact_text(
    record: Record,
    task: Task,
    head: tuple[int, int] | None,
    baselines: Sequence[tuple[str, float]] = (),
) -> str:
    """The fact about a step, in Markdown: the weight in the (layer, head) `head`, and the scores and `baselines`."""
    text, step = _scores(record, task, baselines), f"At step :primary[**{record.step:,}**], "
    if not record.expected or head is None or record.even is None:
        return text and step + text
    only, (layer, at) = len(record.expected) * len(record.expected[0]) == 1, head
    return (
        f"{step}{f'the correct {task.unit}' if task.form == 'pairs' else task.expected_name} gets "
        f"**{number(record.expected[layer][at])}** of the weight"
        f"{'' if only else f' in {head_name(*head)}'}; equal weights "
        f"give {number(record.even)}. "
        f"{text[:1].upper()}{text[1:]}"
    )


def _scores(record: Record, task: Task, baselines: Sequence[tuple[str, float]]) -> str:
    if record.error is not None:
        return f"the forecast error is **{percent(record.error)}** of the error of repeating the last season."
    if record.loss is not None and task.form == "series":
        return (
            f"the squared error is **{number(record.loss)}**; predicting the mean gives "
            f"{number(task.baseline_loss)}."
        )
    if record.loss is None or record.token_accuracy is None:
        return ""
    if task.form == "label":
        balanced = f", balanced accuracy **{percent(record.balanced)}**"
        others = " and ".join(
            f"{plain(name)} reaches {percent(share)}" for name, share in baselines
        )
        return (
            f"accuracy is **{percent(record.token_accuracy)}** on {record.held_out:,} held-out {task.whole}"
            f"{'' if record.balanced is None else balanced}{others and f'; {others}'}."
        )
    text = f"{task.unit} accuracy is {percent(record.token_accuracy)}"
    unknown = (
        ""
        if record.unknown is None
        else f" {percent(record.unknown)} of the held-out {task.unit}s are not in the vocabulary, so the model "
        f"cannot output them: the loss is {number(record.known_loss or 0.0)} without them, {number(record.loss)} "
        "with them."
    )
    if task.form == "text":
        return (
            f"{text}; the loss is {number(record.loss)} nats per {task.unit}, {guess_text(task)} at random gives "
            f"{number(task.baseline_loss)}.{unknown}"
        )
    if record.sequence_accuracy is None:
        return text + "."
    far = record.token_accuracy - record.sequence_accuracy > 0.2
    scores = " and ".join(
        f"{name} is {score(value)}"
        for name, value in (("BLEU", record.bleu), ("chrF", record.chrf))
        if value is not None
    )
    cut = (
        ""
        if not record.cut
        else f" {record.cut:,} of {record.held_out:,} outputs {'was' if record.cut == 1 else 'were'} cut at "
        f"{task.max_target + 1} tokens, before an end token."
    )
    return (
        f"{f'{text}, but sequence accuracy only' if far else 'sequence accuracy is'} "
        f"{percent(record.sequence_accuracy)}{scores and f'; {scores}'}."
        f"{cut}{unknown}"
    )


def early_end(last: Record, config: RunConfig | None) -> str:
    """Why a run that finished stopped before its last step; a limit of time is in its message already."""
    if config is None or last.capped or last.step >= config.steps:
        return ""
    why = "the validation loss no longer fell" if config.patience else ""
    if config.finish_early and (last.sequence_accuracy or 0.0) >= PASS:
        why = f"at least {percent(PASS)} of the {task_of(config.task).whole} were correct"
    return why and f" It ended before step {config.steps:,}, since {why}."


def ending_text(status: Status, records: Sequence[Record], config: RunConfig | None = None) -> str:
    """How a run ended, why before its last step, and its sequence accuracy."""
    last = next((r for r in reversed(records) if r.sequence_accuracy is not None), None)
    early = early_end(records[-1], config) if records and status.state == "finished" else ""
    if last is None or status.state == "failed":
        return status.message + early
    accuracy = last.sequence_accuracy or 0.0
    task = config and task_of(config.task)
    name = "Accuracy" if task and task.form == "label" else "Sequence accuracy"
    return (
        f"{status.message}{early} {name} is {percent(accuracy)} on {last.held_out:,} held-out "
        f"{task.whole if task else 'items'}."
    )


def pace(record: Record, machine: str = "") -> str:
    share, norm, speed = record.data_share, record.gradient, record.tokens_per_second
    parts = (
        f"{duration(record.elapsed)} elapsed, {duration(record.train_seconds)} of training",
        bool(speed) and f"{speed:,.0f} tokens/s",
        share is not None and f"{percent(share)} of the training time spent on batches",
        norm is not None and f"gradient norm {number(norm)}",
        machine and f"on {plain(machine)}",
    )
    return " · ".join(part for part in parts if part)


MAX_HEADS = 4  # lines that can be told apart


def guess_text(task: Task) -> str:
    """What the guess is whose loss is to beat: of a uniform one, out of which tokens or classes it takes one.

    Marks are the tokens for padding, begin, end and what is unknown, and those without a letter or digit.
    """
    if task.form == "series":
        return "the mean"
    count = len(task.classes or task.target_vocab)
    if not math.isclose(task.baseline_loss, math.log(count)):
        return "class frequencies"
    if task.classes:
        return f"one of {count} classes"
    marks = set(SPECIALS)
    if task.unit != "character":
        marks |= {one for one in task.target_vocab.tokens if not any(map(str.isalnum, one))}
    return f"one of {plural(count - len(marks), task.unit)} + {len(marks)} marks"


TRANSLATED = {  # by the language of a task's number words
    "de": "Ninety-five in German is *fünf und neun zig*: five and nine tens.",
    "fr": "Ninety-five in French is *quatre vingt quinze*: four twenties, fifteen.",
}


def task_text(task: Task) -> str:
    """A run's task in a sentence; of number words, what one of them means word for word."""
    language = dict(task.config.params).get("language")
    return f"**{task.name}.** {task_entry(task.key).meaning} {TRANSLATED.get(str(language), '')}".strip()


def reads(task: Task, kind: str = "cross") -> str:
    """What a map's rows and columns are: with teacher forcing, the rows are the target, not what the model wrote."""
    target = kind == "cross" and task.form == "pairs"
    return READS[kind].replace("output", "target") if target else READS[kind]


def loss_chart(task: Task, records: Sequence[Record]) -> tuple[str, list[Curve], dict[str, Any]]:
    """Validation and training loss, and the loss of guessing: title, curves and the rest of the chart.

    The axis ends at three times guessing or at the start, so that a spike does not flatten the rest.
    """
    losses = [r.loss or 0.0 for r in records]
    guess = task.baseline_loss
    return (
        "Squared error" if task.form == "series" else "Loss",
        loss_curves(records),
        {
            "guess": (guess, f"{guess_text(task)}: {number(guess)}"),
            "high": max(guess, losses[0] or guess, min(max(losses), 3 * guess)),
            "alt": "Validation and training loss over training.",
        },
    )


def loss_text(task: Task) -> str:
    """What a loss is, in half a sentence; empty for a series, of which it is a squared error."""
    if task.form == "series":
        return ""
    return (
        f"Loss: how surprised the model is by the right {task.unit}; 0 is certain, "
        f"{number(task.baseline_loss)} a guess."
    )


def score_chart(
    task: Task, records: Sequence[Record], baselines: Sequence[tuple[str, float]]
) -> tuple[str, list[Curve], dict[str, Any]]:
    """The scores of the task on held-out examples, and the best of its baselines."""
    if task.form == "series":
        return (
            "Validation error, % of the error of repeating the last season",
            [Curve("error", points(records, "error", 100))],
            {
                "guess": (100.0, "last season repeated"),
                "alt": "Validation error over training, compared with repeating the last season.",
            },
        )
    scores = [
        Curve(name, points(records, key))
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if any(getattr(r, key) is not None for r in records)
    ]
    own = {key: METRICS[key] for r in records for key in r.scores if key in METRICS}
    scores += [
        Curve(metric.name, points(records, key, 100 if metric.unit == "share" else 1))
        for key, metric in own.items()
        if metric.unit != "positive"
    ]
    curves = [
        Curve(f"{task.unit} accuracy", points(records, "token_accuracy", 100)),
        *scores,
    ]
    if task.form in ("pairs", "marked"):
        curves.insert(0, Curve("sequence accuracy", points(records, "sequence_accuracy", 100)))
    elif task.form == "label":
        curves = [
            replace(curves[0], name="accuracy"),
            Curve("balanced accuracy", balanced_points(records)),
            *scores,
        ]
    name = curves[0].name if len(curves) == 1 else "scores" if scores else "accuracy"
    best = max(baselines, key=lambda baseline: baseline[1], default=None)
    shares = all(metric.unit != "score" for metric in own.values())
    return (
        f"Validation {name}",
        curves,
        {
            "alt": f"Accuracy on held-out {task.whole} over training.",
            "high": 100,
            "percent": shares and not any(one.name in ("BLEU", "chrF") for one in scores),
            "guess": best and (100 * best[1], f"{best[0]}: {percent(best[1])}"),
        },
    )


def weight_chart(
    task: Task, records: Sequence[Record], last: Record
) -> tuple[str, list[Curve], dict[str, Any]]:
    """The weight on expected positions in the heads that put most there at the end, in the record `last`."""
    heads = sorted(np.ndenumerate(np.array(last.expected)), key=lambda head: head[::-1])[::-1]
    curves = [
        Curve(
            f"L{layer}·H{head}",
            [(r.step, r.expected[layer][head] if r.expected else None) for r in records],
        )
        for (layer, head), _ in heads[:MAX_HEADS]
    ]
    most = max(w for r in records for row in r.expected or () for w in row)
    options = {
        # all of the weight may be a rounding over one
        "high": next(level for level in (0.25, 0.5, 1.01) if most <= level),
        "guess": None if last.even is None else (last.even, f"uniform: {number(last.even)}"),
    }
    return f"Weight on {task.expected_name}", curves, options


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


def single_chart(
    name: str, records: Sequence[Record], clip: float
) -> tuple[str, list[Curve], dict[str, Any]]:
    """One of SINGLE; the gradient with the norm at which it is clipped, where that is near."""
    title, curve, key = SINGLE.get(name) or (METRICS[name].name,) * 2 + (name,)
    values = points(records, key)
    largest = max(value or 0.0 for _, value in values)
    clips = name == "gradient" and clip <= 5 * max(largest, 1e-9)
    options = {"guess": (clip, f"clipped at {clip:g}")} if clips else {}
    return title, [Curve(curve, values)], options


def parts_chart(
    gradients: Mapping[str, float], ink: Ink, name_of: Callable[[str], str] | None = None
) -> Spec:
    """The gradient norm in each part of the model, first part on top: where it grows or fades with depth.

    `name_of` names a part by its path; by default `part_name`, for models of ours.
    """
    finite = [value for value in gradients.values() if math.isfinite(value)]
    most = max(finite, default=0.0) or 1.0
    low = min([value for value in finite if value > 0] or [most]) / 3
    norms = {(name_of or part_name)(path): value for path, value in gradients.items()}
    return bar_figure(
        [
            {"part": name, "norm": end, "end": end, "text": number(value), "low": low}
            for name, value in norms.items()
            for end in [max(value, low) if math.isfinite(value) else low]
        ],
        "part",
        list(norms),
        "norm",
        ink,
        domain=[low, most * 4],
        log=True,
        height=max(140, 17 * len(norms)),
        colour={"value": ink.series[0]},
        tips=[],
        mark={"type": "bar", "height": {"band": 0.6}},
        limit=150,
        x2={"field": "low"},
    )


def changes_chart(changes: Mapping[str, float], most: float, ink: Ink) -> Spec:
    """How far each part moved from its start, the start being 1; `most` is the farthest of the whole run."""
    rows = [
        {"part": part, "change": value, "end": value, "text": number(value)}
        for part, value in changes.items()
    ]
    return bar_figure(
        rows,
        "part",
        list(changes),
        "change",
        ink,
        domain=[0, 1.2 * most or 1],
        height=17 * len(rows),
        colour={"value": ink.series[0]},
        tips=[],
        mark={"type": "bar", "height": {"band": 0.6}},
    )


def changes_text(changes: Mapping[str, float]) -> str:
    """Which part moved farthest from its start, and which least."""
    least, *_, most = sorted(changes, key=lambda part: changes[part])
    if not changes[most]:
        return "Before the first step nothing has moved."
    return (
        f"Every part moves: {plain(most)} most, by **{number(changes[most])}** of its size at the start; "
        f"{plain(least)} least, by {number(changes[least])}."
    )


def part_name(path: str) -> str:
    above, _, last = path.rpartition(".")
    if last.isdecimal():  # such as encoder.layers.0
        return f"{'Encoder' if above.startswith('encoder') else 'Decoder'} layer {last}"
    return {"source": "Source embedding"}.get(path) or NAMES.get(path, path.capitalize())


def what_to_do(same: bool, live: bool, mine: bool) -> str:
    """What comes after settings were made: `same` are those of the run that is shown, which is `live` or has ended."""
    if same:
        return "It trains now." if live else "It is trained."
    if mine:
        return "Another run is open: :material/replay: ends it and starts this one."
    return "Press **Train**."


AXES_OF = {
    **dict.fromkeys(STACKED, tuple(AXES)),
    **dict.fromkeys(RECURRENT, tuple(axis for axis in AXES if axis != "position")),
}


def summary(model: ModelConfig) -> str:
    config = model.attention
    if config is None:
        return "No attention: the decoder reads only the encoder's last state."
    names = " · ".join(entry(axis, getattr(config, axis).key).name for axis in AXES_OF[model.kind])
    kernel, projection = (
        entry(axis, getattr(config, axis).key).name for axis in ("kernel", "projection")
    )
    pair = model.kind == "transformer"  # an encoder and a decoder
    exact, masks = exact_fallbacks(config) if pair else (), encoder_masks(config) if pair else ()
    layers = distinct_names(model.pattern) if len(set(model.pattern)) > 1 else ()
    sentences = (
        f"First layer: {names}. The layers in turn: {'; '.join(layers)}."
        if layers
        else f"{names}.",
        exact
        and f"{kernel} is used in the encoder; {' and '.join(exact)} {'use' if exact[1:] else 'uses'} the exact "
        "kernel.",
        masks
        and f"{' and '.join(masks)} applies to the encoder only: it needs the length, which a decoder does not know.",
        (pair or model.kind == "hybrid")
        and config.has("projection", "one sequence")
        and f"{projection} applies to self-attention only; cross-attention uses multi-head.",
    )
    return " ".join(sentence for sentence in sentences if sentence)


DEPTH_FORMULAS = {
    "attention": r"$h_l = \sum_{i<l} \alpha_{li}\, v_i$ with $\alpha_l = \mathrm{softmax}_i(w_l^\top "
    r"\mathrm{RMSNorm}(v_i))$: $v_0$ is the embedding, $v_i$ the output of sublayer $i$, $w_l$ a learned vector.",
    "hyper": r"$X \leftarrow M X + w\, f(r^\top X)^\top$: the rows of $X$ are the streams. Each token computes $r$ (what "
    r"the sublayer $f$ reads of each), $w$ (what each is given of its output) and $M$, whose rows and columns sum to 1. "
    "The map follows each output through all of them.",
}


# What differs from the recipe of a task, and the layers of a model.


PLACES = {"decoder_attention": "Decoder's self-attention", "cross_attention": "Cross-attention"}


def changes(values: Mapping[str, Value], params: Iterable[Param]) -> list[str]:
    """What differs from the start of these parameters, each in words."""
    return [
        f"{param.name.lower()} {param.label(value)}"
        if isinstance(value, str)
        else f"{param.name.lower()} {('off', 'on')[value] if isinstance(value, bool) else f'{value:g}'}"
        for param in params
        if (value := values[param.key]) != param.default
    ]


def pattern_changes(fields: Mapping[str, Any]) -> list[str]:
    """What a pattern of layers changes, in words."""
    count, shared = len(fields.get("following", ())), fields.get("kv_shared_layers")
    own = [f"{label.lower()} of its own" for place, label in PLACES.items() if fields.get(place)]
    texts = [
        f"a pattern of {count + 1} layers" if count else "",
        f"{shared} layers with shared keys and values" if shared else "",
    ]
    return [*filter(None, texts), *own]


STRIP = (
    "display:grid;grid-auto-flow:column;grid-auto-columns:minmax(6px,22px);gap:2px;margin:2px 0 6px"
)
CELL = "height:18px;border-radius:3px;background:{colour}"
HOLLOW = ";box-shadow:inset 0 0 0 6px {colour};background:transparent"  # without keys of its own


def layer_strip(kinds: Sequence[str], shared: int, theme: Theme) -> str:
    """HTML: a cell for each layer, the first one left, and a legend of the kinds; the last `shared` cells are hollow.

    Equal texts are one kind; more than eight have the same grey.
    """
    names = list(dict.fromkeys(kinds))
    palette = CATEGORIES[theme]
    colours = {name: palette[min(index, len(palette) - 1)] for index, name in enumerate(names)}
    cells = []
    for index, kind in enumerate(kinds):
        style, words = CELL, f"Layer {index + 1}: {kind}"
        if index >= len(kinds) - shared:
            style, words = CELL + HOLLOW, f"{words}, with the keys and values of an earlier layer"
        cells.append(
            f'<span title="{escape(words)}" style="{style.format(colour=colours[kind])}"></span>'
        )
    legend = "".join(
        f'<span style="display:inline-flex;align-items:center;gap:5px;margin-right:14px"><span style="width:10px;'
        f'height:10px;border-radius:2px;background:{colours[name]}"></span>{escape(name)} × {kinds.count(name)}</span>'
        for name in names
    )
    return (
        f'<div role="img" aria-label="Layers: {escape(", ".join(kinds))}"><div style="{STRIP}">'
        f'{"".join(cells)}</div><div style="font-size:13px;line-height:20px">{legend}</div></div>'
    )


# Held-out examples at a step, and the map of one.


# What the toolbar of a chart offers, Export has for every picture: here it would stand over three small charts.
STYLE = """<style>.st-key-train-now [data-testid=stElementToolbar] { display: none }
@media (max-width: 640px) {
.st-key-train-board > * > [data-testid=stHorizontalBlock] {
  > :first-child, > :first-child > *, > :last-child, > :last-child > *, > :last-child > * > *,
  > :last-child > * > * > * { display: contents }
  > :first-child > * > :not(:first-child) { order: 3; flex: 1 1 100% }
  > :last-child > * > * > * > :not(:first-child) { order: 4; flex: 1 1 100% }
}
:has(> .st-key-train-now), .st-key-train-now, .st-key-train-now > :first-child,
.st-key-train-now > * > [data-testid=stHorizontalBlock] { display: contents }
.st-key-train-now > :last-child { order: 4; flex: 1 1 100% }
.st-key-train-now > * > [data-testid=stHorizontalBlock] {
  > :first-child { order: 2 }
  > :last-child, > :last-child > * { display: contents }
  > :last-child > * > * { order: 4; flex: 1 1 100% }
  > :last-child > * > :first-child { order: 1; min-height: 112px }
}}</style>"""


def example_label(data: study.RunData, example: int) -> str:
    """A held-out example in a list."""
    task = data.task
    source, target = task.display_tokens(data.watched[example])
    if task.input not in ("patches", "series"):
        return separator(task).join(source)
    answer = f": {task.separator.join(target)}" if task.input == "patches" else ""
    return f"Example {example + 1}{answer}"


def examples_html(data: study.RunData, record: Record, theme: Theme) -> tuple[str, bool]:
    """Text with errors marked, pictures, rows of a table, or a series; and whether it is long, so that it scrolls."""
    task, predictions, ink = data.task, record.examples, Ink.of(theme)
    look = task.separator, ink.pick, ink.hairline
    if task.form == "series":
        # the mean absolute error of each forecast, and of repeating the last season
        pairs = [
            np.abs(np.array([output, task.naive(past)]) - target).mean(1).tolist()
            for past, target, output in map(series, predictions)
        ]
        return forecasts(pairs, ink.hairline), False
    if task.input == "patches":
        grid = task.shape.grid
        pictures = [
            tinted(joined_patches(one.source, grid), grid, None, theme, ink.text)
            for one in data.watched[: len(predictions)]
        ]
        images = [image(one, "the picture", height=48) for one in pictures]
        return answers(images, predictions, *look), False
    tokens = max(len(e.source) + len(e.predicted) for e in predictions)
    long = tokens > 48 and task.input == "tokens"
    if task.form == "label":
        sources = [escaped(separator(task).join(each.source)) for each in predictions]
        return answers(sources, predictions, *look), long
    if task.form == "marked":
        right = [example.target for example in data.watched[: len(predictions)]]
        return answered(predictions, right, *look[1:]), long
    return (continued if task.form == "text" else outputs)(predictions, *look), long


def document_weights(moment: study.Moment) -> DocumentWeights | None:
    """The weights of a document's sentences and words: those that a hierarchical model saves, or a row of the class.

    None for another input than a document, and where a run lacks them.
    """
    data, example = moment.data, moment.example
    if moment.head is None or not data.task.shape.sentence_end:
        return None
    tokens, _ = data.task.display_tokens(data.watched[example])
    if data.required_config.model.kind != "hierarchical":
        named = moment.on_source(len(tokens))
        return named and DocumentWeights.of_words(tokens, named[1][0].astype(np.float32))
    frame = data.run.frame(moment.step)
    words, sentences = (frame.get(f"{example}:{kind}") for kind in ("words", "sentences"))
    if words is None or sentences is None:  # a run from elsewhere may lack them
        return None
    return DocumentWeights(tokens, words[0, 0].sum(0), sentences[0, 0, 0])


def document_text(moment: study.Moment, weights: DocumentWeights) -> str:
    """What the weights of a document say, beside what decides its class."""
    data, tokens = moment.data, weights.tokens
    words = [
        "The bar is the weight of a sentence, the colour of a word its weight within its sentence."
    ]
    if deciding := data.task.deciding(data.watched[moment.example]):
        span, places = deciding
        names = " and ".join(f"“{plain(tokens[place])}”" for place in places)
        share = weights.sentences[sentence_spans(tokens).index(span)]
        words.append(
            f"The outlined sentence decides: it gets {share_text(share)} of the weight, and "
            f"{names} {share_text(sum(weights.words[place] for place in places))} of the weight within it; uniform "
            f"attention gives {number(1 / len(weights.sentences))} and {number(len(places) / len(span))}."
        )
    decoded = data.decoded_at(moment.step)
    if decoded is not None and moment.example < len(decoded.examples):
        prediction = decoded.examples[moment.example]
        words.append(
            f"The class is **{plain(' '.join(map(str, prediction.target)))}**, the prediction "
            f"**{plain(' '.join(prediction.predicted))}**."
        )
    return " ".join(words)


def step_cell(moment: study.Moment, path: str) -> Cell:
    """One step of the run that is drawn: its config, its scores, and the weights of the head that is drawn.

    `path` is the code of its folder.
    """
    data, config = moment.data, source_of(moment.data.required_config)
    record = data.at(moment.step)
    named = "AttentionConfig" in config or "Choice" in config
    imports = attention_import(config) if named else ""
    code = f"""
{imports}
from core.models import ModelConfig, map_tokens
from core.runs.runs import open_run
from core.tasks import TaskConfig, make_task
from core.training.config import RunConfig
from core.training.evaluate import axis_tokens, one_a_step

run = open_run({path})
config = {config}
task = make_task(config.task)  # task.baseline_loss is the loss of guessing
# from core.training import train; records = list(train(config))  # trains it again
step = {moment.step}
record = next(one for one in one_a_step(run.records()) if one.step == step)
print(record.loss, record.sequence_accuracy, record.expected, "guessing has a loss of", task.baseline_loss)
"""
    results: dict[str, Any] = {
        "task.baseline_loss": data.task.baseline_loss,
        "int(config == run.config())": 1,
    }
    if record.expected:
        results |= {"record.expected": record.expected, "record.even": record.even}
    if moment.head is None or moment.weights is None:
        return Cell("One step: the scores.", code, results=results)
    key = f"{moment.example}:{moment.kind}"
    code += f"""
frame = run.frame(step)  # by example and type of attention: (layers, H, T, S)
weights = frame[{key!r}][{moment.head[0]}, {moment.head[1]}]  # (T, S)
tokens = axis_tokens(task, task.held_out(config.num_examples)[{moment.example}])
rows, columns = map_tokens(config.model, {moment.kind!r}, *tokens)
rows, columns = rows[:weights.shape[0]], columns[:weights.shape[1]]
"""
    return Cell(
        "One step: the scores, and the attention of one head on a held-out example.",
        code,
        """
from dashboard.show import show_maps

show_maps({f"Step {step}": weights}, rows, columns)
""",
        f"train:map:{data.run.id}:{key}",
        results | {"weights": moment.weights},
    )
