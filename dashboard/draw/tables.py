"""HTML tables: held-out examples with their errors marked, and a document with the weights of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from core.models import sentence_spans
from core.training.evaluate import Bucket, Prediction
from dashboard.draw.figures import BAR, Ink, Theme, shade, text_on
from dashboard.draw.formats import cut, number, percent, score
from dashboard.draw.templates import html

# Held-out examples as HTML tables, errors marked in the accent.
NOTHING_YET = Markup("<i>nothing yet</i>")
CODE = ";font-family:'Source Code Pro',monospace;font-size:13px"  # for what is compared letter by letter
MAX_SIGNS = 400  # of one cell
ANYWHERE, RIGHT = "overflow-wrap:anywhere", "text-align:right"


def escaped(text: str) -> Markup:
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
            sum(wrong_tokens(e.target, e.predicted)) + missing(e.target, e.predicted),
        )
        for e in examples
    ]
    return html_table(("input", "output", "wrong"), rows, line, (look, look, RIGHT))


def answers(
    sources: Sequence[str], examples: Sequence[Prediction], separator: str, pick: str, line: str
) -> str:
    """A source, the answer, underlined where it is wrong, and what it should be."""
    rows = [
        (source, marked(e, separator, pick), "" if e.right else separator.join(e.target))
        for source, e in zip(sources, examples, strict=True)
    ]
    return html_table(("input", "answer", "should be"), rows, line, (ANYWHERE, "", ""))


def continued(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """The start of each text, how the model continued it, and how the text did."""
    look = f"{ANYWHERE};white-space:pre-wrap" + ("" if separator else CODE)
    rows = [
        (
            escaped(separator.join(e.source)),
            escaped(separator.join(e.predicted)) or NOTHING_YET,
            escaped(separator.join(e.target)),
        )
        for e in examples
    ]
    return html_table(("input", "output", "original"), rows, line, (look,) * 3)


def forecasts(rows: Sequence[tuple[float, float]], line: str) -> str:
    """The mean absolute error of each window, beside that of the last season again."""
    return html_table(
        ("window", "error", "error of repeating the last season"),
        [(at, number(own), number(naive)) for at, (own, naive) in enumerate(rows, 1)],
        line,
        ("", RIGHT, RIGHT),
    )


def lengths(buckets: Sequence[Bucket], line: str) -> str:
    """How many held-out sources of each length, exact match, and BLEU and chrF where they were measured."""
    measured = {"BLEU": "bleu", "chrF": "chrf"}
    scores = [name for name, key in measured.items() if getattr(buckets[0], key) is not None]
    rows = [
        (
            bucket.lengths,
            bucket.count,
            percent(bucket.sequence_accuracy),
            *(score(getattr(bucket, measured[name])) for name in scores),
        )
        for bucket in buckets
    ]
    names = ("tokens", "held out", "exact", *scores)
    return html_table(names, rows, line, (RIGHT,) * len(names))


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str], ink: Ink) -> str:
    """The confusion matrix: a row a class, a column a prediction, each cell tinted by its share of the row."""
    rows = [
        [(f"{count:,}" if count else "·", round(45 * count / max(1, sum(row)))) for count in row]
        for row in counts
    ]
    return html("tables", "confusion", list(map(escaped, classes)), rows, ink)


def marked(example: Prediction, separator: str, pick: str) -> Markup:
    """The predicted tokens, those that are wrong underlined."""
    wrong = wrong_tokens(example.target, example.predicted)
    tokens = list(zip(example.predicted, wrong, strict=True))
    return html("tables", "marked", tokens, separator, pick) or NOTHING_YET


def html_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], line: str, styles: Sequence[str]
) -> Markup:
    """Cells of text, or of HTML as Markup, under their names, each column with a style."""
    return html("tables", "examples", names, rows, line, styles)


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

    def word(token: str, weight: float) -> tuple[str, float, str, str]:
        colour = shade(weight, theme)
        return token, weight, colour, text_on(colour, theme)

    rows = [
        (share, [word(weights.tokens[i], float(weights.words[i])) for i in span], span == deciding)
        for span, share in zip(
            sentence_spans(weights.tokens), map(float, weights.sentences), strict=True
        )
    ]
    return html("tables", "sentences", rows, BAR_WIDTH, BAR[theme], ink)
