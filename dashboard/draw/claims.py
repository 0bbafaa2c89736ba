"""Claims: its charts, cards, sentences of numbers, and the numbers of published tables."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from string import ascii_uppercase

import numpy as np

from core.claims.base import (
    Claim,
    ClaimResult,
    Effect,
    Figure,
    Outcome,
    Part,
    Sketch,
    State,
    Verdict,
)
from core.claims.run import ClaimConfig, Shipped
from core.training.seed_stats import SeedStats
from dashboard.draw.components import Cell, Script
from dashboard.draw.curves import Curve, bounds, line_chart, seed_marks
from dashboard.draw.figures import DASHES, PERCENTAGES, PICK, PLAIN, Ink, Spec, Theme
from dashboard.draw.formats import about_duration, duration, number, percent, plain, written
from dashboard.draw.pictures import svg_source

# Of each state its sign, the outcome in whose colour it is, how several claims are in it, and what it means.
STATES: dict[State, tuple[str, Outcome, str, str]] = {
    "holds": ("✔", "holds", "hold", "every part of it is confirmed"),
    "holds in part": (
        "◐",
        "holds",
        "hold in part",
        "some parts are confirmed, others are not; the disc of a claim shows how many",
    ),
    "does not hold": (
        "✗",
        "refuted",
        "do not hold",
        "no part is confirmed and at least one is refuted",
    ),
    "cannot be told here": (
        "?",
        "cannot be told",
        "cannot be told here",
        "the intervals are too wide, the models have not learned, or the seeds are too few",
    ),
}


def guess_distance(
    guess: Mapping[float, float], measured: ClaimResult, question: Sketch, figure: Figure
) -> str:
    truth = {x: measured.results.mean(question.condition, figure.measure, x) for x in guess}
    away = {x: abs(guess[x] - mean) for x, mean in truth.items()}
    farthest = max(away, key=lambda x: away[x])
    mean = sum(away.values()) / len(away)
    points = (
        f"{number(100 * mean)} percentage points"
        if figure.unit == "share"
        else write(mean, figure.unit)
    )
    return (
        f"Your line for {question.condition} is on average **{points}** from the measured one. It is farthest at "
        f"{figure.x} {farthest:g}: you drew {write(guess[farthest], figure.unit)}, measured "
        f"{write(truth[farthest], figure.unit)}."
    )


def time_needed(claim: Claim, result: Shipped | None, config: ClaimConfig) -> str:
    if result is None:
        return "How long it takes was not measured yet."
    seconds = result.seconds / max(1, len(result.results.cells)) * len(config.cells)
    other = [
        param.name.lower()
        for param in claim.settings
        if config.settings[param.key] != result.settings[param.key]
    ]
    source = "by the lab's own measurement" + (
        f", which had other {' and '.join(other)}" if other else ""
    )
    if claim.timed:
        return f"About {about_duration(seconds)} on one core, as it measures time; {source}."
    return f"About {about_duration(seconds / 2)} on two cores, {source}."


def write(value: float, unit: str) -> str:
    if unit in ("share", "gain", "seeds"):
        return percent(value)
    return f"{number(value)} ×" if unit == "times" else number(value)


def interval_text(effect: Effect) -> str:
    if not math.isfinite(effect.low):
        return "unknown"
    return f"{write(effect.low, effect.part.unit)} to {write(effect.high, effect.part.unit)}"


def bounds_text(part: Part) -> str:
    low, high = (
        write(end, part.unit) if math.isfinite(end) else "" for end in (part.low, part.high)
    )
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"


COVERED_HEIGHT = 190  # pixels
Guess = Mapping[float, float]  # x -> the reader's y
GUESS = "your guess"


MIN_SHOWN = 1e-18  # of a logarithmic axis: a gradient over 64 tokens is as small as 1e-14
Series = tuple[Curve, list[SeedStats]]  # with the numbers of the seeds at each of its points


def series_of(figure: Figure, sources: Mapping[str, ClaimResult], theme: Theme) -> list[Series]:
    """What each source measured of each condition, a colour a condition and a dash a source: a curve of the means with
    their intervals, or of a figure without x one point."""
    conditions = list(dict.fromkeys(one for each in sources.values() for one in each.conditions))
    colours = Ink.of(theme).series
    series: list[Series] = []
    for dash, (name, measured) in enumerate(sources.items()):
        for condition in measured.conditions:
            xs = measured.results.xs(condition, figure.measure) if figure.x else [None]
            stats = {x or 0.0: measured.stats(condition, figure, x) for x in xs}
            points = {x: each for x, each in stats.items() if each is not None}
            intervals = [each.interval or (each.mean, each.mean) for each in points.values()]
            row, place = divmod(conditions.index(condition), len(colours))
            curve = Curve(
                f"{condition} ({name})" if len(sources) > 1 else condition,
                [(x, each.mean) for x, each in points.items()],
                intervals,
                colours[place],
                (dash + row) % len(DASHES),  # where colours repeat, dashes tell conditions apart
            )
            series += [(curve, list(points.values()))] if points else []
    return series


def curves_of(
    figure: Figure, sources: Mapping[str, ClaimResult], theme: Theme, guess: Guess | None = None
) -> list[Curve]:
    if not figure.x:
        return []
    curves = [curve for curve, _ in series_of(figure, sources, theme)]
    drawn = sorted((guess or {}).items())
    return [*curves, Curve(GUESS, drawn, colour=PICK[theme], dash=1)] if drawn else curves


def results_figure(
    figure: Figure,
    sources: Mapping[str, ClaimResult],
    theme: Theme,
    guess: Guess | None = None,
    *,
    named: bool = False,
    covered: bool = False,
) -> Spec:
    """One figure of a claim from each source of results, with the guess over it.

    `named`: it stands alone, with its title and the names at the ends of its curves; on the page a legend has them.
    `covered`: before the reader's guess, curves stop halfway, and rows have letters in the order of their means, and no
    numbers.
    """
    if figure.x:
        curves = curves_of(figure, sources, theme, guess)
        values = [y for curve in curves for _, y in curve.defined_points()]
        values += [end for curve in curves for pair in curve.band for end in pair]
        spec = line_chart(
            figure.title,
            figure.x,
            [_first_half(curve) for curve in curves] if covered else curves,
            Ink.of(theme),
            domain=bounds(values, "y" in figure.log, MIN_SHOWN),
            log="y" in figure.log,
            log_x="x" in figure.log,
            named=named,
            measured=True,
            share=figure.unit == "share",
            floor=MIN_SHOWN,
        )
        spec |= {"height": COVERED_HEIGHT} if covered else {}  # the question is in sight, too
    else:
        # A row a condition: every seed a mark, over the 95 % interval of their mean
        rows = [
            (curve.name, curve.colour, one) for curve, (one,) in series_of(figure, sources, theme)
        ]
        if covered:
            rows.sort(key=lambda row: row[2].mean)
            rows = [(name, *row[1:]) for name, row in zip(ascii_uppercase, rows, strict=False)]
        log = bool(figure.log)  # of either axis: the measure is across
        # an interval may end below 0
        least = min((stats.low for _, _, stats in rows), default=0.0) / 2 if log else -math.inf
        spec = seed_marks(
            figure.title,
            [(name, stats, colour, "circle") for name, colour, stats in rows],
            {
                "field": "x",
                "type": "quantitative",
                "title": None,
                "scale": {"zero": False, **({"type": "log"} if log else {})},
                "axis": {
                    "labels": not covered,
                    "tickCount": 5,
                    "format": PLAIN,
                    **({"labelExpr": PERCENTAGES} if figure.unit == "share" else {}),
                },
            },
            Ink.of(theme),
            ends=(least, math.inf),
            height=34,
            labels=260,
            write=(lambda _: "?") if covered else partial(write, unit=figure.unit),
        )
    return spec if named else {name: value for name, value in spec.items() if name != "title"}


def _first_half(curve: Curve) -> Curve:
    count = len(curve.points)
    half = max(min(2, count - 1), count // 2)  # a line, where there are more than two points
    points = [*curve.points[:half], *((x, None) for x, _ in curve.points[half:])]
    return replace(curve, points=points, band=curve.band[:half])


def covered_text(figure: Figure, measured: ClaimResult) -> str:
    """What a covered figure shows, and what it hides."""
    if figure.x:
        return "The lines stop halfway. Guess, and they go on."
    names = ", ".join(plain(curve.name) for curve, _ in series_of(figure, {"": measured}, "light"))
    return f"The rows in mixed order: {names}. Guess, and they get names and numbers."


OUTCOME_COLOURS: Mapping[Theme, Mapping[Outcome, str]] = {
    "light": {"holds": "#05806B", "refuted": "#8E2658", "cannot be told": "#6F7681"},
    "dark": {"holds": "#6DEFD0", "refuted": "#C7648B", "cannot be told": "#9A9EA5"},
}


def interval_picture(effect: Effect, theme: Theme) -> str:
    part, width, height = effect.part, 220, 26
    if not math.isfinite(effect.mean):
        return ""
    # The picture spans the interval, its finite bounds, and zero's side of a one-sided bound.
    ends = [effect.low, effect.mean, effect.high, part.low, part.high]
    values = [one for one in ends if math.isfinite(one)]
    air = 0.15 * (max(values) - min(values)) or abs(effect.mean) or 1.0
    span = min(values) - air, max(values) + air
    places = np.interp([part.low, part.high, *ends[:3]], span, (4, width - 4))
    left, right, low, mean, high = map(float, places)
    middle, colour = height / 2, OUTCOME_COLOURS[theme][effect.outcome]
    spoken = (
        f"{part.name}: {write(effect.mean, part.unit)}, interval {interval_text(effect)}; it must be "
        f"{bounds_text(part)}"
    )
    return image(
        f'<rect x="{round(left, 1)}" y="3" width="{round(right - left, 1)}" height="{height - 6}" '
        f'fill="{Ink.of(theme).hairline}"/>'
        f'<line x1="{round(low, 1)}" x2="{round(high, 1)}" y1="{middle}" y2="{middle}" '
        f'stroke="{colour}" stroke-width="4" stroke-linecap="round"/>'
        f'<circle cx="{round(mean, 1)}" cy="{middle}" r="5" fill="{colour}"/>',
        width,
        height,
        spoken,
    )


def image(drawing: str, width: int, height: int, alt: str, style: str = "") -> str:
    """SVG elements as an HTML image."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none">{drawing}</svg>'
    )
    return (
        f'<img alt="{escape(alt)}" title="{escape(alt)}" width="{width}" height="{height}" style="{style}" '
        f'src="{svg_source(svg)}"/>'
    )


CARDS_WIDTH, CARDS_HEIGHT, PAD = 240, 96, 5  # of a thumbnail, which is as wide as its card


DISC = (  # filled as far as the parts of a claim are confirmed
    "display:inline-block;width:12px;height:12px;box-sizing:border-box;border:1px solid;border-radius:50%;"
    "vertical-align:-1px;background:conic-gradient(currentColor {:.3f}turn,transparent 0)"
)


def card(claim: Claim, measured: ClaimResult | None, theme: Theme, hidden: bool = False) -> str:
    """What stands under a claim's name: sign, parts and picture, or what is claimed where the verdicts are hidden."""
    if hidden:
        return f'<div style="font-size:14px;line-height:20px">{escape(claim.statement)}</div>'
    if measured is None:
        return "<div>Not measured yet</div>"
    state, effects = measured.verdict.state, measured.verdict.effects
    sign, outcome, *_ = STATES[state]  # the sign tells the verdict without the colour
    confirmed = sum(one.outcome == "holds" for one in effects)
    parts = f"{confirmed} of {len(effects)} parts confirmed" if len(effects) > 1 else state
    disc = DISC.format(confirmed / len(effects)) if state == "holds in part" else ""
    return (
        f'<div title="{escape(state)}"><span role="img" aria-label="{escape(state)}" '
        f'style="color:{OUTCOME_COLOURS[theme][outcome]};font-weight:600;{disc}">{"" if disc else sign}</span> '
        f'<span style="font-size:13px;color:{Ink.of(theme).quiet}">{escape(parts)}</span></div>'
        f"{thumbnail(claim.figures[0], measured, theme)}"
        f'<div style="font-size:13px;color:{Ink.of(theme).quiet}">{escape(claim.figures[0].title)}</div>'
    )


def thumbnail(figure: Figure, measured: ClaimResult, theme: Theme) -> str:
    """A figure without axes or names, which a pointer and a screen reader get: curves of means, or a mark a seed.

    Curves lie between the ends of their intervals, as in the figure itself: what the seeds cannot tell apart is flat.
    """
    series = series_of(figure, {"": measured}, theme)
    if not series:
        return ""
    lines = [
        (curve, curve.defined_points() if figure.x else [(value, row) for value in stats[0].values])
        for row, (curve, stats) in enumerate(series)
    ]
    log = "x" in figure.log or bool(figure.log) and not figure.x
    values = [point[bool(figure.x)] for _, points in lines for point in points]
    across = _scale([x for _, points in lines for x, _ in points], log, CARDS_WIDTH)
    if figure.x:
        values += [end for curve, _ in lines for pair in curve.band for end in pair]
        up = _scale(values, "y" in figure.log, CARDS_HEIGHT)
        drawing = "".join(
            f'<polyline fill="none" stroke="{one.colour}" stroke-width="2" vector-effect="non-scaling-stroke" points="'
            f'{" ".join(f"{round(across(x), 1)},{round(CARDS_HEIGHT - up(y), 1)}" for x, y in points)}"/>'
            for one, points in lines
        )
    else:
        pitch = CARDS_HEIGHT / len(lines)
        drawing = "".join(
            f'<path d="M{round(across(x), 1)} {round((row + 0.2) * pitch, 1)}v{round(0.6 * pitch, 1)}" '
            f'stroke="{one.colour}" stroke-width="3" vector-effect="non-scaling-stroke" opacity="0.75"/>'
            for one, points in lines
            for x, row in points
        )
    return image(
        drawing,
        CARDS_WIDTH,
        CARDS_HEIGHT,
        f"{figure.title}, {write(min(values), figure.unit)} to {write(max(values), figure.unit)}: "
        f"{', '.join(curve.name for curve, _ in lines)}",
        f"width:100%;height:{CARDS_HEIGHT}px",
    )


def _scale(values: Sequence[float], log: bool, size: int) -> Callable[[float], float]:
    place = (lambda value: math.log(max(value, MIN_SHOWN))) if log else (lambda value: value)
    low, high = place(min(values)), place(max(values))
    if low == high:
        low, high = (place(end) for end in bounds(values, log, MIN_SHOWN))
    return lambda value: PAD + (size - 2 * PAD) * (place(value) - low) / (high - low)


VERBS: dict[Outcome, tuple[str, str]] = {  # of one part, of several
    "holds": ("holds", "hold"),
    "refuted": ("is refuted", "are refuted"),
    "cannot be told": ("cannot be told", "cannot be told"),
}


# A figure as a paper prints it, with its margin or in percent.
PRINTED = re.compile(r"([+−]?[\d,]*\d(?:\.\d+)?)(?:\s±\s(\d+\.\d+)|\s(%))?")


def published(text: str) -> str:
    """The text with the numbers that it prints, if it prints nothing else."""
    if (parts := PRINTED.fullmatch(text)) is None:
        return text
    mean, margin, percent_sign = parts.groups()
    number = float(mean.replace("−", "-").replace(",", ""))
    unit = ", %" if percent_sign else ""
    return written(text, {unit: number} | ({" ±": float(margin)} if margin else {}))


def index_fact(results: Collection[ClaimResult | None]) -> str:
    """How many claims have each verdict."""
    counts = Counter(each and each.verdict.state for each in results)
    parts = [
        f"**{counts[state]}** {state if counts[state] == 1 else plural} ({sign})"
        for state, (sign, _, plural, _) in STATES.items()
        if counts[state]
    ]
    text = f"Of {len(results)} claims {', '.join(parts)}." if parts else f"{len(results)} claims."
    if waiting := counts[None]:
        text += f" {waiting} {'is' if waiting == 1 else 'are'} not measured yet."
    return text


def legend_text() -> str:
    states = [f"{sign} **{state}**: {meaning}." for state, (sign, *_, meaning) in STATES.items()]
    return " ".join(
        [
            *states,
            "The pictures have no axes: point at one for its range and the names of its colours.",
        ]
    )


def verdict_text(whose: str, measured: ClaimResult) -> str:
    """The verdict on a claim, and how many of its parts hold."""
    judged = measured.verdict
    counts = Counter(effect.outcome for effect in judged.effects)
    parts = [
        f"{counts[outcome]} {forms[counts[outcome] > 1]}"
        for outcome, forms in VERBS.items()
        if counts[outcome]
    ]
    figure = measured.claim.figures[0]
    curves = [curve for curve, _ in series_of(figure, {"": measured}, "light")][:2]
    ends = [(*curve.defined_points()[-1], plain(curve.name)) for curve in curves]
    at = f" ({figure.x} = {ends[0][0]:g})" if figure.x and ends else ""
    values = ", ".join(f"**{write(y, figure.unit)}** ({name})" for _, y, name in ends)
    return (
        f"{whose}: the claim :primary[**{judged.state}**]. Of its {len(judged.effects)} parts "
        f"{', '.join(parts)}, over {len(measured.seeds)} seeds. {plain(figure.title)}{plain(at)}: {values}."
    )


def parts_html(judged: Verdict, theme: Theme) -> str:
    """The parts as rows: statement, outcome, picture, quantity with its interval, and the reason."""
    ink = Ink.of(theme)
    rows = "".join(
        f'<div style="padding:8px 0;border-top:1px solid {ink.hairline}">'
        f"<div>{escape(effect.part.statement)} "
        f'<span style="color:{OUTCOME_COLOURS[theme][effect.outcome]};font-weight:600">{effect.outcome}</span>'
        f'</div><div style="display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;font-size:14px">'
        f"{interval_picture(effect, theme)}<span>{escape(effect.part.name)}: "
        f"<b>{escape(write(effect.mean, effect.part.unit))}</b> [{escape(interval_text(effect))}]; "
        f"it must be {escape(bounds_text(effect.part))}</span></div>"
        f'<div style="font-size:13px;color:{ink.quiet}">{escape(effect.reason)}</div></div>'
        for effect in judged.effects
    )
    return f"<div>{rows}</div>"


def shipped_text(result: Shipped) -> str:
    """When, where and how fast the lab measured a claim."""
    return (
        f"Measured on {result.date} with {result.machine.get('device', 'an unknown processor')}, "
        f"{result.machine.get('threads', '?')} thread a worker, PyTorch {result.versions.get('torch', '?')}, in "
        f"{duration(result.seconds)} of one core: `{result.command}`."
    )


VERDICTS = """
from collections import Counter

from core.claims.catalogue import CLAIMS
from core.claims.run import shipped
from core.claims.base import verdict

verdicts = {}
for claim in CLAIMS:
    if (result := shipped(claim)) is not None:
        verdicts[claim.key] = verdict(claim, result.settings, result.results)
        print(f"{verdicts[claim.key].state:>20}  {claim.statement}")
print(Counter(each.state for each in verdicts.values()))
"""


def verdicts_script(results: Iterable[ClaimResult | None]) -> Script:
    means = [part.mean for each in results if each for part in each.verdict.effects]
    return Script(
        (
            Cell(
                "The verdict on every claim, computed from the numbers that ship with the lab.",
                VERDICTS,
                results={
                    "[effect.mean for each in verdicts.values() for effect in each.effects]": means
                },
            ),
        )
    )
