"""Claims: classic statements about attention, each measured, with a verdict from the data."""

import math
import re
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.claims import run as claim_runs
from core.claims.base import (
    MIN_SEEDS,
    Claim,
    ClaimResult,
    Effect,
    Figure,
    Outcome,
    Part,
    Sketch,
    State,
    rule_lines,
)
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.run import ClaimConfig, Group, find_group
from core.entries import ConfigError, refuse_if
from core.files import zip_files
from core.runs.machine import machine
from core.training.seed_stats import SeedStats

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
        f"{lab.number(100 * mean)} percentage points"
        if figure.unit == "share"
        else write(mean, figure.unit)
    )
    return (
        f"Your line for {question.condition} is on average **{points}** from the measured one. It is farthest at "
        f"{figure.x} {farthest:g}: you drew {write(guess[farthest], figure.unit)}, measured "
        f"{write(truth[farthest], figure.unit)}."
    )


def time_needed(claim: Claim, result: claim_runs.Shipped | None, config: ClaimConfig) -> str:
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
        return f"About {lab.about_duration(seconds)} on one core, as it measures time; {source}."
    return f"About {lab.about_duration(seconds / 2)} on two cores, {source}."


def write(value: float, unit: str) -> str:
    if unit in ("share", "gain", "seeds"):
        return lab.percent(value)
    return f"{lab.number(value)} ×" if unit == "times" else lab.number(value)


def interval_text(effect: Effect) -> str:
    if not math.isfinite(effect.low):
        return "unknown"
    return f"{write(effect.low, effect.part.unit)} to {write(effect.high, effect.part.unit)}"


def bounds_text(part: Part) -> str:
    low, high = (
        write(end, part.unit) if math.isfinite(end) else "" for end in (part.low, part.high)
    )
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"


Guess = Mapping[float, float]  # x -> the reader's y
GUESS = "your guess"


MIN_SHOWN = 1e-18  # of a logarithmic axis: a gradient over 64 tokens is as small as 1e-14
Series = tuple[lab.Curve, list[SeedStats]]  # with the numbers of the seeds at each of its points


def series_of(figure: Figure, sources: Mapping[str, ClaimResult], theme: lab.Theme) -> list[Series]:
    """What each source measured of each condition, a colour a condition and a dash a source: a curve of the means with
    their intervals, or of a figure without x one point."""
    conditions = list(dict.fromkeys(one for each in sources.values() for one in each.conditions))
    colours = lab.Ink.of(theme).series
    series: list[Series] = []
    for dash, (name, measured) in enumerate(sources.items()):
        for condition in measured.conditions:
            xs = measured.results.xs(condition, figure.measure) if figure.x else [None]
            stats = {x or 0.0: measured.stats(condition, figure, x) for x in xs}
            points = {x: each for x, each in stats.items() if each is not None}
            intervals = [each.interval or (each.mean, each.mean) for each in points.values()]
            row, place = divmod(conditions.index(condition), len(colours))
            curve = lab.Curve(
                f"{condition} ({name})" if len(sources) > 1 else condition,
                [(x, each.mean) for x, each in points.items()],
                intervals,
                colours[place],
                (dash + row)
                % len(lab.DASHES),  # where colours repeat, dashes tell conditions apart
            )
            series += [(curve, list(points.values()))] if points else []
    return series


def curves_of(
    figure: Figure, sources: Mapping[str, ClaimResult], theme: lab.Theme, guess: Guess | None = None
) -> list[lab.Curve]:
    if not figure.x:
        return []
    curves = [curve for curve, _ in series_of(figure, sources, theme)]
    drawn = sorted((guess or {}).items())
    return [*curves, lab.Curve(GUESS, drawn, colour=lab.PICK[theme], dash=1)] if drawn else curves


def results_figure(
    figure: Figure,
    sources: Mapping[str, ClaimResult],
    theme: lab.Theme,
    guess: Guess | None = None,
    *,
    named: bool = False,
) -> lab.Spec:
    """One figure of a claim from each source of results, with the guess over it.

    `named`: it stands alone, with its title and the names at the ends of its curves; on the page a legend has them.
    """
    if figure.x:
        spec = lab.line_chart(
            figure.title,
            figure.x,
            curves_of(figure, sources, theme, guess),
            lab.Ink.of(theme),
            log="y" in figure.log,
            log_x="x" in figure.log,
            named=named,
            measured=True,
            share=figure.unit == "share",
            floor=MIN_SHOWN,
        )
    else:
        # A row a condition: every seed a mark, over the 95 % interval of their mean
        rows = [(curve, stats) for curve, (stats,) in series_of(figure, sources, theme)]
        log = bool(figure.log)  # of either axis: the measure is across
        # an interval may end below 0
        least = min((stats.low for _, stats in rows), default=0.0) / 2 if log else -math.inf
        spec = lab.seed_marks(
            figure.title,
            [(curve.name, stats, curve.colour, "circle") for curve, stats in rows],
            {
                "field": "x",
                "type": "quantitative",
                "title": None,
                "scale": {"zero": False, **({"type": "log"} if log else {})},
                "axis": {
                    "tickCount": 5,
                    **({"labelExpr": lab.PERCENTAGES} if figure.unit == "share" else {}),
                },
            },
            lab.Ink.of(theme),
            ends=(least, math.inf),
            height=34,
            labels=260,
            write=partial(write, unit=figure.unit),
        )
    return spec if named else {name: value for name, value in spec.items() if name != "title"}


OUTCOME_COLOURS: Mapping[lab.Theme, Mapping[Outcome, str]] = {
    "light": {"holds": "#05806B", "refuted": "#8E2658", "cannot be told": "#6F7681"},
    "dark": {"holds": "#6DEFD0", "refuted": "#C7648B", "cannot be told": "#9A9EA5"},
}


def interval_picture(effect: Effect, theme: lab.Theme) -> str:
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
        f'fill="{lab.Ink.of(theme).hairline}"/>'
        f'<line x1="{round(low, 1)}" x2="{round(high, 1)}" y1="{middle}" y2="{middle}" '
        f'stroke="{colour}" stroke-width="4" stroke-linecap="round"/>'
        f'<circle cx="{round(mean, 1)}" cy="{middle}" r="5" fill="{colour}"/>',
        width,
        height,
        spoken,
    )


def image(drawing: str, width: int, height: int, alt: str, style: str = "") -> str:
    """SVG elements as an HTML image: st.html takes an SVG out, but leaves an image of one."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none">{drawing}</svg>'
    )
    return (
        f'<img alt="{escape(alt)}" title="{escape(alt)}" width="{width}" height="{height}" style="{style}" '
        f'src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"/>'
    )


CARDS_WIDTH, CARDS_HEIGHT, PAD = 240, 96, 5  # of a thumbnail, which is as wide as its card


DISC = (  # filled as far as the parts of a claim are confirmed
    "display:inline-block;width:12px;height:12px;box-sizing:border-box;border:1px solid;border-radius:50%;"
    "vertical-align:-1px;background:conic-gradient(currentColor {:.3f}turn,transparent 0)"
)


def card(claim: Claim, measured: ClaimResult | None, theme: lab.Theme, hidden: bool = False) -> str:
    """What stands under a claim's name: what is claimed, and unless the verdicts are hidden sign, parts and picture."""
    statement = f'<div style="font-size:14px;line-height:20px">{escape(claim.statement)}</div>'
    if hidden or measured is None:
        return statement + ("" if hidden else "<div>Not measured yet</div>")
    state, effects = measured.verdict.state, measured.verdict.effects
    sign, outcome, *_ = STATES[state]  # the sign tells the verdict without the colour
    confirmed = sum(one.outcome == "holds" for one in effects)
    parts = f"{confirmed} of {len(effects)} parts confirmed" if len(effects) > 1 else state
    disc = DISC.format(confirmed / len(effects)) if state == "holds in part" else ""
    return (
        f'{statement}<div title="{escape(state)}"><span role="img" aria-label="{escape(state)}" '
        f'style="color:{OUTCOME_COLOURS[theme][outcome]};font-weight:600;{disc}">{"" if disc else sign}</span> '
        f'<span style="font-size:13px;color:{lab.Ink.of(theme).quiet}">{escape(parts)}</span></div>'
        f"{thumbnail(claim.figures[0], measured, theme)}"
        f'<div style="font-size:13px;color:{lab.Ink.of(theme).quiet}">{escape(claim.figures[0].title)}</div>'
    )


def thumbnail(figure: Figure, measured: ClaimResult, theme: lab.Theme) -> str:
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
        low, high = (place(end) for end in lab.bounds(values, log, MIN_SHOWN))
    return lambda value: PAD + (size - 2 * PAD) * (place(value) - low) / (high - low)


PAGE = "claims"
ALL = ""
SOURCES = {"shipped": "The lab's", "own": "Yours", "both": "Both"}
WHOSE = {"shipped": ("the lab's", "The lab's measurement"), "own": ("yours", "Your run")}
VERBS: dict[Outcome, tuple[str, str]] = {  # of one part, of several
    "holds": ("holds", "hold"),
    "refuted": ("is refuted", "are refuted"),
    "cannot be told": ("cannot be told", "cannot be told"),
}


key = "claims:{}".format  # a widget's key, which is also its name in the link
CLAIM, RUN, HIDE = key("claim"), key("run"), key("hide")


class Controls(lab.Fields, page="claims"):
    hide = lab.Toggle(
        "Hide verdicts to guess first",
        help="Hides the verdicts and pictures here. A link keeps it.",
    )
    results = lab.Segmented(
        "Results",
        options=SOURCES,
        default="own",
        help="The lab's own measurement, yours, or both in one figure.",
    )


def _run_id(text: str) -> str:
    refuse_if(find_group(text) is None, f"{text[:40]!r} is no run on this machine")
    return text


def own_run(claim: Claim, run_id: object) -> Group | None:
    """The reader's run of this claim; None where there is none, or it is of another claim."""
    with suppress(ConfigError):
        if (group := find_group(run_id)) is not None and group.config.claim == claim.key:
            return group
    return None


def as_shipped(own: Group) -> claim_runs.Shipped:
    measured, data = own.measured, own.runs[0].metadata()
    return claim_runs.ship(
        measured.claim,
        measured.settings,
        measured.results.cells,
        (data.get("machines") or [machine("cpu")])[-1],
        claim_runs.command(measured.claim, measured.settings, measured.seeds),
        float(data.get("created", 0)),
    )


def archive(result: claim_runs.Shipped) -> bytes:
    figures = {
        f"figure-{at}-{re.sub(r'[^a-z0-9]+', '-', figure.measure.lower()).strip('-')}.{kind}": {
            "spec": results_figure(figure, {"": result}, "light", named=True),
            "format": kind,
        }
        for at, figure in enumerate(result.claim.figures, 1)
        for kind in ("svg", "pdf")
    }
    return zip_files(
        f"claim-{result.claim.key}", claim_runs.text_files(result) | lab.render(figures)
    )


OPEN, SHOWN = "", "none"  # no guess yet; shown without one


def draw_guess(claim: Claim, measured: ClaimResult | None) -> dict[str, Guess] | None:
    """Draw the question of a claim, and its answer once there is a guess; nothing where nothing was measured.

    Returns the line that was drawn before, by measure, or None where the results may not be seen yet.
    """
    if measured is None or not measured.seeds:
        return {}
    if isinstance(claim.guess, Sketch):
        return _sketch(claim, claim.guess, measured)
    pick, complete = claim.guess, measured.results.complete(measured.conditions)
    answer = pick.answer(complete)  # seeds that lack a condition cannot answer
    reason = f"The data say: {pick.options[answer][0].lower() + pick.options[answer][1:]}."
    reasons = tuple("" if at == answer else reason for at in range(len(pick.options)))
    question = lab.Question(lab.plain(pick.question), pick.options, answer, reasons)
    return {} if lab.predict(key(claim.key), question) else None


def _sketch(claim: Claim, question: Sketch, measured: ClaimResult) -> dict[str, Guess] | None:
    if lab.guide_is_hidden():
        return {}
    xs, name = measured.results.xs(question.condition, question.measure), key(f"{claim.key}:sketch")
    lab.link_value(
        name,
        OPEN,
        lambda link: _written(_read(link, question, xs).values()),
        name=f"{claim.key}:sketch",
    )
    written = st.session_state.get(name, OPEN)
    figure = next(figure for figure in claim.figures if figure.measure == question.measure)
    with st.container(border=True, gap="small", key=f"{name}:question"):
        lab.paragraph(f"**Draw it first.** {lab.plain(question.question)}")
        if written == OPEN:
            lab.sketch(
                xs,
                question.low,
                question.high,
                key=f"{name}:paper",
                x_title=figure.x,
                log_x="x" in figure.log,
                log_y="y" in figure.log,
                share=figure.unit == "share",
                take=lambda ys: st.session_state.update({name: _written(ys or ())}),
            )
            return None
        guess = _read(written, question, xs)
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            lab.paragraph(
                guess_distance(guess, measured, question, figure)
                if guess
                else "Shown without a guess.",
                width="stretch",
            )
            st.button(
                "Draw again",
                key=f"{name}:again",
                icon=":material/edit:",
                on_click=st.session_state.update,
                args=({name: OPEN},),
            )
    return {question.measure: guess} if guess else {}


def _written(ys: Iterable[float]) -> str:
    return "_".join(map(lab.as_text, ys)) or SHOWN


def _read(link: str, question: Sketch, xs: Sequence[float]) -> Guess:
    """The line of a link; a ValueError for another number of points, or one out of bounds."""
    if link == SHOWN:
        return {}
    ys = [float(part) for part in link.split("_")]
    refuse_if(
        len(ys) != len(xs) or not all(question.low <= y <= question.high for y in ys),
        f"expected {len(xs)} numbers from {question.low:g} to {question.high:g}",
    )
    return dict(zip(xs, ys, strict=True))


LAB = "The verdict on one claim from the lab's measurement: the mean of each part over the seeds, and its interval."
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


def script(shipped: claim_runs.Shipped | None, own: Group | None) -> lab.Script:
    cells: dict[str, tuple[lab.Cell, ClaimResult]] = {}
    if shipped is not None:
        code = f"""
from core.claims.catalogue import claim_of
from core.claims.run import shipped
from core.claims.base import verdict

claim = claim_of({shipped.claim.key!r})
result = shipped(claim)  # measured by: {shipped.command}
judged = verdict(claim, result.settings, result.results)
print(judged.state)
for effect in judged.effects:
    print(f"{{effect.outcome:>14}}  {{effect.part.statement}}: {{effect.mean:.3g}} [{{effect.low:.3g}}, {{effect.high:.3g}}]")
"""
        cells["judged"] = lab.Cell(LAB, code), shipped
    if own is not None and own.measured.seeds:
        code = f"""
from core.claims.catalogue import claim_of
from core.claims.run import find_group
from core.claims.base import verdict

claim, group = claim_of({own.measured.claim.key!r}), find_group({own.id!r})
own = verdict(claim, group.config.settings, group.results())
print(own.state, [(effect.part.statement, effect.mean) for effect in own.effects])
"""
        cells["own"] = lab.Cell("The same from a run of one's own.", code), own.measured
    return lab.Script(
        tuple(cell for cell, _ in cells.values()),
        {
            f"[[effect.mean, effect.low, effect.high] for effect in {name}.effects]": np.array(
                [[effect.mean, effect.low, effect.high] for effect in measured.verdict.effects]
            )
            for name, (_, measured) in cells.items()
        },
    )


def _verdicts(results: Iterable[ClaimResult | None]) -> lab.Script:
    return lab.Script(
        (
            lab.Cell(
                "The verdict on every claim, computed from the numbers that ship with the lab.",
                VERDICTS,
            ),
        ),
        {
            "[effect.mean for each in verdicts.values() for effect in each.effects]": np.array(
                [part.mean for each in results if each for part in each.verdict.effects]
            )
        },
    )


# A figure as a paper prints it, with its margin or in percent.
PRINTED = re.compile(r"([+−]?[\d,]*\d(?:\.\d+)?)(?:\s±\s(\d+\.\d+)|\s(%))?")


def published(text: str) -> str:
    """The text with the numbers that it prints, if it prints nothing else."""
    if (parts := PRINTED.fullmatch(text)) is None:
        return text
    mean, margin, percent_sign = parts.groups()
    number = float(mean.replace("−", "-").replace(",", ""))
    unit = ", %" if percent_sign else ""
    return lab.written(text, {unit: number} | ({" ±": float(margin)} if margin else {}))


def page() -> None:
    lab.title(
        "Claims",
        "Classic statements about attention, each measured here.",
    )
    arrived = lab.is_new("claim")
    lab.link_value(CLAIM, ALL, lab.one_of([claim.key for claim in CLAIMS]), name="claim")
    if arrived and (linked := st.query_params.get("claim")) is not None:
        st.query_params["claim"] = linked  # the browser shows no link to the same page
    lab.link_value(RUN, "", _run_id)
    if (chosen := st.session_state.get(CLAIM, ALL)) == ALL:
        _index()
    else:
        _one(claim_of(chosen))


@lab.fragment
def _index() -> None:
    results = {claim.key: claim_runs.shipped(claim) for claim in CLAIMS}
    lab.add_script(partial(_verdicts, results.values()))
    hidden = Controls.draw("hide", into=lab.HERE).hide
    with st.container():  # which keeps the place of the cards
        if not hidden:
            counts = Counter(each and each.verdict.state for each in results.values())
            parts = [
                f"**{counts[state]}** {state if counts[state] == 1 else plural} ({sign})"
                for state, (sign, _, plural, _) in STATES.items()
                if counts[state]
            ]
            first = (
                f"Of {len(results)} claims {', '.join(parts)}."
                if parts
                else f"{len(results)} claims."
            )
            waiting = f" {counts[None]} {'is' if counts[None] == 1 else 'are'} not measured yet."
            lab.fact(first + waiting if counts[None] else first)
    subjects = list(dict.fromkeys(claim.subject for claim in CLAIMS))
    with st.grid(3, min_column_width=260, gap="small"):
        for claim in sorted(CLAIMS, key=lambda claim: subjects.index(claim.subject)):
            with st.container(border=True, gap="small", height="stretch"):
                st.page_link(
                    lab.step_of(PAGE).page(),
                    label=f":small[**{lab.plain(claim.name)}**]",
                    query_params={"claim": claim.key},
                    help=f"{lab.plain(claim.statement)} {lab.plain(claim.subject)} · {lab.plain(claim.source.text)}",
                )
                st.html(card(claim, results[claim.key], lab.theme(), hidden))
    lab.caption(
        " ".join(f"{sign} **{state}**: {meaning}." for state, (sign, *_, meaning) in STATES.items())
        + " The pictures have no axes: point at one for its range and the names of its colours."
    )


def _one(claim: Claim) -> None:
    choice, index = st.columns([0.84, 0.16], gap="small", vertical_alignment="bottom")
    box = key("choice")
    st.session_state[box] = claim.key
    choice.selectbox(
        "Claim",
        [one.key for one in CLAIMS],
        key=box,
        format_func=lambda one: claim_of(one).name,
        on_change=lab.guarded(box, lambda: st.session_state.update({CLAIM: st.session_state[box]})),
        help="Opens another claim.",
    )
    index.button(
        "All claims",
        icon=":material/apps:",
        width="stretch",
        on_click=st.session_state.update,
        args=({CLAIM: ALL},),
        key=key("index"),
    )
    st.markdown(f"## {lab.plain(claim.statement)}")
    source = lab.plain(claim.source.text)
    source = f"[{source}]({claim.source.url})" if claim.source.url else source
    lab.paragraph(f"Claimed by {source}: *{lab.plain(claim.source.title)}*.")
    shipped, own = claim_runs.shipped(claim), own_run(claim, st.session_state.get(RUN))
    lab.add_script(partial(script, shipped, own))
    both = {"shipped": shipped, "own": own and own.measured}
    measured = {name: each for name, each in both.items() if each and each.results.cells}
    guess = draw_guess(claim, next(iter(measured.values()), None))
    if guess is not None:
        _results(claim, measured, guess)
        if shipped is not None:
            lab.caption(
                f"Measured on {shipped.date} with {shipped.machine.get('device', 'an unknown processor')}, "
                f"{shipped.machine.get('threads', '?')} thread a worker, PyTorch {shipped.versions.get('torch', '?')}, in "
                f"{lab.duration(shipped.seconds)} of one core: `{shipped.command}`."
            )
        with st.container(horizontal=True, vertical_alignment="center"):
            if shipped is not None:
                _download("Replicate: the lab's files", "lab", shipped)
            if own is not None and own.measured.seeds and not own.live:
                _download("Replicate: your files", "own", as_shipped(own))
    st.markdown("### What would have refuted it")
    lab.paragraph(lab.plain(" ".join([claim.refutation, *rule_lines(claim)])))
    st.markdown("### What the paper measured")
    for one in claim.published:
        lab.chart_title(f"Published, not measured here: {one.place}")
        lab.table(
            one.columns,
            [[*map(published, row)] for row in one.rows],
            caption=f"Published figures: {one.place}",
            left=[
                at
                for at in range(len(one.columns))
                if at == 0 or not any(map(str.isdigit, "".join(row[at] for row in one.rows)))
            ],
            markers=False,
        )
        lab.caption(f"{lab.plain(one.setting)} [Source]({one.url})")
    if claim.no_published:
        lab.caption(lab.plain(claim.no_published))
    st.markdown("### What this does not show")
    lab.paragraph(lab.plain(claim.limits))
    _run(claim, shipped, own)
    lab.details(
        "What was tried before, sources and code", partial(_sources, claim, shipped), key("sources")
    )


def _results(claim: Claim, sources: Mapping[str, ClaimResult], guess: dict[str, Guess]) -> None:
    if not sources:
        lab.placeholder("Nothing was measured yet. Run it below.", height=120)
        return
    if len(sources) == 2 and (chosen := Controls.draw("results", into=lab.HERE).results) != "both":
        sources = {chosen: sources[chosen]}
    named = {WHOSE[name][0]: each for name, each in sources.items()}
    for figure in claim.figures:
        drawn = guess.get(figure.measure)
        lab.draw_chart(
            st,
            results_figure(figure, named, lab.theme(), drawn),
            key=key(f"figure:{figure.measure}"),
            alt=f"{figure.title} of each condition, over seeds",
            heading=figure.title,
            legend=lab.legend(
                curves_of(figure, named, lab.theme(), drawn), lab.Ink.of(lab.theme()), least=1
            ),
        )
    for name, each in sources.items():
        judged = each.verdict
        counts = Counter(effect.outcome for effect in judged.effects)
        parts = [
            f"{counts[outcome]} {forms[counts[outcome] > 1]}"
            for outcome, forms in VERBS.items()
            if counts[outcome]
        ]
        scope = f", {each.claim.scope}" if each.claim.scope else ""
        lab.fact(
            f"{WHOSE[name][1]}: the claim :primary[**{judged.state}**]{scope}. Of its {len(judged.effects)} parts "
            f"{', '.join(parts)}, over {len(each.seeds)} seeds.{judged.reasons}"
        )
        # The parts as rows: statement, outcome, picture, quantity with its interval, and the reason
        ink = lab.Ink.of(lab.theme())
        rows = "".join(
            f'<div style="padding:8px 0;border-top:1px solid {ink.hairline}">'
            f"<div>{escape(effect.part.statement)} "
            f'<span style="color:{OUTCOME_COLOURS[lab.theme()][effect.outcome]};font-weight:600">{effect.outcome}</span>'
            f'</div><div style="display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;font-size:14px">'
            f"{interval_picture(effect, lab.theme())}<span>{escape(effect.part.name)}: "
            f"<b>{escape(write(effect.mean, effect.part.unit))}</b> [{escape(interval_text(effect))}]; "
            f"it must be {escape(bounds_text(effect.part))}</span></div>"
            f'<div style="font-size:13px;color:{ink.quiet}">{escape(effect.reason)}</div></div>'
            for effect in judged.effects
        )
        st.html(f"<div>{rows}</div>")
    lab.caption(
        f"A part holds where the whole interval of its mean over {MIN_SEEDS} seeds or more lies within its bounds, "
        "and is refuted where the whole interval lies outside; the intervals cover all parts together (95 %, "
        "Student's t, Bonferroni), those of shares between 0 and 1. Ratios (×) are averaged as "
        "logarithms; the charts draw the plain mean of the seeds, with its own 95 % interval. It cannot be told where "
        "the models have not learned, or where the task leaves no room."
    )


def _download(label: str, name: str, result: claim_runs.Shipped) -> None:
    st.download_button(
        label,
        lambda: archive(result),
        f"claim-{result.claim.key}.zip",
        "application/zip",
        icon=":material/folder_zip:",
        on_click="ignore",
        key=key(f"zip:{name}"),
        help="A ZIP with the config, all numbers as CSV, each figure as SVG and PDF, the parts as a "
        "LaTeX table, the command, the versions and BibTeX.",
    )


def _run(claim: Claim, result: claim_runs.Shipped | None, own: Group | None) -> None:
    st.markdown("### Run it")
    with st.grid(6, min_column_width=120):
        values = {
            param.key: lab.param_widget(param, key=key(f"{claim.key}:{param.key}"))
            for param in claim.params
        }
    config = ClaimConfig(claim.key, values)  # what a run of the reader's would measure
    lab.start_run(
        PAGE,
        config,
        lab.queue.measure_claim,
        _select,
        ConfigError,
        run_of=lambda group: group.runs[0],
    )
    lab.show_flash(PAGE)
    if own is not None and own.live:
        buttons, column = st.columns([1, 3.4], vertical_alignment="center")
        lab.stop_button(buttons, PAGE, _stop, own)
        with column:
            lab.poll(
                lambda: own_run(claim, own.id) or own,
                _progress,
                True,
                key("progress"),
                interval=lab.SLOW_POLL_INTERVAL,
                still_live=lambda now: now.live and count(now) == count(own),
            )  # else new figures
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Run it",
            icon=":material/play_arrow:",
            type="primary",
            key=key("start"),
            on_click=lab.press,
            args=(PAGE,),
            help="Workers measure every condition from every seed.",
        )
        st.caption(time_needed(claim, result, config))
    lab.limits_line(steps=False)
    if own is None:
        return
    for status in [status for status in own.statuses if status.state == "failed"][:1]:
        st.error(lab.plain(status.message))
    if count(own) < len(own.config.cells):
        st.caption(
            f"Your run made {count(own)} of {len(own.config.cells)} measurements, which are saved; Continue makes the "
            "others."
        )
        lab.continue_button(st, PAGE, _continue, own, primary=False)


def count(own: Group) -> int:
    return len(own.measured.results.cells)


def _select(group: Group) -> None:
    st.session_state[RUN] = group.id
    st.session_state.pop(key("results"), None)


def _continue(own: Group) -> None:
    for run in own.runs:
        if run.status().state != "finished":
            lab.continue_run(PAGE, run)


def _stop(own: Group) -> None:
    for run in own.runs:
        lab.end_run(run)


def _progress(own: Group) -> None:
    done, planned, after = own.measured.results.cells, len(own.config.cells), ""
    if done:  # by the mean of those so far, on cores of their own
        spent = sum(cell.seconds for cell in done)
        left = spent / len(done) * (planned - len(done)) / len(own.runs)
        after = f", about {lab.about_duration(left)} left"
    lab.show_progress(
        own.runs[0],
        own.statuses[0],
        ending="",
        progress=lambda: (
            len(done) / max(1, planned),
            f"{len(done)} of {planned} measurements{after}",
        ),
    )


def _sources(claim: Claim, shipped: claim_runs.Shipped | None) -> None:
    date = time.strftime("%Y-%m-%d", time.gmtime()) if shipped is None else shipped.date
    lab.paragraph(f"**Tried before the shipped settings.** {lab.plain(claim.tried)}")
    lab.paragraph("**To cite** the source, and this page:")
    st.code(claim.source.bibtex + claim_runs.citation(claim, date), language="bibtex")
    lab.source_panel(claim.measure)
