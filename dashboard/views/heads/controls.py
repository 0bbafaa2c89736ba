"""The page's controls: an idea, the words, and the sizes of the layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import heads_that_divide
from dashboard.runtime.tokens import SENTENCE, labels, tokenize
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND, D_MODELS

IDEAS = {"split": "One head or many", "shared": "Shared keys and values", "subtract": "Two maps, subtracted"}
FIRST = "split"
SIZES = [size for size in D_MODELS if 4 <= size <= 256]
LENGTHS = [128, 512, 1024, 2048, 4096, 8192, 16384]
D_MODEL, HEADS, SEED, LENGTH, DEPTH = 64, 4, 126, 4096, 4
MAX_HEADS, MAX_TOKENS, DEEPEST, LARGEST_SEED = 8, 32, 48, 999_999
LARGEST_LATENT = 512


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `kv_heads`, `latent` and `length` belong to shared keys, `depth` to two maps."""

    idea: str
    tokens: tuple[str, ...]
    notes: tuple[str, ...]
    d_model: int
    heads: int
    seed: int
    head: int = 0
    kv_heads: int = 1
    latent: int = 1
    length: int = LENGTH
    depth: int = DEPTH

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads


def key(name: str) -> str:
    return f"heads:{name}"


def draw_controls(corner: DeltaGenerator) -> Controls:
    """Draw the controls and read them: seed and head in a popover in `corner`, the rest in one row."""
    more = corner.popover("More", icon=":material/tune:", help="The head that is shown, and the seed")
    row = st.grid(6, min_column_width=120)
    idea = st.segmented_control("Idea", list(IDEAS), default=FIRST, required=True, format_func=IDEAS.get,
                                key=key("idea"), label_visibility="collapsed", wrap=True, **BOUND) or FIRST
    words = row.cell(column_span=1 if idea == "shared" else 2)
    words.text_input("Words", SENTENCE, key=key("tokens"), **BOUND)
    with row:
        d_model = st.select_slider("d_model", SIZES, D_MODEL, key=key("d_model"), **BOUND)
        fits = heads_that_fit(idea, d_model)
        if len(fits) > 1:  # a slider needs two places
            st.select_slider("Heads", fits, default_heads(fits), key=heads_key(idea, d_model), **BOUND)
        heads = read_controls().heads
        if idea == "shared":
            if heads > 1:
                st.select_slider("Key heads, G", heads_that_divide(heads), default_kv(heads), key=key(f"kv:{heads}"),
                                 help="Of grouped-query attention; each serves H / G queries.", **BOUND)
            st.number_input("Latent size, R", 1, LARGEST_LATENT, default_latent(d_model, heads), 1,
                            key=key(f"latent:{d_model}:{heads}"), **BOUND,
                            help="Of latent attention: the numbers kept of a token's content.")
            st.select_slider("Tokens kept", LENGTHS, LENGTH, key=key("length"), **BOUND, format_func="{:,}".format)
        elif idea == "subtract":
            st.slider("Layer", 1, DEEPEST, DEPTH, 1, key=key("depth"), **BOUND,
                      help="Counted from below; λ starts at 0.2 in the first and nears 0.8 in the last.")
    with more:
        if idea != "split" and heads > 1:
            st.select_slider("Head shown", range(heads), 0, key=key(f"head:{heads}"), **BOUND)
        st.number_input("Seed", 0, LARGEST_SEED, SEED, 1, key=key("seed"), **BOUND,
                        help="The weights and the vectors of the words are drawn from it.")
    return read_controls()


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    idea, d_model = get("idea") or FIRST, get("d_model", D_MODEL)
    cut = tokenize(get("tokens", SENTENCE) or "")
    notes = list(cut.notes)
    if len(cut.tokens) > MAX_TOKENS:
        notes.append(f"The first {MAX_TOKENS} of {len(cut.tokens)} words are shown.")
    fits = heads_that_fit(idea, d_model)
    heads = st.session_state.get(heads_key(idea, d_model), default_heads(fits)) if len(fits) > 1 else fits[0]
    head = get(f"head:{heads}", 0) if idea != "split" and heads > 1 else 0
    return Controls(idea, labels(cut.tokens[:MAX_TOKENS]), tuple(notes), d_model, heads, int(get("seed", SEED)), head,
                 int(get(f"kv:{heads}", default_kv(heads))),
                 int(get(f"latent:{d_model}:{heads}", default_latent(d_model, heads))), get("length", LENGTH),
                 get("depth", DEPTH))


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def heads_key(idea: str, d_model: int) -> str:
    return key(f"heads:{idea == 'subtract'}:{d_model}")


def heads_that_fit(idea: str, d_model: int) -> list[int]:
    """The numbers of heads that divide d_model; for two maps a head, those whose heads have two whole halves."""
    fits = [heads for heads in heads_that_divide(d_model) if heads <= MAX_HEADS]
    even = [heads for heads in fits if d_model // heads % 2 == 0]
    return even or fits if idea == "subtract" else fits


def default_heads(fits: list[int]) -> int:
    return max(heads for heads in fits if heads <= HEADS)


def default_kv(heads: int) -> int:
    """The most key heads that are fewer than the queries' heads."""
    return heads_that_divide(heads)[-2:][0]


def default_latent(d_model: int, heads: int) -> int:
    return min(4 * d_model // heads, d_model // 2)


def link_errors() -> list[str]:
    """A sentence for each value in the link that this page lacks; call it before the first widget takes its value."""
    allowed = {"idea": (list(IDEAS.values()), IDEAS[FIRST]), "d_model": (list(map(str, SIZES)), str(D_MODEL)),
               "length": ([f"{length:,}" for length in LENGTHS], f"{LENGTH:,}")}
    errors = []
    for name, (options, default) in allowed.items():
        value = None if key(name) in st.session_state else st.query_params.get(key(name))
        if value and value not in options:
            errors.append(f"The link says {plain(name)} = {plain(value[:40])}; expected one of "
                          f"{plain(' | '.join(options))}. {plain(default)} is shown.")
    return errors
