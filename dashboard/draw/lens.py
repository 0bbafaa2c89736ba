"""When it decides: its charts, the rows of its tables, and its sentences of numbers."""

import math
from collections.abc import Mapping, Sequence

from core.interpret import lens as study
from core.interpret.trace import LayerKey
from dashboard.draw.figures import (
    CATEGORIES,
    PAGE,
    SIGNED,
    Ink,
    Spec,
    Theme,
    axis_style,
    colour_scale,
    figure,
    layer,
    names,
    picking_grid,
    series_encoding,
    table_columns,
    text_tip,
)
from dashboard.draw.formats import (
    cut,
    distinct,
    latex,
    number,
    percent,
    plain,
    share_text,
    signed,
    whole,
)
from dashboard.draw.grids import bar_figure

TALL, WIDE = 26, 46  # pixels of a cell of the grid
NAMES = 72  # pixels of the names of the states
DARK_CELL = 0.45  # a probability from which a cell's text is light


def token_grid(
    rows: Sequence[Spec],
    states: Sequence[str],
    tokens: Sequence[str],
    picked: tuple[str, int],
    theme: Theme,
    late: bool = False,
) -> Spec:
    """States × positions: the likeliest token in each cell, in ink by its probability; a click picks a cell.

    Each row holds state, column, index (its position in the text), token, p, text and top, which the tooltip shows.
    With `late` the names of the states stand at the end, which is in sight first where the figure scrolls.
    """
    ink, columns = Ink.of(theme), distinct(tokens)
    top = {"orient": "top", "labelAngle": 0, "labelLimit": WIDE, "labelFlush": False}
    at = {
        channel: {
            "field": name,
            "type": "ordinal",
            "sort": list(values),
            "title": None,
            "scale": {"domain": list(values), "paddingInner": padding},
            "axis": axis_style(ink) | axis,
        }
        for channel, name, values, padding, axis in (
            ("x", "column", columns, 0.04, top | {"labelOverlap": False}),
            (
                "y",
                "state",
                states,
                0.06,
                {"orient": "right" if late else "left", "minExtent": NAMES},
            ),
        )
    }
    cells = [
        row
        | {
            "column": columns[row["column"]],
            "short": cut(row["word"], 8),
        }
        for row in rows
    ]
    return picking_grid(
        [
            layer(
                "rect",
                cells,
                at
                | {
                    "color": {
                        "field": "p",
                        "type": "quantitative",
                        "scale": {"range": colour_scale(theme), "domain": [0, 1]},
                        "legend": None,
                    },
                    "tooltip": [
                        text_tip("state", "after"),
                        text_tip("token", "position"),
                        text_tip("text", "likeliest"),
                        text_tip("top", "others"),
                    ],
                },
                cursor="pointer",
                stroke=None,
            ),
            layer(
                "text",
                cells,
                at
                | {
                    "text": {"field": "short"},
                    "color": {
                        "condition": {"test": f"datum.p > {DARK_CELL}", "value": PAGE[theme]},
                        "value": ink.text,
                    },
                },
                fontSize=11,
                tooltip=False,
            ),
        ],
        {"state": picked[0], "column": columns[picked[1]]},
        at,
        ink,
        TALL,
        ["state", "index"],
    ) | table_columns(
        {
            "state": "after",
            "index": "position",
            "token": "token",
            "word": "likeliest",
            "p": "probability",
        }
    )


def colours(curves: int, theme: Theme) -> list[str]:
    return [Ink.of(theme).pick, *CATEGORIES[theme][: max(0, curves - 1)]]


def along_layers(
    curves: Mapping[str, Sequence[float]],
    states: Sequence[str],
    theme: Theme,
    column: str,
    *,
    rank: bool = False,
    high: float | None = None,
    picked: str | None = None,
) -> Spec:
    """A curve a token over the states; ranks on a log scale with 1 on top, else from 0 to `high`."""
    ink, labels, inks = Ink.of(theme), list(curves), colours(len(curves), theme)
    rows = [
        {
            "state": state,
            "y": value,
            "name": name,
            "text": f"{value:,.0f}" if rank else number(value),
        }
        for name, values in curves.items()
        for state, value in zip(states, values, strict=True)
    ]
    top = max(map(max, curves.values())) if high is None else high
    scale: Spec = {"domain": [0, (top or 1) * 1.04]}
    axis = {**axis_style(ink), "grid": True, "gridColor": ink.hairline, "tickCount": 4}
    if rank:
        scale = {
            "type": "log",
            "domain": [1, max(10, 10 ** math.ceil(math.log10(top)))],
            "reverse": True,
        }
        axis |= {"format": ",d", "values": [10**power for power in range(8)]}
    at = {
        "x": {
            "field": "state",
            "type": "ordinal",
            "sort": list(states),
            "title": None,
            "scale": {"padding": 0.3},
            "axis": {**axis_style(ink), "labelAngle": 0, "labelOverlap": True},
        },
        "y": {"field": "y", "type": "quantitative", "title": None, "scale": scale, "axis": axis},
        "color": series_encoding("name", labels, inks),
    }
    return figure(
        [
            layer(
                "rule",
                [] if picked is None else [{"state": picked}],
                {"x": at["x"]},
                color=ink.hairline,
                strokeWidth=2,
            ),
            layer("line", rows, at, strokeWidth=2),
            layer(
                "point",
                rows,
                {
                    **at,
                    "tooltip": [
                        text_tip("state", "after"),
                        text_tip("name", "token"),
                        text_tip("text", "rank" if rank else "value"),
                    ],
                },
                filled=True,
                size=50,
                opacity=1,
            ),
        ],
        190,
    ) | names(
        [(name, colour, [1, 0]) for name, colour in zip(labels, inks, strict=True)]
        if len(labels) > 1
        else [],
        {"state": "after", "name": "token", "y": column},
    )


def part_bars(parts: dict[str, float], theme: Theme) -> Spec:
    stops = SIGNED[theme]
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    room = 0.16 * (high - low or 1.0)
    return bar_figure(
        [
            {"part": part, "y": value, "text": signed(value), "end": max(value, 0.0)}
            for part, value in parts.items()
        ],
        "part",
        list(parts),
        "y",
        Ink.of(theme),
        domain=[low - 0.05 * room, high + room],
        height={"step": 26},
        limit=190,
        colour={"condition": {"test": "datum.y < 0", "value": stops[1]}, "value": stops[-3]},
        tips=[text_tip("part", "part"), text_tip("text", "adds")],
    )


# Sentences, rows and LaTeX.


def decided_fact(
    decision: study.Decision, words: Mapping[int, str], position: int, token: str
) -> str:
    """From which layer on the answer at a position, whose token is given, is the likeliest."""
    lens, along = decision.lens, decision.trajectories
    first, at = study.first_likeliest(along)
    shares, ranks = along.probabilities[:, 0].tolist(), along.ranks[:, 0].tolist()
    states = ["the embedding", *decision.lens.names[1:]]
    answer = plain(words[decision.tokens[0]])
    start = f"At **{plain(token)}**, :primary[**{answer}**] "
    if at is None:
        best = ranks.index(min(ranks))
        return (
            f"{start}is not the likeliest at the end: its rank is **{ranks[-1]:,}**, with a probability of "
            f"**{share_text(shares[-1])}**. It comes closest after **{states[best]}**, as number "
            f"{ranks[best]:,}."
        )
    last = f" there and **{share_text(shares[-1])}** at the end" if at < len(states) - 1 else ""
    text = (
        f"{start}is the likeliest from **{states[at]}** on, with a probability of "
        f"**{share_text(shares[at])}**{last}."
    )
    if at:
        before = plain(words[int(lens.top[at - 1, position - lens.start, 0])])
        text += (
            f" After {states[at - 1]} it was number {ranks[at - 1]:,}, with "
            f"{share_text(shares[at - 1])}, and **{before}** led."
        )
    if first is not None and first < at:
        text += f" It led once before, after {states[first]}."
    return text


def wrote_fact(
    attribution: study.Attribution,
    parts: Sequence[tuple[str, study.Part]],
    answer: str,
    other: str | None,
    token: str,
) -> str:
    """Which parts, the largest first, write the logit of the answer, less that of `other`, at a token."""
    name, first = parts[0]
    minus = "" if other is None else f" minus that of **{plain(other)}**"
    head = next(((name, part) for name, part in parts if part.role == "head"), (name, first))
    among = f"; among the heads, by **{head[0]}**, **{signed(head[1].value)}**"
    return (
        f"The logit of :primary[**{plain(answer)}**] at **{plain(token)}**{minus} is "
        f"**{number(attribution.logit)}**. "
        f"Most is written by **{name}**, **{signed(first.value)}**{among if head[1] is not first else ''}. "
        f"Sum of all {len(parts)} parts = **{number(attribution.total)}**, logit = "
        f"**{number(attribution.logit)}**."
    )


def share_of_heads(parts: Sequence[tuple[str, study.Part]]) -> str:
    every = sum(abs(part.value) for _, part in parts)
    heads = [abs(part.value) for _, part in parts if part.role == "head"]  # the largest first
    if not heads or not every:
        return ""
    most = next(
        count for count in range(1, len(heads) + 1) if sum(heads[:count]) >= 0.8 * sum(heads)
    )
    return (
        f"Heads write {percent(sum(heads) / every)} of all that is added or taken away; {most} of the "
        f"{len(heads)} heads write 80\u00a0% of that."
    )


def grid_cells(
    decision: study.Decision, words: Mapping[int, str], tokens: Sequence[str]
) -> list[Spec]:
    """The rows of `token_grid`: each state at each position."""
    lens = decision.lens
    return [
        {
            "state": name,
            "column": index,
            "index": lens.start + index,
            "token": token,
            "word": words[ids[0]],
            "p": shares[0],
            "text": f"{words[ids[0]]} {number(shares[0])}",
            "top": ", ".join(
                f"{words[one]} {number(p)}" for one, p in zip(ids[1:], shares[1:], strict=True)
            ),
        }
        for name, top, probabilities in zip(
            lens.names, lens.top.tolist(), lens.probabilities.tolist(), strict=True
        )
        for index, (token, ids, shares) in enumerate(zip(tokens, top, probabilities, strict=True))
    ]


def layer_rows(decision: study.Decision, words: Mapping[int, str], at: int) -> list[list[str]]:
    """The lens at one of its positions, a row a state: likeliest, probability, the answer's, its rank, entropy."""
    lens, along = decision.lens, decision.trajectories
    return [
        [
            state,
            words[int(lens.top[row, at, 0])],
            number(float(lens.probabilities[row, at, 0])),
            number(float(along.probabilities[row, 0])),
            whole(int(along.ranks[row, 0])),
            number(float(lens.entropy[row, at])),
        ]
        for row, state in enumerate(lens.names)
    ]


def colour_legend(theme: Theme) -> str:
    stops = ",".join(colour_scale(theme))
    return (
        f'0 <span style="display:inline-block;width:96px;height:8px;background:linear-gradient(90deg,{stops})">'
        "</span> 1"
    )


def curves_legend(names: Sequence[str], theme: Theme) -> str:
    return " ".join(
        f'<span style="font-weight:600;white-space:nowrap"><span style="display:inline-block;width:14px;'
        f'height:3px;margin-right:4px;vertical-align:middle;background:{colour}"></span>{plain(name)}</span>'
        for name, colour in zip(names, colours(len(names), theme), strict=True)
    )


def part_cells(
    layers: Mapping[LayerKey, str], attribution: study.Attribution
) -> tuple[list[Spec], list[str]]:
    """What each head and feed-forward layer adds, as rows of `effect_grid`, and the columns."""
    rows = list[Spec]()
    heads = [part.head for part in attribution.parts if part.role == "head" and part.head]
    columns = dict.fromkeys(map(str, range(1 + max(heads, default=0))))
    for part in attribution.parts:
        if part.key is not None and part.role in ("head", "feed-forward"):
            layer, is_head = layers[part.key], part.role == "head"
            column = str(part.head) if is_head else "FF"
            rows.append(
                {
                    "layer": layer,
                    "head": column,
                    "change": part.value,
                    "name": f"{layer}·H{column}" if is_head else f"feed-forward of {layer}",
                    "by": signed(part.value),
                }
            )
            columns.setdefault(column)
    return rows, list(columns)


KINDS_OF_PARTS = {
    "embedding": "embeddings",
    "head": "heads",
    "mixer": "mixers",
    "feed-forward": "feed-forward",
}


def sum_latex(attribution: study.Attribution) -> str:
    """The logit as the sum of its parts by what they are."""
    sums = dict[str, float]()
    for part in attribution.parts:
        name = KINDS_OF_PARTS.get(part.role, "biases")
        sums[name] = sums.get(name, 0.0) + part.value
    written = " ".join(
        rf"{'+' if sums[name] >= 0 else '-'} \underbrace{{{latex(abs(sums[name]))}}}_{{\text{{{name}}}}}"
        for name in (*KINDS_OF_PARTS.values(), "biases")
        if name in sums
    )
    return rf"\mathrm{{logit}} = {written.removeprefix('+ ')} = {latex(attribution.total)}"


def conditions(source: str, count: str, decoder: bool, who: bool, is_mask: bool) -> str:
    """Of which model and how many tokens; whether its layers are a decoder's, and whether it fills a mask."""
    text = f"{plain(source)}, {count}; fp32, no dropout."
    if decoder:
        text += " The layers are those of the decoder."
    if not who:
        return f"{text} The last layer is the model’s own output; earlier layers were not trained to be read so."
    gates = ", and the gates of the activation before the unembedding," if is_mask else ""
    return (
        f"{text} Direct logit attribution: the scales of the norms{gates} are held at their values. What a part does "
        "by way of later layers counts as theirs."
    )
