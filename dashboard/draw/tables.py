"""HTML tables: held-out examples with their errors marked, and a document with the weights of its words."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

import numpy as np

from core.models import sentence_spans
from core.training.record import Bucket, Prediction
from dashboard.draw.formats import number, percent, score
from dashboard.draw.palette import BAR, Ink, Theme, shade, text_on

# Held-out examples as HTML tables, errors marked in the accent; everything is escaped here.


CODE = ";font-family:'Source Code Pro',monospace;font-size:13px"  # for what is compared letter by letter
MAX_SIGNS = 400  # of one cell


def escaped(text: str) -> str:
    return html.escape(text if len(text) <= MAX_SIGNS else f"{text[: MAX_SIGNS - 1]}…")


def wrong_tokens(target: Sequence[str], predicted: Sequence[str]) -> list[bool]:
    """For each predicted token whether it is wrong: place by place, or aligned when the lengths differ."""
    if len(target) == len(predicted):
        return [a != b for a, b in zip(target, predicted, strict=True)]
    wrong = [True] * len(predicted)
    for block in SequenceMatcher(None, target, predicted, autojunk=False).get_matching_blocks():
        wrong[block.b : block.b + block.size] = [False] * block.size
    return wrong


def missing(target: Sequence[str], predicted: Sequence[str]) -> int:
    """Tokens of the target that a shorter prediction lacks."""
    return max(0, len(target) - len(predicted))


def outputs(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """Input, output with wrong tokens underlined, and how many are wrong."""
    look = "overflow-wrap:anywhere" + ("" if separator else CODE)
    rows = [
        (
            _cell(escaped(separator.join(e.source)), line, look),
            _cell(marked(e, separator, pick), line, look),
            _cell(str(_count(e)), line, "text-align:right"),
        )
        for e in examples
    ]
    return _table(("input", "output", "wrong"), rows, line, right=(2,))


def answers(
    sources: Sequence[str], examples: Sequence[Prediction], separator: str, pick: str, line: str
) -> str:
    """A source (HTML already), the answer, underlined where it is wrong, and what it should be."""
    rows = []
    for source, each in zip(sources, examples, strict=True):
        rows.append(
            (
                _cell(source, line, "overflow-wrap:anywhere"),
                _cell(marked(each, separator, pick), line),
                _cell("" if each.right else html.escape(separator.join(each.target)), line),
            )
        )
    return _table(("input", "answer", "should be"), rows, line)


def continued(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """The start of each text, how the model continued it, and how the text did."""
    look = "overflow-wrap:anywhere;white-space:pre-wrap" + ("" if separator else CODE)
    rows = [
        tuple(
            _cell(text, line, look)
            for text in (
                escaped(separator.join(e.source)),
                escaped(separator.join(e.predicted)) or "<i>nothing yet</i>",
                escaped(separator.join(e.target)),
            )
        )
        for e in examples
    ]
    return _table(("input", "output", "original"), rows, line)


def forecasts(rows: Sequence[tuple[float, float]], line: str) -> str:
    """The mean absolute error of each window, beside that of the last season again."""
    cells = [
        (
            _cell(f"{i + 1}", line),
            _cell(number(own), line, "text-align:right"),
            _cell(number(naive), line, "text-align:right"),
        )
        for i, (own, naive) in enumerate(rows)
    ]
    return _table(
        ("window", "error", "error of repeating the last season"), cells, line, right=(1, 2)
    )


def lengths(buckets: Sequence[Bucket], line: str) -> str:
    """How many held-out sources of each length, exact match, and BLEU and chrF where they were measured."""
    scores = [
        (name, key)
        for name, key in (("BLEU", "bleu"), ("chrF", "chrf"))
        if getattr(buckets[0], key) is not None
    ]
    names = ("tokens", "held out", "exact", *(name for name, _ in scores))
    rows = []
    for bucket in buckets:
        cells = [bucket.lengths, f"{bucket.count}", percent(bucket.sequence_accuracy)]
        cells += [score(getattr(bucket, key)) for _, key in scores]
        rows.append(tuple(_cell(html.escape(text), line, "text-align:right") for text in cells))
    return _table(names, rows, line, right=range(len(names)))


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str], ink: Ink) -> str:
    """The confusion matrix: a row a class, a column a prediction, each cell tinted by its share of the row."""
    head = [_cell(text, ink.hairline, "text-align:right", "th") for text in map(escaped, classes)]
    rows = []
    for name, row in zip(classes, counts, strict=True):
        cells = [
            _cell(
                f"{count:,}" if count else "·",
                ink.hairline,
                f"text-align:right;background:color-mix(in srgb, "
                f"{ink.pick} {round(45 * count / max(1, sum(row)))}%, transparent)",
            )
            for count in row
        ]
        rows.append(f"<tr>{_cell(escaped(name), ink.hairline, tag='th')}{''.join(cells)}</tr>")
    return (
        '<div style="overflow-x:auto"><table aria-label="Confusion matrix" style="border-collapse:collapse;'
        f'font-size:14px"><thead><tr>{_cell("is ↓, predicted →", ink.hairline, "opacity:.75", "th")}'
        f"{''.join(head)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def marked(example: Prediction, separator: str, pick: str) -> str:
    """The output as HTML, wrong tokens underlined."""
    parts = []
    for token, wrong in zip(
        example.predicted, wrong_tokens(example.target, example.predicted), strict=True
    ):
        safe = html.escape(token)
        mark = f'<b style="color:{pick};text-decoration:underline;text-underline-offset:3px">{safe}</b>'
        parts.append(mark if wrong else safe)
    return html.escape(separator).join(parts) or "<i>nothing yet</i>"


def _count(example: Prediction) -> int:
    return sum(wrong_tokens(example.target, example.predicted)) + missing(
        example.target, example.predicted
    )


def _cell(content: str, line: str, more: str = "", tag: str = "td") -> str:
    style = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400;{more}"
    scope = ' scope="col"' if tag == "th" else ""
    return f'<{tag}{scope} style="{style}">{content}</{tag}>'


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], line: str, right: Sequence[int] = ()
) -> str:
    head = "".join(
        _cell(name, line, f"opacity:.75{';text-align:right' if i in right else ''}", "th")
        for i, name in enumerate(names)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        '<table style="width:100%;border-collapse:collapse;font-size:14px">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


BAR_WIDTH = 56  # pixels


@dataclass(frozen=True, eq=False)
class DocumentWeights:
    """The words of a document, the weight of each in its sentence (S,), and the weight of each sentence (N,)."""

    tokens: tuple[str, ...]
    words: np.ndarray
    sentences: np.ndarray

    @classmethod
    def of_words(cls, tokens: Sequence[str], weights: np.ndarray) -> DocumentWeights:
        """Both levels of weights (S,) that one attention gives to all words: a sentence has what its words have."""
        spans = sentence_spans(tokens)
        sums = np.array([weights[span.start : span.stop].sum() for span in spans], dtype=np.float32)
        totals = np.repeat(sums, list(map(len, spans)))
        return cls(
            tuple(tokens),
            np.divide(weights, totals, out=np.zeros_like(totals), where=totals > 0),
            sums,
        )


def lines(weights: DocumentWeights, deciding: range | None, theme: Theme, ink: Ink) -> str:
    """A table with a row a sentence: its weight as a bar and a number, and its words; the deciding one is outlined."""
    rows = []
    for index, span in enumerate(sentence_spans(weights.tokens)):
        share = float(weights.sentences[index])
        words = " ".join(
            _word(weights.tokens[i], float(weights.words[i]), share, theme) for i in span
        )
        outline = (
            f"outline:2px solid {ink.pick};outline-offset:-2px;border-radius:4px;"
            if span == deciding
            else ""
        )
        note = f' <b style="color:{ink.pick};white-space:nowrap">decides</b>' if outline else ""
        rows.append(
            f'<tr style="{outline}">'
            f'<td style="padding:4px;vertical-align:middle">{_bar(share, theme, ink)}</td>'
            f'<td style="padding:4px;text-align:right;vertical-align:middle">{number(share)}</td>'
            f'<td style="padding:4px 8px;line-height:26px;width:100%">{words}{note}</td></tr>'
        )
    head = "".join(
        f'<th scope="col" style="padding:2px 4px;font-weight:400;opacity:.75;text-align:left" {span}>{name}'
        "</th>"
        for name, span in (("weight", 'colspan="2"'), ("sentence and its words", ""))
    )
    return (
        '<div style="overflow-x:auto"><table aria-label="Weights of sentences and words" style="width:100%;'
        f'border-collapse:separate;border-spacing:0 2px;font-size:14px"><thead><tr>{head}</tr></thead><tbody>'
        f"{''.join(rows)}</tbody></table></div>"
    )


def _bar(share: float, theme: Theme, ink: Ink) -> str:
    return (
        f'<div style="width:{BAR_WIDTH}px;height:12px;background:{ink.hairline}"><div style="height:12px;'
        f'width:{min(max(share, 0.0), 1.0) * BAR_WIDTH:.1f}px;background:{BAR[theme]}"></div></div>'
    )


def _word(token: str, weight: float, sentence: float, theme: Theme) -> str:
    colour = shade(weight, theme)
    title = f"{number(weight)} of its sentence, {number(weight * sentence)} of the document"
    return (
        f'<span title="{title}" style="background:{colour};color:{text_on(colour, theme)};padding:1px 2px;'
        f'border-radius:3px">{escape(token)}</span>'
    )
