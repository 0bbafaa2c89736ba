"""The page's facts, conditions, equations and tables, as Markdown, LaTeX or escaped HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import numpy as np

from core.training.record import Prediction
from core.training.seed_stats import SeedStats
from dashboard.draw.formats import duration, latex, number, plain, score
from dashboard.draw.tables import marked, missing, wrong_tokens
from dashboard.views.why.bottleneck import Result
from dashboard.views.why.compute import Comparison, PairedRun
from dashboard.views.why.controls import EVERY, FEW, FEW_STEPS, Controls, Model
from dashboard.views.why.trained_models import (
    METRICS,
    Sentence,
    TrainedModel,
    by_length,
    models,
    over_time,
)

NAMES = {"bleu": "BLEU", "exact": "Exact match, %"}
PERCENT = "\u00a0%"
MOST_TERMS = 3  # of a sum, written out
LEAD = 10.0  # BLEU by which attention leads clearly
COMPARED = (
    "Two models translate English number words into German. One writes the whole translation from **one vector**. With "
    "**attention**, each word that is written attends to all words of the sentence."
)
BLEU = (
    "**BLEU**, 0 to 100: how many word sequences of the translation also occur in the right one, so that a part of "
    "a sentence counts, too. **general** multiplies the states of the encoder by a learned matrix before they are "
    "compared with the state of the decoder."
)
EQUATIONS = (
    "$h_i$ is the state of the encoder at word $i$: $\\overrightarrow{h}_i$ has read the sentence from its start, "
    "$\\overleftarrow{h}_i$ from its end. $c_t$ is the vector that output word $t$ reads, and $\\alpha_{t,i}$ its "
    "weight on word $i$. First equation: without attention, all output words read the same vector. Then: with "
    "attention, each reads its own weighted sum. Pick a cell to change the output word."
)
SENTENCE = (
    "This is one held-out sentence. The number of wrong words varies from sentence to sentence, so a model "
    "that is better over all of them can be worse here."
)


def names(learned: Sequence[TrainedModel]) -> dict[Model, str]:
    """The name of every model; one that is larger than the first has its size in it."""
    ordered = models(learned)
    return {model: model.name(with_size=model.d_model != ordered[0].d_model) for model in ordered}


def stats_text(stats: SeedStats, unit: str = "") -> str:
    """40 ± 2 %, without a line break, and without a standard deviation that rounds to 0."""
    more = f"\u00a0±\u00a0{stats.std:.0f}" if stats.std and stats.std >= 0.5 else ""
    return f"{stats.mean:.0f}{more}{unit}"


def fact(data: Comparison) -> str:
    """The longest and the shortest sentences: with attention, without, and with a larger vector where there is one."""
    ordered = models(data.learned)
    attention = next((model for model in ordered if model.score is not None), None)
    if attention is None or ordered[0].score is not None:
        return ""
    scores = {model: by_length(data.learned, model, "exact") for model in ordered}
    lengths = [length for length in scores[attention] if length in scores[ordered[0]]]
    if not lengths:
        return ""
    long, short = lengths[-1], lengths[0]

    def exact(model: Model, length: str = long) -> str:
        return stats_text(scores[model][length], PERCENT)

    sentence = (
        f"Of sentences of {long} words, the model with attention translates **{exact(attention)}** without a "
        f"mistake; the model with one vector of {ordered[0].d_model} numbers **{exact(ordered[0])}**"
    )
    for model in ordered[1:]:
        if model.score is None and long in scores[model]:
            sentence += f", with {model.d_model} numbers {exact(model)}"
    return f"{sentence}. For {short} words it is {exact(attention, short)} and {exact(ordered[0], short)}."


def before_prediction(data: Comparison) -> str:
    """The shortest sentences alone."""
    without, attention = (by_length(data.learned, model, "exact") for model in data.setting.pair)
    short = next(iter(attention))
    return (
        f"Of sentences of {short} words, the model with attention translates "
        f"**{stats_text(attention[short], PERCENT)}** without a mistake, the model with one vector "
        f"**{stats_text(without[short], PERCENT)}**. Pick an answer to see longer sentences."
    )


def simple_names(learned: Sequence[TrainedModel]) -> list[str]:
    """The names of the models without attention, and of the first one with it."""
    labels, scores = (
        names(learned),
        [model.score for model in models(learned) if model.score is not None],
    )
    return [label for model, label in labels.items() if model.score in (None, *scores[:1])]


def measures(learned: Sequence[TrainedModel]) -> str:
    """What the chart by length measures, and how its lines differ."""
    labels = names(learned)
    lines = [
        f"**{label}** is a vector of {model.d_model} numbers instead of {next(iter(labels)).d_model}."
        for model, label in labels.items()
        if label != model.name()
    ]
    return " ".join(
        [
            "**Exact match**: the share of held-out sentences that are translated without a mistake.",
            *lines,
        ]
    )


def shown_text(values: Controls, shown: Controls, steps: int | None) -> str:
    """What the charts show; of runs, only where the controls differ. `steps` are those of the saved measurement."""
    if values == shown and steps is None:
        return ""
    what = (
        f"runs of {shown.planned}" if steps is None else f"the saved measurement of {steps:,} steps"
    )
    return (
        f"The charts show {what}, with {shown.d_model} numbers and up to {shown.longest} words. **Run it** "
        "trains both models on this machine with the settings above."
    )


def clear_lead(learned: Sequence[TrainedModel]) -> int | None:
    """The first step from which attention leads by LEAD BLEU in all later measurements; None where it never does."""
    without, attention = (
        dict(over_time(learned, model, "bleu", "step")) for model in Controls().pair
    )
    steps = sorted(set(without) & set(attention))
    clear = None
    for step in reversed(steps):
        if attention[step].mean - without[step].mean < LEAD:
            break
        clear = int(step)
    return clear


def too_few_steps(data: Comparison, saved: Sequence[TrainedModel]) -> str:
    """Why two ended runs show no advantage of attention, and what to do; empty where they show one."""
    if data.live or len(data.parts) != 2:
        return ""
    without, attention = (
        part.learned.points[-1] if part.learned.points else None for part in data.parts
    )
    if without is None or attention is None:
        return ""
    clear = clear_lead(saved)
    leads = (
        ""
        if clear is None
        else (f"In the saved measurement its lead exceeds {LEAD:.0f} BLEU from step {clear:,} on. ")
    )
    if (few := min(without.step, attention.step)) < EVERY:
        return (
            f"This machine reached only {_count(few)} of a model: too few to compare, since attention must first "
            f"learn which words belong together. {leads}Take more seconds of training."
        )
    if attention.bleu > without.bleu:
        return ""
    shown = (
        f"In this run attention shows no advantage: BLEU {score(attention.bleu)}, without attention "
        f"{score(without.bleu)}."
    )
    if clear is None or attention.step >= clear:
        return (
            f"{shown} One run varies with its seed and size: take another seed or longer sentences."
        )
    return (
        f"{shown} The reason is too few steps: it was trained for {attention.step:,}, and attention must first "
        f"learn which words belong together. {leads}Take more seconds of training, or a smaller vector, "
        "which trains faster."
    )


def until_measured(data: Comparison) -> str:
    """Which result is shown while two runs have none."""
    return f"This is still the saved measurement. The result of your runs comes {_first_result(data.setting)}."


def _first_result(setting: Controls) -> str:
    """When a model has its first result."""
    return f"at step {FEW}" + (
        "" if setting.seconds == FEW_STEPS else f", or after {setting.planned} of training"
    )


def conditions(data: Comparison, result: Result | None) -> str:
    """The conditions of the measurement; `result` is the saved one, if it is that."""
    task = (
        f"English number words to German, at most {data.setting.longest} words, 20,000 training pairs; the same "
        "bidirectional GRU in each model, AdamW, batches of 64"
    )
    held = max((one.held_out for one in data.learned), default=0)
    scored = f"Each model is scored on {held:,} held-out sentences, which it translates word by word without help."
    labels = names(data.learned)
    if result is None:
        spent = ", ".join(
            f"{label} {_steps(data.learned, model)}" for model, label in labels.items()
        )
        return (
            f"Trained on this machine: {task}. Training, {data.setting.planned} planned for each: {spent}. "
            f"{scored}"
        )
    seeds = len({one.seed for one in data.learned})
    ends = sorted({one.points[-1].step for one in data.learned})
    steps = f"{ends[0]:,} to {ends[-1]:,}" if len(ends) > 1 else f"{ends[0]:,}"
    spent = ", ".join(
        f"{labels[model]} {duration(seconds)}" for model, seconds in result.seconds.items()
    )
    over = (
        f"Lines are means of {seeds} seeds, bands and ± their standard deviation."
        if seeds > 1
        else ""
    )
    return (
        f"Measured by `make bottleneck`: {task}, {steps} steps each. {scored} {over} Processor time of a run, with "
        f"measuring: {spent}; {result.machine}."
    )


def _steps(learned: Sequence[TrainedModel], model: Model) -> str:
    last = [one.points[-1] for one in learned if one.model == model and one.points]
    return f"{_count(last[0].step)} in {duration(last[0].seconds)}" if last else "not yet measured"


def _count(steps: int) -> str:
    return f"{steps:,} step{'' if steps == 1 else 's'}"


def ended(part: PairedRun) -> str:
    """How a run ended; of one that finished, its steps and its seconds without measuring."""
    name = part.learned.model.name().capitalize()
    if part.status.state != "finished":
        return f"{name}: {part.status.message}"
    return f"{name}: Finished after {_count(part.step)} in {duration(part.seconds)} of training."


def progress(part: PairedRun, controls: Controls) -> tuple[float, str]:
    """How far a run is, 0 to 1, and a line of text."""
    if controls.seconds == FEW_STEPS:
        return min(
            1.0, part.step / FEW
        ), f"{part.learned.model.name().capitalize()}: step {part.step} of {FEW}"
    spent = min(part.seconds, controls.seconds)  # the last step may end later
    reached = (
        f"step {part.step:,}, {spent:.0f} of {controls.seconds:g} s"
        if part.step
        else (f"starts; its result comes {_first_result(controls)}")
    )
    return min(
        1.0, part.seconds / controls.seconds
    ), f"{part.learned.model.name().capitalize()}: {reached}"


def equations(
    setting: Controls, sentence: Sentence, weights: np.ndarray, row: int
) -> tuple[str, str]:
    """The context of an output without attention and with it, its largest weights written out."""
    last, outputs = len(sentence.source) - 1, len(sentence.target)
    without = (
        rf"c_0 = c_1 = \dots = c_{{{outputs}}} = [\overrightarrow{{h}}_{{{last}}};\, \overleftarrow{{h}}_0] "
        rf"\in \mathbb{{R}}^{{{setting.d_model}}}"
    )
    top = np.argsort(-weights[row])[:MOST_TERMS]
    terms = [
        rf"{latex(weights[row, key])}\, h_{{{key}}}^{{\text{{{_safe(sentence.source[key])}}}}}"
        for key in sorted(top)
    ]
    if (rest := 1 - float(weights[row, top].sum())) >= 0.005:
        terms.append(rf"{latex(rest)}\,(\text{{rest}})")
    word = _safe((*sentence.target, "end")[row])
    context = rf"c_{{{row}}}^{{\text{{{word}}}}} &= \sum_i \alpha_{{{row},i}}\, h_i"
    summed = r" \\ &\quad + ".join(terms)  # one a line: the column is narrow
    return without, rf"\begin{{aligned}} {context} \\ &= {summed} \end{{aligned}}"


def _safe(word: str) -> str:
    return "".join(sign for sign in word if sign.isalnum() or sign == ";")


def default_row(sentence: Sentence) -> int:
    """The first word of the last number: the farthest from where the sentence began."""
    ends = [i for i, word in enumerate(sentence.target) if word == ";"]
    return ends[-1] + 1 if ends else 0


def reading(sentence: Sentence, weights: np.ndarray, row: int) -> str:
    """How to read the map, on its picked row."""
    most = int(weights[row].argmax())
    word = (*sentence.target, "<eos>")[row]
    return (
        f"Each row is a word of the translation, each column a word of the sentence. The more a cell stands "
        f"out, the larger its weight: **{plain(word)}** puts {number(weights[row, most])} of its weight on "
        f"**{plain(sentence.source[most])}**."
    )


def sentence_table(sentence: Sentence, labels: Mapping[Model, str], pick: str, line: str) -> str:
    """The source, the target, and the output of each model with wrong words underlined: escaped HTML."""
    cell = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400"
    rows = [
        ("source", html.escape(" ".join(sentence.source)), ""),
        ("target", html.escape(" ".join(sentence.target)), ""),
    ]
    for model, output in sentence.outputs.items():
        wrong = sum(wrong_tokens(sentence.target, output)) + missing(sentence.target, output)
        prediction = Prediction(sentence.source, sentence.target, output)
        rows.append((labels[model], marked(prediction, " ", pick), f"{wrong}"))
    head = "".join(
        f'<th scope="col" style="{cell};opacity:.75">{text}</th>'
        for text in ("", "sentence", "wrong or missing")
    )
    body = "".join(
        f'<tr><th scope="row" style="{cell};white-space:nowrap">{name}</th><td style="{cell}">{text}</td>'
        f'<td style="{cell};text-align:right">{count}</td></tr>'
        for name, text, count in rows
    )
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:14px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def numbers(learned: Sequence[TrainedModel], lengths: Sequence[str]) -> list[list[str]]:
    """A row a model: BLEU / exact match in percent for each range of lengths."""
    rows = []
    for model, label in names(learned).items():
        bleu, exact = (by_length(learned, model, metric) for metric in METRICS)
        rows.append(
            [
                label,
                *(
                    f"{stats_text(bleu[length])} / {stats_text(exact[length])}"
                    if length in exact
                    else "–"
                    for length in lengths
                ),
            ]
        )
    return rows
