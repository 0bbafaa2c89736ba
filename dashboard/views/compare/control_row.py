"""The widgets: where queries and keys come from, which mechanisms in which order, and whose difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, preset
from core.attention.masks import COMPOSITIONS
from core.models.cards import CARDS, card
from dashboard.views.compare.controls import (
    CONTROLS,
    FEWEST,
    LAST_SEED,
    MINILM,
    MOST,
    SEEDED,
    Controls,
    heads_of,
    store_controls,
)
from dashboard.views.compare.text import name_of
from dashboard.widgets.mechanism_editor import AXIS_NAMES, mechanism
from dashboard.widgets.panels import plain
from dashboard.widgets.params import KEEP, keep_heads, note_heads

EDITING, EDITS, SENT = "compare:editing", "compare:edits", "compare:sent"
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
LONGEST_TEXT = 20_000  # as many as are read
PLAIN = "plain"
CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"


def tokens_popover(controls: Controls) -> None:
    """The sentence and the seed, and for a seeded layer its sizes and the head; drawn while it is open."""
    panel = st.popover(
        "Tokens",
        icon=":material/edit:",
        key="compare:tokens",
        on_change="rerun",
        help="The sentence that every mechanism reads, and the seed.",
    )
    if not panel.open:
        return
    with panel:
        st.text_area(
            "Sentence",
            key="compare:text",
            height=100,
            max_chars=LONGEST_TEXT,
            **KEEP,
            help="The text that every mechanism reads. It is split into tokens.",
        )
        st.number_input(
            "Seed",
            0,
            LAST_SEED,
            step=1,
            key="compare:seed",
            **KEEP,
            help="Fixes the random numbers of all parameters that are not trained.",
        )
        if not controls.seeded:
            return
        d_model, fits = controls.d_model, heads_of(controls.d_model)
        st.select_slider(
            "d_model",
            sorted({*WIDTHS, d_model}),
            d_model,
            key="compare:d_model",
            **KEEP,
            **keep_heads("compare:d_model", "compare:heads:{}".format, heads_of),
            help="How many numbers the vector of each token has.",
        )
        heads = st.selectbox(
            "Heads",
            fits,
            fits.index(controls.num_heads),
            key=f"compare:heads:{d_model}",
            **KEEP,
            help="How many heads the layer has; the number divides d_model.",
        )
        note_heads("compare:d_model", d_model, heads)
        st.selectbox(
            "Head drawn",
            range(controls.num_heads),
            controls.head,
            key=f"compare:head:{controls.num_heads}",
            **KEEP,
            help="The head whose maps are drawn.",
        )


def controls_row(controls: Controls, names: Sequence[str]) -> None:
    """The row of controls under the title."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        st.selectbox(
            "Queries and keys from",
            [SEEDED, *MINILM],
            key="compare:source",
            **KEEP,
            format_func=source_label,
            help="A head of the model MiniLM, or a layer with random parameters.",
        )
    with grid.cell(column_span=2):
        _mechanisms(controls, names)
    indices = range(len(controls.mechanisms))
    with grid:
        st.selectbox(
            "Difference",
            indices,
            key="compare:minuend",
            format_func=names.__getitem__,
            **KEEP,
            help="The mechanism from whose map the other map is subtracted.",
        )
        st.selectbox(
            "minus",
            indices,
            key="compare:subtrahend",
            format_func=names.__getitem__,
            **KEEP,
            help="The mechanism whose map is subtracted.",
        )


def source_label(source: str) -> str:
    if source == SEEDED:
        return "A seeded layer"
    layer, head = source.split(".")
    return f"MiniLM, layer {layer}, head {head}"


def _mechanisms(controls: Controls, names: Sequence[str]) -> None:
    """The list of mechanisms in a popover, drawn while it is open."""
    panel = st.popover(
        "Mechanisms",
        key="compare:list",
        on_change="rerun",
        width="stretch",
        help="Add, change, reorder or remove the mechanisms that are compared.",
    )
    if not panel.open:
        return
    with panel:
        count, full = len(names), len(names) >= MOST
        for index, name in enumerate(names):
            possible = {
                CHANGE: True,
                UP: index > 0,
                DOWN: index < count - 1,
                TWICE: not full,
                REMOVE: count > FEWEST,
            }
            key = f"compare:line:{index}"
            st.menu_button(
                plain(name),
                [action for action, can in possible.items() if can],
                key=key,
                width="stretch",
                on_click=_act,
                args=(key, index),
            )
        st.selectbox(
            "Add a mechanism",
            addable(),
            None,
            key="compare:add",
            format_func=add_label,
            disabled=full,
            on_change=_add,
            placeholder=f"At most {MOST} mechanisms" if full else "A preset, or one choice",
            help="A published mechanism, or dot-product attention with one part changed.",
        )
        st.selectbox(
            "Compare the layers of a model",
            [one.key for one in CARDS if one.pattern > 1],
            None,
            key="compare:layers",
            format_func=lambda key: card(key).name,
            on_change=_compare_layers,
            placeholder="A model with unlike layers",
            help="Replace the list by the different attentions of a published model's layers, in small.",
        )


def _act(key: str, index: int) -> None:
    """Do what was picked in a mechanism's menu."""
    action, order = st.session_state[key], list(range(len(st.session_state[CONTROLS].mechanisms)))
    if action == CHANGE:
        st.session_state[EDITING] = index
        st.session_state["compare:list"] = False  # the list would lie over the dialog
        st.session_state[EDITS] = (
            st.session_state.get(EDITS, 0) + 1
        )  # a new editor, which starts from the mechanism
    elif action == REMOVE:
        _reorder([*order[:index], *order[index + 1 :]])
    elif action == TWICE:
        _reorder([*order[: index + 1], *order[index:]])
    elif action in (UP, DOWN):
        other = index - 1 if action == UP else index + 1
        order[index], order[other] = order[other], order[index]
        _reorder(order)


def addable() -> list[str]:
    """What can be added: dot product, every preset, and dot product with one other choice of one axis."""
    singles = [
        f"{axis}={item.key}"
        for axis, entries in AXES.items()
        for item in entries
        if item.key not in COMPOSITIONS and item.key != getattr(AttentionConfig(), axis).key
    ]
    return [PLAIN, *(f"preset={item.key}" for item in PRESETS), *singles]


def add_label(option: str) -> str:
    if option == PLAIN:
        return "Dot product, unchanged"
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).name
    return f"{AXIS_NAMES[axis]}: {entry(axis, key).name}"


def mechanism_of(option: str, sizes: tuple[int, int]) -> AttentionConfig:
    """The mechanism of an option of `addable`; ConfigError where the sizes (d_model, heads) do not fit it."""
    d_model, heads = sizes
    if option == PLAIN:
        return AttentionConfig(d_model, heads)
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).config(d_model, heads)
    return AttentionConfig(d_model, heads).with_(**{axis: Choice(key)})


def _add() -> None:
    controls, option = st.session_state[CONTROLS], st.session_state["compare:add"]
    st.session_state["compare:add"] = None
    if option is None or len(controls.mechanisms) >= MOST:
        return
    try:
        store_controls(
            replace(
                controls, mechanisms=(*controls.mechanisms, mechanism_of(option, controls.sizes))
            )
        )
    except ConfigError as error:
        st.session_state["compare:refused"] = f"{add_label(option)} is not added. {error}"


def _compare_layers() -> None:
    """Compare each attention of the picked model's pattern once."""
    controls, key = st.session_state[CONTROLS], st.session_state["compare:layers"]
    st.session_state["compare:layers"] = None
    if key is None:
        return
    try:
        attentions = tuple(dict.fromkeys(card(key).small(*controls.sizes)))
    except ConfigError as error:
        st.session_state["compare:refused"] = (
            f"The layers of {card(key).name} are not compared. {error}"
        )
        return
    store_controls(replace(controls, mechanisms=attentions, minus=(1, 0)))


def _reorder(order: Sequence[int]) -> None:
    """The mechanisms in another order, some left out or twice; the difference stays with its two where it can."""
    controls = st.session_state[CONTROLS]
    minus = [order.index(old) if old in order else None for old in controls.minus]
    free = [index for index in range(len(order)) if index not in minus]
    pair = tuple(free.pop(0) if index is None else index for index in minus)
    store_controls(
        replace(controls, mechanisms=tuple(controls.mechanisms[old] for old in order), minus=pair)
    )


def edit_dialog(controls: Controls) -> None:
    """The dialog in which one mechanism is changed, while it is open."""
    index = st.session_state.pop(EDITING, None)
    if index is not None and index < len(controls.mechanisms):
        _dialog(controls, index)


@st.dialog("Change a mechanism", width="large")
def _dialog(controls: Controls, index: int) -> None:
    start = controls.mechanisms[index]
    st.markdown(f"It starts as **{plain(name_of(start))}**. Change any of the six axes.")
    axes = tuple(axis for axis in AXES if controls.seeded or axis != "projection")
    try:
        start = controls.sized(start)
    except ConfigError as error:
        st.warning(plain(str(error)))
        start = AttentionConfig(*controls.sizes)
    config = mechanism(f"compare:edit:{st.session_state[EDITS]}", start, axes=axes)
    if (
        st.button("Compare this", type="primary", disabled=config is None, key="compare:take")
        and config is not None
    ):
        before = st.session_state[CONTROLS]
        mechanisms = (*before.mechanisms[:index], config, *before.mechanisms[index + 1 :])
        st.session_state[SENT] = replace(before, mechanisms=mechanisms)
        st.rerun()


def apply_edit() -> None:
    """Apply what the dialog sent; call it before the widgets are drawn."""
    sent = st.session_state.pop(SENT, None)
    if sent is not None:
        store_controls(sent)
