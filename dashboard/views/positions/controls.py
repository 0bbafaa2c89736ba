"""The page's controls: an encoding with its parameters, the idea that is looked at, and what it is shown on."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.attention import AXES, AttentionConfig, Choice, ConfigError, Entry, entry, heads_that_divide
from core.entries import Param, Value
from dashboard.runtime.tokens import SENTENCE, labels, tokenize
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, D_MODELS, param_widget, params_of

IDEAS = {"shuffle": "Shuffle the words", "encoding": "The encoding", "distance": "By distance", "shift": "Shift"}
ENTRIES = {item.key: item for item in AXES["position"]}
NAMES = {item.key: f"{item.name} · {item.year}" for item in ENTRIES.values()}
START = {"position": "sinusoidal", "idea": "shuffle"}
SIZES = [size for size in D_MODELS if 4 <= size <= 128]
D_MODEL, HEADS, SEED, PLACES, SHIFT = 64, 4, 126, 24, 5
MOST_PLACES, MOST_SHIFT, MOST_TOKENS, LARGEST_SEED = 64, 32, 48, 999_999
FEW = 2  # parameters that stand in the row of controls; more go into the popover


@dataclass(frozen=True)
class Chosen:
    """What the controls say; `config` is None where the choices cannot go together, and then `problem` says why."""

    item: Entry
    idea: str
    config: AttentionConfig | None
    seed: int
    tokens: tuple[str, ...]
    notes: tuple[str, ...]
    order: int  # how often the words were shuffled
    places: int
    shift: int
    problem: str = ""


def key(name: str) -> str:
    return f"positions:{name}"


def settings() -> Chosen:
    """What the controls of the last run and the person's last touch say, before any control is drawn."""
    item = entry("position", get("position", START["position"]))
    params = {param.key: get(f"position:{item.key}:{param.key}", param.default) for param in item.params}
    d_model = get("d_model", D_MODEL)
    return chosen_of(item, params, d_model, get(f"heads:{d_model}", usual_heads(d_model)), get("seed", SEED),
                     get("idea", START["idea"]))


def choose(corner) -> Chosen:
    """Draw the controls and read them: sizes and seed in the popover of `corner`, the rest in one row."""
    with corner.popover("Sizes", icon=":material/tune:", help="Sizes, seed and further parameters"):
        d_model = st.select_slider("d_model", SIZES, D_MODEL, key=key("d_model"), **BOUND)
        heads = st.select_slider("Heads", heads_that_divide(d_model), usual_heads(d_model), key=key(f"heads:{d_model}"),
                                 **BOUND)
        seed = st.number_input("Seed", 0, LARGEST_SEED, SEED, 1, key=key("seed"), **BOUND,
                               help="The weights, the vectors of the words and learned tables are drawn from it.")
        rest = st.container()
    row = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    with row.cell(column_span=2):
        chosen = st.selectbox("Position", list(NAMES), list(NAMES).index(START["position"]), format_func=NAMES.get,
                              key=key("position"), **BOUND)
    idea = st.segmented_control("Idea", list(IDEAS), default=START["idea"], required=True, format_func=IDEAS.get,
                                key=key("idea"), label_visibility="collapsed", wrap=True, **BOUND) or START["idea"]
    item = entry("position", chosen)
    params = parameters(item, row, rest)
    subject(idea, item, row)
    return chosen_of(item, params, d_model, heads, seed, idea)


def chosen_of(
    item: Entry, params: dict[str, Value], d_model: int, heads: int, seed: int, idea: str,
) -> Chosen:
    """The choices as one, with the config that they make, or why they make none."""
    cut = tokenize(get("tokens", SENTENCE) or "")
    notes = list(cut.notes)
    if len(cut.tokens) > MOST_TOKENS:
        notes.append(f"The first {MOST_TOKENS} of {len(cut.tokens)} words are shown.")
    config, problem = build(Choice.of(item.key, **params), d_model, heads)
    return Chosen(item, idea, config, int(seed), labels(cut.tokens[:MOST_TOKENS]), tuple(notes), get("order", 1),
                  get("places", PLACES), get("shift", SHIFT), problem)


def usual_heads(d_model: int) -> int:
    """The most heads up to the usual number that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= HEADS)


def parameters(item: Entry, row, rest) -> dict[str, Value]:
    """The first few parameters in the row (a typed one over two of its columns), the others in the popover."""
    shown, values = item.params[:FEW], {}
    for param in shown:
        with row.cell(column_span=2 if typed(param) else 1):
            values[param.key] = param_widget(param, key=f"{key('position')}:{item.key}:{param.key}")
    with rest:
        later = params_of(item, key=key("position"), shown_elsewhere=tuple(param.key for param in shown))
    return values | later


def typed(param: Param) -> bool:
    return isinstance(param.default, str) and not param.choices


def subject(idea: str, item: Entry, row) -> None:
    """The controls of what the idea is shown on: words and their order, a number of places, or a shift."""
    if idea == "shuffle" or (idea == "shift" and item.enters != "x"):
        with row.cell(column_span=2 if len(item.params) < FEW else 1):  # so that all controls keep to one row
            st.text_input("Words", SENTENCE, key=key("tokens"), **BOUND)
    with row:
        if idea == "shuffle":
            st.button("Shuffle again", icon=":material/shuffle:", key=key("again"), on_click=again, width="stretch")
        elif idea == "shift":
            st.slider("Places later, k", 1, MOST_SHIFT, SHIFT, 1, key=key("shift"), **BOUND)
        else:
            st.slider("Places", 8, MOST_PLACES, PLACES, 1, key=key("places"), **BOUND)


def build(position: Choice, d_model: int, heads: int) -> tuple[AttentionConfig | None, str]:
    """No mask: a causal one would itself tell the order."""
    try:
        return AttentionConfig(d_model, heads, position=position), ""
    except ConfigError as error:
        return None, str(error)


def get(name: str, default=None):
    return st.session_state.get(key(name), default)


def again() -> None:
    st.session_state[key("order")] = get("order", 1) + 1


def unknown() -> list[str]:
    """What a link asks for that is not on this page, a sentence each; asked before the first widget takes it."""
    found = []
    for name, allowed in (("position", NAMES), ("idea", IDEAS)):
        wanted = st.query_params.get(key(name))
        if wanted and wanted not in allowed.values() and key(name) not in st.session_state:
            found.append(f"The link says {name} = {plain(wanted[:40])}; expected one of "
                         f"{plain(' | '.join(allowed.values()))}. {plain(allowed[START[name]])} is shown.")
    return found
