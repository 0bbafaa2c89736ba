"""The controls: the kind of composition, the number of edges, the head, and the token that is followed."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.interpret.circuits import CompositionKind
from core.pretrained import PretrainedError
from dashboard.runtime.link_values import link_value, one_of, write_link
from dashboard.ui.presentation import pressed_point, room
from dashboard.views.circuits.compute import Circuits, Head, default_head
from dashboard.views.circuits.tokens import default_token, token_of
from dashboard.widgets.model_picker import ModelRef, load_model
from dashboard.widgets.model_picker.head_choice import choose_head, current_head
from dashboard.widgets.panels import field_error, plain
from dashboard.widgets.params import BOUND, KEEP

KIND, EDGES, HEAD, TOKEN = (f"circuits:{name}" for name in ("kind", "edges", "head", "token"))
OF = "circuits:of"  # the model that the head belongs to
READS = {"Q": "its queries", "K": "its keys", "V": "its values"}
MOST_EDGES = 60


@dataclass(frozen=True)
class Controls:
    """The model, the kind of composition (None where heads compose in none), how many edges, a head and a token."""

    ref: ModelRef
    kind: CompositionKind | None
    edges: int
    head: Head
    token: int
    word: str


def draw_controls(ref: ModelRef, circuits: Circuits) -> Controls:
    """Draw the controls in one row."""
    with st.container(horizontal=True, vertical_alignment="top", key="circuits:row"):
        kind = None
        if circuits.kinds:
            kind = st.segmented_control(
                "Composition",
                circuits.kinds,
                default=circuits.kinds[0],
                key=KIND,
                required=True,
                format_func=lambda one: f"{one}: {READS[one][4:]}",
                help=(
                    "What a head reads of the output of an earlier one: as its queries (Q), its keys (K) or its values "
                    "(V)."
                ),
                **BOUND,
            )
        edges = st.slider(
            "Strongest edges",
            1,
            MOST_EDGES,
            8,
            key=EDGES,
            width=room(200),
            help=(
                "How many pairs of heads the graph connects at most: those that compose most, and none that random "
                "matrices would reach."
            ),
            **BOUND,
        )
        head = _head_field(ref, circuits)
        token, word = _token_field(ref, circuits, head)
    return Controls(ref, kind, edges, head, token, word)


def _head_field(ref: ModelRef, circuits: Circuits) -> Head:
    names = {circuits.name(head): head for head in circuits.all()}
    default = circuits.name(default_head(circuits))
    if st.session_state.setdefault(OF, ref) != ref:
        st.session_state[OF] = ref
        st.session_state.pop(HEAD, None)
        write_link(HEAD, None)
    if st.session_state.get(HEAD) not in names:
        st.session_state[HEAD] = circuits.name(_chosen(ref, circuits) or default_head(circuits))
    link_value(HEAD, default, one_of(names))
    name = st.selectbox(
        "Head to open",
        list(names),
        key=HEAD,
        width=room(170),
        on_change=lambda: _choose(ref, circuits, names),
        **KEEP,
        help="Layer and head, counted from 0. You can also click a head in the graph or in a grid.",
    )
    return names[name]


def _chosen(ref: ModelRef, circuits: Circuits) -> Head | None:
    """The head that was picked on another page."""
    if (stored := current_head(ref)) is None:
        return None
    kind, (layer, head) = stored
    return next(
        (
            (row, head)
            for row, one in enumerate(circuits.heads)
            if (one.kind, one.layer) == (kind, layer) and head < len(one.w_v)
        ),
        None,
    )


def _choose(ref: ModelRef, circuits: Circuits, names: dict[str, Head]) -> None:
    row, head = names[st.session_state[HEAD]]
    choose_head(ref, circuits.heads[row].kind, (circuits.heads[row].layer, head))


def pick_from(key: str, ref: ModelRef, circuits: Circuits) -> None:
    """Open the head that was pressed in a figure; for a callback."""
    names, point = {circuits.name(head): head for head in circuits.all()}, pressed_point(key)
    if point and (name := f"{point['layer']}·H{point['head']}") in names:
        st.session_state[HEAD] = name
        _choose(ref, circuits, names)


def _token_field(ref: ModelRef, circuits: Circuits, head: Head) -> tuple[int, str]:
    """The token that is followed; the usual one where nothing was typed, and after an error, which is written below."""
    if not circuits.has_tokens(head[0]):
        return 0, ""
    token, word = default_token(ref, circuits.heads[head[0]].reads)
    with st.container(width=room(190)):
        typed = st.text_input(
            "Example token",
            key=TOKEN,
            placeholder=word,
            **BOUND,
            help=(
                "Any word that the model has as a token; of a longer one its first token is taken. The head is shown what "
                "it does at this token, as a key and as a query."
            ),
        )
        try:
            if typed and typed.strip():
                token, pieces = token_of(load_model(ref), typed)
                word = typed.strip()
                if pieces > 1:
                    st.caption(plain(f"“{word[:40]}” is {pieces} tokens; the first is taken."))
        except PretrainedError as error:
            field_error(error)
    return token, word
