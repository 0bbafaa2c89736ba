"""The controls of tokens, order and colours of the maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import streamlit as st

from core.interpret.map_transform import Sentences
from core.interpret.trace import Kind
from core.pretrained import Line, Reading
from dashboard.widgets.model_picker.head_choice import KIND_HELP, KINDS
from dashboard.widgets.params import BOUND

Order = Literal["text", "keys", "queries", "both"]

SENTENCES: dict[Sentences, str] = {
    "all": "All",
    "ab": "A → B",
    "ba": "B → A",
    "aa": "within A",
    "bb": "within B",
}
ORDERS: dict[Order, str] = {
    "text": "As in the text",
    "keys": "Keys by weight",
    "queries": "Queries by weight",
    "both": "Both by weight",
}
SHOW = "pretrained:show"
SHOWS = {"both": "Matrix and lines", "matrix": "Matrix", "lines": "Lines"}
SCALES = {
    "auto": "As fits the length",
    "unit": "0 to 1",
    "largest": "0 to the largest here",
    "p99.5": "0 to the 99.5th percentile",
}
POOLS = {"mean": "Mean", "max": "Largest"}
POOLED_FROM = 256  # tokens, from which a pixel or a cell may pool several
UNIT_TO = 64  # tokens: in longer texts hardly a weight comes near 1, and a map from 0 to 1 is blank


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `kind` is one that the reading has."""

    kind: Kind
    words: bool = False
    special: bool = False
    sinks: bool = False
    sentences: Sentences = "all"
    order: Order = "text"
    show: str = "both"
    scale: str = "unit"
    pool: str = "mean"
    threshold: float = 0.0


def draw_controls(reading: Reading) -> Controls:
    """Draw the controls that this reading has a use for."""
    with st.container(horizontal=True, vertical_alignment="center"):
        kind = _kind(reading)
        rows, columns = reading.lines(kind)
        picture = rows.grid is not None
        shows = SHOWS | ({"both": "Matrix and picture"} if picture else {})
        show = st.segmented_control(
            "Show",
            list(shows),
            default="both",
            format_func=shows.__getitem__,
            key=SHOW,
            label_visibility="collapsed",
            required=True,
            **BOUND,
            help="How the picked head is drawn.",
        )
        with st.popover(
            "Tokens", icon=":material/segment:", help="Which tokens are drawn, and in which order"
        ):
            words, special, sinks = _tokens(rows, columns)
            sentences = _sentences(rows, columns)
            order = st.radio(
                "Order of rows and columns",
                list(ORDERS),
                format_func=ORDERS.__getitem__,
                key="pretrained:order",
                **BOUND,
                help="With a pinned cell: by the weights of its row or column. Otherwise: keys by the "
                "average weight that they receive, queries by their largest weight.",
            )
        with st.popover("Colour", icon=":material/palette:"):
            scale, pool, threshold = _colour(max(len(rows), len(columns)))
    return Controls(
        kind, words, special, sinks, sentences, order, show or "both", scale, pool, threshold
    )


def _kind(reading: Reading) -> Kind:
    kinds = reading.trace.kinds
    if len(kinds) < 2:
        return kinds[0]
    names = [kind for kind in get_args(Kind) if kind in kinds]
    first = "cross" if "cross" in kinds else kinds[0]
    return (
        st.segmented_control(
            "Attention",
            names,
            default=first,
            format_func=KINDS.__getitem__,
            key="pretrained:kind",
            label_visibility="collapsed",
            required=True,
            help=KIND_HELP,
            **BOUND,
        )
        or first
    )


def _tokens(rows: Line, columns: Line) -> tuple[bool, bool, bool]:
    pieces = any(
        len(set(indices)) < len(indices)
        for indices in (
            [word for word in line.word if word is not None] for line in (rows, columns)
        )
    )
    words = pieces and st.toggle(
        "Merge pieces into words",
        key="pretrained:words",
        **BOUND,
        help="The weights of a word's pieces are summed over keys and averaged over queries.",
    )
    hidable = any(rows.special + columns.special) and not (
        all(rows.special) or all(columns.special)
    )
    special = hidable and st.toggle(
        "Hide special tokens",
        key="pretrained:special",
        **BOUND,
        help="Leaves out tokens such as [CLS]. Each row is then divided by what is left of it.",
    )
    sinks = st.toggle(
        "Hide sinks",
        key="pretrained:sinks",
        **BOUND,
        help="A sink is a key that gets more than 0.3 of the weight of every query that may attend to "
        "it, averaged over all heads. Each row is then divided by what is left of it.",
    )
    return bool(words), bool(special), sinks


def _sentences(rows: Line, columns: Line) -> Sentences:
    if not (any(rows.segment) and any(columns.segment)):
        return "all"
    return (
        st.radio(
            "Sentences",
            list(SENTENCES),
            format_func=SENTENCES.__getitem__,
            key="pretrained:sentences",
            horizontal=True,
            **BOUND,
            help="Which sentence attends to which: in A → B the queries are in A and the keys in B.",
        )
        or "all"
    )


def _colour(tokens: int) -> tuple[str, str, float]:
    scale = st.radio(
        "Scale of one head",
        list(SCALES),
        format_func=SCALES.__getitem__,
        key="pretrained:scale",
        **BOUND,
        help="The weights that the colours cover. As fits the length: 0 to 1 up to "
        f"{UNIT_TO} tokens, 0 to the 99.5th percentile for longer texts.",
    )
    pool = "mean"
    if tokens > POOLED_FROM:
        pool = (
            st.radio(
                "Several cells in one pixel",
                list(POOLS),
                format_func=POOLS.__getitem__,
                key="pretrained:pool",
                horizontal=True,
                **BOUND,
                help="A map of this length has more cells than pixels.",
            )
            or "mean"
        )
    threshold = st.slider(
        "Draw weights from",
        0.0,
        0.5,
        0.0,
        0.01,
        key="pretrained:from",
        **BOUND,
        help="Smaller weights are left blank; the pointer still reads them.",
    )
    if scale == "auto":
        scale = "unit" if tokens <= UNIT_TO else "p99.5"
    return scale or "unit", pool, threshold
