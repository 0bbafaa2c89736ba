"""HTML tables: held-out examples with their errors marked, and a document with the weights of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from core.models import sentence_spans
from core.tasks import METRICS, PAD, SPECIALS
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


def mistakes(target: Sequence[str], predicted: Sequence[str]) -> tuple[list[bool], int]:
    """For each predicted token whether it is wrong, and how many of the target are missing: the fewest edits, whose
    number is their sum (Levenshtein 1966)."""
    places = np.arange(len(predicted) + 1)
    edits = [places]  # from the first i tokens of the target to the first j predicted
    for token in target:
        before, differs = edits[-1], [token != other for other in predicted]
        replaced = np.append(before[0] + 1, before[:-1] + np.array(differs, int))
        # or a token is left out, or some are inserted after a place before
        row = np.minimum(before + 1, replaced) - places
        edits.append(np.minimum.accumulate(row) + places)
    wrong: list[bool] = []
    i, j = len(target), len(predicted)
    while i and j:  # back along one of the shortest ways; place by place where that is one
        differs_here = target[i - 1] != predicted[j - 1]
        if edits[i][j] == edits[i - 1][j - 1] + differs_here:
            wrong.append(differs_here)
            i, j = i - 1, j - 1
        elif edits[i][j] == edits[i][j - 1] + 1:
            wrong.append(True)
            j -= 1
        else:
            i -= 1
    wrong += [True] * j
    return wrong[::-1], int(edits[-1][-1]) - sum(wrong)


def outputs(examples: Sequence[Prediction], separator: str, pick: str, line: str) -> str:
    """Input, output with wrong tokens underlined, and how many are wrong or missing."""
    look = ANYWHERE + ("" if separator else CODE)
    rows = [
        (
            escaped(separator.join(e.source)),
            marked(e, separator, pick),
            sum(wrong) + missing,
        )
        for e in examples
        for wrong, missing in [mistakes(e.target, e.predicted)]
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


def answered(
    examples: Sequence[Prediction], answers: Sequence[Sequence[str]], pick: str, line: str
) -> str:
    """Each source with the model's answer at each place of it that asks, those that are wrong underlined with the right
    one after them; and how many are wrong. `answers` are the right ones of every place, padding where none is."""
    rows = []
    for one, right in zip(examples, answers, strict=True):
        given = iter(one.predicted)
        shown = [next(given) if answer != SPECIALS[PAD] else "" for answer in right]
        text = html("tables", "answered", list(zip(one.source, shown, right, strict=True)), pick)
        wrong = sum(a != b for a, b in zip(one.predicted, one.target, strict=True))
        rows.append((text, wrong))
    return html_table(("input → answer", "wrong"), rows, line, (ANYWHERE, RIGHT))


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
    own = {
        key: percent if metric.unit == "share" else number
        for key, metric in METRICS.items()
        if any(key in bucket.scores for bucket in buckets)
    }
    rows = [
        (
            bucket.lengths,
            bucket.count,
            percent(bucket.sequence_accuracy),
            *(score(getattr(bucket, measured[name])) for name in scores),
            *(own[key](bucket.scores[key]) if key in bucket.scores else "–" for key in own),
        )
        for bucket in buckets
    ]
    names = ("tokens", "held out", "exact", *scores, *(METRICS[key].name for key in own))
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
    wrong, _ = mistakes(example.target, example.predicted)
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
