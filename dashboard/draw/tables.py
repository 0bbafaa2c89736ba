"""HTML tables: held-out examples with their errors marked, and a document with the weights of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

import numpy as np

from core.models import sentence_spans
from core.training.evaluate import Bucket, Prediction
from dashboard.draw.figures import BAR, Ink, Theme, shade, text_on
from dashboard.draw.formats import cut, number, percent, score, share_text

# Held-out examples as HTML tables, errors marked in the accent; everything is escaped here.
CODE = ";font-family:'Source Code Pro',monospace;font-size:13px"  # for what is compared letter by letter
MAX_SIGNS = 400  # of one cell
ANYWHERE, RIGHT = "overflow-wrap:anywhere", "text-align:right"


def escaped(text: str) -> str:
    return escape(cut(text, MAX_SIGNS))


def wrong_tokens(target: Sequence[str], predicted: Sequence[str]) -> list[bool]:
    """For each predicted token whether it is wrong: place by place, or aligned when the lengths differ."""
    if len(target) == len(predicted):
        return [a != b for a, b in zip(target, predicted, strict=True)]
    wrong = [True] * len(predicted)
    for block in SequenceMatcher(None, target, predicted, autojunk=False).get_matching_blocks():
        wrong[block.b : block.b + block.size] = [False] * block.size
    return wrong


def missing(target: Sequence[str], predicted: Sequence[str]) -> int:
    return max(0, len(target) - len(predicted))


def outputs(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """Input, output with wrong tokens underlined, and how many are wrong or missing."""
    look = ANYWHERE + ("" if separator else CODE)
    rows = [
        (
            escaped(separator.join(e.source)),
            marked(e, separator, pick),
            str(sum(wrong_tokens(e.target, e.predicted)) + missing(e.target, e.predicted)),
        )
        for e in examples
    ]
    return html_table(("input", "output", "wrong"), rows, line, (look, look, RIGHT))


def answers(
    sources: Sequence[str], examples: Sequence[Prediction], separator: str, pick: str, line: str
) -> str:
    """A source (HTML already), the answer, underlined where it is wrong, and what it should be."""
    rows = [
        (source, marked(e, separator, pick), "" if e.right else escape(separator.join(e.target)))
        for source, e in zip(sources, examples, strict=True)
    ]
    return html_table(("input", "answer", "should be"), rows, line, (ANYWHERE, "", ""))


def continued(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """The start of each text, how the model continued it, and how the text did."""
    look = f"{ANYWHERE};white-space:pre-wrap" + ("" if separator else CODE)
    rows = [
        (
            escaped(separator.join(e.source)),
            escaped(separator.join(e.predicted)) or "<i>nothing yet</i>",
            escaped(separator.join(e.target)),
        )
        for e in examples
    ]
    return html_table(("input", "output", "original"), rows, line, (look,) * 3)


def forecasts(rows: Sequence[tuple[float, float]], line: str) -> str:
    """The mean absolute error of each window, beside that of the last season again."""
    return html_table(
        ("window", "error", "error of repeating the last season"),
        [(f"{at}", number(own), number(naive)) for at, (own, naive) in enumerate(rows, 1)],
        line,
        ("", RIGHT, RIGHT),
    )


def lengths(buckets: Sequence[Bucket], line: str) -> str:
    """How many held-out sources of each length, exact match, and BLEU and chrF where they were measured."""
    measured = {"BLEU": "bleu", "chrF": "chrf"}
    scores = [name for name, key in measured.items() if getattr(buckets[0], key) is not None]
    rows = [
        (
            escape(bucket.lengths),
            f"{bucket.count}",
            escape(percent(bucket.sequence_accuracy)),
            *(escape(score(getattr(bucket, measured[name]))) for name in scores),
        )
        for bucket in buckets
    ]
    names = ("tokens", "held out", "exact", *scores)
    return html_table(names, rows, line, (RIGHT,) * len(names))


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str], ink: Ink) -> str:
    """The confusion matrix: a row a class, a column a prediction, each cell tinted by its share of the row."""
    line, names = ink.hairline, list(map(escaped, classes))
    head = [_cell(text, line, RIGHT, "th") for text in names]
    rows = []
    for name, row in zip(names, counts, strict=True):
        cells = [
            _cell(
                f"{count:,}" if count else "·",
                line,
                f"{RIGHT};background:color-mix(in srgb, {ink.pick} {share}%, transparent)",
            )
            for count in row
            for share in [round(45 * count / max(1, sum(row)))]
        ]
        rows.append(f"<tr>{_cell(name, line, tag='th')}{''.join(cells)}</tr>")
    return (
        '<div style="overflow-x:auto"><table aria-label="Confusion matrix" style="border-collapse:collapse;'
        f'font-size:14px"><thead><tr>{_cell("is ↓, predicted →", line, "opacity:.75", "th")}'
        f"{''.join(head)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def marked(example: Prediction, separator: str, pick: str) -> str:
    mark = f'<b style="color:{pick};text-decoration:underline;text-underline-offset:3px">'
    tokens, wrong = example.predicted, wrong_tokens(example.target, example.predicted)
    return (
        escape(separator).join(
            f"{mark}{escape(token)}</b>" if is_wrong else escape(token)
            for token, is_wrong in zip(tokens, wrong, strict=True)
        )
        or "<i>nothing yet</i>"
    )


def _cell(content: str, line: str, more: str = "", tag: str = "td") -> str:
    style = f"border:1px solid {line};padding:6px 9px;text-align:left;vertical-align:top;font-weight:400;{more}"
    scope = ' scope="col"' if tag == "th" else ""
    return f'<{tag}{scope} style="{style}">{content}</{tag}>'


def html_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], line: str, styles: Sequence[str]
) -> str:
    head = "".join(
        _cell(name, line, f"opacity:.75{';' + RIGHT if style == RIGHT else ''}", "th")
        for name, style in zip(names, styles, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(map(_cell, row, [line] * len(row), styles))}</tr>" for row in rows
    )
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


def sentence_weights(
    weights: DocumentWeights, deciding: range | None, theme: Theme, ink: Ink
) -> str:
    """A table with a row a sentence: its weight as a bar and a number, and its words; the deciding one is outlined."""
    rows = []
    for span, share in zip(
        sentence_spans(weights.tokens), map(float, weights.sentences), strict=True
    ):
        words = " ".join(
            _word(weights.tokens[i], float(weights.words[i]), share, theme) for i in span
        )
        outline = note = ""
        if span == deciding:
            outline = f"outline:2px solid {ink.pick};outline-offset:-2px;border-radius:4px;"
            note = f' <b style="color:{ink.pick};white-space:nowrap">decides</b>'
        rows.append(
            f'<tr style="{outline}"><td style="padding:4px;vertical-align:middle">'
            f'<div style="width:{BAR_WIDTH}px;height:12px;background:{ink.hairline}"><div style="height:12px;'
            f'width:{min(max(share, 0.0), 1.0) * BAR_WIDTH:.1f}px;background:{BAR[theme]}"></div></div></td>'
            f'<td style="padding:4px;text-align:right;vertical-align:middle">{number(share)}</td>'
            f'<td style="padding:4px 8px;line-height:26px;width:100%">{words}{note}</td></tr>'
        )
    look = 'scope="col" style="padding:2px 4px;font-weight:400;opacity:.75;text-align:left"'
    return (
        '<div style="overflow-x:auto"><table aria-label="Weights of sentences and words" style="width:100%;'
        'border-collapse:separate;border-spacing:0 2px;font-size:14px"><thead><tr>'
        f'<th {look} colspan="2">weight</th><th {look} >sentence and its words</th></tr></thead><tbody>'
        f"{''.join(rows)}</tbody></table></div>"
    )


def _word(token: str, weight: float, sentence: float, theme: Theme) -> str:
    colour = shade(weight, theme)
    title = f"{share_text(weight)} of its sentence, {share_text(weight * sentence)} of the document"
    return (
        f'<span title="{title}" style="background:{colour};color:{text_on(colour, theme)};padding:1px 2px;'
        f'border-radius:3px">{escape(token)}</span>'
    )
