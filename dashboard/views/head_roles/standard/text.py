"""Sentences, equation, table and CSV of the view Standard tests."""

from __future__ import annotations

import numpy as np

from core.interpret.head_tests import TESTS, RepeatScores
from core.interpret.trace import Head
from dashboard.draw.formats import number
from dashboard.draw.picture_files import csv_file

MAP = "A cell is faint where its interval reaches uniform attention. The map shows the first line."
TABLE_HEAD = ("test", "best head", "score", "uniform", "heads above uniform", "weight on")


def fact(scores: RepeatScores, test: int, head: Head) -> str:
    """A head's score in a test beside that of uniform attention, and the best head's where it is another."""
    best = scores.ranked(test)[0]
    line = (
        f"On random tokens that repeat, :primary[**{scores.name(head)}**] puts **{_figure(scores, test, head)}** "
        f"of its weight on **{TESTS[test].attends_to}**; uniform attention puts "
        f"{number(float(scores.uniform[test]))} there."
    )
    if scores.score[test][best] - scores.margin[test][best] <= scores.uniform[test]:
        return f"{line} No head of this model passes the test."
    if best != head:
        line += f" {scores.name(best)} has the highest score, {_figure(scores, test, best)}."
    return line


def equation(scores: RepeatScores, test: int, head: Head) -> str:
    """The score with the head's number; n random tokens stand at 1 … n and again at n + 1 … 2n."""
    offset = TESTS[test].offset
    value = number(float(scores.score[test][head]))
    if offset is None:
        return rf"s = \frac{{1}}{{2n - 1}}\sum_{{i=2}}^{{2n}} a_{{i,\,i-1}} = {value} \qquad n = {scores.length}"
    key = "i + 1" if offset else "i"
    return rf"s = \frac{{1}}{{n}}\sum_{{i=1}}^{{n}} a_{{n+i,\,{key}}} = {value} \qquad n = {scores.length}"


def caption(scores: RepeatScores, model: str, with_map: bool) -> str:
    """Under which conditions the numbers of the view hold; `with_map` where the figures of a test are in sight."""
    attention = "self-attention" if scores.kind == "self" else "causal self-attention"
    return (
        f"{model}, {attention}, {scores.lines} lines of {scores.length} different random tokens of its vocabulary, "
        "twice in a row, between the special tokens that its tokenizer adds. ± is the 95 % interval over the "
        "lines. Random tokens have no meaning, so these scores show position and identity alone; on sentences, "
        "Roles measures." + (f" {MAP}" if with_map else "")
    )


def table_rows(scores: RepeatScores) -> list[list[str]]:
    """A row a test: the best head, its score, and how many heads are above uniform attention."""
    rows = []
    for index, test in enumerate(TESTS):
        best = scores.ranked(index)[0]
        with np.errstate(invalid="ignore"):
            above = int((scores.score[index] - scores.margin[index] > scores.uniform[index]).sum())
        rows.append(
            [
                test.name,
                scores.name(best),
                _figure(scores, index, best),
                number(scores.uniform[index]),
                str(above),
                test.attends_to,
            ]
        )
    return rows


def to_csv(scores: RepeatScores) -> bytes:
    """Every head in every test: its score, the half-width of its interval, and uniform attention's score."""
    return csv_file(
        ["layer", "head", "test", "score", "margin", "uniform"],
        [
            [
                scores.numbers[head[0]],
                head[1],
                test.key,
                *(
                    f"{value:.6f}"
                    for value in (
                        scores.score[index][head],
                        scores.margin[index][head],
                        scores.uniform[index],
                    )
                ),
            ]
            for index, test in enumerate(TESTS)
            for head in sorted(scores.ranked(index))
        ],
    )


def _figure(scores: RepeatScores, test: int, head: Head) -> str:
    return f"{number(float(scores.score[test][head]))} ± {number(float(scores.margin[test][head]))}"
