"""Texts as HTML, each token in the colour of its weight in one row: the query in the accent, expected keys underlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from core.corpus import Measure
from dashboard.charts.numbers import number
from dashboard.charts.palette import Ink, Theme, shade, text_on
from dashboard.views.corpus.compute import TextExample

MOST_SHOWN = 48  # tokens of a text, around its query


def marked_table(examples: Sequence[TextExample], measure: Measure, noun: str, theme: Theme) -> str:
    """A table with a row a text (`noun`): its decile where it stands for one, its value, and its tokens."""
    ink, deciles = Ink.of(theme), any(one.decile is not None for one in examples)
    head = [*(["decile"] if deciles else []), measure.name, f"{noun}, with one row of its map"]
    rows = "".join(_row(one, deciles, measure, noun, ink, theme) for one in examples)
    columns = "".join(f'<th scope="col" style="padding:2px 8px 2px 0;font-weight:400;text-align:left;opacity:.75;'
                      f'white-space:nowrap">{escape(name)}</th>' for name in head)
    return (f'<div style="overflow-x:auto"><table aria-label="Texts of this head" style="width:100%;font-size:14px;'
            f'border-collapse:collapse"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>')


def _row(example: TextExample, deciles: bool, measure: Measure, noun: str, ink: Ink, theme: Theme) -> str:
    cell = f"padding:6px 8px 6px 0;border-top:1px solid {ink.hairline};vertical-align:top"
    decile = f'<td style="{cell}">{round(10 * example.decile)}</td>' if deciles and example.decile is not None else ""
    row = example.row
    note = f"{row.line.tokens[row.query]} → {row.line.tokens[row.key]} {number(float(row.weights[row.key]))}"
    if not np.isnan(row.value) and measure.role is not None:
        note += f"; here {number(row.value)}"
    return (f'<tr>{decile}<td style="{cell};text-align:left">{number(example.value)}</td>'
            f'<td style="{cell};width:100%;line-height:26px">{_tokens(example, ink, theme)}'
            f'<div style="font-size:13px;line-height:18px;color:{ink.quiet}">{noun} {example.text + 1}: '
            f"{escape(note)}</div></td></tr>")


def _tokens(example: TextExample, ink: Ink, theme: Theme) -> str:
    """The tokens around the query; those of one word stand together."""
    row = example.row
    first = max(0, min(row.query - MOST_SHOWN // 2, len(row.line) - MOST_SHOWN))
    shown = range(first, min(len(row.line), first + MOST_SHOWN))
    parts = []
    for index in shown:
        joined = index > first and row.line.word[index] is not None and row.line.word[index] == row.line.word[index - 1]
        parts.append(("" if joined else " ") + _token(example, index, ink, theme))
    return f"{'… ' if first else ''}{''.join(parts).strip()}{' …' if shown.stop < len(row.line) else ''}"


def _token(example: TextExample, index: int, ink: Ink, theme: Theme) -> str:
    row = example.row
    colour = shade(float(row.weights[index]), theme)
    style = f"background:{colour};color:{text_on(colour, theme)};padding:1px 2px;border-radius:3px"
    if index == row.query:
        style += f";outline:2px solid {ink.pick}"
    if row.expected[index]:
        style += f";border-bottom:2px dashed {ink.text}"
    token = row.line.tokens[index].removeprefix("##")
    return f'<span title="{number(float(row.weights[index]))}" style="{style}">{escape(token)}</span>'
