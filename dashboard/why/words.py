"""What the page says, as Markdown, LaTeX or escaped HTML: facts, conditions, the sentence and its numbers."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from core.attention.config import entry
from core.training.record import Prediction
from dashboard.train.tables import marked, missing, wrong_tokens
from dashboard.why.experiment import Result
from dashboard.why.learned import METRICS, Learned, Sentence, Spread, by_length, scores
from dashboard.why.setting import Setting
from dashboard.why.state import Part, Shown

NAMES = {"bleu": "BLEU", "exact": "Exact match, %"}
SHOWN = 3  # weights of a sum that are written out


def name(score: str | None) -> str:
    """What a model is called beside its line."""
    return "one vector" if score is None else entry("score", score).name.lower()


def told(spread: Spread, unit: str = "") -> str:
    """40 ± 2 %, and without the spread where there is one seed."""
    more = f" ± {spread.spread:.0f}" if spread.count > 1 else ""
    return f"{spread.mean:.0f}{more}{unit}"


def fact(shown: Shown) -> str:
    """The longest and the shortest sentences, with attention and without."""
    found = scores(shown.learned)
    if len(found) < 2:
        return ""
    without, with_it = found[0], found[1]
    tables = {(score, metric): by_length(shown.learned, score, metric) for score in (without, with_it)
              for metric in METRICS}
    lengths = [length for length in tables[with_it, "exact"] if length in tables[without, "exact"]]
    if not lengths:
        return ""
    long, short = lengths[-1], lengths[0]
    right = {score: told(tables[score, "exact"][long], " %") for score in (without, with_it)}
    likeness = {score: told(tables[score, "bleu"][long]) for score in (without, with_it)}
    either = [told(tables[score, "exact"][short], " %") for score in (with_it, without)]
    return (f"Of sentences of {long} words, the model that looks back gets **{right[with_it]}** wholly right (BLEU "
            f"{likeness[with_it]}); through one vector of {shown.setting.d_model} numbers it is **{right[without]}** "
            f"(BLEU {likeness[without]}). At {short} words the two are {either[0]} and {either[1]}.")


def conditions(shown: Shown, result: Result | None) -> str:
    """How it was measured; `result` where it is the kept one."""
    task = (f"English number words to German, at most {shown.setting.longest} of them; the same bidirectional GRU of "
            f"{shown.setting.d_model} numbers each time")
    spent = ", ".join(f"{name(score)} {_steps(shown.learned, score)}" for score in scores(shown.learned))
    held = max((one.held_out for one in shown.learned), default=0)
    scored = f"Each scored on {held:,} held-out sentences, written word by word by the model alone."
    if result is None:
        return f"{task}. Equal seconds of training: {spent}. {scored}"
    seeds = len({one.seed for one in shown.learned})
    return (f"Measured by `make bottleneck`: {task}. Equal steps: {spent}. {scored} Lines are means of {seeds} "
            f"seed{'s' if seeds > 1 else ''}, bands a standard deviation between them. {result.machine}.")


def _steps(learned: Sequence[Learned], score: str | None) -> str:
    last = [one.points[-1] for one in learned if one.score == score and one.points]
    if not last:
        return "not yet measured"
    return f"{sum(p.step for p in last) / len(last):,.0f} steps in {sum(p.seconds for p in last) / len(last):.0f} s"


def progress(part: Part, setting: Setting, place: int | None) -> tuple[float, str]:
    """How far one of the two runs is."""
    who = name(part.learned.score).capitalize()
    if place:
        return 0.0, f"{who}: waits, place {place} in the queue"
    spent = part.learned.points[-1].seconds if part.learned.points else 0.0
    share = min(1.0, spent / setting.seconds)
    said = f"step {part.steps:,}, {spent:.0f} of {setting.seconds:g} s" if part.steps else "begins"
    return share, f"{who}: {said}"


def equations(setting: Setting, sentence: Sentence, weights: np.ndarray, row: int) -> tuple[str, str]:
    """The context of an output without attention and with it, its largest weights written out."""
    words, outputs = len(sentence.source), len(sentence.target) + 1
    without = (rf"c_1 = c_2 = \dots = c_{{{outputs}}} = [\overrightarrow{{h}}_{{{words}}};\, \overleftarrow{{h}}_1] "
               rf"\in \mathbb{{R}}^{{{setting.d_model}}}")
    top = np.argsort(-weights[row])[:SHOWN]
    terms = [rf"{weights[row, key]:.2f}\, h_{{{key + 1}}}^{{\text{{{_safe(sentence.source[key])}}}}}"
             for key in sorted(top)]
    if (rest := 1 - float(weights[row, top].sum())) >= 0.005:
        terms.append(rf"{rest:.2f}\,(\text{{rest}})")
    said = _safe((*sentence.target, "end")[row])
    context = rf"c_{{{row + 1}}}^{{\text{{{said}}}}} &= \sum_i \alpha_{{{row + 1},i}}\, h_i"
    lines = [" + ".join(terms[at : at + 2]) for at in range(0, len(terms), 2)]  # a narrow column holds two
    summed = r" \\ &\quad + ".join(lines)
    return without, rf"\begin{{aligned}} {context} \\ &= {summed} \end{{aligned}}"


def _safe(word: str) -> str:
    return "".join(sign for sign in word if sign.isalnum() or sign == ";")


def default_row(sentence: Sentence) -> int:
    """The first word of the last number: the farthest from where the sentence began."""
    ends = [i for i, word in enumerate(sentence.target) if word == ";"]
    return ends[-1] + 1 if ends else 0


def sentence_table(sentence: Sentence, pick: str, line: str) -> str:
    """The source, the German that is wanted, and what each model writes, wrong words underlined: escaped HTML."""
    cell = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400"
    rows = [("source", html.escape(" ".join(sentence.source)), ""),
            ("wanted", html.escape(" ".join(sentence.target)), "")]
    for score in sorted(sentence.said, key=lambda score: score is not None):
        said = sentence.said[score]
        wrong = sum(wrong_tokens(sentence.target, said)) + missing(sentence.target, said)
        rows.append((name(score), marked(Prediction(sentence.source, sentence.target, said), " ", pick), f"{wrong}"))
    head = "".join(f'<th scope="col" style="{cell};opacity:.75">{text}</th>' for text in ("", "sentence", "wrong"))
    body = "".join(f'<tr><th scope="row" style="{cell};white-space:nowrap">{who}</th><td style="{cell}">{text}</td>'
                   f'<td style="{cell};text-align:right">{count}</td></tr>' for who, text, count in rows)
    return (f'<table style="width:100%;border-collapse:collapse;font-size:14px"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>")


def numbers(learned: Sequence[Learned], lengths: Sequence[str]) -> list[list[str]]:
    """A row a model: BLEU / exact match in percent for each range of lengths."""
    rows = []
    for score in scores(learned):
        likeness, exact = (by_length(learned, score, metric) for metric in METRICS)
        rows.append([name(score), *(f"{told(likeness[at])} / {told(exact[at])}" if at in exact else "–"
                                    for at in lengths)])
    return rows
