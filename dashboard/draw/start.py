"""Start here: the small pictures of the path, the table of the soft dictionary, and its sentences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from core.studies.start import Lookup
from dashboard.draw.components import Cell
from dashboard.draw.figures import BAR, Ink, Theme, shade
from dashboard.draw.formats import number
from dashboard.draw.pictures import svg_source
from dashboard.draw.templates import html

WIDTH, HEIGHT, PAD = 144, 72, 6


def thumbnail(stop: str, data: dict[str, Any], theme: Theme) -> str:
    (label, draw), ink = THUMBNAILS[stop], Ink.of(theme)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'><rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="4" fill="none" '
        f'stroke="{ink.hairline}"/>{draw(data, ink, theme)}</svg>'
    )
    return f'<img alt="{label}" width="{WIDTH}" height="{HEIGHT}" src="{svg_source(svg)}"/>'


def _curve(points: Iterable[Sequence[float]], colour: str, top: float = 1) -> str:
    xs, ys = zip(*points, strict=True)
    wide, high = (WIDTH - 2 * PAD) / max(xs), HEIGHT - 2 * PAD
    places = " ".join(
        f"{round(PAD + wide * x, 1)},{round(PAD + high * (1 - y / top), 1)}"
        for x, y in zip(xs, ys, strict=True)
    )
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    x, y, wide, high = (round(one, 2) for one in (x, y, wide, high))
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" fill="{fill}"/>'


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


def _transformer(data: dict, ink: Ink, theme: Theme) -> str:
    stacks = data["transformer"].values()
    each = (HEIGHT - 2 * PAD) / max(sum(stack.values()) for stack in stacks)  # px of a parameter
    return "".join(
        _rect(
            WIDTH / 2 + (column - 1) * 52 + 6,
            HEIGHT - PAD - each * top + 1,
            40,
            each * count - 2,
            ink.hairline if block == "feed_forward" else BAR[theme],
        )
        for column, stack in enumerate(stacks)
        for (block, count), top in zip(stack.items(), accumulate(stack.values()), strict=True)
    )


def _map(rows: Iterable[Sequence[float]], x: float, y: float, size: float, theme: Theme) -> str:
    cells = [list(row) for row in rows]
    high, wide = size / len(cells), size / len(cells[0])
    return "".join(
        _rect(x + j * wide, y + i * high, wide, high, shade(value, theme))
        for i, row in enumerate(cells)
        for j, value in enumerate(row)
    )


THUMBNAILS: dict[str, tuple[str, Callable[[dict, Ink, Theme], str]]] = {
    "why": (
        "Exact translations by sentence length: one vector falls, attention falls less",
        lambda data, ink, theme: "".join(
            _curve(enumerate(data["why"][name]), colour)
            for name, colour in (("one_vector", ink.quiet), ("attention", BAR[theme]))
        ),
    ),
    "one_query": ("The weights of the worked example, as bars", _one_query),
    "heads": ("The attention of six heads of MiniLM on one sentence", _heads),
    "positions": (
        "A sine and a cosine of eight positions",
        lambda data, ink, theme: "".join(
            _curve(enumerate((row[at] + 1) / 2 for row in data["order"]["sinusoids"]), BAR[theme])
            for at in (0, 1)
        ),
    ),
    "masks": (
        "The causal mask over eight positions",
        lambda data, ink, theme: _map(
            data["order"]["causal"], WIDTH / 2 - HEIGHT / 2 + PAD, PAD, HEIGHT - 2 * PAD, theme
        ),
    ),
    "transformer": (
        "Encoder and decoder of the example model, each block as high as its parameters",
        _transformer,
    ),
    "train": (
        "The validation loss of the example run",
        lambda data, ink, theme: _curve(
            data["train"], BAR[theme], max(loss for _, loss in data["train"])
        ),
    ),
}


NAMES = "ABC"  # of the keys


def lookup_table(
    keys: Sequence[tuple[float, ...]], values: Sequence[float], result: Lookup, theme: Theme
) -> str:
    """A row for each key: name and key, q · k, the score, the weight as a bar, the value, and whether it is equal."""
    rows = [
        (f"{NAMES[at]} {vector_text(vector)}", *numbers, typed(value), at == result.equal)
        for at, (vector, *numbers, value) in enumerate(
            zip(keys, result.products, result.scores, result.weights, values, strict=True)
        )
    ]
    return html("start", "lookup", rows, Ink.of(theme), BAR[theme])


def hard_text(query: tuple[float, ...], values: Sequence[float], result: Lookup) -> str:
    """What a dictionary would return."""
    if result.equal is None:
        return f"**Hard look-up: nothing.** No key is equal to {vector_text(query)}."
    return (
        f"**Hard look-up: {typed(values[result.equal])}.** Key {NAMES[result.equal]} is equal to "
        f"{vector_text(query)}, so its value is returned."
    )


def soft_text(values: Sequence[float], result: Lookup) -> str:
    """What attention returns: each value times its weight."""
    terms = " + ".join(
        f"{number(round(weight, 4))} · {typed(value)}"
        for weight, value in zip(result.weights, values, strict=True)
    )
    return f"**Soft look-up: {number(result.output)}** ≈ {terms}"


def scaled_text(before: Lookup, after: Lookup, larger: bool) -> str:
    """What ten times the query, or a tenth of it, does to the largest weight."""
    if not any(before.products):
        return "all scores are 0, and so are ten times 0: the weights stay equal."
    first, then = (number(max(result.weights)) for result in (before, after))
    rule = (
        "the larger the scores, the nearer all weight comes to the one key that fits best"
        if larger
        else "the smaller the scores, the nearer the output comes to the mean of the values"
    )
    return f"the largest weight was {first} and is {then}: {rule}."


def equal_text(result: Lookup) -> str:
    """What a query does that is equal to a key."""
    assert result.equal is not None
    name, weight = NAMES[result.equal], number(result.weights[result.equal])
    return (
        f"the hard look-up finds key {name} and returns its value alone. The soft one gives {name} a weight of {weight} "
        "and still mixes in the others."
    )


def product_text(query: tuple[float, ...], key: tuple[float, ...], result: Lookup) -> str:
    """The product with the last key in numbers, and what becomes of it."""
    products = " + ".join(f"{typed(q)} · {typed(k)}" for q, k in zip(query, key, strict=True))
    return (
        f"**q · k** for key {NAMES[-1]}: {products} = {number(result.products[-1])}. **÷ √2**, for 2 numbers, keeps "
        "scores of longer vectors small. **Softmax** makes them weights, together 1."
    )


def translator_cell(data: Mapping[str, Any], item: Mapping[str, Any]) -> Cell:
    """The head of the translator whose weights the page has from a file, read again."""
    layer, head = data["layer"], data["head"]
    return Cell(
        "The translator's weights: one head of its cross-attention, a row for each output word.",
        f"""
from core.pretrained import load_lab_model, read

trace = read(load_lab_model({data["model"]!r}), {" ".join(item["source"])!r}).trace.of("cross")
weights = trace.head({layer}, {head})  # (T, S)
print("mean of the largest weight of each output word:", weights.max(-1).mean())
""",
        f"""
from dashboard.show import show

show(trace, layer={layer}, head={head})
""",
        "start:translation",
        {"weights.round(4)": np.array(item["weights"])},
    )


def vector_text(values: tuple[float, ...]) -> str:
    return f"[{', '.join(map(typed, values))}]"


def typed(value: float) -> str:
    """A number as the reader typed it: a whole one without decimals."""
    return number(value) if value % 1 else f"{value:.0f}".replace("-", "−")
