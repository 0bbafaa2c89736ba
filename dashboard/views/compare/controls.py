"""The page's controls: where queries and keys come from, which mechanisms in which order, and whose difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from core.attention import AXES, PRESETS, AttentionConfig, Choice, ConfigError, entry, heads_that_divide, preset
from core.masks import COMPOSITIONS
from dashboard.views.compare import link
from dashboard.views.compare.link import FEWEST, MOST, MOST_HEADS, SEEDED, Setup
from dashboard.views.compare.text import name_of
from dashboard.widgets.mechanism_editor import AXIS_NAMES, mechanism
from dashboard.widgets.panels import plain

KEEP: dict[str, Any] = {"persist_state": "session"}
SETUP, WRITTEN = "compare:setup", "compare:written"
EDITING, EDITS, SENT = "compare:editing", "compare:edits", "compare:sent"
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)
LONGEST_TEXT = 20_000  # as many as are read
PLAIN = "plain"
CHANGE, UP, DOWN, TWICE, REMOVE = "Change", "Move before", "Move after", "Duplicate", "Remove"


def load() -> tuple[Setup, list[str]]:
    """The session's setup, or the link's where that is not what this page wrote, with what of it cannot be had.

    So the Back button takes a choice back. Coming from another page, which empties the link, takes nothing back.
    """
    asked = linked()
    stayed = "compare:measure" in st.session_state  # a button's state goes with its page
    if SETUP in st.session_state and (asked == st.session_state.get(WRITTEN) or not (asked or stayed)):
        return st.session_state[SETUP], []
    setup, refused = link.from_query(asked)
    put(setup)
    return setup, refused


def linked() -> dict[str, str | list[str]]:
    """What of the setup stands in the link."""
    return {name: st.query_params.get_all(name) if name == "m" else st.query_params[name]
            for name in link.READERS if name in st.query_params}


def put(setup: Setup) -> None:
    """Make this the setup, and every widget show it; for a callback, or before the widgets are drawn."""
    setup = link.fitting(setup)
    st.session_state[SETUP] = setup
    st.session_state.update({
        "compare:source": setup.source, "compare:text": setup.text, "compare:seed": setup.seed,
        "compare:d_model": setup.d_model, f"compare:heads:{setup.d_model}": setup.num_heads,
        f"compare:head:{setup.num_heads}": setup.head, "compare:minuend": setup.minus[0],
        "compare:subtrahend": setup.minus[1], "compare:length": setup.length})


def keep(setup: Setup) -> None:
    """Remember the setup and write it into the link; the link is touched only where it changes."""
    st.session_state[SETUP] = setup
    query, asked = link.to_query(setup), linked()
    for name in asked.keys() - query.keys():
        del st.query_params[name]
    for name, value in query.items():
        if asked.get(name) != value:
            st.query_params[name] = value
    st.session_state[WRITTEN] = query


def current(setup: Setup) -> Setup:
    """The setup as the widgets say it now, drawn or not: those in a closed popover, and the length further down."""
    def said(name: str, usual: Any) -> Any:
        value = st.session_state.get(f"compare:{name}")
        return usual if value is None else value

    d_model = said("d_model", setup.d_model)
    heads = said(f"heads:{d_model}", max(number for number in heads_of(d_model) if number <= setup.num_heads))
    return replace(
        setup, source=said("source", setup.source), text=said("text", ""), seed=int(said("seed", setup.seed)),
        d_model=d_model, num_heads=heads, head=said(f"head:{heads}", min(setup.head, heads - 1)),
        length=said("length", setup.length),
        minus=(said("minuend", setup.minus[0]), said("subtrahend", setup.minus[1])))


def heads_of(d_model: int) -> list[int]:
    return [heads for heads in heads_that_divide(d_model) if heads <= MOST_HEADS]


def tokens(setup: Setup) -> None:
    """The sentence, and for a seeded layer its sizes, the head that is drawn and the seed; drawn while it is open."""
    panel = st.popover("Tokens", icon=":material/edit:", key="compare:tokens", on_change="rerun",
                       help="The sentence that every mechanism reads, and the seed")
    if not panel.open:
        return
    with panel:
        st.text_area("Sentence", key="compare:text", height=100, max_chars=LONGEST_TEXT, **KEEP)
        st.number_input("Seed", 0, link.LAST_SEED, step=1, key="compare:seed", **KEEP,
                        help="Draws whatever a mechanism has of its own, by the name of each weight.")
        if setup.seeded:
            _sizes(setup)


def _sizes(setup: Setup) -> None:
    st.select_slider("d_model", sorted({*WIDTHS, setup.d_model}), setup.d_model, key="compare:d_model", **KEEP)
    fits = heads_of(setup.d_model)
    st.selectbox("Heads", fits, fits.index(setup.num_heads), key=f"compare:heads:{setup.d_model}", **KEEP)
    st.selectbox("Head drawn", range(setup.num_heads), setup.head, key=f"compare:head:{setup.num_heads}", **KEEP)


def row(setup: Setup, names: Sequence[str]) -> None:
    """The row of controls under the title."""
    grid = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with grid.cell(column_span=2):
        st.selectbox("Queries and keys from", [SEEDED, *link.MINILM], key="compare:source", **KEEP,
                     format_func=source_label, help="A trained layer's own, or a layer drawn from a seed.")
    with grid.cell(column_span=2):
        _mechanisms(setup, names)
    places = range(len(setup.mechanisms))
    with grid:
        st.selectbox("Difference", places, key="compare:minuend", format_func=names.__getitem__, **KEEP)
        st.selectbox("minus", places, key="compare:subtrahend", format_func=names.__getitem__, **KEEP)


def source_label(source: str) -> str:
    if source == SEEDED:
        return "A seeded layer"
    layer, head = source.split(".")
    return f"MiniLM, layer {layer}, head {head}"


def _mechanisms(setup: Setup, names: Sequence[str]) -> None:
    """The list of mechanisms, in a popover whose content is made while it is open."""
    panel = st.popover("Mechanisms", key="compare:list", on_change="rerun", width="stretch")
    if not panel.open:
        return
    with panel:
        for place, name in enumerate(names):
            _line(setup, place, name)
        full = len(names) >= MOST
        st.selectbox("Add a mechanism", addable(), None, key="compare:add", format_func=add_label, disabled=full,
                     on_change=_add, placeholder=f"At most {MOST} fit" if full else "A preset, or one choice",
                     help="A published mechanism, or the plain dot product with one choice of one axis.")


def _line(setup: Setup, place: int, name: str) -> None:
    """One mechanism as a menu of what can be done with it."""
    count, key = len(setup.mechanisms), f"compare:line:{place}"
    possible = {CHANGE: True, UP: place > 0, DOWN: place < count - 1, TWICE: count < MOST, REMOVE: count > FEWEST}
    st.menu_button(plain(name), [what for what, can in possible.items() if can], key=key, width="stretch",
                   on_click=_act, args=(key, place))


def _act(key: str, place: int) -> None:
    """Do what was picked in a mechanism's menu."""
    what, order = st.session_state[key], list(range(len(st.session_state[SETUP].mechanisms)))
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
    setup, option = st.session_state[SETUP], st.session_state["compare:add"]
    st.session_state["compare:add"] = None
    if option is None or len(setup.mechanisms) >= MOST:
        return
    try:
        put(replace(setup, mechanisms=(*setup.mechanisms, added(option, setup.sizes))))
    except ConfigError as error:
        st.session_state["compare:refused"] = f"{add_label(option)} is not added. {error}"


def _reorder(order: Sequence[int]) -> None:
    """The mechanisms in another order, some left out or twice; the difference stays with its two where it can."""
    setup = st.session_state[SETUP]
    kept = [order.index(place) if place in order else None for place in setup.minus]
    free = [place for place in range(len(order)) if place not in kept]
    minus = tuple(free.pop(0) if place is None else place for place in kept)
    put(replace(setup, mechanisms=tuple(setup.mechanisms[place] for place in order), minus=minus))


def editor(setup: Setup) -> None:
    """The dialog in which one mechanism is changed, while it is open."""
    place = st.session_state.pop(EDITING, None)
    if place is not None and place < len(setup.mechanisms):
        _dialog(setup, place)


@st.dialog("Change a mechanism", width="large")
def _dialog(setup: Setup, place: int) -> None:
    st.markdown(f"It starts as **{plain(name_of(setup.mechanisms[place]))}**; every choice of the six axes can change.")
    axes = tuple(AXES) if setup.seeded else tuple(axis for axis in AXES if axis != "projection")
    d_model, heads = setup.sizes
    start = setup.mechanisms[place]
    try:
        start = start.with_(d_model=d_model, num_heads=heads)
    except ConfigError as error:
        st.warning(plain(str(error)))
        start = AttentionConfig(d_model, heads)
    config = mechanism(f"compare:edit:{st.session_state[EDITS]}", start, axes=axes, sizes=False)
    if st.button("Compare this", type="primary", disabled=config is None, key="compare:take") and config is not None:
        before = st.session_state[SETUP]
        changed = (*before.mechanisms[:place], config, *before.mechanisms[place + 1:])
        st.session_state[SENT] = replace(before, mechanisms=changed)
        st.rerun()


def take_edit() -> None:
    """What the dialog sent, before the widgets are drawn."""
    sent = st.session_state.pop(SENT, None)
    if sent is not None:
        put(sent)
