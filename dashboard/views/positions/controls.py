"""The page's controls: an encoding with its parameters, an idea, and the words or positions it is drawn for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import (
    AXES,
    AttentionConfig,
    Choice,
    ConfigError,
    Entry,
    entry,
    heads_that_divide,
)
from core.tokens import SENTENCE, labels, tokenize
from dashboard.runtime.link_values import link_value, one_of
from dashboard.widgets.panels import plain
from dashboard.widgets.params import (
    BOUND,
    D_MODELS,
    KEEP,
    is_text,
    keep_heads,
    note_heads,
    param_widget,
    params_in_session,
    params_of,
    parts_from,
    parts_in_session,
)

IDEAS = {
    "shuffle": "Shuffle the words",
    "encoding": "The encoding",
    "distance": "By distance",
    "shift": "Shift",
}
ENTRIES = {item.key: item for item in AXES["position"]}
NAMES = {item.key: f"{item.name} · {item.year}" for item in ENTRIES.values()}
START = {"position": "sinusoidal", "idea": "shuffle"}
SIZES = [size for size in D_MODELS if 4 <= size <= 128]
D_MODEL, HEADS, SEED, POSITIONS, SHIFT = 64, 4, 126, 24, 5
MAX_POSITIONS, MAX_SHIFT, MAX_TOKENS, LARGEST_SEED = 64, 32, 48, 999_999
EXAMPLE_WIDTH = 220  # pixels
FEW = 2  # parameters that stand in the row of controls; more go into the popover


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `config` is None where the choices do not go together, and `problem` says why."""

    item: Entry
    idea: str
    config: AttentionConfig | None
    seed: int
    tokens: tuple[str, ...]
    notes: tuple[str, ...]
    order: int  # how often the words were shuffled
    positions: int
    shift: int
    problem: str = ""


key = "positions:{}".format  # a widget's key, which is also its name in the link


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    item = entry("position", get("position", START["position"]))
    choice = Choice.of(
        item.key,
        *parts_in_session("position", item, key=key("position")),
        **params_in_session(item, key=key("position")),
    )
    d_model = get("d_model", D_MODEL)
    cut = tokenize(get("tokens", SENTENCE) or "")
    notes = cut.notes
    if len(cut.tokens) > MAX_TOKENS:
        notes += (f"The first {MAX_TOKENS} of {len(cut.tokens)} words are shown.",)
    config, problem = None, ""
    try:  # no mask: a causal one would itself tell the order
        config = AttentionConfig(
            d_model, get(f"heads:{d_model}", default_heads(d_model)), position=choice
        )
    except ConfigError as error:
        problem = str(error)
    return Controls(
        item,
        get("idea") or START["idea"],
        config,
        int(get("seed", SEED)),
        labels(cut.tokens[:MAX_TOKENS]),
        notes,
        get("order", 1),
        get("places", POSITIONS),
        get("shift", SHIFT),
        problem,
    )


def draw_controls() -> Controls:
    """Draw the controls and read them: the encoding and the words in one row, the picture and sizes in another."""
    row = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with row.cell(column_span=2):
        name = st.selectbox(
            "Position encoding",
            list(NAMES),
            list(NAMES).index(START["position"]),
            format_func=NAMES.__getitem__,
            key=key("position"),
            **BOUND,
            help="How the order of the words enters the layer",
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        idea = (
            st.segmented_control(
                "Picture",
                list(IDEAS),
                default=START["idea"],
                required=True,
                wrap=True,
                **BOUND,
                format_func=IDEAS.__getitem__,
                key=key("idea"),
                help="What the picture shows",
            )
            or START["idea"]
        )
        example = st.container(width=EXAMPLE_WIDTH)
        corner = st.container(horizontal_alignment="right")
    item = entry("position", name)
    rest = _draw_sizes(corner)
    with row:
        parts_from("position", item, Choice(item.key), key("position"), BOUND)
    first = item.params[:FEW]
    for param in first:
        with row.cell(column_span=2 if is_text(param) else 1):
            param_widget(param, key=f"{key('position')}:{item.key}:{param.key}")
    with rest:
        params_of(item, key=key("position"), exclude=tuple(param.key for param in first))
    # Draw the controls of the idea's example: words and their order, a number of positions, or a shift
    if idea == "shuffle" or (idea == "shift" and item.enters != "x"):
        with row.cell(column_span=2):
            st.text_input(
                "Sentence",
                SENTENCE,
                key=key("tokens"),
                help="Each word becomes one token.",
                **BOUND,
            )
    with example:
        if idea == "shuffle":
            st.button(
                "Shuffle again",
                icon=":material/shuffle:",
                key=key("again"),
                on_click=shuffle,
                help="Puts the words in another random order",
            )
        elif idea == "shift":
            st.slider(
                "Shift k",
                1,
                MAX_SHIFT,
                SHIFT,
                1,
                key=key("shift"),
                help="How many positions later",
                **BOUND,
            )
        else:
            st.slider(
                "Positions",
                8,
                MAX_POSITIONS,
                POSITIONS,
                1,
                key=key("places"),
                **BOUND,
                help="How many positions are drawn",
            )
    return read_controls()


def _draw_sizes(corner: DeltaGenerator) -> DeltaGenerator:
    """Draw sizes and seed in a popover; returns the place for more parameters."""
    with corner.popover("Sizes", icon=":material/tune:", help="Sizes, seed and more parameters"):
        d_model = st.select_slider(
            "d_model",
            SIZES,
            D_MODEL,
            key=key("d_model"),
            **BOUND,
            **keep_heads(key("d_model"), lambda width: key(f"heads:{width}"), heads_that_divide),
            help="How many numbers the vector of each word has",
        )
        link_value(
            key(f"heads:{d_model}"), default_heads(d_model), one_of(heads_that_divide(d_model))
        )
        note_heads(
            key("d_model"),
            d_model,
            st.select_slider(
                "Heads",
                heads_that_divide(d_model),
                default_heads(d_model),
                key=key(f"heads:{d_model}"),
                **KEEP,
                help="How many heads share these numbers",
            ),
        )
        st.number_input(
            "Seed",
            0,
            LARGEST_SEED,
            SEED,
            1,
            key=key("seed"),
            **BOUND,
            help="Another seed gives other random weights and word vectors.",
        )
        return st.container()


def default_heads(d_model: int) -> int:
    """The most heads up to the usual number that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= HEADS)


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def shuffle() -> None:
    st.session_state[key("order")] = get("order", 1) + 1


def link_errors() -> list[str]:
    """A sentence for each choice in the link that no list has; call it before the first widget takes its value."""
    errors = []
    for name, names in (("position", NAMES), ("idea", IDEAS)):
        value = st.query_params.get(key(name))
        if value and value not in names.values() and key(name) not in st.session_state:
            errors.append(
                f"The link says {name} = {plain(value[:40])}; expected one of "
                f"{plain(' | '.join(names.values()))}. {plain(names[START[name]])} is shown."
            )
    return errors
