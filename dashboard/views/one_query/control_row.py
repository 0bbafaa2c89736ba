"""The widgets: what the formula is made of, and which query, head and stage are drawn."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AXES, entry, heads_that_divide
from dashboard.runtime.tokens import SENTENCE
from dashboard.views.one_query import choices, matrix_editor, presets, session
from dashboard.views.one_query.controls import Controls, default_real, needs_real, read_controls
from dashboard.views.one_query.session import get, heads_of, key, put, query_row, uses_matrices
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, D_MODELS

MORE = ":material/tune:"


def draw_popover() -> None:
    """Draw preset, source, and the axes that are not in the row."""
    with st.popover("Formula", icon=MORE, key=key("formula"), on_change="rerun",  # what it shows may be out of date
                    help="Preset, source, projection, score, normalizer, kernel, seed"):
        presets.draw_select()
        st.segmented_control("Attend in", list(session.SOURCES), default="sentence", required=True, key=key("source"),
                             format_func=session.SOURCES.get, on_change=change_source, **BOUND)
        if not uses_matrices():
            choices.draw_select("projection", "Projection")
            choices.draw_params("projection")
        for axis, note in (("score", None), ("normalizer", None), ("kernel", "The picture shows exact's steps.")):
            choices.draw_select(axis, axis.capitalize(), help=note)
            choices.draw_params(axis)
        st.number_input("Seed", *session.NUMBERS["seed"], session.SEED, 1, key=key("seed"),
                        help="The weights and the word vectors are drawn from it.", **BOUND)


def change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if uses_matrices():
        put("position", "none")
        put("mask", "none")


def draw_row() -> None:
    """Draw the input, the sizes, position and mask with their parameters, in one grid."""
    if uses_matrices():
        grid = st.grid(6, min_column_width=120)
        matrix_editor.draw_matrices(grid, st.container())
    else:
        grid = st.grid(6, min_column_width=120)
        with grid.cell(column_span=2):
            st.text_input("Tokens", SENTENCE, key=key("tokens"), bind="query-params")
        with grid:
            draw_sizes()
    with grid:
        note = "What reads the tokens' own vectors is left out: Q, K and V are given." if uses_matrices() else None
        choices.draw_select("position", "Position", without=reads_tokens() if uses_matrices() else (), help=note)
        choices.draw_select("mask", "Mask")
    for axis in ("position", "mask"):
        with st.container() if choices.has_text(choices.read(axis), axis) else grid:  # a text wants the whole width
            choices.draw_params(axis)
    with grid:
        if needs_real(choices.read("mask")):
            st.number_input("Real tokens", *session.NUMBERS["real"], default_real(read_controls().source), 1,
                            key=key("real"),
                            help="Keys from here on are padding; with 0 no key may be seen.", **BOUND)


def reads_tokens() -> set[str]:
    """The positions that need x itself: those added to it, and those that read it."""
    return {item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits}


def draw_sizes() -> None:
    """Draw d_model, and the numbers of heads that divide it."""
    d_model = st.select_slider("d_model", D_MODELS, session.D_MODEL, key=key("d_model"), **BOUND)
    default = session.default_heads(d_model)
    if get("heads") is not None and heads_of(d_model) != get("heads"):
        put("heads", default)
    st.select_slider("Heads", heads_that_divide(d_model), default, key=key("heads"), **BOUND)


def draw_selection(controls: Controls) -> None:
    """Draw query, head, and the map where a projection combines several: pills while they are few, else a list."""
    quiet: dict[str, Any] = {"label_visibility": "collapsed", **BOUND}
    heads, maps = controls.fields["num_heads"], controls.config.score_heads // controls.config.num_heads
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("Query", width="content")
        draw_query(controls.source.queries, quiet)
        if heads > 1:
            st.space("stretch")
            st.markdown("Head", width="content")
            draw_index("head", heads, quiet)
        if maps > 1:
            name = entry("projection", controls.config.projection.key).name
            st.markdown("Map", width="content", help=f"{name} folds these into one; stages 1 to 4 are those of the one "
                                                     "picked.")
            draw_index("half", maps, quiet)


def draw_query(names: tuple[str, ...], quiet: dict[str, Any]) -> None:
    default = query_row(names)
    if get("query") is not None and get("query") not in names:
        put("query", names[default])
    if len(names) <= session.MAX_ROW_PILLS:
        st.pills("Query", names, default=names[default], required=True, format_func=plain, key=key("query"), wrap=True,
                 **quiet)
    else:
        st.selectbox("Query", names, default, key=key("query"), width=260, **quiet)


def draw_index(name: str, count: int, quiet: dict[str, Any]) -> None:
    """Draw the numbers from 0 to below `count`."""
    if get(name) is not None and get(name) >= count:
        put(name, 0)
    if count <= session.MAX_HEAD_PILLS:
        st.pills(name.capitalize(), range(count), default=0, required=True, key=key(name), **quiet)
    else:
        st.selectbox(name.capitalize(), range(count), width=90, key=key(name), **quiet)


def draw_stage(stage: int) -> None:
    """Draw the six stages, Back and Next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.segmented_control(
            "Stage", list(session.STAGES), default=session.STAGE, required=True, format_func=session.STAGES.get,
            key=key("stage"), label_visibility="collapsed", wrap=True, **BOUND)
        put("shown_stage", get("stage", session.STAGE))
        st.space("stretch")
        for name, by, end in (("back", -1, 1), ("next", 1, 6)):
            st.button(name.capitalize(), icon=f":material/arrow_{'back' if by < 0 else 'forward'}:",
                      on_click=move_stage, args=(by,), disabled=stage == end, key=key(name))


def move_stage(by: int) -> None:
    # From the server's own stage: a second press that interrupts a run brings the browser's older one with it.
    stage = min(6, max(1, get("shown_stage", session.STAGE) + by))
    put("stage", stage)
    put("shown_stage", stage)


def apply_pick() -> None:
    """Take over the query, key or stage that was pressed in the picture."""
    pick, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pick:
        put("stage", min(6, max(1, int(pick["stage"]))))
    if "key" in pick and names:
        put("focus", (names[query_row(names)], int(pick["key"])))
    if "query" in pick and names:
        put("query", names[min(len(names) - 1, max(0, int(pick["query"])))])
