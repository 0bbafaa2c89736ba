"""The page's controls: what the formula is made of, and which row, head and stage of it is looked at."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AXES, entry, heads_that_divide
from dashboard.runtime.tokens import SENTENCE
from dashboard.views.one_query import choices, matrix_editor, presets, session
from dashboard.views.one_query.controls import Settings, needs_real, settings, usual_real
from dashboard.views.one_query.session import get, given, heads_of, key, put, row_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, D_MODELS

MORE = ":material/tune:"


def popover() -> None:
    """Preset, source, and the axes that are not on the page's row."""
    with st.popover("Formula", icon=MORE, key=key("formula"), on_change="rerun",  # what it shows may be out of date
                    help="Preset, source, projection, score, normalizer, kernel, seed"):
        presets.picker()
        st.segmented_control("Attend in", list(session.SOURCES), default="sentence", required=True, key=key("source"),
                             format_func=session.SOURCES.get, on_change=change_source, **BOUND)
        if not given():
            choices.pick("projection", "Projection")
            choices.details("projection")
        for axis, note in (("score", None), ("normalizer", None), ("kernel", "The picture shows exact's steps.")):
            choices.pick(axis, axis.capitalize(), help=note)
            choices.details(axis)
        st.number_input("Seed", *session.NUMBERS["seed"], session.SEED, 1, key=key("seed"),
                        help="The weights and the word vectors are drawn from it.", **BOUND)


def change_source() -> None:
    """Given matrices start without a position or a mask, as the worked example does."""
    if given():
        put("position", "none")
        put("mask", "none")


def row() -> None:
    """The input, the sizes, position and mask with their parameters, in one grid."""
    if given():
        grid = st.grid(6, min_column_width=120)
        matrix_editor.given(grid, st.container())
    else:
        grid = st.grid(6, min_column_width=120)
        with grid.cell(column_span=2):
            st.text_input("Tokens", SENTENCE, key=key("tokens"), bind="query-params")
        with grid:
            sizes()
    with grid:
        note = "What reads the tokens' own vectors is left out: Q, K and V are given." if given() else None
        choices.pick("position", "Position", without=reads_tokens() if given() else (), help=note)
        choices.pick("mask", "Mask")
    for axis in ("position", "mask"):
        with st.container() if choices.typed(choices.read(axis), axis) else grid:  # a text wants the whole width
            choices.details(axis)
    with grid:
        if needs_real(choices.read("mask")):
            st.number_input("Real tokens", *session.NUMBERS["real"], usual_real(settings().source), 1, key=key("real"),
                            help="Keys from here on are padding; with 0 no key may be seen.", **BOUND)


def reads_tokens() -> set[str]:
    """The positions that need x itself: those added to it, and those that read it."""
    return {item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits}


def sizes() -> None:
    """d_model, and one of the numbers of heads that divide it."""
    d_model = st.select_slider("d_model", D_MODELS, session.D_MODEL, key=key("d_model"), **BOUND)
    usual = session.default_heads(d_model)
    if get("heads") is not None and heads_of(d_model) != get("heads"):
        put("heads", usual)
    st.select_slider("Heads", heads_that_divide(d_model), usual, key=key("heads"), **BOUND)


def looked_at(now: Settings) -> None:
    """Query, head, and the map where a projection folds several into one: pills while they are few, else a list."""
    quiet: dict[str, Any] = {"label_visibility": "collapsed", **BOUND}
    heads, maps = now.fields["num_heads"], now.config.score_heads // now.config.num_heads
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("Query", width="content")
        pick_query(now.source.queries, quiet)
        if heads > 1:
            st.space("stretch")
            st.markdown("Head", width="content")
            pick_one("head", heads, quiet)
        if maps > 1:
            st.markdown("Map", width="content", help=f"{entry('projection', now.config.projection.key).name} folds "
                        "these into one; stages 1 to 4 are those of the one picked.")
            pick_one("half", maps, quiet)


def pick_query(names: tuple[str, ...], quiet: dict[str, Any]) -> None:
    usual = row_of(names)
    if get("query") is not None and get("query") not in names:
        put("query", names[usual])
    if len(names) <= session.FEW_ROWS:
        st.pills("Query", names, default=names[usual], required=True, format_func=plain, key=key("query"), wrap=True,
                 **quiet)
    else:
        st.selectbox("Query", names, usual, key=key("query"), width=260, **quiet)


def pick_one(name: str, count: int, quiet: dict[str, Any]) -> None:
    """A number from 0, as heads are counted."""
    if get(name) is not None and get(name) >= count:
        put(name, 0)
    if count <= session.FEW_HEADS:
        st.pills(name.capitalize(), range(count), default=0, required=True, key=key(name), **quiet)
    else:
        st.selectbox(name.capitalize(), range(count), width=90, key=key(name), **quiet)


def pick_stage(stage: int) -> None:
    """The stepper: six stages, Back and Next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.segmented_control(
            "Stage", list(session.STAGES), default=session.STAGE, required=True, format_func=session.STAGES.get,
            key=key("stage"), label_visibility="collapsed", wrap=True, **BOUND)
        put("shown_stage", get("stage", session.STAGE))
        st.space("stretch")
        for name, by, end in (("back", -1, 1), ("next", 1, 6)):
            st.button(name.capitalize(), icon=f":material/arrow_{'back' if by < 0 else 'forward'}:", on_click=step,
                      args=(by,), disabled=stage == end, key=key(name))


def step(by: int) -> None:
    # From the server's own stage: a second press that interrupts a run brings the browser's older one with it.
    stage = min(6, max(1, get("shown_stage", session.STAGE) + by))
    put("stage", stage)
    put("shown_stage", stage)


def take_pick() -> None:
    """A press in the picture: another query, key or stage."""
    pressed, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pressed:
        put("stage", min(6, max(1, int(pressed["stage"]))))
    if "key" in pressed and names:
        put("focus", (names[row_of(names)], int(pressed["key"])))
    if "query" in pressed and names:
        put("query", names[min(len(names) - 1, max(0, int(pressed["query"])))])
