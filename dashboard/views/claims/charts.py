"""The figures of a claim: curves over x, marks by condition, and the interval of each part beside its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from core.claims.base import Figure, Part
from core.claims.verdict import Effect, Outcome, State
from core.training.seed_stats import SeedStats
from dashboard.charts.lines import Curve, line_chart
from dashboard.charts.numbers import number, percent
from dashboard.charts.palette import Ink, Theme
from dashboard.charts.vega import Spec, layer, right_margin, titled_figure
from dashboard.views.claims.compute import ClaimResult

ROW, WIDTH, HEIGHT = 34, 220, 26  # pixels: a condition's row, and the picture of an interval
OUTCOME_COLOURS: Mapping[Theme, Mapping[Outcome, str]] = {
    "light": {"holds": "#05806B", "refuted": "#8E2658", "cannot be told": "#6F7681"},
    "dark": {"holds": "#6DEFD0", "refuted": "#C7648B", "cannot be told": "#9A9EA5"},
}
STATE_OUTCOMES: Mapping[State, Outcome] = {"holds": "holds", "holds in part": "holds", "does not hold": "refuted",
                                           "cannot be told here": "cannot be told"}


def write(value: float, unit: str) -> str:
    """A quantity in its unit: a share as a percentage, a ratio with its sign, else the number."""
    if unit == "share":
        return percent(value)
    return f"{number(value)} ×" if unit == "times" else number(value)


def results_figure(figure: Figure, sources: Mapping[str, ClaimResult], theme: Theme,
                   guess: Mapping[float, float] | None = None) -> Spec:
    """One figure of a claim from each source of results, whose name follows its conditions where there are several."""
    series = {f"{condition}{f' ({name})' if len(sources) > 1 else ''}": (measured, condition)
              for name, measured in sources.items() for condition in measured.conditions}
    if figure.x:
        curves = [curve for name, (measured, condition) in series.items()
                  if (curve := _curve(name, measured, condition, figure)) is not None]
        if guess:
            curves.append(Curve("your guess", sorted(guess.items())))
        return line_chart(figure.title, figure.x, curves, Ink.of(theme), log="y" in figure.log, log_x="x" in figure.log)
    stats = {name: each for name, (measured, condition) in series.items()
             if (each := measured.stats(condition, figure.measure)) is not None}
    return marks(figure, stats, theme)


def _curve(name: str, measured: ClaimResult, condition: str, figure: Figure) -> Curve | None:
    xs = measured.results.xs(condition, figure.measure)
    stats = [(x, each) for x in xs if (each := measured.stats(condition, figure.measure, x)) is not None]
    if not stats:
        return None
    floor = 1e-9 if "y" in figure.log else -math.inf
    band = [(max(each.mean - (each.half_width or 0.0), floor), each.mean + (each.half_width or 0.0))
            for _, each in stats]
    return Curve(name, [(x, each.mean) for x, each in stats], band)


def marks(figure: Figure, stats: Mapping[str, SeedStats], theme: Theme) -> Spec:
    """A row a condition: every seed a mark, over the 95 % interval of their mean."""
    ink, names = Ink.of(theme), list(stats)
    y = {"field": "name", "type": "nominal", "title": None, "sort": names,
         "axis": {"labelLimit": 260, "domain": False, "grid": False, "labelFontSize": 13, "labelColor": ink.text}}
    scale: Spec = {"zero": "x" not in figure.log, **({"type": "log"} if "x" in figure.log else {})}
    x = {"field": "value", "type": "quantitative", "title": None, "scale": scale,
         "axis": {"tickCount": 5, **({"format": "%"} if figure.unit == "share" else {})}}
    layers = []
    for index, (name, each) in enumerate(stats.items()):
        colour, half = ink.series[index % len(ink.series)], each.half_width or 0.0
        interval = [{"value": each.mean - half, "high": each.mean + half, "name": name, "mean": each.mean}]
        tip = [{"field": "text", "title": "this seed"}]
        layers += [layer("rule", interval, {"x": x, "x2": {"field": "high"}, "y": y}, strokeWidth=6, opacity=0.25,
                         color=colour),
                   layer("tick", interval, {"x": {**x, "field": "mean"}, "y": y}, thickness=3, size=20, color=colour),
                   layer("point", [{"value": one, "name": name, "text": write(one, figure.unit)}
                                   for one in each.values], {"x": x, "y": y, "tooltip": tip}, filled=True, size=60,
                         opacity=0.75, color=colour)]
    return titled_figure(figure.title, layers, ROW * max(1, len(stats)), ink, **right_margin(12))


def interval_picture(effect: Effect, theme: Theme, width: int = WIDTH) -> str:
    """An SVG of a part: the band in which its quantity must lie, and the interval of its mean."""
    part, ink = effect.part, Ink.of(theme)
    ends = _ends(effect)
    if ends is None:
        return ""
    low, high = ends

    def place(value: float) -> float:
        return 4 + (width - 8) * (min(max(value, low), high) - low) / (high - low)

    left, right, middle = place(part.low), place(part.high), HEIGHT / 2
    colour = OUTCOME_COLOURS[theme][effect.outcome]
    spoken = escape(f"{part.name}: {write(effect.mean, part.unit)}, interval {interval_text(effect)}; it must be "
                    f"{bounds(part)}")
    return (f'<svg width="{width}" height="{HEIGHT}" role="img" aria-label="{spoken}">'
            f'<rect x="{left:.1f}" y="3" width="{right - left:.1f}" height="{HEIGHT - 6}" fill="{ink.hairline}"/>'
            f'<line x1="{place(effect.low):.1f}" x2="{place(effect.high):.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colour}" stroke-width="4" stroke-linecap="round"/>'
            f'<circle cx="{place(effect.mean):.1f}" cy="{middle}" r="5" fill="{colour}"/></svg>')


def _ends(effect: Effect) -> tuple[float, float] | None:
    """What an interval's picture spans: the interval, its finite bounds, and zero's side of a one-sided bound."""
    values = [one for one in (effect.low, effect.mean, effect.high, effect.part.low, effect.part.high)
              if math.isfinite(one)]
    if not math.isfinite(effect.mean):
        return None
    air = 0.15 * (max(values) - min(values)) or abs(effect.mean) or 1.0
    return min(values) - air, max(values) + air


def interval_text(effect: Effect) -> str:
    """The interval of a part's mean, such as 0.31 to 0.42."""
    if not math.isfinite(effect.low):
        return "unknown"
    return f"{write(effect.low, effect.part.unit)} to {write(effect.high, effect.part.unit)}"


def bounds(part: Part) -> str:
    """Where a part's quantity must lie, in words."""
    low, high = (write(end, part.unit) if math.isfinite(end) else "" for end in (part.low, part.high))
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"


def state_mark(state: State, theme: Theme) -> str:
    """The verdict as a coloured word, in HTML; its sign tells it without the colour."""
    signs: Mapping[State, str] = {"holds": "✓", "holds in part": "◐", "does not hold": "✗", "cannot be told here": "?"}
    colour = OUTCOME_COLOURS[theme][STATE_OUTCOMES[state]]
    return f'<span style="color:{colour};font-weight:600">{signs[state]} {escape(state)}</span>'


def parts_table(effects: Sequence[Effect], theme: Theme) -> str:
    """The parts of a claim as rows of HTML: statement, picture, quantity with its interval, outcome."""
    rows = "".join(
        f'<div style="padding:8px 0;border-top:1px solid {Ink.of(theme).hairline}">'
        f'<div>{escape(effect.part.statement)} '
        f'<span style="color:{OUTCOME_COLOURS[theme][effect.outcome]};font-weight:600">{effect.outcome}</span></div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;font-size:14px">'
        f'{interval_picture(effect, theme)}<span>{escape(effect.part.name)}: '
        f'<b>{escape(write(effect.mean, effect.part.unit))}</b> [{escape(interval_text(effect))}]; '
        f'it must be {escape(bounds(effect.part))}</span></div></div>' for effect in effects)
    return f"<div>{rows}</div>"
