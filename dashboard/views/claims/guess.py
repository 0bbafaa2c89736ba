"""The reader's guess, made before anything of a claim is shown: a pick, or a line that is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from core.claims.base import Claim, Figure, Pick, Sketch
from dashboard.draw.page_views import sketch
from dashboard.runtime.lesson_state import guide_is_hidden
from dashboard.runtime.link_values import as_text, link_value
from dashboard.views.claims import text
from dashboard.views.claims.charts import Guess
from dashboard.views.claims.compute import ClaimResult
from dashboard.views.claims.controls import key
from dashboard.widgets import guide
from dashboard.widgets.panels import paragraph, plain

OPEN, SHOWN = "", "none"  # no guess yet; shown without one


@dataclass(frozen=True)
class Shown:
    """Whether the results may be seen, and the line that was drawn before, by measure: x -> y."""

    seen: bool = True
    drawn: dict[str, Guess] = field(default_factory=dict)


def draw_guess(claim: Claim, measured: ClaimResult | None) -> Shown:
    """Draw the question of a claim, and its answer once there is a guess; nothing where nothing was measured."""
    if measured is None or not measured.seeds:
        return Shown()
    if isinstance(claim.guess, Sketch):
        return _sketch(claim, claim.guess, measured)
    return Shown(_pick(claim, claim.guess, measured))


def _pick(claim: Claim, pick: Pick, measured: ClaimResult) -> bool:
    answer = pick.answer(
        measured.results.complete(measured.conditions)
    )  # seeds that lack a condition cannot answer
    reasons = text.answer_reasons(pick.options, answer)
    return guide.predict(
        key(claim.key), guide.Question(plain(pick.question), pick.options, answer, reasons)
    )


def _sketch(claim: Claim, question: Sketch, measured: ClaimResult) -> Shown:
    """Draw empty axes; after Show me, how far the drawn line is from the measured one."""
    if guide_is_hidden():
        return Shown()
    xs, name = measured.results.xs(question.condition, question.measure), key(f"{claim.key}:sketch")
    link_value(
        name,
        OPEN,
        lambda link: _written(_read(link, question, len(xs))),
        name=f"{claim.key}:sketch",
    )
    written = st.session_state.get(name, OPEN)
    figure = next(figure for figure in claim.figures if figure.measure == question.measure)
    with st.container(border=True, gap="small", key=f"{name}:question"):
        paragraph(f"**Draw it first.** {plain(question.question)}")
        if written == OPEN:
            _paper(name, figure, question, xs)
            return Shown(False)
        ys = _read(written, question, len(xs)) if written != SHOWN else None
        guess = {} if ys is None else dict(zip(xs, ys, strict=True))
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            paragraph(
                text.guess_distance(guess, measured, question, figure)
                if guess
                else "Shown without a guess.",
                width="stretch",
            )
            st.button(
                "Draw again",
                key=f"{name}:again",
                icon=":material/edit:",
                on_click=_set,
                args=(name, OPEN),
            )
    return Shown(True, {question.measure: guess} if guess else {})


def _paper(name: str, figure: Figure, question: Sketch, xs: list[float]) -> None:
    sketch(
        xs,
        question.low,
        question.high,
        key=f"{name}:paper",
        x_title=figure.x,
        log_x="x" in figure.log,
        log_y="y" in figure.log,
        share=figure.unit == "share",
        take=lambda ys: _set(name, _written(ys)),
    )


def _set(name: str, written: str) -> None:
    st.session_state[name] = written


def _written(ys: list[float] | None) -> str:
    return SHOWN if ys is None else "_".join(as_text(y) for y in ys)


def _read(link: str, question: Sketch, count: int) -> list[float] | None:
    """The line of a link; ValueError for another number of points, or one out of bounds."""
    if link == SHOWN:
        return None
    ys = [float(part) for part in link.split("_")]
    if len(ys) != count or not all(question.low <= y <= question.high for y in ys):
        raise ValueError(f"expected {count} numbers from {question.low:g} to {question.high:g}")
    return ys
