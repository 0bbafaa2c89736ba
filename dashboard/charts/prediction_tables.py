"""Held-out examples as HTML tables, errors marked in the accent; everything is escaped here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from difflib import SequenceMatcher

from core.training.record import Bucket, Prediction
from dashboard.charts.numbers import number, percent, score
from dashboard.charts.palette import Ink

CODE = ";font-family:'Source Code Pro',monospace;font-size:13px"  # for what is compared letter by letter
MOST_SIGNS = 400  # of one cell


def escaped(text: str) -> str:
    return html.escape(text if len(text) <= MOST_SIGNS else f"{text[: MOST_SIGNS - 1]}…")


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
        target = "" if each.right else html.escape(separator.join(each.target))
        rows.append(
            (
                _cell(source, line, "overflow-wrap:anywhere"),
                _cell(marked(each, separator, pick), line),
                _cell(target, line),
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
        cells = [bucket.lengths, f"{bucket.count}", percent(bucket.exact)]
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
