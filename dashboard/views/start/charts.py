"""The figures of the page as SVG and HTML: a thumbnail for each stop of the path, and the table of the look-up."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dashboard.draw.formats import number
from dashboard.draw.palette import BAR, Ink, Theme, shade

WIDTH, HEIGHT, PAD = 144, 72, 6


def thumbnail(stop: str, data: dict[str, Any], theme: Theme) -> str:
    """The thumbnail of a stop, by its first page, from the saved numbers of that page."""
    label, draw = THUMBNAILS[stop]
    ink = Ink.of(theme)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'><rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="4" fill="none" '
        f'stroke="{ink.hairline}"/>{draw(data, ink, theme)}</svg>'
    )
    source = b64encode(
        svg.encode()
    ).decode()  # st.html takes an SVG out, but leaves an image of one
    return f'<img alt="{label}" width="{WIDTH}" height="{HEIGHT}" src="data:image/svg+xml;base64,{source}"/>'


def _curve(
    values: Sequence[float], top: float, colour: str, xs: Sequence[float] | None = None
) -> str:
    """A line through values between 0 and `top`, across the whole thumbnail."""
    places = xs or range(len(values))
    last, wide, high = max(places), WIDTH - 2 * PAD, HEIGHT - 2 * PAD
    points = " ".join(
        f"{round(PAD + wide * x / last, 1)},{round(PAD + high * (1 - y / top), 1)}"
        for x, y in zip(places, values, strict=True)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    x, y, wide, high = (round(one, 2) for one in (x, y, wide, high))
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" fill="{fill}"/>'


def _why(data: dict, ink: Ink, theme: Theme) -> str:
    return _curve(data["why"]["one_vector"], 1, ink.quiet) + _curve(
        data["why"]["attention"], 1, ink.pick
    )


def _one_query(data: dict, ink: Ink, theme: Theme) -> str:
    weights = data["one_query"]
    room, high = (WIDTH - 2 * PAD) / len(weights), HEIGHT - 2 * PAD
    return "".join(
        _rect(PAD + room * at + 6, PAD + high * (1 - weight), room - 12, high * weight, BAR[theme])
        for at, weight in enumerate(weights)
    )


def _heads(data: dict, ink: Ink, theme: Theme) -> str:
    maps = data["heads"]
    across = (len(maps) + 1) // 2
    size = min((HEIGHT - 3 * PAD) / 2, (WIDTH - (across + 1) * PAD) / across)
    left, top = (WIDTH - across * size - (across - 1) * PAD) / 2, (HEIGHT - 2 * size - PAD) / 2
    return "".join(
        _map(
            rows,
            left + (at % across) * (size + PAD),
            top + (at // across) * (size + PAD),
            size,
            theme,
        )
        for at, rows in enumerate(maps)
    )


def _order(data: dict, ink: Ink, theme: Theme) -> str:
    size = HEIGHT - 2 * PAD
    return _map(
        data["order"]["sinusoids"], WIDTH / 2 - size - PAD / 2, PAD, size, theme, signed=True
    ) + _map(data["order"]["causal"], WIDTH / 2 + PAD / 2, PAD, size, theme)


def _transformer(data: dict, ink: Ink, theme: Theme) -> str:
    """Encoder and decoder as stacks, each block as high as its share of the parameters."""
    stacks = data["transformer"]
    most = max(sum(stack.values()) for stack in stacks.values())
    wide, out = 40, ""
    for column, stack in enumerate(stacks.values()):
        x, y = WIDTH / 2 + (column - 1) * (wide + 12) + 6, float(HEIGHT - PAD)
        for block, count in stack.items():
            high = (HEIGHT - 2 * PAD) * count / most
            y -= high
            out += _rect(
                x, y + 1, wide, high - 2, ink.hairline if block == "feed_forward" else BAR[theme]
            )
    return out


def _train(data: dict, ink: Ink, theme: Theme) -> str:
    steps, losses = zip(*data["train"], strict=True)
    return _curve(losses, max(losses), ink.pick, steps)


def _map(
    rows: Iterable[Sequence[float]],
    x: float,
    y: float,
    size: float,
    theme: Theme,
    signed: bool = False,
) -> str:
    """A small map of weights (0 to 1), or of signed numbers (−1 to 1)."""
    cells = [list(row) for row in rows]
    high, wide = size / len(cells), size / len(cells[0])
    out = ""
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            out += _rect(x + j * wide, y + i * high, wide, high, shade(value, theme, signed=signed))
    return out


THUMBNAILS: dict[str, tuple[str, Callable[[dict, Ink, Theme], str]]] = {
    "why": ("Exact translations by sentence length: one vector falls, attention falls less", _why),
    "one_query": ("The weights of the worked example, as bars", _one_query),
    "heads": ("The attention of six heads of MiniLM on one sentence", _heads),
    "positions": ("Sinusoids of eight positions, and the causal mask over them", _order),
    "transformer": (
        "Encoder and decoder of the example model, each block as high as its parameters",
        _transformer,
    ),
    "train": ("The validation loss of the example run", _train),
}


def lookup_table(rows: Sequence[tuple[str, str, str, float, str, bool]], theme: Theme) -> str:
    """A row for each key: name and key, q · k, the score, the weight as a bar, the value, and whether it is equal."""
    ink = Ink.of(theme)
    cell = f"border-bottom:1px solid {ink.hairline};padding:6px 8px 6px 0;text-align:left;font-weight:400"
    names = ("key", "q · k", "÷ √2", "weight", "value", "equal")
    head = "".join(
        f'<th scope="col" style="{cell};color:{ink.quiet}{";padding-left:16px" * (name == "value")}">{name}'
        "</th>"
        for name in names
    )
    body = ""
    for name, product, score, weight, value, equal in rows:
        bar = (
            f'<div style="display:flex;align-items:center;gap:6px"><div style="flex:1;min-width:24px">'
            f'<div style="width:{round(100 * weight, 1)}%;height:12px;background:{BAR[theme]}"></div></div>'
            f"<span>{number(weight)}</span></div>"
        )
        mark = f'<b style="color:{ink.pick}">yes</b>' if equal else "no"
        body += (
            f'<tr><th scope="row" style="{cell};white-space:nowrap">{name}</th><td style="{cell}">{product}</td>'
            f'<td style="{cell}">{score}</td><td style="{cell};width:40%">{bar}</td>'
            f'<td style="{cell};padding-left:16px">{value}</td><td style="{cell}">{mark}</td></tr>'
        )
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:14px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
