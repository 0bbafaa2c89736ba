"""The widgets: what the formula is made of, and which query, head and stage are drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import streamlit as st

from core.attention import AXES, Choice, entry, heads_that_divide
from core.masks import COMPOSITIONS
from dashboard.runtime.tokens import SENTENCE
from dashboard.views.one_query import matrices, presets, session
from dashboard.views.one_query.controls import Controls, default_real, map_count, needs_real, read_controls
from dashboard.views.one_query.session import get, heads_of, key, put, query_row, read_choice, uses_matrices
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, D_MODELS, KEEP, is_text, params_from

MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list
MAX_DEPTH = 2  # parts of parts are plain masks here; deeper ones come by a link alone
QUIET: dict[str, Any] = {"label_visibility": "collapsed", **BOUND}


def draw_popover() -> None:
    """Draw preset, source, and the axes that are not in the row."""
    with st.popover("Formula", icon=":material/tune:", key=key("formula"), on_change="rerun",  # may be out of date
                    help="Preset, source, projection, score, normalizer, kernel, seed"):
        presets.draw_select()
        st.segmented_control("Attend in", list(session.SOURCES), default="sentence", required=True, key=key("source"),
                             format_func=session.SOURCES.get, on_change=_change_source, **BOUND)
        if not uses_matrices():
            _draw_select("projection", "Projection")
            _draw_params("projection")
        for axis, note in (("score", None), ("normalizer", None), ("kernel", "The picture shows exact's steps.")):
            _draw_select(axis, axis.capitalize(), help=note)
            _draw_params(axis)
        st.number_input("Seed", *session.NUMBERS["seed"], session.SEED, 1, key=key("seed"),
                        help="The weights and the word vectors are drawn from it.", **BOUND)


def _change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if uses_matrices():
        put("position", "none")
        put("mask", "none")


def draw_row() -> None:
    """Draw the input, the sizes, position and mask with their parameters, in one grid."""
    grid, note, without = st.grid(6, min_column_width=120), None, set[str]()
    if uses_matrices():
        matrices.draw_matrices(grid, st.container())
        note = "What reads the tokens' own vectors is left out: Q, K and V are given."
        without = {item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits}
    else:
        with grid.cell(column_span=2):
            st.text_input("Tokens", SENTENCE, key=key("tokens"), bind="query-params")
        with grid:
            _draw_sizes()
    with grid:
        _draw_select("position", "Position", without=without, help=note)
        _draw_select("mask", "Mask")
    for axis in ("position", "mask"):
        params = (param for leaf in read_choice(axis).leaves() for param in entry(axis, leaf.key).params)
        with st.container() if any(map(is_text, params)) else grid:  # a text takes the whole width
            _draw_params(axis)
    with grid:
        if needs_real(read_choice("mask")):
            st.number_input("Real tokens", *session.NUMBERS["real"], default_real(read_controls().source), 1,
                            key=key("real"),
                            help="Keys from here on are padding; with 0 no key may be seen.", **BOUND)


def _draw_sizes() -> None:
    """Draw d_model, and the numbers of heads that divide it."""
    d_model = st.select_slider("d_model", D_MODELS, session.D_MODEL, key=key("d_model"), **BOUND)
    default = session.default_heads(d_model)
    if get("heads") is not None and heads_of(d_model) != get("heads"):
        put("heads", default)
    st.select_slider("Heads", heads_that_divide(d_model), default, key=key("heads"), **BOUND)


def _draw_select(axis: str, label: str, path: str = "", without: Collection[str] = (), help: str | None = None) -> None:
    """Draw the list of the axis's entries."""
    path = path or axis
    hidden = {*without, *(COMPOSITIONS if path.count(":") >= MAX_DEPTH else ())}
    current, first = get(path), session.default_choice(axis, path)
    options = [item.key for item in AXES[axis] if item.key not in hidden or item.key in (current, first)]
    st.selectbox(label, options, options.index(first), format_func=lambda name: entry(axis, name).name, key=key(path),
                 help=help, **KEEP)


def _draw_params(axis: str, path: str = "") -> None:
    """Draw the parameters of the choice at a path; of a composed mask, each part with its own."""
    path = path or axis
    name = get(path, session.default_choice(axis, path))
    params_from(entry(axis, name), Choice(name), key(path), KEEP)
    for n in range(session.part_count(path, name)):
        part = f"{path}:{n}"
        _draw_select(axis, f"{entry(axis, name).name}: part {part.removeprefix(f'{axis}:').replace(':', '.')}", part)
        _draw_params(axis, part)


def draw_selection(controls: Controls) -> None:
    """Draw query, head, and the map where a projection combines several: pills while they are few, else a list."""
    heads, maps = controls.fields["num_heads"], map_count(controls.config)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown("Query", width="content")
        _draw_query(controls.source.queries)
        if heads > 1:
            st.space("stretch")
            st.markdown("Head", width="content")
            _draw_index("head", heads)
        if maps > 1:
            name = entry("projection", controls.config.projection.key).name
            st.markdown("Map", width="content", help=f"{name} folds these into one; stages 1 to 4 are those of the one "
                                                     "picked.")
            _draw_index("half", maps)


def _draw_query(names: tuple[str, ...]) -> None:
    default = query_row(names)
    if get("query") is not None and get("query") not in names:
        put("query", names[default])
    if len(names) <= MAX_ROW_PILLS:
        st.pills("Query", names, default=names[default], required=True, format_func=plain, key=key("query"), wrap=True,
                 **QUIET)
    else:
        st.selectbox("Query", names, default, key=key("query"), width=260, **QUIET)


def _draw_index(name: str, count: int) -> None:
    """Draw the numbers from 0 to below `count`."""
    if get(name) is not None and get(name) >= count:
        put(name, 0)
    if count <= MAX_HEAD_PILLS:
        st.pills(name.capitalize(), range(count), default=0, required=True, key=key(name), **QUIET)
    else:
        st.selectbox(name.capitalize(), range(count), width=90, key=key(name), **QUIET)


def draw_stage(stage: int) -> None:
    """Draw the six stages, Back and Next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.segmented_control(
            "Stage", list(session.STAGES), default=session.STAGE, required=True, format_func=session.STAGES.get,
            key=key("stage"), wrap=True, **QUIET)
        put("shown_stage", get("stage", session.STAGE))
        st.space("stretch")
        for name, step, end in (("back", -1, 1), ("next", 1, 6)):
            st.button(name.capitalize(), icon=f":material/arrow_{'back' if step < 0 else 'forward'}:",
                      on_click=_move_stage, args=(step,), disabled=stage == end, key=key(name))


def _move_stage(step: int) -> None:
    # From the server's own stage: a second press that interrupts a run brings the browser's older one with it.
    stage = min(6, max(1, get("shown_stage", session.STAGE) + step))
    put("stage", stage)
    put("shown_stage", stage)


def apply_pick() -> None:
    """Apply the query, key or stage that was pressed in the picture."""
    pick, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pick:
        put("stage", min(6, max(1, int(pick["stage"]))))
    if "key" in pick and names:
        put("focus", (names[query_row(names)], int(pick["key"])))
    if "query" in pick and names:
        put("query", names[min(len(names) - 1, max(0, int(pick["query"])))])
