"""The page's controls: where queries and keys come from, which mechanisms in which order, and whose difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, heads_that_divide, preset
from core.masks import COMPOSITIONS
from dashboard.views.compare import link
from dashboard.views.compare.link import FEWEST, MOST, MOST_HEADS, SEEDED, Controls
from dashboard.views.compare.text import name_of
from dashboard.widgets.mechanism_editor import AXIS_NAMES, mechanism
from dashboard.widgets.panels import plain

KEEP: dict[str, Any] = {"persist_state": "session"}
CONTROLS, WRITTEN = "compare:setup", "compare:written"
EDITING, EDITS, SENT = "compare:editing", "compare:edits", "compare:sent"
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
LONGEST_TEXT = 20_000  # as many as are read
PLAIN = "plain"
CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"


def load_controls() -> tuple[Controls, list[str]]:
    """The session's setup, or the link's where that is not what this page wrote, with what of it cannot be had.

    So the Back button takes a choice back. Coming from another page, which empties the link, takes nothing back.
    """
    linked = link_query()
    stayed = "compare:measure" in st.session_state  # a button's state goes with its page
    if CONTROLS in st.session_state and (linked == st.session_state.get(WRITTEN) or not (linked or stayed)):
        return st.session_state[CONTROLS], []
    controls, refused = link.from_query(linked)
    store_controls(controls)
    return controls, refused


def link_query() -> dict[str, str | list[str]]:
    """What of the setup stands in the link."""
    return {name: st.query_params.get_all(name) if name == "m" else st.query_params[name]
            for name in link.READERS if name in st.query_params}


def store_controls(controls: Controls) -> None:
    """Store the controls and set every widget to them; for a callback, or before the widgets are drawn."""
    controls = link.clamped(controls)
    st.session_state[CONTROLS] = controls
    st.session_state.update({
        "compare:source": controls.source, "compare:text": controls.text, "compare:seed": controls.seed,
        "compare:d_model": controls.d_model, f"compare:heads:{controls.d_model}": controls.num_heads,
        f"compare:head:{controls.num_heads}": controls.head, "compare:minuend": controls.minus[0],
        "compare:subtrahend": controls.minus[1], "compare:length": controls.length})


def save_controls(controls: Controls) -> None:
    """Remember the setup and write it into the link; the link is touched only where it changes."""
    st.session_state[CONTROLS] = controls
    query, linked = link.to_query(controls), link_query()
    for name in linked.keys() - query.keys():
        del st.query_params[name]
    for name, value in query.items():
        if linked.get(name) != value:
            st.query_params[name] = value
    st.session_state[WRITTEN] = query


def read_widgets(controls: Controls) -> Controls:
    """The controls with the values of all widgets, also of those in a closed popover and further down the page."""
    def value_of(name: str, default: Any) -> Any:
        value = st.session_state.get(f"compare:{name}")
        return default if value is None else value

    d_model = value_of("d_model", controls.d_model)
    heads = value_of(f"heads:{d_model}", max(number for number in heads_of(d_model) if number <= controls.num_heads))
    return replace(
        controls, source=value_of("source", controls.source), text=value_of("text", ""),
        seed=int(value_of("seed", controls.seed)), d_model=d_model, num_heads=heads,
        head=value_of(f"head:{heads}", min(controls.head, heads - 1)), length=value_of("length", controls.length),
        minus=(value_of("minuend", controls.minus[0]), value_of("subtrahend", controls.minus[1])))


def heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= MOST_HEADS]


def tokens_popover(controls: Controls) -> None:
    """The sentence, and for a seeded layer its sizes, the head that is drawn and the seed; drawn while it is open."""
    panel = st.popover("Tokens", icon=":material/edit:", key="compare:tokens", on_change="rerun",
                       help="The sentence that every mechanism reads, and the seed")
    if not panel.open:
        return
    with panel:
        st.text_area("Sentence", key="compare:text", height=100, max_chars=LONGEST_TEXT, **KEEP)
        st.number_input("Seed", 0, link.LAST_SEED, step=1, key="compare:seed", **KEEP,
                        help="Draws whatever a mechanism has of its own, by the name of each weight.")
        if controls.seeded:
            _sizes(controls)


def _sizes(controls: Controls) -> None:
    st.select_slider("d_model", sorted({*WIDTHS, controls.d_model}), controls.d_model, key="compare:d_model", **KEEP)
    fits = heads_of(controls.d_model)
    st.selectbox("Heads", fits, fits.index(controls.num_heads), key=f"compare:heads:{controls.d_model}", **KEEP)
    st.selectbox("Head drawn", range(controls.num_heads), controls.head, key=f"compare:head:{controls.num_heads}",
                 **KEEP)


def controls_row(controls: Controls, names: Sequence[str]) -> None:
    """The row of controls under the title."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        st.selectbox("Queries and keys from", [SEEDED, *link.MINILM], key="compare:source", **KEEP,
                     format_func=source_label, help="A trained layer's own, or a layer drawn from a seed.")
    with grid.cell(column_span=2):
        _mechanisms(controls, names)
    places = range(len(controls.mechanisms))
    with grid:
        st.selectbox("Difference", places, key="compare:minuend", format_func=names.__getitem__, **KEEP)
        st.selectbox("minus", places, key="compare:subtrahend", format_func=names.__getitem__, **KEEP)


def source_label(source: str) -> str:
    if source == SEEDED:
        return "A seeded layer"
    layer, head = source.split(".")
    return f"MiniLM, layer {layer}, head {head}"


def _mechanisms(controls: Controls, names: Sequence[str]) -> None:
    """The list of mechanisms, in a popover whose content is made while it is open."""
    panel = st.popover("Mechanisms", key="compare:list", on_change="rerun", width="stretch")
    if not panel.open:
        return
    with panel:
        for place, name in enumerate(names):
            _line(controls, place, name)
        full = len(names) >= MOST
        st.selectbox("Add a mechanism", addable(), None, key="compare:add", format_func=add_label, disabled=full,
                     on_change=_add, placeholder=f"At most {MOST} fit" if full else "A preset, or one choice",
                     help="A published mechanism, or the plain dot product with one choice of one axis.")


def _line(controls: Controls, place: int, name: str) -> None:
    """One mechanism as a menu of what can be done with it."""
    count, key = len(controls.mechanisms), f"compare:line:{place}"
    possible = {CHANGE: True, UP: place > 0, DOWN: place < count - 1, TWICE: count < MOST, REMOVE: count > FEWEST}
    st.menu_button(plain(name), [what for what, can in possible.items() if can], key=key, width="stretch",
                   on_click=_act, args=(key, place))


def _act(key: str, place: int) -> None:
    """Do what was picked in a mechanism's menu."""
    what, order = st.session_state[key], list(range(len(st.session_state[CONTROLS].mechanisms)))
    if what == CHANGE:
        st.session_state[EDITING] = place
        st.session_state["compare:list"] = False  # the list would lie over the dialog
        st.session_state[EDITS] = st.session_state.get(EDITS, 0) + 1  # each time from what the mechanism is then
    elif what == REMOVE:
        _reorder([other for other in order if other != place])
    elif what == TWICE:
        _reorder([*order[: place + 1], place, *order[place + 1:]])
    elif what in (UP, DOWN):
        other = place - 1 if what == UP else place + 1
        order[place], order[other] = order[other], order[place]
        _reorder(order)


def addable() -> list[str]:
    """What can be added in one go: every preset, then the plainest attention with one choice of one axis."""
    singles = [f"{axis}={item.key}" for axis, entries in AXES.items() for item in entries
               if item.key not in COMPOSITIONS and item.key != getattr(AttentionConfig(), axis).key]
    return [PLAIN, *(f"preset={item.key}" for item in PRESETS), *singles]


def add_label(option: str) -> str:
    if option == PLAIN:
        return "Dot product, and nothing else"
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).name
    return f"{AXIS_NAMES[axis]}: {entry(axis, key).name}"


def added(option: str, sizes: tuple[int, int]) -> AttentionConfig:
    """The mechanism of such an option; ConfigError where it cannot be had at those sizes."""
    d_model, heads = sizes
    if option == PLAIN:
        return AttentionConfig(d_model, heads)
    axis, _, key = option.partition("=")
    if axis == "preset":
        return preset(key).config(d_model, heads)
    return AttentionConfig(d_model, heads, **{axis: Choice(key)})


def _add() -> None:
    controls, option = st.session_state[CONTROLS], st.session_state["compare:add"]
    st.session_state["compare:add"] = None
    if option is None or len(controls.mechanisms) >= MOST:
        return
    try:
        store_controls(replace(controls, mechanisms=(*controls.mechanisms, added(option, controls.sizes))))
    except ConfigError as error:
        st.session_state["compare:refused"] = f"{add_label(option)} is not added. {error}"


def _reorder(order: Sequence[int]) -> None:
    """The mechanisms in another order, some left out or twice; the difference stays with its two where it can."""
    controls = st.session_state[CONTROLS]
    minus = [order.index(place) if place in order else None for place in controls.minus]
    free = [place for place in range(len(order)) if place not in minus]
    pair = tuple(free.pop(0) if place is None else place for place in minus)
    store_controls(replace(controls, mechanisms=tuple(controls.mechanisms[place] for place in order), minus=pair))


def edit_dialog(controls: Controls) -> None:
    """The dialog in which one mechanism is changed, while it is open."""
    place = st.session_state.pop(EDITING, None)
    if place is not None and place < len(controls.mechanisms):
        _dialog(controls, place)


@st.dialog("Change a mechanism", width="large")
def _dialog(controls: Controls, place: int) -> None:
    name = plain(name_of(controls.mechanisms[place]))
    st.markdown(f"It starts as **{name}**; every choice of the six axes can change.")
    axes = tuple(AXES) if controls.seeded else tuple(axis for axis in AXES if axis != "projection")
    d_model, heads = controls.sizes
    start = controls.mechanisms[place]
    try:
        start = start.with_(d_model=d_model, num_heads=heads)
    except ConfigError as error:
        st.warning(plain(str(error)))
        start = AttentionConfig(d_model, heads)
    config = mechanism(f"compare:edit:{st.session_state[EDITS]}", start, axes=axes, sizes=False)
    if st.button("Compare this", type="primary", disabled=config is None, key="compare:take") and config is not None:
        before = st.session_state[CONTROLS]
        changed = (*before.mechanisms[:place], config, *before.mechanisms[place + 1:])
        st.session_state[SENT] = replace(before, mechanisms=changed)
        st.rerun()


def take_edit() -> None:
    """Take what the dialog sent; call it before the widgets are drawn."""
    sent = st.session_state.pop(SENT, None)
    if sent is not None:
        store_controls(sent)
