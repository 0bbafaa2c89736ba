"""Figures of cells and bars: effects by layer and place, heads by role, tokens by probability, what a model reads."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from core.interpret.head_tests import (
    Parse,
    Query,
    SyntaxResult,
)
from core.interpret.roles import ROLES, RoleScores
from core.interpret.trace import Head, NumberedHeads
from dashboard.draw.figures import (
    BAR,
    CATEGORIES,
    PAGE,
    PICK,
    WEIGHTS,
    Ink,
    Spec,
    Theme,
    axis_style,
    colour_scale,
    colours_at,
    field,
    figure,
    layer,
    literal,
    names,
    names_axis,
    picking_grid,
    rgb_of,
    shade,
    table_columns,
    text_on,
    text_tip,
    whole_tip,
)
from dashboard.draw.formats import MINUS, cell, distinct, number, percent, share_text
from dashboard.draw.templates import html

# Layers × parts of a model, each cell a signed effect on the answer, as a Vega-Lite figure.


WIDE, MAX_WIDE = 30, 110  # pixels of a cell: from the first on it shows a number
TALL, MAX_TALL, ALL_TALL = 24, 40, 320  # its height, and that of all rows while it is not less
SIGN = 7  # pixels that a character of a number takes
MAX_NUMBERS = 17  # columns, beyond which cells hold no numbers


def effect_grid(
    rows: Sequence[Spec],
    layers: Sequence[str],
    columns: Sequence[str],
    picked: tuple[str, str],
    theme: Theme,
    *,
    title: str = "change of the answer",
    across: str = "head",
    tips: Sequence[tuple[str, str]] = (
        ("name", "without"),
        ("now", "answer"),
        ("by", "change"),
        ("share", "rank"),
    ),
    has_sign: bool = True,
    largest: float = 0.0,
    more: Mapping[str, str] = {},
) -> Spec:
    """A cell for each row of data, which holds layer, head (its column), change and the tooltip's texts.

    The scale ends at `largest`, else at the largest change; columns that are no numbers (whole layers) do not count.
    Without signs it begins at 0; without a `title` it has no legend. A click picks layer and head; `picked` is outlined.
    The table has a row for each cell, with `more` fields of it under these titles.
    """
    ink = Ink.of(theme)
    largest = (
        largest
        or max(
            (abs(row["change"]) for row in rows if row["head"].isdecimal() or across != "head"),
            default=0.0,
        )
        or 1e-9
    )
    at = {
        "x": _band("head", across, columns, ink, "top", turned=across != "head")
        | {
            "scale": {
                "domain": list(columns),
                "paddingInner": 0.06,
                "range": [0, {"expr": f"min(width, {MAX_WIDE * len(columns)})"}],
            }
        },
        "y": _band("layer", None, layers, ink, "left"),
    }
    colour = {
        "field": "change",
        "type": "quantitative",
        "scale": {
            "range": colour_scale(theme, signed=has_sign),
            **(
                {"domain": [-largest, largest], "domainMid": 0}
                if has_sign
                else {"domain": [0, largest]}
            ),
            "clamp": True,
            "interpolate": "rgb",
        },
        "legend": {
            "title": title,
            "orient": "bottom",
            "direction": "horizontal",
            "gradientLength": 160,
            "gradientThickness": 8,
            "tickCount": 2,
            "labelColor": ink.quiet,
            "titleColor": ink.quiet,
            "titleFontWeight": "normal",
            "titleLimit": 300,
        }
        if title
        else None,
    }
    texts = [short(row["change"], largest, has_sign) for row in rows]
    wide = max([WIDE, *(SIGN * len(text) for text in texts)])
    rows = [row | {"short": text} for row, text in zip(rows, texts, strict=True)]
    tooltip = [{"field": name, "title": words} for name, words in tips]
    light = {"test": f"abs(datum.change) > {0.55 * largest}", "value": PAGE[theme]}
    cells, numbers = (
        layer(
            "rect", rows, {**at, "color": colour, "tooltip": tooltip}, cursor="pointer", stroke=None
        ),
        layer(
            "text",
            rows,
            {**at, "text": {"field": "short"}, "color": {"condition": light, "value": ink.text}},
            fontSize=12,
            tooltip=False,
            opacity={"expr": f"width < {wide * len(columns)} ? 0 : 1"},
        ),
    )
    named = {"layer": "layer", "head": across, "change": dict(tips).get("by", title)}
    return picking_grid(
        [cells, numbers] if len(columns) <= MAX_NUMBERS else [cells],
        {"layer": picked[0], "head": picked[1]},
        at,
        ink,
        max(TALL, min(MAX_TALL, ALL_TALL // len(layers))),
        ["layer", "head"],
    ) | table_columns({**named, **more})


def short(change: float, largest: float, has_sign: bool = True) -> str:
    """A change in a cell, with as many decimals as all of its grid; nothing where it is small beside the largest."""
    if abs(change) < 0.08 * largest:
        return ""
    decimals = 2 if largest >= 0.1 else min(4, 1 - math.floor(math.log10(largest)))
    return cell(f"{change:{'+' if has_sign else ''}.{decimals}f}".replace("-", MINUS))


def _band(
    name: str, title: str | None, sort: Sequence[str], ink: Ink, orient: str, turned: bool = False
) -> Spec:
    """An axis of names; those across are `turned` where they have no room side by side."""
    angle = {"expr": f"width < {SIGN * max(map(len, sort)) * len(sort)} ? -90 : 0"}
    return {
        "field": name,
        "type": "ordinal",
        "sort": list(sort),
        "title": title,
        "scale": {"domain": list(sort), "paddingInner": 0.06},
        "axis": {
            **axis_style(ink),
            "orient": orient,
            "labelAngle": angle if turned else 0,
            "labelOverlap": True,
            "labelFlush": False,
            "grid": False,
            "titlePadding": 2,
            "labelPadding": 4,
        },
    }


# The most probable next tokens as bars, of one distribution or of several.


MAX_BARS = 8


def most_probable(probabilities: Tensor, token: int, max_bars: int = MAX_BARS) -> list[int]:
    """The most probable tokens; `token` replaces the last of them where it is not among them."""
    top = probabilities.topk(min(max_bars, len(probabilities))).indices.tolist()
    return top if token in top else [*top[:-1], token]


def bar_figure(
    rows: Sequence[Spec],
    name: str,
    names: Sequence[str],
    value: str,
    ink: Ink,
    *,
    domain: Sequence[float],
    height: int | Spec,
    colour: Spec,
    tips: Sequence[Spec],
    mark: Spec | None = None,
    offset: Spec | None = None,
    dx: int = 4,
    limit: int = 130,
    log: bool = False,
    **more: Spec,
) -> Spec:
    """A horizontal bar, or another `mark`, for each row of data, by the fields `name` and `value`.

    Behind it, at the row's `end`, stands its `text`. `names` are the rows' names from top to bottom, `domain` the ends of
    the axis, `colour` the channel of the bars' colour, such as {"value": ink.series[0]} or `literal("fill")`, and `tips`
    the channels of the tooltip, such as `text_tip("text", "loss")`.
    """
    scale = {"domain": list(domain), **({"type": "log", "nice": False} if log else {"zero": False})}
    x = field(value, None) | {"scale": scale}
    at = {
        "y": names_axis(name, names, limit, ink, grid=False, labelOverlap=False, labelFlush=False),
        "x": x,
    }
    at |= {"yOffset": offset} if offset else {}
    return figure(
        [
            {
                "data": {"values": list(rows)},
                "mark": mark or {"type": "bar", "cornerRadius": 2},
                "encoding": {**at, "color": colour, "tooltip": tips, **more},
            },
            layer(
                "text",
                rows,
                {**at, "x": {**x, "field": "end"}, "text": {"field": "text", "type": "nominal"}},
                align="left",
                dx=dx,
                fontSize=12,
                color=ink.quiet,
            ),
        ],
        height,
    )


def bars(
    distributions: dict[str, Tensor],
    names: Sequence[str] | Mapping[int, str],
    token: int,
    ink: Ink,
    max_bars: int = MAX_BARS,
    limit: int = 120,
) -> Spec:
    """A bar a token for each distribution, the picked token in the accent; names have at most `limit` px."""
    top, several = (
        most_probable(next(iter(distributions.values())), token, max_bars),
        len(distributions) > 1,
    )
    labels = distinct([names[i] for i in top])
    rows = [
        {
            "token": label,
            "p": float(p[i]),
            "of": of,
            "picked": i == token,
            "text": share_text(float(p[i])),
            "end": float(p[i]),
        }
        for of, p in distributions.items()
        for i, label in zip(top, labels, strict=True)
    ]
    faint = {"test": "datum.of == 'model'", "value": 0.45 if several else 1.0}
    return bar_figure(
        rows,
        "token",
        labels,
        "p",
        ink,
        domain=[0, 1.18],
        limit=limit,
        height=len(top) * (38 if several else 26),
        colour={
            "condition": {"test": "datum.picked", "value": ink.pick},
            "value": ink.series[0],
        },
        tips=[{"field": name, "type": "nominal"} for name in ("token", "of", "text")],
        offset={"field": "of", "type": "nominal", "sort": list(distributions)} if several else None,
        opacity={"condition": faint, "value": 1.0},
    ) | table_columns({"token": "token", "of": "of", "p": "probability"})


TILE, ONE_TILE = 72, 144  # pixels of a picture on the page, of several and of the only one
# how strongly a picture is drawn by itself, and over the colours of weights
PLAIN, OVER = 0.85, 0.45
MAX_PICTURES = 14


def joined_patches(source: Sequence[Sequence[float]], grid: tuple[int, int]) -> np.ndarray:
    """Square patches, row by row, as one picture (height, width) from 0 to 1."""
    values = np.asarray(source, dtype=np.float32)
    side = math.isqrt(values.shape[1])
    whole = (
        values.reshape(*grid, side, side)
        .transpose(0, 2, 1, 3)
        .reshape(grid[0] * side, grid[1] * side)
    )
    return (whole - whole.min()) / (np.ptp(whole) or 1.0)


def tinted(
    whole: np.ndarray, grid: tuple[int, int], weights: np.ndarray | None, theme: Theme, ink: str
) -> np.ndarray:
    """The picture in the page's ink over patches in the colour of their weight, (height, width, 3) bytes."""
    shares = np.zeros(grid) if weights is None else np.asarray(weights, np.float32).reshape(grid)
    sides = whole.shape[0] // grid[0], whole.shape[1] // grid[1]
    full = colours_at(colour_scale(theme), shares).repeat(sides[0], 0).repeat(sides[1], 1)
    away = np.array(rgb_of(ink), dtype=np.float32) - full
    return (full + (PLAIN if weights is None else OVER) * whole[..., None] * away).astype(np.uint8)


def image(pixels: np.ndarray, alt_text: str, height: int = TILE) -> Markup:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    data = base64.b64encode(out.getvalue()).decode()
    width = round(height * pixels.shape[1] / pixels.shape[0])
    return Markup(
        f'<img alt="{escape(alt_text)}" src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        'style="image-rendering:pixelated;border-radius:2px;display:block">'
    )


def tiles(
    source: Sequence[Sequence[float]],
    grid: tuple[int, int],
    outputs: Sequence[str],
    weights: np.ndarray,
    theme: Theme,
    ink: Ink,
) -> str:
    """HTML: a picture for each output, its patches tinted by their weight, the largest of all in the full colour."""
    whole, most = joined_patches(source, grid), float(weights.max()) or 1.0
    height = ONE_TILE if len(weights) == 1 else TILE
    pictures = [
        (
            image(
                tinted(whole, grid, row / most, theme, ink.text), f"what {name} attends to", height
            ),
            name,
        )
        for name, row in list(zip(outputs, weights, strict=False))[:MAX_PICTURES]
    ]
    return html("grids", "figures", pictures)


def forecast_chart(
    past: Sequence[float],
    target: Sequence[float],
    forecast: Sequence[float],
    naive: Sequence[float],
    weights: np.ndarray | None,
    ink: Ink,
    theme: Theme,
) -> Spec:
    """The past, the target, the forecast and the last season repeated; dots on the past are the mean weight."""
    now, style = len(past) - 1, axis_style(ink)
    at = {
        "x": field(
            "x",
            "place",
            domain=[0, now + len(target)],
            axis={**style, "grid": False, "titleAnchor": "end"},
        ),
        "y": field(
            "y", None, axis={**style, "grid": True, "gridColor": ink.hairline, "tickCount": 4}
        ),
    }

    def line(
        name: str, values: Sequence[float], colour: str, dash: list[int], start: int = now
    ) -> Spec:
        joined = values if start == 0 else [past[-1], *values]
        return layer(
            "line",
            [{"x": start + i, "y": value, "told": number(value)} for i, value in enumerate(joined)],
            {**at, "tooltip": [whole_tip("x", "place"), text_tip("told", name)]},
            color=colour,
            strokeWidth=2,
            strokeDash=dash,
        )

    layers = [
        line("past", past, ink.quiet, [1, 0], 0),
        line("the last season again", naive, ink.series[1], [2, 2]),
        line("what came", target, ink.text, [1, 0]),
        line("the model", forecast, ink.series[0], [1, 0]),
    ]
    if weights is not None:  # a dot on each place of the past, larger and fuller with its weight
        mean = weights.mean(0)
        domain = [0, float(mean.max()) or 1.0]
        channels = {
            name: {"field": "w", "type": "quantitative", "legend": None, "scale": scale}
            for name, scale in {
                "size": {"domain": domain, "range": [0, 120]},
                "color": {"domain": domain, "range": colour_scale(theme), "interpolate": "rgb"},
            }.items()
        } | {"tooltip": [whole_tip("x", "place"), text_tip("told", "weight")]}
        rows = [
            {"x": i, "y": value, "w": float(w), "told": number(w)}
            for i, (value, w) in enumerate(zip(past, mean, strict=False))
        ]
        layers.append(layer("circle", rows, at | channels, opacity=1))
    return figure(layers, height=200)


# Heads by role, score and accuracy, and the words of a sentence by weight.


ACROSS = 352  # px of a grid's cells, beside each other on a wide page and alone on a phone
CELL = (9, 34)
HEAD_COLUMNS = {"layer": "layer", "head": "head"}
LETTERS = 26  # px from which a cell has room for its mark or number
GAP = 0.06
LEAST = 0.001  # smaller shares are written as less than it
END = 1.14  # of the bars' scale: right of every bar its number has room
SENTENCE_STYLE = """<style>
.syntax-lines{display:grid;gap:10px;font-size:15px;line-height:30px}
.syntax-lines .words span{padding:2px 4px;border-radius:4px;margin-right:2px}
.syntax-lines .asks{font-weight:600}
.syntax-lines .target{text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:4px}
.syntax-lines .verdict{font-size:13px;line-height:18px;opacity:.8}
</style>"""


def role_grid(scores: RoleScores, picked: Head, theme: Theme) -> Spec:
    """A cell a head, in the colour and with the mark of its role; a bare cell is none of these."""
    roles = scores.head_roles
    cells = {
        head: {
            "fill": CATEGORIES[theme][roles[head]],
            "mark": ROLES[roles[head]].mark,
            "says": role_figure(scores, roles[head], head),
            "is": ROLES[roles[head]].name,
            "score": float(scores.score[roles[head]][head]),
            "chance": float(scores.chance[roles[head]][head]),
        }
        if head in roles
        else {"fill": WEIGHTS[theme][0], "mark": "", "says": "no role"}
        | dict.fromkeys(("is", "score", "chance"))
        for head in scores.heads
    }
    curves = [(ROLES[at].name, CATEGORIES[theme][at], [1, 0]) for at in sorted({*roles.values()})]
    titles = HEAD_COLUMNS | {"is": "role", "score": "score", "chance": "chance"}
    return head_grid(scores, cells, picked, theme) | names(curves, titles)


def share_grid(
    scores: NumberedHeads,
    shares: Float[np.ndarray, "L H"],
    says: Mapping[Head, str],
    faint: Bool[np.ndarray, "L H"],
    picked: Head,
    theme: Theme,
    title: str = "score",
    column: str = "score",
) -> Spec:
    """A cell for each head that `says` something, with its share from 0 to 1 in blue ink; a dash where that is NaN.

    Heads that prove nothing are `faint`; `title` is that of what they say, `column` that of the shares in the table.
    """
    cells = {
        head: {"fill": "transparent", "ink": Ink.of(theme).quiet, "mark": "–", "says": "–"}
        if np.isnan(share := float(shares[head]))
        else {
            "share": share,
            "fill": shade(share, theme),
            "mark": "<.001" if 0 < share < LEAST else cell(number(share)),
            "faint": bool(faint[head]),
            "says": words,
        }
        for head, words in says.items()
    }
    titles = HEAD_COLUMNS | {"share": column}
    return head_grid(scores, cells, picked, theme, title) | table_columns(titles)


def head_bars(scores: RoleScores, head: Head, theme: Theme) -> Spec:
    """One head: a bar for its score in each role, and a tick with a whisker of 3 std at its chance."""
    ink = Ink.of(theme)
    rows = [
        {
            "role": role.name,
            "score": (score := float(scores.score[index][head])),
            "chance": (chance := float(scores.chance[index][head])),
            "low": max(0.0, chance - 3 * (std := float(scores.std[index][head]))),
            "high": chance + 3 * std,
            "std": std,
            "fill": CATEGORIES[theme][index],
            "faint": not scores.counts[index][head],
            "text": f"<{LEAST}" if 0 < score < LEAST else number(score),
            "by": number(chance),
        }
        for index, role in enumerate(ROLES)
        if not np.isnan(scores.score[index][head])
    ]
    y = names_axis("role", [str(row["role"]) for row in rows], 130, ink)
    x = {"type": "quantitative", "scale": {"domain": [0, END]}, "axis": None}
    tips = [
        {"field": name, "title": title}
        for name, title in (("role", "role"), ("text", "score"), ("by", "chance"))
    ]
    bars = {"x": {**x, "field": "score"}, "color": literal("fill"), "opacity": _faint(0.35)}
    layers = [
        layer(
            "bar", rows, {"y": y, **bars, "tooltip": tips}, cornerRadius=2, height={"band": 0.62}
        ),
        layer(
            "rule",
            rows,
            {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
            color=ink.text,
            strokeWidth=1,
        ),
        layer(
            "tick",
            rows,
            {"y": y, "x": {**x, "field": "chance"}, "tooltip": tips},
            color=ink.text,
            thickness=2,
            height={"band": 0.8},
        ),
        layer(
            "text",
            rows,
            {"y": y, "x": {**x, "datum": END}, "text": {"field": "text"}},
            align="right",
            fontSize=12,
            color=ink.text,
            baseline="middle",
        ),
    ]
    titles = {"role": "role", "score": "score", "chance": "chance", "std": "std of chance"}
    return figure(layers, 26 * len(rows)) | table_columns(titles)


def role_figure(scores: RoleScores, index: int, head: Head) -> str:
    score, chance, spread = (
        number(one[index][head]) for one in (scores.score, scores.chance, scores.std)
    )
    return f"{ROLES[index].name} {score}, chance {chance} ± {spread}"


def _faint(opacity: float) -> Spec:
    return {"condition": {"test": "datum.faint", "value": opacity}, "value": 1}


def head_grid(
    scores: NumberedHeads,
    cells: Mapping[Head, Spec],
    picked: Head,
    theme: Theme,
    says: str = "role",
) -> Spec:
    """A cell a head, with its `fill`, `mark` and what it `says`, also `faint` and an `ink` of its own for the mark.

    The picked one is ringed; `says` is the title of what cells say.
    """
    heads = range(1 + max(head for _, head in cells))
    ink = Ink.of(theme)
    size = int(np.clip(ACROSS // len(heads), *CELL))  # all heads of a layer fit beside each other
    step = 1 if size >= 14 else 4 if size >= 10 else 8  # between the numbers that have room
    at = {
        channel: {
            "field": field,
            "type": "ordinal",
            "title": title,
            "axis": {
                **axis_style(ink),
                "orient": orient,
                "labelAngle": 0,
                "values": list(values[::step]),
                "grid": False,
                "titleAnchor": "start",
                "titlePadding": 2,
            },
            "scale": {"domain": list(values), "paddingInner": GAP, "paddingOuter": GAP},
        }
        for channel, field, title, orient, values in (
            ("x", "head", "head", "top", heads),
            ("y", "layer", None, "left", scores.numbers),
        )
    }
    rows = [
        {
            "layer": scores.numbers[head[0]],
            "head": head[1],
            "name": scores.name(head),
            "faint": False,
            "tells": f"{scores.name(head)}: {each['says']}",
            **each,
            "ink": each.get("ink") or text_on(each["fill"], theme),
        }
        for head, each in cells.items()
    ]
    shown = {
        "description": {"field": "tells", "type": "nominal"},
        "color": literal("fill"),
        "tooltip": [{"field": "name", "title": "head"}, {"field": "says", "title": says}],
    }
    marks = {"text": {"field": "mark"}, "color": literal("ink"), "opacity": _faint(0.62)}
    pick = {"name": "head", "select": {"type": "point", "fields": ["name"]}, "views": ["cells"]}
    return {
        "layer": [
            layer(
                "rect",
                rows,
                at | shown,
                cornerRadius=2,
                stroke=ink.hairline,
                strokeWidth=1,
                cursor="pointer",
            )
            | {"name": "cells"},
            layer(
                "rect",
                [row for row in rows if row["name"] == scores.name(picked)],
                at,
                fillOpacity=0,
                stroke=ink.pick,
                strokeWidth=2.25,
                cornerRadius=3,
            ),
            *(
                [layer("text", rows, at | marks, fontSize=11, baseline="middle")]
                if size >= LETTERS
                else ()
            ),
        ],
        "params": [pick],
        "width": {"step": size},
        "height": {"step": size},
        "config": {"view": {"stroke": None}},
        "padding": {"left": 2, "right": 4, "top": 2, "bottom": 2},
    }


def relation_dots(result: SyntaxResult, relation: int, theme: Theme) -> Spec:
    """A relation a row: the best head's accuracy with its interval, and a tick for the best offset's."""
    ink = Ink.of(theme)
    rows = [
        {
            "relation": result.names[index],
            **(best := dict(zip(("share", "low", "high"), score.held_out_share, strict=True))),
            "offset": (offset := float(score.offset_held_out[1].mean())),
            "text": percent(best["share"]),
            "by": percent(offset),
            "within": f"{percent(best['low'])} to {percent(best['high'])}",
            "colour": PICK[theme] if index == relation else BAR[theme],
        }
        for index, score in enumerate(result.scores)
        if score is not None
    ]
    x = {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [0, 1]},
        "axis": {
            **axis_style(ink),
            "values": [0, 0.25, 0.5, 0.75, 1],
            "format": "%",
            "grid": True,
            "gridColor": ink.hairline,
        },
    }
    at = {
        "y": names_axis(
            "relation", [str(row["relation"]) for row in rows], 220, ink, labelFlush=False
        ),
        "tooltip": [
            text_tip("relation", "relation"),
            text_tip("text", "best head"),
            text_tip("within", "95 % interval"),
            text_tip("by", "best offset"),
        ],
    }
    titles = {"relation": "relation", "share": "accuracy of the best head", "low": "95 % interval from",
              "high": "95 % interval to", "offset": "accuracy of the best offset"}  # fmt: skip
    return figure([
        layer("rule", rows, {**at, "x": {**x, "field": "low"}, "x2": {"field": "high"},
              "color": literal("colour")}, strokeWidth=2),
        layer("tick", rows, {**at, "x": {**x, "field": "offset"}}, color=ink.text, thickness=2, height={"band": 0.7}),
        layer("circle", rows, {**at, "x": {**x, "field": "share"}, "color": literal("colour")}, size=80, opacity=1)],
        {"step": 24}) | table_columns(titles)  # fmt: skip


def query_lines(parse: Parse, weights: np.ndarray, queries: Sequence[Query], theme: Theme) -> str:
    """The sentence once for each query as HTML: each word on the colour of its weight, the targets underlined."""
    lines = []
    for query in queries:
        row, words = weights[query.word], []
        for index, word in enumerate(parse.words):
            fill, weight = shade(float(row[index]), theme), f"weight {number(float(row[index]))}"
            style = f"background:{fill};color:{text_on(fill, theme)}"
            name = "target" if index in query.targets else ""
            if index == query.word:
                name, weight = "asks", "the query"
                style = f"color:{PICK[theme]};box-shadow:inset 0 0 0 2px {PICK[theme]}"
            words.append((name, weight, style, word.form))
        # Right or wrong, with the weights of the top word and of the target
        asks = parse.words[query.word].form
        top, target = (
            f"“{parse.words[index].form}” {number(float(row[index]))}"
            for index in (query.top, max(query.targets, key=lambda index: row[index]))
        )
        verdict = f"✗ {asks} → {top}; right is {target}"
        if query.right:
            verdict = f"✓ {asks} → {target}"
        elif query.top < 0:
            verdict = f"✗ {asks} attends to no other word; right is {target}"
        lines.append((words, verdict))
    return html("grids", "queries", lines)
