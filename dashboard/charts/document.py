"""A document as HTML: a line a sentence, with a bar for its weight, each word in the colour of its weight in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from core.models import sentence_spans
from dashboard.charts.numbers import number
from dashboard.charts.palette import BAR, Ink, Theme, shade, text_on

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
