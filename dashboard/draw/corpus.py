"""Heads over a corpus: its charts, its sentences of numbers, its table of texts, and its script."""

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np

from core.interpret import corpus as study
from core.interpret.roles import ROLES
from core.interpret.trace import Head
from core.pretrained import Pretrained
from core.pretrained.load import maps_bytes
from core.tokens import bare_piece
from dashboard.draw import picture_files
from dashboard.draw.components import Cell
from dashboard.draw.figures import (
    CATEGORIES,
    WEIGHTS,
    Ink,
    Spec,
    Theme,
    axis_style,
    figure,
    layer,
    literal,
    right_margin,
    series_encoding,
    shade,
    table_columns,
    text_on,
    text_tip,
)
from dashboard.draw.formats import byte_size, lower_name, number, percent, plural, share_text

HEIGHT, WIDE, SMALL = 250, 350, 150
ENDS = {  # of an axis, in words; its tooltip names the measure
    "distance": "← near words · how many tokens away · far words →",
    "entropy": "← from one word · takes · from many →",
}
EDGE = 12  # pixels right of a plot, for half of its last tick
CHARTS_OTHER = "other"


def head_scatter(
    measurement: study.Measurement, x: study.Axis, y: study.Axis, picked: Head, theme: Theme
) -> Spec:
    """A point a head at the means of two measures, in the colour of its role, with both 95 % intervals."""
    ink, rows = Ink.of(theme), scatter_rows(measurement, x, y, theme)
    at = {
        name: value_encoding(
            name,
            ENDS.get(one.key)
            or one.meaning + ("" if one.unit in one.meaning else f" ({one.unit})"),
            ink,
        )
        for name, one in (("x", x.measure), ("y", y.measure))
    }
    one = [row for row in rows if row["name"] == measurement.scores.name(picked)]
    unread = {"tooltip": False, "aria": False}
    whiskers = [
        layer(
            "rule",
            rows,
            at
            | {
                name: {**at[name], "field": f"{name}0"},
                f"{name}2": {"field": f"{name}1"},
                "color": literal("fill"),
            },
            opacity=0.4,
            strokeWidth=1,
            **unread,
        )
        for name in "xy"
    ]
    x_title, y_title = (f"{axis.measure.name}, {axis.measure.unit}" for axis in (x, y))
    titles = {"name": "head", "role": "role", "x": x_title, "xhalf": f"± of {x_title}"} | {
        "y": y_title,
        "yhalf": f"± of {y_title}",
    }
    return (
        figure(
            [
                *whiskers,
                layer(
                    "circle",
                    rows,
                    {
                        **at,
                        "fill": literal("inside"),
                        "stroke": literal("fill"),
                        "tooltip": [
                            text_tip("name", "head"),
                            text_tip("role", "role"),
                            text_tip("xs", "across"),
                            text_tip("ys", "upwards"),
                        ],
                        "description": {"field": "says", "type": "nominal"},
                    },
                    size=90,
                    strokeWidth=1.5,
                    opacity=0.95,
                    cursor="pointer",
                )
                | {"name": "heads"},
                layer(
                    "point",
                    one,
                    at,
                    size=230,
                    stroke=ink.pick,
                    strokeWidth=2.25,
                    filled=False,
                    **unread,
                ),
                layer(
                    "text",
                    one,
                    {**at, "text": {"field": "name"}},
                    color=ink.pick,
                    dy=-16,
                    fontSize=13,
                    fontWeight=600,
                    **unread,
                ),
            ],
            HEIGHT,
        )
        | right_margin(EDGE)
        | {
            "params": [
                {
                    "name": "head",
                    "select": {"type": "point", "fields": ["name"]},
                    "views": ["heads"],
                }
            ]
        }
        | table_columns(titles)
    )


def scatter_rows(
    measurement: study.Measurement, x: study.Axis, y: study.Axis, theme: Theme
) -> list[Spec]:
    rows, roles = [], measurement.scores.head_roles
    for name, head in measurement.heads.items():
        index = roles.get(head)
        row: Spec = {
            "name": name,
            "fill": Ink.of(theme).quiet if index is None else CATEGORIES[theme][index],
            "inside": "transparent" if index is None else CATEGORIES[theme][index],
            "role": "none" if index is None else ROLES[index].name,
        }
        for at, axis in (("x", x), ("y", y)):
            mean, half = float(axis.mean[head]), float(np.nan_to_num(axis.half[head]))
            words = f"{axis.measure.name} {number(mean)}" + (f" ± {number(half)}" if half else "")
            row |= {at: mean, f"{at}0": mean - half, f"{at}1": mean + half, f"{at}s": words}
            row[f"{at}half"] = half
        if not (np.isnan(row["x"]) or np.isnan(row["y"])):
            rows.append(row | {"says": f"{name}: {row['xs']}, {row['ys']}"})
    # A rare role is drawn over a frequent one
    count = Counter(row["role"] for row in rows)
    return sorted(rows, key=lambda row: -count[row["role"]])


def histogram(values: np.ndarray, measure: study.Measure, nouns: str, theme: Theme) -> Spec:
    """One head's values over texts (`nouns`): how many lie in each of 24 steps, with deciles and the mean."""
    ink, valid = Ink.of(theme), values[~np.isnan(values)].astype(float)
    counts, edges = np.histogram(valid, 24)
    places = {f"decile {step}": np.quantile(valid, step / 10) for step in range(1, 10)}
    *marks, mean = (
        {"name": name, "at": float(value), "text": number(value)}
        for name, value in {**places, "mean": valid.mean()}.items()
    )
    x = {
        "type": "quantitative",
        "title": f"{measure.unit}; a tenth of the {nouns} between two marks",
        "scale": {"zero": False, "nice": False},
        "axis": {**axis_style(ink), "grid": False, "tickCount": 5},
    }
    marked = {
        "x": {**x, "field": "at"},
        "tooltip": [text_tip("name", "mark"), text_tip("text", measure.name)],
    }
    titles = {"low": f"{measure.name} from", "high": f"{measure.name} to", "count": nouns}
    return figure(
        [
            layer(
                "bar",
                [
                    {
                        "low": float(low),
                        "high": float(high),
                        "count": int(count),
                        "range": f"{number(low)} to {number(high)}",
                    }
                    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
                ],
                {
                    "x": {**x, "field": "low"},
                    "x2": {"field": "high"},
                    "y": {
                        "field": "count",
                        "type": "quantitative",
                        "title": nouns,
                        "axis": {**axis_style(ink), "tickCount": 3, "gridColor": ink.hairline},
                    },
                    "y2": {"datum": 0},
                    "tooltip": [text_tip("range", measure.name), text_tip("count", nouns)],
                },
                color=ink.series[0],
                cornerRadius=1,
            ),
            layer(
                "tick",
                marks,
                {**marked, "y": {"value": "height"}},
                orient="vertical",
                color=ink.text,
                thickness=1.5,
                size=14,
            ),
            layer("rule", [mean], marked, color=ink.pick, strokeWidth=2),
        ],
        SMALL,
    ) | (right_margin(EDGE) | table_columns(titles))


def joint_chart(
    points: study.JointMap, vectors: study.HeadVectors, colour: str, theme: Theme
) -> Spec:
    ink = Ink.of(theme)
    common = [token for token, _ in Counter(vectors.tokens).most_common(7)]  # which have a colour
    legend = {
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 5,
        "labelColor": ink.text,
        "labelFontSize": 12,
        "titleColor": ink.quiet,
        "titleFontWeight": "normal",
    }
    shades = CATEGORIES[theme]
    rows = [
        {
            "x": float(x),
            "y": float(y),
            "token": token,
            "position": int(position),
            "text": int(text) + 1,
            "of": of,
            "group": token if token in common else CHARTS_OTHER,
        }
        for of, both in (("query", points.q), ("key", points.k))
        for (x, y), token, position, text in zip(
            both, vectors.tokens, vectors.positions, vectors.texts, strict=True
        )
    ]
    encoding = {
        "x": value_encoding(
            "x", f"first component, {percent(points.share[0])} of the variance", ink
        ),
        "y": value_encoding("y", f"second component, {percent(points.share[1])}", ink),
        "shape": series_encoding("of", ("query", "key"), ("circle", "triangle-up")),
        "tooltip": [
            text_tip("of", "vector"),
            text_tip("token", "token"),
            text_tip("position", "position"),
            text_tip("text", "text"),
        ],
        "color": {
            "field": "group",
            "type": "nominal",
            "title": None,
            "legend": legend,
            "scale": {
                "domain": [*common, CHARTS_OTHER],
                "range": [*shades[: len(common)], shades[-1]],
            },
        }
        if colour == "token"
        else {
            "field": "position",
            "type": "quantitative",
            "title": "position",
            "scale": {"range": WEIGHTS[theme][2:]},
            "legend": {**legend, "gradientLength": 120},
        },
    }
    return figure(
        [
            layer(
                "point",
                rows,
                encoding,
                filled=True,
                size=42,
                opacity=0.75,
            )
        ],
        WIDE,
    ) | right_margin(EDGE)


def value_encoding(name: str, title: str, ink: Ink) -> Spec:
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "padding": EDGE},  # no point is cut
        "axis": {**axis_style(ink), "gridColor": ink.hairline, "tickCount": 6},
    }


# Its script beside the recorded calls: the charts, and the texts that show the head.


CODES = {
    "corpus:scatter": """
import altair as alt
import pandas as pd

heads = pd.DataFrame({"layer": [layer for layer, row in enumerate(x.mean) for _ in row],
                      "x": x.mean.ravel(), "y": y.mean.ravel()})
alt.Chart(heads).mark_circle().encode(x="x:Q", y="y:Q", color="layer:O")
""",
    "corpus:histogram": """
alt.Chart(pd.DataFrame({"value": of_head.values})).mark_bar().encode(
    x=alt.X("value:Q", bin=alt.Bin(maxbins=30)), y="count()")
""",
    "corpus:map": """
points = pd.concat([pd.DataFrame(one, columns=["x", "y"]).assign(of=name)
                    for name, one in (("queries", plane.points.q), ("keys", plane.points.k))])
alt.Chart(points).mark_point().encode(x="x:Q", y="y:Q", color="of:N", shape="of:N")
""",
}
EXAMPLES = Cell(
    "The row of each text: its query and the key with most of its weight.",
    """
for one in examples:
    tokens = one.row.line.tokens
    print(f"{one.value:.3f} text {one.text}: {tokens[one.row.query]} -> {tokens[one.row.key]}")
""",
)


VIEW_NOTES = {
    "strongest": "The texts with the largest values, each with the row that shows the measure most.",
    "typical": "At each tenth of all texts the one nearest to the decile, with the row nearest to its value.",
    "weakest": "The texts with the smallest values, each with the row that shows the measure least.",
}


def about(words: str, noun: str) -> str:
    """The same words about pictures, where these are what the model reads."""
    return re.sub(r"\btext(s?)\b", rf"{noun}\1", words)


# Sentences, caption and CSV.


def common_text(measurement: study.Measurement) -> str:
    """The role that most heads have; of a measurement with roles."""
    ((index, count),) = Counter(measurement.scores.head_roles.values()).most_common(1)
    return f"**{count}** of {len(measurement.heads)} heads have one habit: each takes from {ROLES[index].attends_to}."


def fact_text(
    measurement: study.Measurement, measure: study.Measure, head: Head, shown: study.HeadValues
) -> str:
    read, count, role = measurement.corpus.read, shown.count, measure.role
    texts = f"{count:,} texts"
    if count < read:
        texts = f"the {count:,} of {read:,} texts that can show it"
    name, mean = f":primary[**{measurement.scores.name(head)}**]", f"**{number(shown.mean)}**"
    if role is not None and role.targets:
        return f"{name} takes {mean} from {role.attends_to}, the mean over {texts}."
    subject = "the share of its keys that it uses" if role else f"its {lower_name(measure.name)}"
    return f"{name}: {subject} is {mean}, the mean over {texts}."


def spread_text(measurement: study.Measurement, values: np.ndarray, head: Head) -> str:
    scores, name = measurement.scores, measurement.scores.name(head)
    low, high = (number(float(np.nanquantile(values, share))) for share in (0.1, 0.9))
    most = f"Eight texts in ten lie between {low} and {high}."
    if (index := scores.head_roles.get(head)) is None:
        return f"{most} {name} has no role: in none is it clearly above chance."
    score, chance = (float(one[index][head]) for one in (scores.score, scores.chance))
    baseline = "shuffled keys" if ROLES[index].targets else "random scores"
    return (
        f"{most} The role of {name} is {ROLES[index].name.lower()}: {number(score)} over {scores.rows[index]:,} "
        f"rows, where "
        f"{baseline} would give {number(chance)}."
    )


def caption_text(measurement: study.Measurement, pretrained: Pretrained) -> str:
    corpus, data = measurement.corpus, measurement.run.metadata()
    day = time.strftime("%Y-%m-%d", time.gmtime(float(data.get("created", 0))))
    kind = "causal self-attention" if measurement.config.kind == "causal" else "self-attention"
    ablation = any(measure.key == study.ABLATION for measure in measurement.measures)
    most = maps_bytes(pretrained.model, 1) * (study.CELLS if ablation else study.MAX_TOKENS**2)
    sums = vars(corpus.roles).values()
    of_answer = "the likeliest answer’s probability with the head less that without it: above 0 where the head helps"
    failed = len(corpus.failed)
    parts = (
        (
            True,
            f"{pretrained.name}, {kind}, {corpus.read:,} texts, measured on {day}. A measure is the mean over the "
            "rows of a text's own tokens; its mean and its "
            f"{percent(study.CONFIDENCE)} confidence interval (±, the lines at its point) are taken over texts, which "
            "all count the same.",
        ),
        (
            corpus.cut,
            f"Of {plural(corpus.cut, 'text')} only the first {study.MAX_TOKENS} tokens were read.",
        ),
        (failed, f"{plural(failed, 'text')} could not be read: {corpus.error}"),
        *((True, note) for note in data.get("notes", ())),
        (
            True,
            f"One text at a time was in memory: at most {byte_size(most)} of attention maps, and "
            f"{byte_size(sum(array.nbytes for array in sums))} of running sums, however many texts.",
        ),
        (
            ablation,
            f"The ablation effect is {'1 − cosine of the embedding' if pretrained.head == 'none' else of_answer}.",
        ),
    )
    return " ".join(sentence for holds, sentence in parts if holds)


def progress(measurement: study.Measurement) -> tuple[float, str]:
    done, count = measurement.corpus.texts, measurement.count
    left = math.ceil(measurement.corpus.seconds * (count - done))
    if not done:
        return 0.0, "Loading the model"
    return done / count, f"{done:,} of {count:,} texts; about {left:,} s left"


def to_csv(measurement: study.Measurement) -> bytes:
    corpus, roles = measurement.corpus, measurement.scores.head_roles
    columns = [
        (one, corpus.mean(one.key), corpus.interval(one.key), corpus.texts_of(one.key))
        for one in measurement.measures
    ]
    return picture_files.csv_file(
        ["head", "measure", "mean", "half_of_95_percent_interval", "texts", "role"],
        [
            [
                name,
                measure.key,
                f"{mean[head]:.6f}",
                f"{half[head]:.6f}",
                texts[head],
                ROLES[roles[head]].key if head in roles else "",
            ]
            for name, head in measurement.heads.items()
            for measure, mean, half, texts in columns
            if not np.isnan(mean[head])
        ],
    )


MAX_SHOWN = 48  # tokens of a text, around its query


# Texts as HTML, each token in the colour of its weight in one row: the query in the accent, expected keys underlined.


def marked_table(
    examples: Sequence[study.TextExample], measure: study.Measure, noun: str, theme: Theme
) -> str:
    ink, rows, head = Ink.of(theme), "", [measure.name, f"{noun}, with one row of its map"]
    cell = f"padding:6px 8px 6px 0;border-top:1px solid {ink.hairline};vertical-align:top"
    if any(one.decile is not None for one in examples):
        head.insert(0, "decile")
    for example in examples:
        row, tokens, decile = example.row, example.row.line.tokens, ""
        if example.decile is not None:
            decile = f'<td style="{cell}">{round(10 * example.decile)}</td>'
        note = f"{tokens[row.query]} → {tokens[row.key]} {share_text(float(row.weights[row.key]))}"
        if measure.role is not None and number(row.value) != share_text(
            float(row.weights[row.key])
        ):
            note += (
                f"; {'all underlined keys' if measure.role.targets else 'share of keys that it uses'} "
                f"{number(row.value)}"
            )
        rows += (
            f'<tr>{decile}<td style="{cell};text-align:left">{number(example.value)}</td>'
            f'<td style="{cell};width:100%;line-height:26px">{tokens_html(row, ink, theme)}'
            f'<div style="font-size:13px;line-height:18px;color:{ink.quiet}">{noun} {example.text + 1}: '
            f"{escape(note)}</div></td></tr>"
        )
    columns = "".join(
        f'<th scope="col" style="padding:2px 8px 2px 0;font-weight:400;text-align:left;opacity:.75;'
        f'white-space:nowrap">{escape(name)}</th>'
        for name in head
    )
    return (
        f'<div style="overflow-x:auto"><table aria-label="Texts of this head" style="width:100%;font-size:14px;'
        f'border-collapse:collapse"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def tokens_html(row: study.MarkedRow, ink: Ink, theme: Theme) -> str:
    line, parts = row.line, ""
    first = max(0, min(row.query - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
    last = min(len(line), first + MAX_SHOWN)
    for index in range(first, last):
        weight, word = float(row.weights[index]), line.word[index]
        colour = shade(weight, theme)
        style = (
            f"background:{colour};color:{text_on(colour, theme)};padding:1px 2px;border-radius:3px"
        )
        if index == row.query:
            style += f";outline:2px solid {ink.pick}"
        if row.expected[index]:
            style += f";border-bottom:2px dashed {ink.text};background-clip:padding-box"
        joined = index > first and word is not None and word == line.word[index - 1]
        parts += (
            f'{"" if joined else " "}<span title="{share_text(weight)}" style="{style}">'
            f"{escape(bare_piece(line.tokens[index]) if joined else line.tokens[index])}</span>"
        )
    return f"{'… ' if first else ''}{parts.strip()}{' …' if last < len(line) else ''}"
