"""Scoreboard: the matrix, the scatter of a skill against a cost, the curves of a cell, and the sentences of numbers."""

from collections.abc import Mapping

from core.scoreboard.base import Score
from core.studies.scoreboard import Costs, Matrix, front
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.figures import (
    Ink,
    Spec,
    Theme,
    axis_style,
    field,
    figure,
    layer,
    literal,
    picking_grid,
    shade,
    table_columns,
    text_on,
    text_tip,
)
from dashboard.draw.formats import byte_size, number, percent, plain, plural

ROW, HEIGHT = 24, 260
COSTS: dict[str, str] = {
    "state": "Bytes of state or cache",
    "flops": "FLOPs of attention",
    "step_ms": "Milliseconds of a training step",
    "parameters": "Parameters",
}
LEAD = "Which mechanism learns which skill? A cell is the share of eight seeds that learned it."
# What an expert objects, and what the board does about it.
OBJECTIONS = """- **Small tasks are shallow, and length extrapolation is noisy** ([Allen-Zhu 2025](https://arxiv.org/abs/2512.17351)).
  True: a cell says what a model of two layers and 75,000 parameters learns in so many steps, no more. So a cell is a
  share of seeds with its exact interval, never a mean, and what differs by chance is not ranked.
- **Papers print the best of three seeds.** Here the cell is the share of eight; the best and the median stand beside it.
- **The learning rate decides** ([Okpekpe and Orvieto 2025](https://arxiv.org/abs/2508.19029)). It is chosen for each
  mechanism and skill on a seed of its own, and how many of the rates worked stands in each cell.
- **The short convolution decides** ([Arora 2023](https://arxiv.org/abs/2312.04927)). State mechanisms stand with and
  without it.
- **Sizes differ.** All models of a skill have the same number of parameters: the feed-forward width makes up for gates."""


def share_text(score: Score) -> str:
    """Such as: 7 of 8 seeds (47 % to 100 %)."""
    text = f"{score.passed} of {plural(len(score.results), 'seed')}"
    share = score.share
    return text if share is None else f"{text} ({percent(share.low)} to {percent(share.high)})"


def fact_text(matrix: Matrix, mechanism: str, skill: str) -> str:
    """What the picked cell says."""
    row, column = matrix.board.mechanism(mechanism), matrix.board.skill(skill)
    score = matrix.scores.get((mechanism, skill))
    name, of = f"**{plain(row.name)}**", f"*{plain(column.name)}*"
    if score is None or not score.results:
        return f"{name} was not measured on {of}."
    differ = matrix.differ(skill).get(mechanism, False)
    first = plain(matrix.board.mechanisms[0].name)
    beside = (
        ""
        if mechanism == matrix.board.mechanisms[0].key
        else (
            f" That differs from {first} beyond chance."
            if differ
            else f" That may be the chance of seeds, beside {first}."
        )
    )
    return (
        f"{name} learned {of} in :primary[**{score.passed} of {len(score.results)}**] seeds, "
        f"at a rate of {score.rate:g}.{beside}"
    )


def cell_text(matrix: Matrix, mechanism: str, skill: str) -> str:
    """The conditions of the picked cell, and what a paper reports."""
    column, score = matrix.board.skill(skill), matrix.scores.get((mechanism, skill))
    what = (
        f"Learned: {MEASURES.get(column.measure, column.measure)} of at least {percent(column.passes)} on 1,000 held-out "
        f"sources, within {column.steps:,} steps. {plain(column.source)}."
    )
    published = (
        f" Published, in its own setting: {plain(column.published)}" if column.published else ""
    )
    if score is None or not score.results:
        return what + published
    works = ", ".join(f"{rate:g}" for rate in score.rates) or "none"
    return (
        f"The exact interval of the share: {share_text(score)}. Best {percent(score.best)}, median {percent(score.median)}. "
        f"Rates that worked, of {', '.join(f'{one:g}' for one in matrix.board.rates)}: {works}. {what}{published}"
    )


MEASURES = {
    "token_accuracy": "accuracy of the answers",
    "longer": "whole sources longer than any of training right",
}


def matrix_figure(matrix: Matrix, sort: str, picked: tuple[str, str], theme: Theme) -> Spec:
    """Mechanisms × skills: ink is the share that learned it, strokes are what was not measured, ≠ what differs from the
    first row beyond chance."""
    ink, rows = Ink.of(theme), matrix.sorted(sort)
    differ = {one.key: matrix.differ(one.key) for one in matrix.board.skills}
    cells, strokes = list[Spec](), list[Spec]()
    for row in rows:
        for column in matrix.board.skills:
            score = matrix.scores.get((row.key, column.key))
            at: Spec = {"layer": row.name, "head": column.name}
            if score is None or not score.results:
                strokes.append(at | {"text": "╱╱╱", "says": "not measured"})
                continue
            share = score.passed / len(score.results)
            mark = " ≠" if differ[column.key].get(row.key) else ""
            fill = shade(share, theme)
            cells.append(
                at
                | {
                    "share": share,
                    "fill": fill,
                    "ink": text_on(fill, theme),
                    "text": f"{score.passed}{mark}",
                    "says": share_text(score),
                    "median": percent(score.median),
                    "rates": f"{len(score.rates)} of {len(matrix.board.rates)}",
                }
            )
    at = {
        "x": band("head", [one.name for one in matrix.board.skills], ink, "top"),
        "y": band("layer", [one.name for one in rows], ink, "left"),
    }
    tips = [
        text_tip("layer", "mechanism"),
        text_tip("head", "skill"),
        text_tip("says", "learned in"),
        text_tip("median", "median"),
        text_tip("rates", "rates that worked"),
    ]
    drawn = [
        layer(
            "rect",
            [*cells, *strokes],
            {**at, "color": literal("fill"), "tooltip": tips},
            cursor="pointer",
            stroke=ink.hairline,
        ),
        layer(
            "text",
            [*cells, *({**one, "ink": ink.quiet} for one in strokes)],
            {**at, "text": {"field": "text"}, "color": literal("ink")},
            fontSize=12,
            tooltip=False,
        ),
    ]
    titles = {
        "layer": "mechanism",
        "head": "skill",
        "says": "learned in",
        "median": "median",
        "rates": "rates that worked",
    }
    row_of = matrix.board.mechanism(picked[0]).name
    column_of = matrix.board.skill(picked[1]).name
    return picking_grid(
        drawn, {"layer": row_of, "head": column_of}, at, ink, ROW, ["layer", "head"]
    ) | table_columns(titles)


def band(name: str, sort: list[str], ink: Ink, orient: str) -> Spec:
    return {
        "field": name,
        "type": "ordinal",
        "sort": sort,
        "title": None,
        "scale": {"domain": sort, "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "orient": orient,
            "labelLimit": 190 if orient == "left" else 120,
            "labelAngle": 0 if orient == "left" else -30,
            "domain": False,
            "ticks": False,
        },
    }


def cost_text(cost: str, value: float) -> str:
    return byte_size(int(value)) if cost == "state" else number(value)


def scatter_figure(
    matrix: Matrix, skill: str, cost: str, costs: Mapping[str, Costs], theme: Theme
) -> Spec:
    """The share of seeds that learned a skill against a cost; the front is joined: what nothing cheaper beats."""
    ink, points = Ink.of(theme), dict[str, tuple[float, float]]()
    for row in matrix.board.mechanisms:
        score, value = matrix.scores.get((row.key, skill)), getattr(costs[row.key], cost)
        if score is not None and score.results and value is not None:
            points[row.name] = float(value), score.passed / len(score.results)
    best = front(points)
    rows = [
        {
            "name": name,
            "cost": x,
            "share": y,
            "costs": cost_text(cost, x),
            "fill": ink.pick if name in best else ink.series[0],
            "label": name if name in best else "",
        }
        for name, (x, y) in points.items()
    ]
    at = {
        "x": field("cost", COSTS[cost])
        | {"scale": {"type": "log", "nice": False}, "axis": axis_style(ink)},
        "y": field("share", "Share of seeds that learned it")
        | {"scale": {"domain": [0, 1]}, "axis": {**axis_style(ink), "format": "%"}},
    }
    tips = [text_tip("name", "mechanism"), text_tip("costs", COSTS[cost].lower())]
    joined = sorted(
        (one for one in rows if one["name"] in best), key=lambda one: points[str(one["name"])]
    )
    return figure(
        [
            layer("line", joined, at, color=ink.pick, strokeWidth=1, interpolate="step-after"),
            layer(
                "circle",
                rows,
                {**at, "color": literal("fill"), "tooltip": tips},
                size=70,
                opacity=0.9,
            ),
            layer(
                "text",
                rows,
                {**at, "text": {"field": "label"}},
                dy=-10,
                fontSize=11,
                color=ink.text,
            ),
        ],
        HEIGHT,
    ) | table_columns({"name": "mechanism", "cost": COSTS[cost], "share": "share of seeds"})


def curves_figure(matrix: Matrix, mechanism: str, skill: str, theme: Theme) -> Spec:
    """The measure along the steps: each seed at the chosen rate, and each rate on the seed that chose it."""
    score = matrix.scores[mechanism, skill]
    trials = [
        one
        for cell, one in matrix.cells.items()
        if cell[:2] == (mechanism, skill) and cell.seed in matrix.board.rate_seeds
    ]
    ink = Ink.of(theme)
    curves = [
        Curve(f"seed {one.seed}", one.curve, colour=ink.series[0], dash=0) for one in score.results
    ]
    curves += [Curve(f"rate {one.rate:g}", one.curve, colour=ink.quiet, dash=1) for one in trials]
    return line_chart(
        "",
        "step",
        curves,
        ink,
        rule=score.passes,
        named=False,
        domain=(0.0, 1.0),
        share=True,
    )


def table(matrix: Matrix, skill: str) -> tuple[list[str], list[list[str]]]:
    """Each mechanism on one skill: share with its interval, median, best, rates that worked."""
    rows = []
    for row in matrix.sorted(skill):
        score = matrix.scores.get((row.key, skill))
        if score is None or not score.results:
            rows.append([row.name, "not measured", "", "", "", ""])
            continue
        rows.append(
            [
                row.name,
                share_text(score),
                percent(score.median),
                percent(score.best),
                f"{score.rate:g}",
                f"{len(score.rates)} of {len(matrix.board.rates)}",
            ]
        )
    return ["mechanism", "learned in", "median", "best", "rate", "rates that worked"], rows


CHART = """
import altair as alt
import pandas as pd

rows = [{"mechanism": key[0], "skill": key[1], "share": one.passed / len(one.results)}
        for key, one in matrix.scores.items() if one.results]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="skill:N", y="mechanism:N", color="share:Q")
"""
PAPERS = r"""**Recall** — [Arora et al. 2023](https://arxiv.org/abs/2312.04927), Zoology. **Noisy recall, selective
copying** — [Poli et al. 2024](https://arxiv.org/abs/2403.17844), MAD.

**Parity and permutations** — [Delétang et al. 2022](https://arxiv.org/abs/2207.02098);
[Grazzi et al. 2024](https://arxiv.org/abs/2411.12537), negative eigenvalues; [Merrill et al. 2024](https://arxiv.org/abs/2404.08819).

**Flip-flop** — [Liu et al. 2023](https://arxiv.org/abs/2306.00946). **Copying** — [Jelassi et al. 2024](https://arxiv.org/abs/2402.01032)."""
OWN = (
    "Your row is trained on the same tasks, at the same rates and seeds, with as many parameters as the others. A choice of "
    "your own, registered in a plug-in, is named like any other."
)


def legend(matrix: Matrix) -> str:
    """How the matrix is read, and how much of it was measured."""
    total = len(matrix.board.mechanisms) * len(matrix.board.skills)
    done = sum(bool(one.results) for one in matrix.scores.values())
    first = plain(matrix.board.mechanisms[0].name)
    return (
        f"A number is the seeds of {len(matrix.board.seeds)} that learned it; ≠ differs from {first} beyond chance (Fisher's "
        f"exact test, corrected for the column); ╱╱╱ is not measured. {done} of {total} are measured, "
        f"{len(matrix.cells):,} trainings."
    )
