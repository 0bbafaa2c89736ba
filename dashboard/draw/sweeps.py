"""The figures of a sweep: means with their bands over training, and every seed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.training.seed_stats import Line, SeedStats
from dashboard.draw.curves import SeedRow, seed_marks
from dashboard.draw.formats import number
from dashboard.draw.palette import CATEGORIES, Ink, Theme
from dashboard.draw.vega import Spec, layer, right_margin, separate, titled_figure

HEIGHT = 240  # pixels of the lines' plot
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)
AIR = 0.04
NAME_STYLE: Spec = {
    "align": "left",
    "dx": 8,
    "fontSize": 12,
    "fontWeight": 600,
    "baseline": "middle",
}


@dataclass(frozen=True)
class Scale:
    """The measure's axis in both figures: its ends, and `end`, the largest value, a little below `high`."""

    low: float
    end: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], whole: float | None) -> Scale:
        """From zero or the smallest value to the largest; to `whole` for a measure with a maximum."""
        low, high = (
            min([0.0, *values]),
            max([*values, 1e-9]) if whole is None else max([whole, *values]),
        )
        return cls(low, high, high + AIR * (high - low))

    def axis(self, field: str) -> Spec:
        return {
            "field": field,
            "type": "quantitative",
            "title": None,
            "axis": {"tickCount": 5, "grid": True},
            "scale": {"domain": [self.low, self.high], "nice": False},
        }


def _colour(index: int, theme: Theme) -> str:
    return CATEGORIES[theme][index % len(CATEGORIES[theme])]


def lines(
    title: str,
    x_title: str,
    last_x: float,
    names: Sequence[str],
    means: dict[int, Line],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """The mean of each value over training, in a band from its lowest to its highest seed, named at its end."""
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "axis": {"grid": False, "tickMinStep": 1, "tickCount": 10},
        "scale": {"domain": [0, last_x], "nice": False},
    }
    y, layers = scale.axis("y"), []
    tips = [
        {"field": name, "title": label}
        for name, label in (
            ("name", " "),
            ("x" if x_title == "step" else "at", x_title),
            ("told", "mean"),
            ("told_low", "lowest seed"),
            ("told_high", "highest seed"),
        )
    ]
    for index, line in means.items():
        rows = [
            {
                "x": a,
                "y": b,
                "low": low,
                "high": high,
                "name": names[index],
                "at": number(a),
                "told": write(b),
                "told_low": write(low),
                "told_high": write(high),
            }
            for a, b, low, high in zip(line.x, line.mean, line.low, line.high, strict=True)
        ]
        both, colour = {"x": x, "y": y}, _colour(index, theme)
        layers += [
            layer(
                "area",
                rows,
                {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                opacity=0.09,
                color=colour,
            ),
            layer("line", rows, both, strokeWidth=2, color=colour),
            layer(
                "point",
                rows[-1:],
                both,
                filled=True,
                size=44,
                opacity=1,
                shape=SHAPES[index % len(SHAPES)],
                color=colour,
            ),
            layer("point", rows, {**both, "tooltip": tips}, opacity=0, size=160),
        ]
    # Each value's name stands right of the plot, at the height of its end, moved apart where ends meet.
    shares = separate(
        [(line.mean[-1] - scale.low) / (scale.high - scale.low) for line in means.values()]
    )
    layers += [
        layer(
            "text",
            [{}],
            {},
            **NAME_STYLE,
            x="width",
            text=names[index],
            color=_colour(index, theme),
            y={"expr": f"height * {1 - share:.4f}"},
        )
        for index, share in zip(means, shares, strict=True)
    ]
    return titled_figure(title, layers, HEIGHT, Ink.of(theme), **right_margin(4))


def seeds(
    title: str,
    names: Sequence[str],
    stats: dict[int, SeedStats],
    scale: Scale,
    theme: Theme,
    write: Callable[[float], str] = number,
) -> Spec:
    """A row a value: every seed a mark, over the 95 % interval of their mean, cut where the axis ends."""
    rows = [
        SeedRow(names[index], each, _colour(index, theme), SHAPES[index % len(SHAPES)])
        for index, each in stats.items()
    ]
    return seed_marks(
        title, rows, scale.axis("x"), Ink.of(theme), ends=(scale.low, scale.end), write=write
    )
