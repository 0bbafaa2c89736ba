"""Cost and speed: its two figures, its sentences of numbers, and code of its script."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from core.studies import efficient as study
from dashboard.draw.curves import powers
from dashboard.draw.figures import (
    CATEGORIES,
    PLAIN,
    Ink,
    Spec,
    Theme,
    filtered_layer,
    right_margin,
    separate,
    series_encoding,
    table_columns,
    titled_figure,
)
from dashboard.draw.formats import (
    UNKNOWN,
    byte_size,
    duration,
    number,
    operations,
    share_text,
    whole,
    written,
)

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
AIR = 1.25  # factor of free space above and below, at least
STEPS = 2  # to a power of ten, in which an axis ends

# By kernel its lengths, each with the measurement and the closed form there
Lines: TypeAlias = Mapping[str, Sequence[tuple[int, float, float]]]


def lines_of(growths: Sequence[study.Growth], unit: str, size: float) -> Lines:
    """Time (ms) or memory of each kernel, in units of that size; the closed form of time runs at the last point's speed."""
    lines = {}
    for one in growths:
        values: Sequence[float] = one.bytes
        closed, speed = one.closed_bytes, 1.0
        if unit == "ms":
            values, closed = one.seconds, one.closed_flops
            speed = one.seconds[-1] / one.closed_flops[-1]
        lines[study.ENTRIES[one.kernel].name] = [
            (length, value / size, cost * speed / size)
            for length, value, cost in zip(one.lengths, values, closed, strict=True)
        ]
    return lines


def log_log(title: str, unit: str, lines: Lines, theme: Theme) -> Spec:
    """One figure of the rows below, each line with its name at its end.

    The axis ends in steps, so that another kernel changes the rows alone, and no figure is built anew.
    """
    lengths = sorted({x for points in lines.values() for x, _, _ in points})
    low, high = _ends(lines)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "tokens in the text",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {
            "grid": False,
            "values": lengths,
            "labelExpr": "datum.value < 1024 ? datum.label : datum.value / 1024 + 'k'",
        },
    }
    indices = [str(index) for index in range(len(SHAPES))]
    both = {
        "x": x,
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": None,
            "axis": {"values": powers(low, high), "format": PLAIN, "labelPadding": 8},
            "scale": {"type": "log", "domain": [low, high], "nice": False},
        },
        "color": series_encoding(
            "place",
            indices,
            [CATEGORIES[theme][index % len(CATEGORIES[theme])] for index in range(len(SHAPES))],
        ),
    }
    name = {**both, "text": {"field": "name"}}
    look = {"fontSize": 12, "fontWeight": 600}
    return titled_figure(
        f"{title}, {unit}",
        [
            filtered_layer("closed", "line", both, strokeWidth=1.25, strokeDash=[2, 3]),
            filtered_layer("measured", "line", both, strokeWidth=2),
            filtered_layer(
                "measured",
                "point",
                {**both, "shape": series_encoding("place", indices, SHAPES)},
                filled=True,
                size=30,
                opacity=1,
            ),
            filtered_layer(
                "measured",
                "point",
                {
                    **both,
                    "tooltip": [
                        {"field": "name", "title": " "},
                        {"field": "x", "title": "tokens", "format": ",d"},
                        {"field": "told", "title": " "},
                    ],
                },
                opacity=0,
                size=160,
            ),
            filtered_layer("label", "text", name, **look, align="left", dx=8, baseline="middle"),
            filtered_layer(
                "early", "text", name, **look, align="right", dx=4, dy=-7, baseline="bottom"
            ),
        ],
        300,
        Ink.of(theme),
        **right_margin(4),
    ) | table_columns(
        {
            "name": "kernel",
            "kind": "measured or closed form",
            "x": "tokens T",
            "y": f"{title}, {unit}",
        }
    )


def _ends(lines: Lines) -> tuple[float, float]:
    values = [y for points in lines.values() for _, *both in points for y in both if y > 0]
    low, high = math.log10(min(values) / AIR), math.log10(max(values) * AIR)
    return 10.0 ** (math.floor(low * STEPS) / STEPS), 10.0 ** (math.ceil(high * STEPS) / STEPS)


def draw_rows(lines: Lines, write: Callable[[float], str], size: float) -> list[Spec]:
    """The data of the figure: kind, name, index in the series, x, y, and y in words: `write` takes it in the unit of
    that `size`.

    A name stands at the y of its line's last point, moved apart where lines end at the same length.
    """
    places = {name: str(index % len(SHAPES)) for index, name in enumerate(lines)}
    cells = [
        (kind, name, places[name], float(point[0]), float(point[column]))
        for name, points in lines.items()
        for column, kind in ((1, "measured"), (2, "closed"))
        for point in points
        if point[column] > 0  # NaN where a kernel from outside tells no cost
    ]
    low, high = (math.log(end) for end in _ends(lines))
    last = max(points[-1][0] for points in lines.values())
    for length in {points[-1][0] for points in lines.values()}:
        together = [name for name, points in lines.items() if points[-1][0] == length]
        heights = separate(
            [(math.log(lines[name][-1][1]) - low) / (high - low) for name in together]
        )
        # A line that ends early does so by its cost: it is the steepest, and nothing is drawn above its end.
        kind = "label" if length == last else "early"
        cells += [
            (kind, name, places[name], float(length), math.exp(low + height * (high - low)))
            for name, height in zip(together, heights, strict=True)
        ]
    names = ("kind", "name", "place", "x", "y", "told")
    return [dict(zip(names, (*row, write(row[-1] * size)), strict=True)) for row in cells]


CURVES = """
import altair as alt
import pandas as pd

rows = [{{"length": length, "{0}": value, "name": one.kernel}} for one in growths
        for length, value in zip(one.lengths, one.{0})]
alt.Chart(pd.DataFrame(rows)).mark_line(point=True).encode(
    x=alt.X("length", scale=alt.Scale(type="log")), y=alt.Y("{0}", scale=alt.Scale(type="log")), color="name")
"""


# Sentences and a table, from the measurements and the closed forms.


def power(value: float) -> str:
    """T with its exponent raised: T¹·⁹⁸; unknown for NaN."""
    if math.isnan(value):
        return UNKNOWN
    raised = number(value).translate(str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻"))
    return written(f"T{raised}", {", exponent of T": value})


def fact_text(growths: Sequence[study.Growth]) -> str:
    """The fastest kernel against exact, or against the slowest, at the longest length of that one."""
    grown = [one for one in growths if len(one.lengths) > 1]
    if len(grown) < 2:
        return ""
    slow = next(
        (one for one in grown if one.kernel == "exact"),
        max(grown, key=lambda one: one.seconds[-1]),
    )
    length = slow.lengths[-1]
    others = [
        (one.seconds[one.lengths.index(length)], one)
        for one in grown
        if one is not slow and length in one.lengths
    ]
    if not others:
        return ""
    seconds, fast = min(others, key=lambda pair: pair[0])
    first, second = kernel_name(fast.kernel), kernel_name(slow.kernel)
    fused = next((one for _, one in others if one.kernel == "fused" and one is not fast), None)
    doubled = {one.kernel: number(2 ** one.power(one.seconds)) for one in grown}
    growth = f"Twice the text takes {second} {doubled[slow.kernel]} times as long"
    if slow.kernel == "exact":
        growth = (
            f"Twice the text has four times the pairs: exact takes {doubled['exact']} times as long"
        )
        growth += f", fused {doubled['fused']}" if fused else ""
    return (
        f"At {length:,} tokens, {first} takes **{duration(seconds)}**, {second} "
        f"**{duration(slow.seconds[-1])}**. {growth}, {first} {doubled[fast.kernel]}."
    )


def faster_text(result: study.Result, kernel: str) -> str:
    """From how many tokens a kernel is faster than fused; up to how many it was measured where it is not."""
    if kernel == "fused" or not result.of("fused"):
        return "–"
    longest = min(result.of(one)[-1].length for one in (kernel, "fused"))
    length = result.faster_from(kernel)
    return f"from {length:,} tokens" if length else f"not up to {longest:,}"


def table_rows(result: study.Result, growths: Sequence[study.Growth]) -> list[list[str]]:
    """A row a kernel of two lengths or more, all at the longest that all of them reach."""
    grown = [one for one in growths if len(one.lengths) > 1]
    at = min(len(one.lengths) for one in grown) - 1 if grown else 0  # a race begins at one length
    return [
        [
            study.ENTRIES[one.kernel].name,
            whole(one.lengths[at]),
            duration(one.seconds[at]),
            power(one.power(one.seconds)),
            operations(one.closed_flops[at]),
            power(one.power(one.closed_flops)),
            byte_size(one.bytes[at]),
            power(one.power(one.bytes)),
            byte_size(one.closed_bytes[at]),
            whole(one.lengths[-1]),
            share_text(one.error),
            faster_text(result, one.kernel),
        ]
        for one in grown
    ]


def kernel_name(kernel: str) -> str:
    label = study.ENTRIES[kernel].name
    return label if label in ("Performer", "Linformer", "Nyström") else label[0].lower() + label[1:]


def summary(result: study.Result, growths: Sequence[study.Growth]) -> str:
    """How the figures are read; which kernels see near keys only, which have another output than exact attention."""
    groups: dict[str, list[str]] = {"Near keys": [], "Another output": []}
    for one in growths:
        if one.error >= 0.01 or one.kernel in study.BANDED:
            groups[[*groups][one.error >= 0.01]].append(kernel_name(one.kernel))
    parts = [f"**{group}**: {', '.join(names)}." for group, names in groups.items() if names]
    kernels = [one.kernel for one in growths]
    ends = [
        f"{kernel_name(point.name)} from {point.length:,} tokens ({point.skipped.partition(';')[0]})"
        for point in result.skipped()
        if point.name in kernels
    ]
    missing = [f"Not measured: {', '.join(ends)}."] if ends else []
    return " ".join(["A grid line up is ×10.", *parts, *missing])


def conditions(result: study.Result, saved: bool) -> str:
    chosen = result.conditions
    keys = "the keys up to itself" if chosen.causal else "every key"
    banded = [kernel_name(kernel) for kernel in chosen.keys if kernel in study.BANDED]
    window = f", in {' and '.join(banded)} a window of {chosen.window} keys" if banded else ""
    passes = "forward and backward" if chosen.backward else "forward"
    where = "Measured by `make measured`, in processor time" if saved else "Measured here"
    return (
        f"{where}: one sequence, {study.HEADS} heads of {study.HEAD_DIM} numbers, float32, {passes}, median of "
        f"{study.ROUNDS} runs. A query sees {keys}{window}. {result.machine}. Both axes are logarithmic. Solid lines "
        "are measured; dotted ones are calculated from the "
        "formula of a forward pass: FLOPs of its matrix products at the speed of the last point, and memory on a CPU, "
        f"within about a quarter. “Grows as” is fitted to the last {study.LAST} lengths."
    )


def implied_fact(implied: Sequence[study.Implied], sizes: Mapping[str, str]) -> str:
    """The kernels with the smallest and the largest error, and the largest weight of linear; `sizes` are in words."""
    exact, linear = implied[0], next(one for one in implied if one.kernel == "linear")
    # retention approximates no softmax
    near, *_, far = sorted(
        [one for one in implied[1:] if one.kernel != "retention"], key=lambda one: one.mean_error
    )
    first, last = (f"{kernel_name(one.kernel)}{sizes.get(one.kernel, '')}" for one in (near, far))
    return (
        f"On average, a weight of {first} differs from exact attention by **{share_text(near.mean_error)}**, one of "
        f"{last} by **{share_text(far.mean_error)}**. The largest weight of linear attention is "
        f"{share_text(float(linear.weights.max()))}, that of softmax {share_text(float(exact.weights.max()))}."
    )
