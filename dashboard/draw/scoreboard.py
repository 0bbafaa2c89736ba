"""Scoreboard: the matrix, the scatter of a skill against a cost, the curves of a cell, and the sentences of numbers."""

from collections.abc import Mapping
from itertools import product
from math import isfinite, log
from statistics import fmean

from core.scoreboard.base import Mechanism, Score, Skill
from core.studies.scoreboard import Matrix, front
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
from dashboard.draw.formats import (
    about_duration,
    byte_size,
    duration,
    operations,
    percent,
    plain,
    plural,
    written,
)

ROW, HEIGHT, PHONE = (
    24,
    260,
    420,
)  # pixels; a figure up to PHONE wide has its names upright and short
COSTS: dict[str, str] = {
    "state": "Bytes of state or cache",
    "flops": "FLOPs of attention",
    "step": "Seconds of a training step",
}
WRITTEN = {"state": byte_size, "flops": operations, "step": duration}
MEASURES = {
    "token_accuracy": "accuracy of the answers",
    "sequence_accuracy": "share of whole sources right",
    "longer": "share of whole sources right that are longer than any of training",
}
LEAD = "Which mechanism learns which skill? A number is how many of eight seeds learned it."
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
OWN = (
    "Your row is trained on the same tasks, at the same rates and seeds, with as many parameters as the others. A choice of "
    "your own, registered in a plug-in, is named like any other."
)
PAPERS = r"""**Recall** — [Arora et al. 2023](https://arxiv.org/abs/2312.04927), Zoology. **Noisy recall, selective
copying** — [Poli et al. 2024](https://arxiv.org/abs/2403.17844), MAD.

**Parity and permutations** — [Delétang et al. 2022](https://arxiv.org/abs/2207.02098);
[Grazzi et al. 2024](https://arxiv.org/abs/2411.12537), negative eigenvalues; [Merrill et al. 2024](https://arxiv.org/abs/2404.08819).

**Flip-flop** — [Liu et al. 2023](https://arxiv.org/abs/2306.00946). **Copying** — [Jelassi et al. 2024](https://arxiv.org/abs/2402.01032)."""
# The matrix in the page's notebook, of the result that `as_python` calls `matrix`.
CHART = """
import altair as alt
import pandas as pd

rows = [{"mechanism": row.name, "skill": skill.name, "share": score.passed / len(score.results) if score else None}
        for row in matrix.board.mechanisms for skill in matrix.board.skills
        for score in [matrix.scores.get((row.key, skill.key))]]
alt.Chart(pd.DataFrame(rows)).mark_rect().encode(x="skill:N", y="mechanism:N", color="share:Q")
"""


def seeds_text(score: Score) -> str:
    """Such as: 7 of 8 seeds (47 % to 100 %)."""
    text = f"{score.passed} of {plural(len(score.results), 'seed')}"
    numbers: dict[str, float] = {", seeds": score.passed, ", of": len(score.results)}
    if (share := score.share) is not None:
        text += f" ({percent(share.low)} to {percent(share.high)})"
        numbers |= {", low": share.low, ", high": share.high}
    return written(text, numbers)


def count_text(score: Score) -> str:
    return f"{score.passed} of {len(score.results)}"


def fact_text(matrix: Matrix, row: Mechanism, skill: Skill) -> str:
    """What the picked cell says, beside the first row."""
    score, first = matrix.scores.get((row.key, skill.key)), matrix.board.mechanisms[0]
    name, beside = f"**{plain(row.name)}**", matrix.scores.get((first.key, skill.key))
    if score is None:
        return f"{name} was not measured on **{plain(skill.name)}** yet."
    text = f"{name} learned **{plain(skill.name)}** in :primary[**{count_text(score)}**] seeds"
    if row is first or beside is None:
        return f"{text}."
    beyond = (
        "The difference is beyond chance."
        if matrix.differs[row.key, skill.key]
        else "That may be chance."
    )
    return f"{text}, {plain(first.name)} in {count_text(beside)}. {beyond}"


def cell_text(matrix: Matrix, row: Mechanism, skill: Skill) -> str:
    """What else the picked cell says: its interval, best and median, its rates, and its convolution; "" unmeasured."""
    if (score := matrix.scores.get((row.key, skill.key))) is None:
        return ""
    works = ", ".join(f"{rate:g}" for rate in score.rates) or "none"
    ended = sum(bool(one.note) for one in score.results)
    other = matrix.scores.get((row.without, skill.key))
    parts = [
        f"With its exact interval: {seeds_text(score)}. The best seed has {percent(score.best)}, the median "
        f"{percent(score.median)}, at a rate of {score.rate:g}. Rates that worked, of "
        f"{', '.join(f'{one:g}' for one in matrix.board.rates)}: {works}.",
        f"{plural(ended, 'training')} ended early: the loss was no number." if ended else "",
        f"Without its convolution: {count_text(other)} seeds." if other else "",
    ]
    return " ".join(filter(None, parts))


def conditions(skill: Skill) -> str:
    """When a skill counts as learned, whose task it is, and what a paper reports."""
    published = (
        f" Published, in its own setting: {plain(skill.published)}" if skill.published else ""
    )
    return (
        f"Learned: {MEASURES.get(skill.measure, skill.measure)}, at least {percent(skill.passes)} on 1,000 held-out "
        f"sources, within {skill.steps:,} steps. Task: {plain(skill.source)}.{published}"
    )


def matrix_figure(matrix: Matrix, sort: str, picked: tuple[Mechanism, Skill], theme: Theme) -> Spec:
    """Mechanisms × skills: ink is the share that learned it, strokes are what was not measured, ≠ what differs from the
    first row beyond chance."""
    ink, rows, skills = Ink.of(theme), matrix.sorted(sort), matrix.board.skills
    cells = list[Spec]()
    for row, skill in product(rows, skills):
        at: Spec = {"layer": row.name, "head": skill.name}
        if (score := matrix.scores.get((row.key, skill.key))) is None:
            empty = dict.fromkeys(("share", "fill", "median", "rates"))
            cells.append(
                {**at, **empty, "ink": ink.quiet, "text": "╱╱╱", "mark": "", "says": "not measured"}
            )
            continue
        share, count = score.passed / len(score.results), len(score.results)
        fill, whole = shade(share, theme), count == len(matrix.board.seeds)
        differs = matrix.differs.get((row.key, skill.key), False)
        cells.append(
            {
                **at,
                "share": share,
                "fill": fill,
                "ink": text_on(fill, theme),
                "text": str(score.passed) if whole else f"{score.passed}/{count}",
                "mark": "≠" if differs else "",
                "says": seeds_text(score),
                "median": score.median,
                "medians": percent(score.median),
                "rates": len(score.rates),
                "works": f"{len(score.rates)} of {len(matrix.board.rates)}",
            }
        )
    at = {
        "x": band("head", [one.name for one in skills], ink, "top"),
        "y": band("layer", [one.name for one in rows], ink, "left"),
    }
    tips = [
        text_tip(name, title)
        for name, title in {
            "layer": "mechanism",
            "head": "skill",
            "says": "learned in",
            "medians": "median",
            "works": "rates that worked",
        }.items()
    ]
    written_in = {**at, "color": literal("ink")}
    corner = {
        **written_in,
        "x": {**at["x"], "bandPosition": 1},
        "y": {**at["y"], "bandPosition": 0},
    }
    drawn = [
        layer(
            "rect",
            cells,
            {**at, "color": literal("fill"), "tooltip": tips},
            cursor="pointer",
            stroke=ink.hairline,
        ),
        layer(
            "text",
            cells,
            {**written_in, "text": {"field": "text"}},
            fontSize=12,
            tooltip=False,
        ),
        layer(
            "text",
            [one for one in cells if one["mark"]],
            {**corner, "text": {"field": "mark"}},
            fontSize=10,
            align="right",
            baseline="top",
            dx=-2,
            dy=1,
            tooltip=False,
        ),
    ]
    titles = {"layer": "mechanism", "head": "skill", "share": "share of seeds", "median": "median"}
    ring = {"layer": picked[0].name, "head": picked[1].name}
    grid = picking_grid(drawn, ring, at, ink, ROW, ["layer", "head"])
    return grid | table_columns(titles | {"rates": "rates that worked", "mark": "≠"})


def band(name: str, sort: list[str], ink: Ink, orient: str) -> Spec:
    """An axis of names, which are shorter on a phone, and upright above the columns."""
    top = orient == "top"
    limits, angles = ((120, 130), (-30, -90)) if top else ((230, 150), (0, 0))
    wide, phone = (
        {"limit": limit, "angle": angle} for limit, angle in zip(limits, angles, strict=True)
    )
    return {
        "field": name,
        "type": "ordinal",
        "sort": sort,
        "title": None,
        "scale": {"domain": sort, "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "labelColor": ink.text,
            "orient": orient,
            "labelOverlap": False,
            "labelBaseline": "middle",
            "labelAlign": "left" if top else "right",
            "labelLimit": {"expr": f"width < {PHONE} ? {phone['limit']} : {wide['limit']}"},
            "labelAngle": {"expr": f"width < {PHONE} ? {phone['angle']} : {wide['angle']}"},
        },
    }


def legend(matrix: Matrix) -> str:
    """How the matrix is read, and how much of it was measured."""
    total = len(matrix.board.mechanisms) * len(matrix.board.skills)
    first = plain(matrix.board.mechanisms[0].name)
    return (
        f"≠ differs from {first} beyond chance (Fisher's exact test, corrected for the column); ╱╱╱ is not measured. "
        f"{len(matrix.scores)} of {total} cells are measured, by {len(matrix.cells):,} trainings."
    )


def scatter_figure(
    matrix: Matrix, skill: Skill, cost: str, costs: Mapping[str, Mapping[str, float]], theme: Theme
) -> Spec:
    """The share of seeds that learned a skill against a cost; the front is joined: what nothing cheaper beats."""
    ink, points = Ink.of(theme), dict[str, tuple[float, float]]()
    for row in matrix.board.mechanisms:
        score, value = (
            matrix.scores.get((row.key, skill.key)),
            matrix.step_seconds(row.key, skill.key)
            if cost == "step"
            else costs[row.attention][cost],
        )
        if score and value is not None and isfinite(value):
            points[row.name] = float(value), score.passed / len(score.results)
    best, rows = front(points), list[Spec]()
    middle = fmean(log(x) for x, _ in points.values())
    for name, point in points.items():
        same = [other for other, place in points.items() if place == point]
        more = f" +{len(same) - 1}" if len(same) > 1 else ""
        rows.append(
            {
                "name": name,
                "cost": point[0],
                "share": point[1],
                "there": ", ".join(same),
                "costs": WRITTEN[cost](point[0]),
                "fill": ink.pick if name in best else ink.series[0],
                "label": f"{name}{more}" if name in best and name == same[0] else "",
                "right": log(point[0]) > middle,
            }
        )
    at = {
        "x": field(
            "cost",
            COSTS[cost],
            axis=axis_style(ink) | {"format": "~s", "grid": False, "tickCount": 4},
        )
        | {"scale": {"type": "log", "nice": False, "padding": 12}},
        "y": field("share", "Share of seeds that learned it", domain=[-0.04, 1.14])
        | {
            "axis": {
                **axis_style(ink),
                "format": "%",
                "values": [0, 0.25, 0.5, 0.75, 1],
                "gridColor": ink.hairline,
            }
        },
    }
    tips = [text_tip("there", "mechanism"), text_tip("costs", COSTS[cost])]
    joined = sorted((one for one in rows if one["name"] in best), key=lambda one: one["cost"])
    named = [
        layer(
            "text",
            [one for one in rows if one["label"] and one["right"] == right],
            {**at, "text": {"field": "label"}},
            dy=-12,
            align="right" if right else "left",
            fontSize=12,
            color=ink.text,
        )
        for right in (False, True)
    ]
    line = layer("line", joined, at, color=ink.pick, strokeWidth=1, interpolate="step-after")
    dots = layer(
        "circle", rows, {**at, "color": literal("fill"), "tooltip": tips}, size=70, opacity=0.9
    )
    return figure([line, dots, *named], HEIGHT) | table_columns(
        {"name": "mechanism", "cost": COSTS[cost].lower(), "share": "share of seeds"}
    )


def curves_figure(matrix: Matrix, row: Mechanism, skill: Skill, ink: Ink) -> Spec:
    """The measure along the steps: of each seed at the chosen rate, of each rate that was tried, and what is learned."""
    curves = [
        Curve(
            "learned",
            [(0, skill.passes), (skill.steps, skill.passes)],
            colour=ink.series[1],
            dash=1,
        )
    ]
    for one in matrix.trainings(row.key, skill.key):
        tried = one.seed in matrix.board.rate_seeds
        name = f"rate {one.rate:g}" if tried else f"seed {one.seed}"
        if one.curve:
            curves.append(
                Curve(
                    name,
                    one.curve,
                    colour=ink.quiet if tried else ink.series[0],
                    dash=2 if tried else 0,
                )
            )
    measure = MEASURES.get(skill.measure, skill.measure)
    spec = line_chart(measure, "step", curves, ink, named=False, domain=(0.0, 1.0), share=True)
    return spec | {"title": None}


def table(matrix: Matrix, skill: Skill) -> tuple[list[str], list[list[str]]]:
    """Each mechanism on one skill, those that learned it in most seeds first."""
    rows = []
    for row in matrix.sorted(skill.key):
        score = matrix.scores.get((row.key, skill.key))
        other = matrix.scores.get((row.without, skill.key))
        rows.append(
            [
                row.name,
                *(
                    (
                        seeds_text(score),
                        percent(score.median),
                        percent(score.best),
                        written(f"{score.rate:g}", score.rate),
                        written(
                            f"{len(score.rates)} of {len(matrix.board.rates)}", len(score.rates)
                        ),
                    )
                    if score
                    else ("–",) * 5
                ),
                written(count_text(other), other.passed) if other else "–",
            ]
        )
    head = ["mechanism", "learned in", "median", "best", "rate", "rates that worked"]
    return [*head, "without its convolution"], rows


def own_text(seconds: float) -> str:
    """How long a reader's own row takes."""
    return (
        f"At most {about_duration(seconds)}, less where a skill is learned early. Stop keeps what there is; Continue goes on."
        if seconds
        else "All of it was measured: it is a row above."
    )


def taken_text(new: int, known: int) -> str:
    """What was taken from a file of results."""
    rest = (
        f"; {plural(known, 'training')} stood here already, and stay as they were" if known else ""
    )
    return f"Taken: {plural(new, 'training')}{rest}."
