"""Layers × heads by the score of a standard test, as Vega-Lite."""

from __future__ import annotations

from core.roles.repeats import RepeatScores
from core.trace import Head
from dashboard.charts.numbers import cell, number
from dashboard.charts.palette import Theme, shade, text_on
from dashboard.charts.vega import Spec
from dashboard.views.head_roles.charts import head_grid


def repeat_grid(scores: RepeatScores, test: int, head: Head, theme: Theme) -> Spec:
    """A cell a head with its score; faint where it is not above that of uniform attention."""
    rows = []
    for one in sorted(scores.ranked(test)):
        score, margin = float(scores.score[test][one]), float(scores.margin[test][one])
        fill = shade(score, theme)
        mark = "<.001" if 0 < score < 0.001 else cell(number(score))
        rows.append({"layer": scores.numbers[one[0]], "head": one[1], "name": scores.name(one), "fill": fill,
                     "ink": text_on(fill, theme), "mark": mark,
                     "faint": bool(score - margin <= scores.uniform[test]),
                     "says": f"{number(score)} ± {number(margin)}"})
    return head_grid(rows, scores.numbers, scores.score.shape[2], scores.name(head), theme, "score")
