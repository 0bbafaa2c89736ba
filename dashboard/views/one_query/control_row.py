"""The widgets: what the formula is made of, and which query, head and stage are drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import streamlit as st

from core.attention import (
    AXES,
    PRESETS,
    AttentionConfig,
    Choice,
    ConfigError,
    Preset,
    entry,
    heads_that_divide,
    preset,
)
from core.attention.masks import COMPOSITIONS
from dashboard.ui.presentation import room
from dashboard.views.one_query import matrices, session
from dashboard.views.one_query.controls import (
    Controls,
    default_real,
    map_count,
    needs_real,
    read_controls,
)
from dashboard.views.one_query.session import (
    get,
    heads_of,
    key,
    last_word,
    put,
    query_row,
    read_choice,
    start,
    uses_matrices,
    write_choice,
)
from dashboard.widgets.mechanism_editor import preset_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import (
    BOUND,
    D_MODELS,
    KEEP,
    joinable,
    keep_heads,
    note_heads,
    params_from,
)

WORKED, CUSTOM = "worked", "custom"
PLAIN = ("self_attention", "vaswani")  # which have nothing to compare
ROOMY = (16, 4)  # d_model and heads that nearly every preset fits

HELP = {
    "projection": "How queries, keys and values are made from the word vectors",
    "score": "How a query and a key are compared",
    "position": "How the order of the words enters",
    "mask": "Which keys a query may attend to",
    "normalizer": "How scores become weights",
    "kernel": "How the result is computed. The picture always shows the steps of the exact kernel.",
}
MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list
MAX_DEPTH = 2  # parts of parts are plain masks here; deeper ones come by a link alone
QUIET: dict[str, Any] = {"label_visibility": "collapsed", **BOUND}


def draw_row() -> None:
    """Draw the words or the matrices, and "More", which holds every other control."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if not uses_matrices():
            st.text_input(
                "Sentence",
                session.start().words,
                key=key("tokens"),
                bind="query-params",
                width=room(300),
                help="Each word, and each punctuation mark at the end of a word, becomes one token.",
            )
        with st.popover(
            "More",
            icon=":material/tune:",
            key=key("more"),
            width="content",
            help="Typed matrices, sizes, score, position, mask, normalizer, kernel and seed",
        ):
            _draw_more()
    if uses_matrices():
        matrices.draw_matrices(st.grid(6, min_column_width=120), st.container())


def _draw_more() -> None:
    """Draw what to start from, the sizes, the six choices with their parameters, and the seed."""
    st.segmented_control(
        "Start from",
        list(session.SOURCES),
        default="sentence",
        required=True,
        key=key("source"),
        format_func=session.SOURCES.__getitem__,
        on_change=_change_source,
        **BOUND,
        help="A sentence: each word becomes a vector, and $W_q$, $W_k$ and $W_v$ make its query, key and "
        "value. Matrices: type Q, K and V yourself and check every number by hand.",
    )
    draw_select()
    note, without = HELP["position"], set[str]()
    if uses_matrices():
        note = f"{note} Positions that change the word vectors are left out: Q, K and V are given."
        without = {
            item.key for item in AXES["position"] if item.enters == "x" or "reads x" in item.traits
        }
    else:
        # Draw d_model, and the numbers of heads that divide it
        d_model = st.select_slider(
            "d_model",
            D_MODELS,
            session.start().d_model,
            key=key("d_model"),
            **BOUND,
            **keep_heads(key("d_model"), lambda _: key("heads"), heads_that_divide),
            help="How many numbers each word's vector x has",
        )
        if get("heads") is not None and heads_of(d_model) != get("heads"):
            put("heads", session.default_heads(d_model))
        note_heads(
            key("d_model"),
            d_model,
            st.select_slider(
                "Heads",
                heads_that_divide(d_model),
                session.default_heads(d_model),
                key=key("heads"),
                **BOUND,
                help="Into how many heads the d_model numbers are divided; each head attends on its own",
            ),
        )
        _draw_select("projection", "Projection", help=HELP["projection"])
        _draw_params("projection")
    for axis in ("score", "position", "mask", "normalizer", "kernel"):
        hidden = without if axis == "position" else ()
        _draw_select(
            axis, axis.capitalize(), without=hidden, help=note if axis == "position" else HELP[axis]
        )
        _draw_params(axis)
        if axis == "mask" and needs_real(read_choice("mask")):
            st.number_input(
                "Real tokens",
                *session.NUMBERS["real"],
                default_real(read_controls().source),
                1,
                key=key("real"),
                **BOUND,
                help="How many tokens are real. The keys after them are padding; with 0 every key is.",
            )
    st.number_input(
        "Seed",
        *session.NUMBERS["seed"],
        session.SEED,
        1,
        key=key("seed"),
        **BOUND,
        help="The random weights and word vectors are drawn from this number.",
    )


def _change_source() -> None:
    """Start typed matrices without a position or a mask, as the worked example does."""
    if uses_matrices():
        put("position", "none")
        put("mask", "none")


def _draw_select(
    axis: str, label: str, path: str = "", without: Collection[str] = (), help: str | None = None
) -> None:
    """Draw the list of the axis's entries."""
    path = path or axis
    hidden = {*without, *(COMPOSITIONS if path.count(":") >= MAX_DEPTH else ())}
    if path != axis:
        hidden |= {item.key for item in AXES[axis]} - {item.key for item in joinable(axis)}
    current, first = get(path), session.default_choice(axis, path)
    options = [
        item.key for item in AXES[axis] if item.key not in hidden or item.key in (current, first)
    ]
    st.selectbox(
        label,
        options,
        options.index(first),
        format_func=lambda name: entry(axis, name).name,
        key=key(path),
        help=help or HELP[axis],
        **KEEP,
    )


def _draw_params(axis: str, path: str = "") -> None:
    """Draw the parameters of the choice at a path; of a composed one, each part with its own."""
    path = path or axis
    name = get(path, session.default_choice(axis, path))
    params_from(entry(axis, name), Choice(name), key(path), KEEP)
    for n in range(session.part_count(path, name)):
        part = f"{path}:{n}"
        _draw_select(
            axis,
            f"{entry(axis, name).name}: part {part.removeprefix(f'{axis}:').replace(':', '.')}",
            part,
        )
        _draw_params(axis, part)


def draw_selection(queries: tuple[str, ...], config: AttentionConfig) -> None:
    """Draw query, head, and the map where a projection combines several: pills while they are few, else a list."""
    heads, maps = config.num_heads, map_count(config)
    with st.container(
        horizontal=True, vertical_alignment="center", gap="small", key=key("selection")
    ):
        st.markdown(
            "Query", width="content", help="The word whose attention is computed step by step"
        )
        _draw_query(queries)
        if heads > 1:
            st.space("stretch")
            st.markdown("Head", width="content", help="The head that is shown, counted from 0")
            _draw_index("head", heads)
        if maps > 1:
            name = entry("projection", config.projection.key).name
            st.markdown(
                "Map",
                width="content",
                help=f"{name} combines these maps into one; steps 1 to 4 show the picked one.",
            )
            _draw_index("half", maps)


def _draw_query(names: tuple[str, ...]) -> None:
    default = last_word(names)
    if get("query") is not None and (
        get("query") not in names or get("query") == get("default_query")
    ):
        put("query", names[default])  # as a link without a query, it follows the last word
    put("default_query", names[default])
    if len(names) <= MAX_ROW_PILLS:
        st.pills(
            "Query",
            names,
            default=names[default],
            required=True,
            format_func=plain,
            key=key("query"),
            wrap=True,
            **QUIET,
        )
    else:
        st.selectbox("Query", names, default, key=key("query"), width=room(260), **QUIET)


def _draw_index(name: str, count: int) -> None:
    """Draw the numbers from 0 to below `count`."""
    if get(name) is not None and get(name) >= count:
        put(name, 0)
    if count <= MAX_HEAD_PILLS:
        st.pills(name.capitalize(), range(count), default=0, required=True, key=key(name), **QUIET)
    else:
        st.selectbox(name.capitalize(), range(count), width=room(90), key=key(name), **QUIET)


def draw_stage(stage: int) -> None:
    """Draw the six steps, Back and Next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key=key("steps")):
        st.markdown(
            "Step", width="content", help="The six steps from the word vectors to the output"
        )
        stage = (
            st.segmented_control(
                "Step of attention",
                list(session.STAGES),
                default=session.start().stage,
                required=True,
                format_func=session.STAGES.__getitem__,
                key=key("stage"),
                wrap=True,
                help="A step of attention for one query.",
                **QUIET,
            )
            or stage
        )
        put("shown_stage", get("stage", session.start().stage))
        st.space("stretch")
        for name, step, end in (("back", -1, 1), ("next", 1, 6)):
            st.button(
                name.capitalize(),
                icon=f":material/arrow_{'back' if step < 0 else 'forward'}:",
                on_click=_move_stage,
                args=(step,),
                disabled=stage == end,
                key=key(name),
            )


def _move_stage(step: int) -> None:
    # From the server's own stage: a second press that interrupts a run brings the browser's older one with it.
    stage = min(6, max(1, get("shown_stage", session.start().stage) + step))
    put("stage", stage)
    put("shown_stage", stage)


def apply_pick() -> None:
    """Apply the query, key or stage that was pressed in the picture."""
    pick, names = dict(get("view").pick or {}), get("names", ())
    if "stage" in pick:
        put("stage", min(6, max(1, int(pick["stage"]))))
        put("shown_stage", get("stage"))
        if get("shown_query") in names:  # as in _move_stage, the browser may bring an older one
            put("query", get("shown_query"))
    if "key" in pick and names:
        put("focus", (names[query_row(names)], int(pick["key"])))
    if "query" in pick and names:
        put("query", names[min(len(names) - 1, max(0, int(pick["query"])))])


# Published mechanisms on this page: the list, the one that the controls make, and its sentences.


def draw_select() -> None:
    """Draw the list of presets, which shows the one that the other controls make, and what this one changes."""
    put("preset", _current())
    st.selectbox(
        "Preset",
        [CUSTOM, WORKED, *(p.key for p in PRESETS)],
        key=key("preset"),
        format_func=_label,
        on_change=_apply,
        help="A published mechanism; it sets all six choices below",
    )
    for line in sentences(read_controls()):
        st.caption(plain(line))
    if error := get("preset_refused"):
        st.error(plain(error))
    put("preset_refused", "")


def _label(name: str) -> str:
    if name in (CUSTOM, WORKED):
        return {CUSTOM: "Your own", WORKED: "Worked example"}[name]
    item = preset(name)
    return item.name if str(item.year) in item.name else f"{item.name}, {item.year}"


def _current() -> str:
    controls = read_controls()
    if uses_matrices():
        unchanged = controls.config == AttentionConfig(
            controls.fields["d_model"], 1, Choice("identity")
        )
        return WORKED if get("is_worked", True) and unchanged else CUSTOM
    return preset_of(controls.config) or CUSTOM


def _apply() -> None:
    """Set all six axes to a preset, at this page's sizes where these fit."""
    name = get("preset")
    if name == WORKED:
        put("source", "matrices")
        put("reset_matrices", True)
        for axis in AXES:
            write_choice(axis, getattr(AttentionConfig(), axis))
    elif name != CUSTOM:
        put("source", "sentence")
        d_model = get("d_model", start().d_model)
        _apply_preset(preset(name), d_model, heads_of(d_model))


def _apply_preset(item: Preset, d_model: int, heads: int) -> None:
    """Set the first of these sizes that the preset fits, or keep why it does not fit the page's."""
    refused = None
    for sizes in ((d_model, heads), (d_model, item.heads), ROOMY, (ROOMY[0], item.heads)):
        try:
            config = item.config(*sizes)
        except ConfigError as error:
            refused = refused or error
            continue
        put("d_model", config.d_model)
        put("heads", config.num_heads)
        for axis in AXES:
            write_choice(axis, getattr(config, axis))
        return
    put("preset_refused", str(refused))


def sentences(controls: Controls) -> list[str]:
    """The preset's changes against Vaswani 2017, a sentence each; none where there is no preset."""
    config = controls.config
    name = preset_of(config)
    if (
        name is None
        or name in PLAIN
        or config is None
        or controls.source is None
        or controls.source.matrices
    ):
        return []
    item = preset(name)
    changes = item.changed(config.d_model, config.num_heads) or (item.meaning,)
    name = item.name if str(item.year) in item.name else f"{item.name} ({item.paper} {item.year})"
    return [f"{name} compared with Vaswani 2017" if len(changes) > 1 else name, *changes]
