"""The figures of a sweep as Vega-Lite: means with their bands along the way, and every seed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.training.seed_stats import Line, SeedStats
from dashboard.charts.numbers import number
from dashboard.charts.palette import CATEGORIES, Ink, Theme
from dashboard.charts.vega import BESIDE, SIGN, config, layer, separate

HEIGHT, ROW = 240, 30  # pixels of the lines' plot, and of one value's row below
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
AIR = 0.04


@dataclass(frozen=True)
class Scale:
    """The measure's axis, shared by both figures."""

    low: float
    end: float  # of the measure; the axis has a little air above
    high: float

    @classmethod
    def around(cls, values: Sequence[float], whole: float | None) -> Scale:
        """From zero, or what lies lower, to the largest; to `whole` for a measure that has a top."""
        low, high = min([0.0, *values]), max([*values, 1e-9]) if whole is None else max([whole, *values])
        return cls(low, high, high + AIR * (high - low))

    def axis(self, horizontal: bool) -> dict:
        field = "x" if horizontal else "y"
        return {"field": field, "type": "quantitative", "title": None, "axis": {"tickCount": 5, "grid": True},
                "scale": {"domain": [self.low, self.high], "nice": False}}


def colour(place: int, theme: Theme) -> str:
    return CATEGORIES[theme][place % len(CATEGORIES[theme])]


def heading(text: str, ink: Ink) -> dict:
    return {"text": text, "anchor": "start", "fontSize": 14, "fontWeight": 600, "color": ink.text}


def lines(title: str, x_title: str, last_x: float, names: Sequence[str], drawn: dict[int, Line], scale: Scale,
          theme: Theme, written: Callable[[float], str] = number) -> dict:
    """The mean of each value along the way, in a band from its lowest to its highest seed, named at its end."""
    ink = Ink.of(theme)
    x = {"field": "x", "type": "quantitative", "title": x_title, "axis": {"grid": False, "tickMinStep": 1},
         "scale": {"domain": [0, last_x], "nice": False}}
    y, layers = scale.axis(horizontal=False), []
    for place, each in drawn.items():
        rows = [{"x": a, "y": b, "low": low, "high": high, "name": names[place], "at": number(a),
                 "told": written(b), "told_low": written(low), "told_high": written(high)}
                for a, b, low, high in zip(each.x, each.mean, each.low, each.high, strict=True)]
        tips = [{"field": "name", "title": " "}, *({"field": name, "title": label} for name, label in (
            ("x" if x_title == "step" else "at", x_title), ("told", "mean"), ("told_low", "lowest seed"),
            ("told_high", "highest seed")))]
        both, own = {"x": x, "y": y}, {"color": colour(place, theme)}
        layers += [
            layer("area", rows, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}, opacity=0.09, **own),
            layer("line", rows, both, strokeWidth=2, **own),
            layer("point", rows[-1:], both, filled=True, size=44, opacity=1, shape=SHAPES[place % len(SHAPES)], **own),
            layer("point", rows, {**both, "tooltip": tips}, opacity=0, size=160)]
    layers += _names(names, drawn, scale, theme)
    longest = max((len(names[place]) for place in drawn), default=0)
    return {"title": heading(title, ink), "height": HEIGHT, "layer": layers, "config": config(ink),
            "padding": {"left": 4, "right": round((BESIDE + SIGN * longest) / 2), "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}


def _names(names: Sequence[str], drawn: dict[int, Line], scale: Scale, theme: Theme) -> list[dict]:
    """Each value's name right of the plot, at the height of its end, moved apart where ends meet."""
    shares = separate([(each.mean[-1] - scale.low) / (scale.high - scale.low) for each in drawn.values()])
    mark = {"align": "left", "dx": 8, "fontSize": 12, "fontWeight": 600, "baseline": "middle",
            "x": "width"}
    return [layer("text", [{}], {}, **mark, text=names[place], color=colour(place, theme),
                  y={"expr": f"height * {1 - share:.4f}"})
            for place, share in zip(drawn, shares, strict=True)]


def seeds(title: str, names: Sequence[str], stats: dict[int, SeedStats], scale: Scale, theme: Theme,
          written: Callable[[float], str] = number) -> dict:
    """A row a value: every seed a mark, over the 95 % interval of their mean, cut where the axis ends."""
    ink = Ink.of(theme)
    y = {"field": "name", "type": "nominal", "title": None, "sort": list(names),
         "scale": {"domain": [names[place] for place in stats]},
         "axis": {"labelLimit": 220, "domain": False, "grid": False, "labelFontSize": 13, "labelColor": ink.text}}
    x, layers = scale.axis(horizontal=True), []
    for place, each in stats.items():
        own, name = {"color": colour(place, theme)}, names[place]
        half = each.half_width or 0.0
        middle = [{"x": each.mean, "low": max(scale.low, each.mean - half),
                   "high": min(scale.end, each.mean + half), "name": name}]
        tips = [{"field": "told", "title": "this seed"}]
        layers += [
            layer("rule", middle, {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}, strokeWidth=6,
                  opacity=0.25, **own),
            layer("tick", middle, {"x": x, "y": y}, thickness=3, size=20, opacity=1, **own),
            layer("point", [{"x": value, "name": name, "told": written(value)} for value in each.values],
                  {"x": x, "y": y, "tooltip": tips}, filled=True, size=60, opacity=0.75,
                  shape=SHAPES[place % len(SHAPES)], **own)]
    return {"title": heading(title, ink), "height": ROW * max(1, len(stats)), "layer": layers, "config": config(ink),
            "padding": {"left": 4, "right": 12, "top": 4, "bottom": 4},
            "autosize": {"type": "fit-x", "contains": "padding"}}
