"""The page Head roles: every head by its role, one role in every head, one head in every role, on a text; syntax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from core.interpret.roles import ROLES, RoleScores, share_used, weight_on_targets
from core.interpret.trace import Head
from dashboard.draw.attention_view import Patches, attention_view
from dashboard.draw.formats import plain
from dashboard.draw.page_pictures import add_script
from dashboard.ui.heads import examples_of, swatch
from dashboard.ui.links import fragment, read_linked, write_linked
from dashboard.ui.model_picker import ModelChoice, choose_model, input_errors
from dashboard.ui.panels import details, fact, next_page, paragraph, source_panel, theme, title
from dashboard.ui.presentation import draw_chart
from dashboard.ui.tables import table
from dashboard.views.head_roles import charts, compute, text
from dashboard.views.head_roles.compute import HeadReading, Measurements
from dashboard.views.head_roles.controls import (
    HEAD,
    ROLE_VIEW,
    SYNTAX_VIEW,
    TEST_VIEW,
    draw_controls,
    draw_on_set,
    draw_view,
)
from dashboard.views.head_roles.fields import follow_view, head_chart
from dashboard.views.head_roles.script import roles_script
from dashboard.views.head_roles.standard.section import draw_tests
from dashboard.views.head_roles.syntax.section import draw_syntax


def page() -> None:
    """Draw the page from top to bottom."""
    title(
        "Head roles",
        "What each head attends to, over many sentences: nine roles, each score compared with chance; "
        "which heads follow syntax; and the standard tests.",
    )
    choice = choose_model()
    with input_errors():
        if choice is not None and set(choice.reading.trace.kinds) == {"cross"}:
            st.info(
                "Cross-attention connects two sequences, so roles such as “previous token” do not apply to it. The "
                "page Pretrained models shows its maps.",
                icon=":material/info:",
            )
        elif choice is not None:
            VIEWS[draw_view()](choice)
    next_page("head_roles")


@fragment
def _roles(choice: ModelChoice) -> None:
    """Draw the view of roles, which reruns alone; the others have a Stop, which cannot interrupt a fragment."""
    with input_errors():
        _draw_roles(choice)


def _draw_roles(choice: ModelChoice) -> None:
    controls, measurements = draw_controls(choice)
    scores, inputs, role, head = (
        measurements.scores,
        measurements.inputs,
        controls.role,
        controls.head,
    )
    _grids(scores, role, head)
    fact(text.fact(scores, head, role, inputs))
    with st.container(
        horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="medium"
    ):
        for part in text.equation(scores, head, role):
            st.latex(part, width="content")
    shown = _one_head(choice, measurements, role, head)
    add_script(partial(roles_script, choice, measurements, controls.sentences, role, head, shown))
    st.caption(
        plain(
            text.caption(
                scores,
                role,
                inputs,
                choice.reading.trace.source,
                measurements.left_out(controls.sentences),
            )
        )
    )
    details("Papers and source", lambda: _sources(role), "head_roles:source")


VIEWS: dict[str, Callable[[ModelChoice], None]] = {
    ROLE_VIEW: _roles,
    SYNTAX_VIEW: draw_syntax,
    TEST_VIEW: draw_tests,
}


def _grids(scores: RoleScores, role: int, head: Head) -> None:
    """Draw every head by its role, and its score in one role; a press in either picks a head."""
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**The role of every head**")
        head_chart(
            charts.role_grid(scores, head, theme()),
            "head_roles:roles",
            HEAD,
            "Layers by heads, each in its role's colour",
        )
    with right:
        paragraph(f"**{ROLES[role].name}**, score from 0 to 1")
        head_chart(
            charts.score_grid(scores, role, head, theme()),
            "head_roles:scores",
            HEAD,
            f"Layers by heads, each with its score as {ROLES[role].name.lower()}",
        )


def _one_head(
    choice: ModelChoice, measurements: Measurements, role: int, head: Head
) -> HeadReading:
    """Draw the head's map, on the user's input or the measured one, and its scores in all roles; returns its reading."""
    scores = measurements.scores
    best = compute.best_reading(choice, measurements, role, head)
    noun = _noun(choice)
    left, right = st.columns([1.1, 1], gap="medium", vertical_alignment="top")
    with left:
        on_set = draw_on_set(noun)
        reading = best if on_set and best else compute.own_reading(choice, scores.kind, role, head)
        _map(reading, scores, head)
    with right:
        paragraph(f"**{scores.name(head)} in every role**; the line is chance ± 3 std")
        draw_chart(
            st,
            charts.head_bars(scores, head, theme()),
            key="head_roles:bars",
            alt=f"The scores of {scores.name(head)} in every role, compared with chance",
        )
        fact(text.on_text(reading.reading, scores.kind, reading.example, role, noun))
    rows = text.table_rows(
        scores, measurements.inputs, examples_of(choice.ref, measurements.inputs, scores.kind)
    )
    table(
        text.TABLE_HEAD,
        rows,
        caption="The head with the most of each role",
        left=(0, len(text.TABLE_HEAD) - 1),
        marks=[swatch(index) for index in range(len(rows))],
    )
    st.download_button(
        "All scores, CSV",
        lambda: text.to_csv(scores),
        "head-roles.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )
    return reading


def _noun(choice: ModelChoice) -> str:
    if choice.pretrained is None:
        return "array"
    return choice.pretrained.reads if choice.pretrained.reads in ("picture", "sound") else "text"


def _map(head_reading: HeadReading, scores: RoleScores, head: Head) -> None:
    """Draw the head's map, over the picture if the model read one."""
    reading, example = head_reading.reading, head_reading.example
    line = reading.lines(scores.kind)[0]
    patches = Patches.of(head_reading.inputs.picture, line)
    trace = reading.trace.of(scores.kind)
    shape = trace.maps[head[0]].weights.shape[1:]
    pin = read_linked("head_roles", "pin", shape, (trace.source, head_reading.inputs))  # type: ignore[arg-type]
    view = attention_view(
        trace,
        key="head_roles:map",
        layer=head[0],
        head=head[1],
        patches=patches,
        pin=pin,
        show="both" if patches else "matrix",
        height=420,
        query=None if example is None else example.query,
        fact=f"Head {scores.name(head)} on {len(line)} tokens",
    )
    write_linked("head_roles", "pin", view.pin)
    follow_view(view, head, HEAD, scores.name)


def _sources(role: int) -> None:
    for each in ROLES:
        st.markdown(f"**{each.name}** — {plain(each.meaning)}. [{each.paper}]({each.url})")
    source_panel(ROLES[role].targets or share_used)
    source_panel(weight_on_targets)
