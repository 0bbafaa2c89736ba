"""The page: the same scores as bars through each normalizer, one equation, the table, curves of weight, and sources."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.attention import AXES, entry
from dashboard.draw.curves import Curve, curve_table, fixed_chart
from dashboard.draw.palette import Ink
from dashboard.runtime.link_values import fragment
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached
from dashboard.ui.presentation import draw_chart, room
from dashboard.ui.tables import table
from dashboard.views.normalizers import charts, compute, text
from dashboard.views.normalizers.compute import SWEEP, RowWeights
from dashboard.views.normalizers.controls import (
    BASELINE,
    CURVES,
    IN_ROW,
    MAX_CURVES,
    NAMES,
    TEMPERATURE,
    Controls,
    draw_controls,
    get,
    key,
    read_controls,
)
from dashboard.views.normalizers.script import script
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    plain,
    source_panel,
    theme,
    title,
)
from dashboard.widgets.params import BOUND, params_of


def page() -> None:
    """Draw the page from top to bottom."""
    header()
    explore()
    details("Equations, papers and the code that just ran", sources, key("sources"))
    next_page("normalizers")


def header() -> None:
    """Draw the title and the normalizers' own parameters, outside the fragment: a slider does not send them again."""
    st.html(charts.STYLE)
    title(
        "Normalizers",
        "Every normalizer turns the same scores into weights: see which keys get 0, and how much "
        "weight goes to no key.",
        parameters,
    )


def parameters() -> None:
    """Draw the popover of the parameters that only one normalizer has."""
    with st.popover(
        "Parameters", icon=":material/tune:", help="Parameters that only one normalizer has"
    ):
        for item in AXES["normalizer"]:
            elsewhere = (TEMPERATURE, *(name for owner, name in IN_ROW if owner == item.key))
            if any(param.key not in elsewhere for param in item.params):
                paragraph(f"**{item.name}**")
            params_of(item, key=key("params"), exclude=elsewhere)


@fragment
def explore() -> None:
    """Draw the controls and all that they change, which reruns alone."""
    controls, rows = render_before_widgets(key("ready"), read_controls, draw_controls, show)
    if controls is None:
        return
    st.session_state[key("controls")] = controls
    equation(controls, rows)
    table(
        text.HEAD, text.rows(rows), caption="What each normalizer's weights measure", markers=False
    )
    curves(controls, rows)


def show(controls: Controls | None) -> list[RowWeights]:
    """Draw the bars, the sentence and the conditions; returns the numbers."""
    if controls is None:
        return []
    with one_thread():
        rows = [
            cached(compute.normalize_row, choice, controls.scores, controls.factor)
            for choice in controls.choices
        ]
    bars(controls, rows)
    fact(text.fact(rows, controls.scores))
    caption(
        text.conditions(
            controls.own, compute.example()[1], controls.factor, controls.temperature, rows
        )
    )
    return rows


def bars(controls: Controls, rows: list[RowWeights]) -> None:
    """Draw the scores that go in, then the weights of each normalizer."""
    visible = [score is not None for score in controls.scores]
    tiles = [
        charts.scores_tile(
            "Scores", "input", controls.scaled, controls.names, controls.picked, theme()
        )
    ]
    for row in rows:
        item = entry("normalizer", row.key)
        tiles.append(
            charts.weights_tile(
                item.name,
                item.short,
                row.weights,
                visible,
                controls.names,
                controls.picked,
                row.unassigned,
                text.foot(row),
            )
        )
    st.html(charts.figures(tiles, theme()))


def equation(controls: Controls, rows: list[RowWeights]) -> None:
    """Draw one normalizer's rule, and the picked key's weight with its numbers."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        name = (
            st.selectbox(
                "Equation of",
                list(NAMES),
                list(NAMES).index(BASELINE),
                width=room(170),
                format_func=NAMES.__getitem__,
                key=key("equation"),
                **BOUND,
                help="The normalizer whose formula is shown, with the picked key's numbers.",
            )
            or BASELINE
        )
        row = next(row for row in rows if row.key == name)
        parts = text.equation(row, controls.names, controls.picked, Ink.of(theme()).pick)
        st.markdown(
            r"$\quad$ ".join(rf"$\displaystyle {part}$ " for part in parts), width="content"
        )


def curves(controls: Controls, rows: list[RowWeights]) -> None:
    """Draw the picked key's weight against its score, for up to four normalizers."""
    st.markdown("## Weight against score")
    with st.popover("Curves", icon=":material/show_chart:"):
        names = st.multiselect(
            f"Up to {MAX_CURVES} normalizers",
            list(NAMES),
            list(CURVES),
            key=key("curves"),
            **BOUND,
            max_selections=MAX_CURVES,
            format_func=NAMES.__getitem__,
            help="Each normalizer is a curve of the figure below.",
        )
    add_script(partial(script, controls, rows, names))
    series = [
        Curve(
            NAMES[choice.key],
            cached(compute.sweep, choice, controls.scores, controls.factor, controls.picked),
        )
        for choice in controls.choices
        if choice.key in names
    ]
    if not series:
        st.info("Pick a normalizer to see its curve.", icon=":material/show_chart:")
        return
    score = controls.scaled[controls.picked]
    rule = None if score is None or abs(score) > SWEEP[-1] else score
    chart = fixed_chart(
        [curve.name for curve in series],
        "score of this key",
        float(SWEEP[0]),
        float(SWEEP[-1]),
        Ink.of(theme()),
    )
    st.markdown(
        f"**Weight of {plain(controls.names[controls.picked])}**, while the other scores stay the same"
    )
    draw_chart(
        st,
        chart,
        curve_table(series, rule),
        theme=None,
        key=key("chart"),
        alt="The weight of one key as its score rises",
    )


def sources() -> None:
    """Draw where each normalizer is from and the class that just ran."""
    controls: Controls | None = get("controls")
    if controls is None:
        return
    choice = next(
        choice for choice in controls.choices if choice.key == (get("equation") or BASELINE)
    )
    source_panel(type(compute.normalizer_of(choice)))
    st.markdown("The same in a notebook:")
    st.code(text.snippet(choice, controls.scaled), language="python")
    entries_panel(AXES["normalizer"])
