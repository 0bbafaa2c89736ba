"""The view Standard tests of the page Head roles: every head on random tokens that repeat."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.interpret.head_tests import TESTS, RepeatScores, RepeatTest, score_repeats
from dashboard.draw.attention_view import attention_view
from dashboard.draw.formats import plain
from dashboard.draw.page_pictures import add_script
from dashboard.ui.links import read_linked, write_linked
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.panels import caption, details, fact, paragraph, source_panel, theme
from dashboard.ui.tables import table
from dashboard.views.head_roles.fields import follow_view, head_chart
from dashboard.views.head_roles.script import repeats_script, successor_script
from dashboard.views.head_roles.standard import charts, text
from dashboard.views.head_roles.standard.controls import GRID, HEAD, Controls, draw_controls
from dashboard.views.head_roles.standard.successor import draw_source, draw_successor


def draw_tests(choice: ModelChoice) -> None:
    """Draw the view from top to bottom."""
    if choice.pretrained is None:
        st.info(
            "An uploaded array reads no other text, so it cannot be tested.", icon=":material/info:"
        )
        return
    if (drawn := draw_controls(choice)) is None:
        return
    controls, scores, successors = drawn
    if successors is None:
        _repeats(choice, scores, controls)
        add_script(partial(repeats_script, choice, controls, scores))
    else:
        order = draw_successor(choice, successors, controls.head)
        add_script(partial(successor_script, choice, controls, successors, order))
    table(
        text.TABLE_HEAD,
        text.table_rows(scores),
        caption="The best head of each test",
        left=(0, 1, 5),
        markers=False,
    )
    st.download_button(
        "All scores, CSV",
        lambda: text.to_csv(scores),
        "standard-tests.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )
    caption(plain(text.caption(scores, choice.reading.trace.source, successors is None)))
    details("Papers and source", _sources, "head_roles:tests-source")


def _repeats(choice: ModelChoice, scores: RepeatScores, controls: Controls) -> None:
    """Draw a test on random tokens: every head's score, and the picked head's map of one line."""
    test, head = controls.test, controls.head
    left, right = st.columns([1, 1.1], gap="medium")
    with left:
        paragraph(f"**{TESTS[test].name}**, score from 0 to 1")
        head_chart(
            charts.repeat_grid(scores, test, head, theme()),
            GRID,
            HEAD,
            f"Layers by heads, each with its score in the test {TESTS[test].name}",
        )
    with right:
        _map(choice, scores, controls)
    fact(text.fact(scores, test, head))
    st.latex(text.equation(scores, test, head))


def _map(choice: ModelChoice, scores: RepeatScores, controls: Controls) -> None:
    """Draw the head's map of the first line, where a test is a diagonal."""
    head, name = controls.head, scores.name(controls.head)
    trace = scores.example.trace.of(scores.kind)
    shape = trace.maps[head[0]].weights.shape[1:]
    pin = read_linked("head_roles", "test_pin", shape, (choice.ref, scores.kind))  # type: ignore[arg-type]
    queries, _ = TESTS[controls.test].cells(scores.length)
    view = attention_view(
        trace,
        key="head_roles:test-map",
        layer=head[0],
        head=head[1],
        pin=pin,
        show="matrix",
        height=420,
        query=int(queries[0]) + scores.start,
        fact=f"Head {name} on {scores.length} random tokens, twice",
    )
    write_linked("head_roles", "test_pin", view.pin)
    follow_view(view, head, HEAD, scores.name)


def _sources() -> None:
    for test in TESTS:
        st.markdown(f"**{test.name}** — weight on {test.attends_to}. [{test.paper}]({test.url})")
    draw_source()
    source_panel(RepeatTest.cells)
    source_panel(score_repeats)
