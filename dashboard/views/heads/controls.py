"""The page's controls: an idea, the weights, the words, and the sizes of the layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.attention import heads_that_divide
from core.tokens import SENTENCE, labels, tokenize
from dashboard.runtime.link_values import link_value, one_of
from dashboard.views.heads import minilm
from dashboard.widgets.params import BOUND, D_MODELS, KEEP, keep_heads, note_heads

IDEAS = {
    "split": "One head or many",
    "shared": "Shared keys and values",
    "subtract": "Two maps, subtracted",
}
FIRST = "split"
WEIGHTS = {"minilm": "MiniLM", "random": "Random"}
LAYER, HEAD = 3, 1  # of MiniLM: here "it" attends to "animal"
SIZES = [size for size in D_MODELS if 4 <= size <= 256]
LENGTHS = [128, 512, 1024, 2048, 4096, 8192, 16384]
D_MODEL, HEADS, SEED, LENGTH, DEPTH = 64, 4, 126, 4096, 4
MAX_HEADS, MAX_TOKENS, DEEPEST, LARGEST_SEED = 8, 32, 48, 999_999
LARGEST_LATENT = 512


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `kv_heads`, `latent` and `length` belong to shared keys, `depth` to two maps.

    With `layer`, that layer of MiniLM reads `text`; else weights are random and `tokens` are the words.
    """

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
    layer: int | None = None
    text: str = ""

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads


key = "heads:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> Controls:
    """Draw the controls and read them: seed, head and latent size in a popover, the rest in two rows."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        idea = st.segmented_control(
            "Idea",
            list(IDEAS),
            default=FIRST,
            required=True,
            format_func=IDEAS.__getitem__,
            key=key("idea"),
            wrap=True,
            **BOUND,
            help="How a layer can use heads: divide into them, share keys among them, or subtract two maps",
        )
        st.segmented_control(
            "Weights",
            list(WEIGHTS),
            default=first_weights(),
            required=True,
            format_func=WEIGHTS.__getitem__,
            key=key("weights"),
            help="MiniLM: the queries, keys and values of a trained model, all-MiniLM-L6-v2. "
            "Random: a layer of any size before training.",
            **BOUND,
        )
        corner = st.container(width="content")
    idea, real, row = idea or FIRST, is_real(), st.grid(6, min_column_width=120)
    span = {"split": 4, "shared": 2 + real, "subtract": 3 + real}[
        idea
    ]  # what the other controls leave
    row.cell(column_span=span).text_input(
        "Sentence",
        first_text(),
        key=key("tokens"),
        **BOUND,
        help="MiniLM splits rare words into pieces and adds [CLS] and [SEP].",
    )
    with row:
        if real:
            st.select_slider(
                "MiniLM's layer",
                range(minilm.LAYERS),
                LAYER,
                key=key("layer"),
                **BOUND,
                help="Layers are counted from 0, the first",
            )
        else:
            _draw_sizes(idea)
        _draw_idea(idea, read_controls())
    d_model, heads = read_controls().d_model, read_controls().heads
    if not real or idea != "split":
        with corner.popover(
            "More", icon=":material/tune:", help="The head shown, the latent size, the seed"
        ):
            if idea != "split" and heads > 1:
                st.select_slider(
                    "Head shown",
                    range(heads),
                    first_head(),
                    key=key(f"head:{heads}"),
                    **BOUND,
                    help="Heads are counted from 0",
                )
            if idea == "shared":
                st.number_input(
                    "Latent size, R",
                    1,
                    LARGEST_LATENT,
                    default_latent(d_model, heads),
                    1,
                    key=key(f"latent:{d_model}:{heads}"),
                    **BOUND,
                    help="How many numbers latent attention stores for the content of a token",
                )
            if not real:
                st.number_input(
                    "Seed",
                    0,
                    LARGEST_SEED,
                    SEED,
                    1,
                    key=key("seed"),
                    **BOUND,
                    help="The random weights and word vectors are drawn from this number",
                )
    return read_controls()


def _draw_sizes(idea: str) -> None:
    """Draw d_model, and the numbers of heads that divide it."""
    d_model = st.select_slider(
        "d_model",
        SIZES,
        D_MODEL,
        key=key("d_model"),
        **BOUND,
        **keep_heads(
            key("d_model"),
            lambda width: heads_key(idea, width),
            lambda width: heads_that_fit(idea, width),
        ),
        help="How many numbers each word's vector has",
    )
    fits = heads_that_fit(idea, d_model)
    if len(fits) > 1:  # a slider needs two places
        link_value(heads_key(idea, d_model), default_heads(fits), one_of(fits))
        note_heads(
            key("d_model"),
            d_model,
            st.select_slider(
                "Heads",
                fits,
                default_heads(fits),
                key=heads_key(idea, d_model),
                **KEEP,
                help="Into how many heads the d_model numbers are divided",
            ),
        )


def _draw_idea(idea: str, controls: Controls) -> None:
    """Draw the controls that one idea alone has."""
    heads = controls.heads
    if idea == "shared":
        if heads > 1:
            st.select_slider(
                "KV heads, G",
                heads_that_divide(heads),
                default_kv(heads),
                key=key(f"kv:{heads}"),
                help="Heads of keys and values in grouped-query attention; each serves H / G query heads",
                **BOUND,
            )
        st.select_slider(
            "Cached tokens",
            LENGTHS,
            LENGTH,
            key=key("length"),
            **BOUND,
            format_func="{:,}".format,
            help="The number of tokens whose keys and values a decoder has stored",
        )
    elif idea == "subtract":
        st.slider(
            "Layer for λ",
            1,
            DEEPEST,
            DEPTH,
            1,
            key=key("depth"),
            **BOUND,
            help="λ at the start of training depends on the layer, counted from 1: 0.2 in the first, near 0.8 in "
            "the last",
        )


def is_real() -> bool:
    """Whether the weights are MiniLM's."""
    return (get("weights") or first_weights()) == "minilm"


def first_weights() -> str:
    """The weights of a link that does not name them."""
    return get("start", "minilm")


def first_head() -> int:
    """The head that is shown where the link does not name one."""
    return HEAD if is_real() else 0


def first_text() -> str:
    """The words of a link that does not name them."""
    return minilm.TEXT if first_weights() == "minilm" else SENTENCE


def read_controls() -> Controls:
    """Read the controls from the session, which also works before they are drawn."""
    idea, real = get("idea") or FIRST, is_real()
    text = get("tokens", first_text()) or ""
    cut = tokenize(text)
    notes = list(cut.notes)
    if len(cut.tokens) > MAX_TOKENS:
        notes.append(f"The first {MAX_TOKENS} of {len(cut.tokens)} words are shown.")
        text = " ".join(cut.tokens[:MAX_TOKENS])
    d_model, heads = (minilm.D_MODEL, minilm.HEADS) if real else _read_sizes(idea)
    head = get(f"head:{heads}", first_head()) if idea != "split" and heads > 1 else 0
    return Controls(
        idea,
        labels(cut.tokens[:MAX_TOKENS]),
        tuple(notes),
        d_model,
        heads,
        SEED if real else int(get("seed", SEED)),
        head,
        int(get(f"kv:{heads}", default_kv(heads))),
        int(get(f"latent:{d_model}:{heads}", default_latent(d_model, heads))),
        get("length", LENGTH),
        get("depth", DEPTH),
        int(get("layer", LAYER)) if real else None,
        text,
    )


def _read_sizes(idea: str) -> tuple[int, int]:
    d_model = get("d_model", D_MODEL)
    fits = heads_that_fit(idea, d_model)
    return d_model, st.session_state.get(heads_key(idea, d_model), default_heads(fits)) if len(
        fits
    ) > 1 else fits[0]


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
