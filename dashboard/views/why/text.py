"""What the page says, as Markdown, LaTeX or escaped HTML: facts, conditions, the sentence and its numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import numpy as np

from core.training.record import Prediction
from dashboard.charts.numbers import duration, latex
from dashboard.charts.prediction_tables import marked, missing, wrong_tokens
from dashboard.views.why.bottleneck import Result
from dashboard.views.why.compute import Comparison, PairedRun
from dashboard.views.why.controls import Controls, Model
from dashboard.views.why.trained_models import METRICS, SeedStats, Sentence, TrainedModel, by_length, models

NAMES = {"bleu": "BLEU", "exact": "Exact match, %"}
SHOWN = 3  # weights of a sum that are written out


def names(learned: Sequence[TrainedModel]) -> dict[Model, str]:
    """Every model's name, told apart from the rest: only what is larger than the first says its size."""
    ordered = models(learned)
    return {model: model.name(model.d_model == ordered[0].d_model) for model in ordered}


def stats_text(spread: SeedStats, unit: str = "") -> str:
    """40 ± 2 %, all on one line, and without a spread that rounds to nothing."""
    more = f"\u00a0±\u00a0{spread.spread:.0f}" if spread.spread >= 0.5 else ""
    return f"{spread.mean:.0f}{more}{unit}"


def fact(data: Comparison) -> str:
    """The longest and the shortest sentences: with attention, without, and with a larger vector where there is one."""
    ordered = models(data.learned)
    with_it = next((model for model in ordered if model.score is not None), None)
    if with_it is None or ordered[0].score is not None:
        return ""
    exact = {model: by_length(data.learned, model, "exact") for model in ordered}
    lengths = [length for length in exact[with_it] if length in exact[ordered[0]]]
    if not lengths:
        return ""
    long, short = lengths[-1], lengths[0]

    def whole(model: Model) -> str:
        return stats_text(exact[model][long], "\u00a0%")

    def similarity(model: Model) -> str:
        return stats_text(by_length(data.learned, model, "bleu")[long])

    sentence = (f"Of sentences of {long} words, the model that looks back gets **{whole(with_it)}** wholly right "
                f"(BLEU {similarity(with_it)}); through one vector of {ordered[0].d_model} numbers it is "
                f"**{whole(ordered[0])}** (BLEU {similarity(ordered[0])})")
    for model in ordered[1:]:
        if model.score is None and long in exact[model]:
            sentence += f", of {model.d_model} numbers {whole(model)} (BLEU {similarity(model)})"
    either = [stats_text(exact[model][short], "\u00a0%") for model in (with_it, ordered[0])]
    return f"{sentence}. At {short} words it is {either[0]} and {either[1]}."


def conditions(data: Comparison, result: Result | None) -> str:
    """How it was measured; `result` where it is the saved one."""
    task = (f"English number words to German, at most {data.setting.longest} of them, 20,000 training pairs; the same "
            "bidirectional GRU each time, AdamW, batches of 64")
    held = max((one.held_out for one in data.learned), default=0)
    scored = f"Each is scored on {held:,} held-out sentences, which it writes word by word by itself."
    called = names(data.learned)
    if result is None:
        spent = ", ".join(f"{called[model]} {_steps(data.learned, model)}" for model in called)
        return f"Trained here: {task}. Equal seconds of training: {spent}. {scored}"
    seeds = len({one.seed for one in data.learned})
    ends = sorted({one.points[-1].step for one in data.learned})
    steps = f"{ends[0]:,} to {ends[-1]:,}" if len(ends) > 1 else f"{ends[0]:,}"
    spent = ", ".join(f"{called[model]} {duration(seconds)}" for model, seconds in result.seconds.items())
    over = f"Lines are means of {seeds} seeds, bands and ± the standard deviation between them." if seeds > 1 else ""
    return (f"Measured by `make bottleneck`: {task}, {steps} steps each. {scored} {over} Processor time a run, with "
            f"measuring: {spent}; {result.machine}.")


def _steps(learned: Sequence[TrainedModel], model: Model) -> str:
    last = [one.points[-1] for one in learned if one.model == model and one.points]
    return f"{last[0].step:,} steps in {duration(last[0].seconds)}" if last else "not yet measured"


def progress(part: PairedRun, controls: Controls) -> tuple[float, str]:
    """How far one of the two runs is: its share, 0 to 1, and a line of text."""
    reached = f"step {part.step:,}, {part.seconds:.0f} of {controls.seconds:g} s" if part.step else "begins"
    return min(1.0, part.seconds / controls.seconds), f"{part.learned.model.name().capitalize()}: {reached}"


def equations(setting: Controls, sentence: Sentence, weights: np.ndarray, row: int) -> tuple[str, str]:
    """The context of an output without attention and with it, its largest weights written out."""
    last, outputs = len(sentence.source) - 1, len(sentence.target)
    without = (rf"c_0 = c_1 = \dots = c_{{{outputs}}} = [\overrightarrow{{h}}_{{{last}}};\, \overleftarrow{{h}}_0] "
               rf"\in \mathbb{{R}}^{{{setting.d_model}}}")
    top = np.argsort(-weights[row])[:SHOWN]
    terms = [rf"{latex(weights[row, key])}\, h_{{{key}}}^{{\text{{{_safe(sentence.source[key])}}}}}"
             for key in sorted(top)]
    if (rest := 1 - float(weights[row, top].sum())) >= 0.005:
        terms.append(rf"{latex(rest)}\,(\text{{rest}})")
    word = _safe((*sentence.target, "end")[row])
    context = rf"c_{{{row}}}^{{\text{{{word}}}}} &= \sum_i \alpha_{{{row},i}}\, h_i"
    lines = [" + ".join(terms[at : at + 2]) for at in range(0, len(terms), 2)]  # a narrow column holds two
    summed = r" \\ &\quad + ".join(lines)
    return without, rf"\begin{{aligned}} {context} \\ &= {summed} \end{{aligned}}"


def _safe(word: str) -> str:
    return "".join(sign for sign in word if sign.isalnum() or sign == ";")


def default_row(sentence: Sentence) -> int:
    """The first word of the last number: the farthest from where the sentence began."""
    ends = [i for i, word in enumerate(sentence.target) if word == ";"]
    return ends[-1] + 1 if ends else 0


def sentence_table(sentence: Sentence, called: Mapping[Model, str], pick: str, line: str) -> str:
    """The source, the German that is wanted, and what each model writes, wrong words underlined: escaped HTML."""
    cell = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400"
    rows = [("source", html.escape(" ".join(sentence.source)), ""),
            ("wanted", html.escape(" ".join(sentence.target)), "")]
    for model, output in sentence.outputs.items():
        wrong = sum(wrong_tokens(sentence.target, output)) + missing(sentence.target, output)
        prediction = Prediction(sentence.source, sentence.target, output)
        rows.append((called[model], marked(prediction, " ", pick), f"{wrong}"))
    head = "".join(f'<th scope="col" style="{cell};opacity:.75">{text}</th>' for text in ("", "sentence", "wrong"))
    body = "".join(f'<tr><th scope="row" style="{cell};white-space:nowrap">{who}</th><td style="{cell}">{text}</td>'
                   f'<td style="{cell};text-align:right">{count}</td></tr>' for who, text, count in rows)
    return (f'<table style="width:100%;border-collapse:collapse;font-size:14px"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>")


def numbers(learned: Sequence[TrainedModel], lengths: Sequence[str]) -> list[list[str]]:
    """A row a model: BLEU / exact match in percent for each range of lengths."""
    rows = []
    for model, called in names(learned).items():
        similarity, exact = (by_length(learned, model, metric) for metric in METRICS)
        rows.append([called, *(f"{stats_text(similarity[at])} / {stats_text(exact[at])}" if at in exact else "–"
                               for at in lengths)])
    return rows
