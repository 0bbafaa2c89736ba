"""Layers × heads by the score of a standard test, as Vega-Lite."""

from __future__ import annotations

from core.interpret.head_tests import RepeatScores
from core.interpret.trace import Head
from dashboard.draw.formats import number
from dashboard.draw.palette import Theme
from dashboard.draw.vega import Spec
from dashboard.views.head_roles.charts import head_grid, share_cell


def repeat_grid(scores: RepeatScores, test: int, head: Head, theme: Theme) -> Spec:
    """A cell a head with its score; faint where it is not above that of uniform attention."""
    rows = []
    for one in sorted(scores.ranked(test)):
        score, margin = float(scores.score[test][one]), float(scores.margin[test][one])
        rows.append(
            share_cell(
                scores,
                one,
                score,
                theme,
                f"{number(score)} ± {number(margin)}",
                faint=bool(score - margin <= scores.uniform[test]),
            )
        )
    return head_grid(scores, scores.score.shape[2], rows, head, theme, "score")
