"""Why this key: which sources are drawn, the sentences of numbers, the equation and the figures."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from core.interpret.score_sources import (
    Removal,
    ScoreSources,
    Side,
    Source,
    removal_correlation,
)
from core.interpret.trace import Kind
from dashboard.draw.components import Cell
from dashboard.draw.figures import (
    PAGE,
    Ink,
    Spec,
    Theme,
    axis_style,
    colour_scale,
    field,
    figure,
    layer,
    literal,
    quoted,
    table_columns,
    text_tip,
)
from dashboard.draw.formats import (
    added,
    latex,
    number,
    numbered,
    percent,
    plain,
    plural,
    share_text,
    signed,
)
from dashboard.draw.grids import bar_figure, short

SIDES: tuple[Side, Side] = "query", "key"
PAIRS = 5  # the largest, which are outlined and named
LISTED = 20  # pairs in the table, for a screen on which cells have no room for numbers
# sources a side that are drawn at most, and the share of all parts from which one is
MAX_SOURCES, MIN_SHARE = 12, 0.01
READERS, READ, REMOVED = (
    3,
    3,
    6,
)  # heads a side whose tokens are named, tokens of each, sources a side that are removed
NAMED = 4  # sources of a set that are named
WIDE, HIGH = 2.8, 2.4  # of the bars, in cells, with their numbers
WIDE_TEXT, HIGH_TEXT = 1.1, 0.8  # of these numbers
# pixels: the height of a cell, the width from which it has a number, the longest name, and a letter of it
CELL, ROOM, NAMES, LETTER = 22, 26, 160, 7

CHART = """
import altair as alt
import pandas as pd

pairs = pd.DataFrame([
    {"query": a.name, "key": b.name, "part": float(one.parts[i, j])}
    for i, a in enumerate(one.q_sources) for j, b in enumerate(one.k_sources)])
alt.Chart(pairs).mark_rect().encode(
    x=alt.X("key", sort=None), y=alt.Y("query", sort=None),
    color=alt.Color("part", scale=alt.Scale(scheme="purplegreen", domainMid=0)))
"""
MOVED_CHART = """
import altair as alt
import pandas as pd

moved = pd.DataFrame({"source": [one.name for one in one.v_sources], "share": one.moved_shares})
alt.Chart(moved).mark_bar().encode(x="share", y=alt.Y("source", sort="-x"))
"""


def largest_pairs(one: ScoreSources, count: int = PAIRS) -> list[tuple[int, int]]:
    """The places of the largest parts, of either sign."""
    order = np.argsort(-np.abs(one.parts), axis=None)[:count]
    rows, columns = np.unravel_index(order, one.parts.shape)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def strongest(one: ScoreSources, side: Side) -> list[tuple[Source, float]]:
    """The sources of a side with their parts of the score, the largest of either sign first."""
    sources, sums = one.q_sources, one.parts.sum(1)
    if side == "key":
        sources, sums = one.k_sources, one.parts.sum(0)
    return sorted(zip(sources, sums.tolist(), strict=True), key=lambda each: -abs(each[1]))


def grouped(
    sources: Sequence[Source], sizes: np.ndarray, always: Collection[int] = ()
) -> tuple[list[str], np.ndarray]:
    """The names of those that are drawn, with all others as one; by row, which sources each is (G, A), 0 or 1."""
    order = sorted(range(len(sizes)), key=lambda at: (at not in always, -sizes[at]))[:MAX_SOURCES]
    drawn = [at for at in sorted(order) if at in always or sizes[at] >= MIN_SHARE * sizes.sum()]
    names, members = [sources[at].name for at in drawn], np.eye(len(sizes))[drawn]
    if others := len(sizes) - len(drawn):
        names.append(plural(others, "other"))
        members = np.vstack([members, 1 - members.sum(0)])
    return names, members


def why_fact(head: str, one: ScoreSources, query: str, key: str) -> str:
    """The five largest pairs, in one sentence, and what they leave."""
    parts, pairs = one.parts, largest_pairs(one)
    terms = [
        f"{one.q_sources[row].name} × {one.k_sources[column].name} "
        f"({signed(float(parts[row, column]))})"
        for row, column in pairs
    ]
    seen = one.scores[np.isfinite(one.scores)]
    takes = "take together" if len(one.queries) > 1 else "takes"
    return (
        f"In head **{head}**, :primary[**{plain(query)}**] {takes} **{share_text(one.weight)}** from "
        f"**{plain(key)}**. Their score is **{signed(one.score)}**; by its parts, with all else held, most of it comes from "
        f"{listing(terms)}. These {len(pairs)} of {parts.size:,} pairs give "
        f"{signed(float(sum(parts[pair] for pair in pairs)))}; the mean score over {plural(len(seen), 'key')} is "
        f"{signed(float(seen.mean()))}."
    )


def listing(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]


def pairs_chart(one: ScoreSources, query: str, key: str, theme: Theme) -> Spec:
    """A cell for each source at the query (row) and at the key (column); the sums of rows and columns as bars.

    One cell is one unit of both axes; the bars stand left of 0 and above it.
    """
    ink, parts, pairs = Ink.of(theme), one.parts, largest_pairs(one)
    rows, down = grouped(one.q_sources, np.abs(parts).sum(1), {row for row, _ in pairs})
    columns, across = grouped(one.k_sources, np.abs(parts).sum(0), {at for _, at in pairs})
    cells = down @ parts @ across.T
    outlined = {(int(down[:, row].argmax()), int(across[:, at].argmax())) for row, at in pairs}
    most = float(np.abs(cells).max()) or 1.0
    drawn = [
        _box(column, column + 1, row, row + 1, 0.04)
        | _amount(float(cells[row, column]), most)
        | {
            "atquery": rows[row],
            "atkey": columns[column],
            "part": float(cells[row, column]),
            "says": f"{rows[row]} at {query}, {columns[column]} at {key}",
            "largest": (row, column) in outlined,
        }
        for row, column in np.ndindex(*cells.shape)
    ]
    sums = cells.sum(1), cells.sum(0)
    longest = max(float(np.abs(each).max()) for each in sums) or 1.0
    bars = []
    for side, names, values in (("query", rows, sums[0]), ("key", columns, sums[1])):
        space, text = (WIDE, WIDE_TEXT) if side == "query" else (HIGH, HIGH_TEXT)
        zero, reach = -(space + text) / 2, (space - text) / 2
        for at, value in enumerate(values.tolist()):
            end = zero + reach * value / longest * (1 if side == "query" else -1)
            (start, stop), (low, high) = sorted((zero, end)), (at + 0.2, at + 0.8)
            box = _box(start, stop, low, high) if side == "query" else _box(low, high, start, stop)
            at_text = {"x": -text / 2} if side == "query" else {"y": -text / 2}
            bars.append(
                box
                | _amount(value, longest, False)
                | at_text
                | {"source": names[at], "side": f"at the {side}", "sum": value}
            )
    x, y = _axis(columns, WIDE, ink, "top"), _axis(rows, HIGH, ink, "left")
    corners: Spec = {
        "x": {**x, "field": "left"},
        "x2": {"field": "right"},
        "y": {**y, "field": "top"},
        "y2": {"field": "bottom"},
    }
    colours = colour_scale(theme, signed=True)
    scale = {"range": colours, "domain": [-most, most], "domainMid": 0, "interpolate": "rgb"}
    fill = {"field": "part", "type": "quantitative", "legend": None, "scale": scale}
    place: Spec = {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}, "text": {"field": "short"}}
    light = {"test": f"abs(datum.part) > {0.55 * most}", "value": PAGE[theme]}
    look = {
        "fontSize": 11,
        "tooltip": False,
        "opacity": {"expr": f"width < {ROOM * (len(columns) + WIDE)} ? 0 : 1"},
    }
    tips = [
        text_tip("atquery", f"at {query}"),
        text_tip("atkey", f"at {key}"),
        text_tip("amount", "part of the score"),
    ]
    layers = [
        layer(
            "rect",
            drawn,
            {
                **corners,
                "description": {"field": "says", "type": "nominal"},
                "color": fill,
                "tooltip": tips,
            },
        ),
        layer(
            "rect",
            [each for each in drawn if each["largest"]],
            corners,
            filled=False,
            stroke=ink.pick,
            strokeWidth=2,
            tooltip=False,
        ),
        layer(
            "text",
            [each for each in drawn if each["short"]],
            {**place, "color": {"condition": light, "value": ink.text}},
            **look,
        ),
        layer(
            "rect",
            bars,
            {
                **corners,
                "color": {
                    "condition": {"test": "datum.sum < 0", "value": colours[2]},
                    "value": colours[8],
                },
                "tooltip": [
                    text_tip("source", "source"),
                    text_tip("side", "where"),
                    text_tip("amount", "in all"),
                ],
            },
        ),
        layer(
            "text",
            [each for each in bars if each["short"]],
            {**place, "color": {"value": ink.quiet}},
            **look | {"fontSize": 10},
        ),
    ]
    return figure(
        layers, round(CELL * (len(rows) + HIGH)) + min(NAMES, LETTER * max(map(len, columns)))
    ) | table_columns(
        {"atquery": "source at the query", "atkey": "source at the key", "part": "part"}
    )


def _box(left: float, right: float, top: float, bottom: float, gap: float = 0.0) -> Spec:
    return {
        "left": left + gap,
        "right": right - gap,
        "top": top + gap,
        "bottom": bottom - gap,
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
    }


def _amount(value: float, largest: float, has_plus: bool = True) -> Spec:
    return {"amount": signed(value), "short": short(value, largest, has_plus)}


def _axis(names: Sequence[str], before: float, ink: Ink, orient: str) -> Spec:
    """An axis on which a name is one unit, after so many units of bars; y counts down."""
    down = orient == "left"
    texts = ",".join(map(quoted, names))
    return {
        "type": "quantitative",
        "scale": {"domain": [-before, len(names)], "reverse": down, "nice": False, "zero": False},
        "axis": axis_style(ink)
        | {
            "orient": orient,
            "values": [at + 0.5 for at in range(len(names))],
            "labelExpr": f"[{texts}][floor(datum.value)]",
            "labelAngle": 0 if down else -90,
            "labelLimit": NAMES,
            "labelOverlap": False,
            "labelColor": ink.text,
            "grid": False,
            "title": None,
        },
    }


# What the head moved, from where its sources read, and what would make another key win.


def moved_fact(head: str, one: ScoreSources, query: str, key: str) -> str:
    length, shares = float(np.linalg.norm(one.moved.sum(0))), one.moved_shares
    largest = [
        f"{percent(float(shares[at]))} from the {one.v_sources[at].name}"
        for at in np.argsort(-shares)[:2]
    ]
    return (
        f"From **{plain(key)}**, {head} adds a vector of length {number(length)} to {plain(query)}. Along it come "
        f"**{listing(largest)}** of the key; equal shares would be {percent(1 / len(shares))}."
    )


def moved_chart(one: ScoreSources, theme: Theme) -> Spec:
    """A bar for each source of the key's value: its share of what the head adds, along the whole."""
    names, members = grouped(one.v_sources, np.abs(one.moved_shares))
    shares, colours = (members @ one.moved_shares).tolist(), colour_scale(theme, signed=True)
    low, high = min(0.0, *shares), max(0.0, *shares)
    rows = [
        {
            "source": name,
            "share": share,
            "end": max(share, 0.0),
            "text": percent(share),
            "fill": colours[2 if share < 0 else 8],
        }
        for name, share in zip(names, shares, strict=True)
    ]
    return bar_figure(
        rows,
        "source",
        names,
        "share",
        Ink.of(theme),
        domain=[1.1 * low, 1.2 * high],
        height={"step": 24},
        colour=literal("fill"),
        tips=[text_tip("source", "source"), text_tip("text", "share")],
    ) | table_columns({"source": "source", "share": "share"})


def read_rows(
    one: ScoreSources, ends: Mapping[Side, str], tokens: Mapping[Kind, Sequence[str]]
) -> list[list[str]]:
    """A row for each of the heads that add most at the query and at the key: what it adds by reading which tokens.

    `ends` are the tokens of both sides, `tokens` those that the heads of a kind read.
    """
    rows = []
    for side in SIDES:
        heads = [
            (source, source.key[0], amount, read)
            for source, amount in strongest(one, side)
            if source.key and (read := one.read.get((side, source))) is not None
        ]
        for source, kind, amount, read in heads[:READERS]:
            names = numbered(tokens[kind])
            order = np.argsort(-np.abs(read))[:READ]
            most = ", ".join(
                f"{names[token]} {signed(float(read[token]))}"
                for token in order
                if abs(read[token]) >= MIN_SHARE * abs(read[order[0]])
            )
            rows.append([source.name, ends[side], signed(amount), most])
    return rows


def decided_fact(one: ScoreSources, query: str, keys: Sequence[str]) -> str:
    """The fewest sources of each side alone without which another key has the highest score, by the parts."""
    key, sentences = plain(keys[one.key]), []
    for side, token in zip(SIDES, (plain(query), key), strict=True):
        removed = one.fewest_removals(side)
        if removed is None:
            sentences.append(f"without all sources at {token}, {key} still scores highest")
            continue
        sources, rival = removed
        if not sources:
            return f"**{plain(keys[rival])}** scores higher than {key} as it is."
        names = [source.name for source in sources[:NAMED]]
        if len(sources) > NAMED:
            names.append(f"{len(sources) - NAMED} more")
        sentences.append(
            f"without {listing(names)} at {token}, **{plain(keys[rival])}** would score higher than {key}"
        )
    return f"By the parts, with all else held, from one side at a time: {'; '.join(sentences)}."


def pair_rows(one: ScoreSources) -> list[list[str]]:
    """The largest pairs with their parts, in order."""
    return [
        [one.q_sources[row].name, one.k_sources[at].name, signed(float(one.parts[row, at]))]
        for row, at in largest_pairs(one, LISTED)
    ]


def source_rows(one: ScoreSources) -> list[list[str]]:
    """Every source: what it adds to the score at the query and at the key, and its share of what is moved."""
    at_query, at_key = (
        {each.name: amount for each, amount in strongest(one, side)} for side in SIDES
    )
    moved = dict(zip([each.name for each in one.v_sources], one.moved_shares.tolist(), strict=True))
    return [
        [
            name,
            signed(at_query[name]) if name in at_query else "–",
            signed(at_key[name]) if name in at_key else "–",
            percent(moved[name]) if name in moved else "–",
        ]
        for name in {**at_query, **at_key, **moved}
    ]


def equation(one: ScoreSources) -> tuple[str, str]:
    """LaTeX, symbols first, then the same with the numbers of this score."""
    bias = " + b" if one.bias else ""
    pairs = [float(one.parts[pair]) for pair in largest_pairs(one)]
    rest = one.score - one.bias - sum(pairs)
    terms = latex(pairs[0])
    terms += "".join(map(added, [*pairs[1:], rest, *([one.bias] if one.bias else [])]))
    return (
        rf"s = c\, q^\top k{bias} = c \sum_a \sum_b q_a^\top k_b{bias}, \qquad q = \sum_a q_a, \quad k = \sum_b k_b",
        rf"{latex(one.score)} = {terms}, \qquad c = {latex(one.scale)}",
    )


def conditions(source: str, one: ScoreSources, note: str | None) -> str:
    parts = (
        (
            True,
            f"{plain(source)}: the norms keep the scales that they have in this text, so the parts add up to the "
            "model’s score. What all keys get alike changes no weight.",
        ),
        (
            bool(one.bias),
            f"b, {signed(one.bias)}, is what the model adds for the distance of the tokens.",
        ),
        (
            one.capped is not None,
            f"The score is split before its cap, which makes it {signed(one.capped or 0.0)}.",
        ),
        (
            one.sink is not None,
            f"A learned sink scores {signed(one.sink or 0.0)} in this row.",
        ),
    )
    return " ".join([text for holds, text in parts if holds] + ([note] if note else []))


# What a removal does, when the model runs on with nothing held.


def removable(one: ScoreSources) -> list[tuple[Side, Source]]:
    """The sources that add most at the query and at the key and can be removed."""
    return [
        (side, source)
        for side in SIDES
        for source in [each for each, _ in strongest(one, side) if each.modules][:REMOVED]
    ]


def removals_chart(removals: Sequence[Removal], ink: Ink) -> Spec:
    """A point for each removal: the predicted change of its score, and the actual one; a line where these are equal."""
    ends = [value for one in removals for value in (one.predicted, one.actual)]
    domain = [min(ends), max(ends)]
    axis = {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 5}
    x, y = (
        field(name, f"{name} change of the score", domain=domain, axis=axis)
        for name in ("predicted", "actual")
    )
    rows = [
        {
            "removed": f"{one.source.name} at the {one.side}",
            "score": f"query {one.query} × key {one.key}",
            "predicted": one.predicted,
            "actual": one.actual,
        }
        for one in removals
    ]
    equal = [{"predicted": end, "actual": end} for end in domain]
    tips = [text_tip("removed", "removed"), text_tip("score", "score")]
    return figure(
        [
            layer("line", equal, {"x": x, "y": y}, color=ink.quiet, strokeDash=[2, 2]),
            layer("circle", rows, {"x": x, "y": y, "tooltip": tips}, color=ink.series[0], size=60),
        ],
        260,
    ) | table_columns({name: name for name in rows[0]})


def removals_fact(scores: str, removals: Sequence[Removal]) -> str:
    """Whether the parts tell what removals from some scores do, and where they differ most."""
    worst = max(removals, key=lambda one: abs(one.predicted - one.actual))
    several = len({(one.query, one.key) for one in removals}) > 1
    place = f" of query {worst.query} and key {worst.key}" if several else ""
    apart = (
        f"They differ most without {worst.source.name} at the {worst.side}{place}: predicted "
        f"{signed(worst.predicted)}, actual {signed(worst.actual)}."
    )
    ends = removal_correlation(removals)
    if ends is None:
        return f"{plural(len(removals), 'removal')} from {scores} are too few, or too alike, to compare. {apart}"
    r, low, high = map(number, ends)
    return (
        f"**The parts {'tell in part' if ends[1] > 0 else 'do not tell'} what a removal does**: over {len(removals)} "
        f"removals from {scores}, after which the model runs on, predicted and actual changes correlate by **{r}** (95 %: "
        f"{low} to {high}); 1 if they were equal. {apart}"
    )


def removals_cell(one: ScoreSources, removals: Sequence[Removal]) -> Cell:
    """The removals in the page's script and notebook."""
    kind, layer = one.place
    return Cell(
        "What removals do to random scores of the head, beside what the parts predict.",
        f"""
from core.interpret.score_sources import random_removal, removal_correlation

place = {{"layer": {layer}, "head": {one.head}, "kind": {kind!r}}}
removals = [random_removal(model, inputs, **place, seed=seed) for seed in range({len(removals)})]
changes = [[each.predicted, each.actual] for each in removals]
print(removal_correlation(removals))
""",
        """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(changes, columns=["predicted", "actual"])).mark_circle().encode(x="predicted", y="actual")
""",
        "why_key:agreement",
        {"changes": np.array([(each.predicted, each.actual) for each in removals])},
    )
