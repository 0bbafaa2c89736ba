"""The weights that linear and low-rank kernels never make, beside exact's, on a sentence."""

from __future__ import annotations

import streamlit as st

from core.attention import Choice, ConfigError
from dashboard.charts.numbers import number
from dashboard.components.multiples import Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.tokens import labels, tokenize
from dashboard.views.efficient import compute
from dashboard.views.efficient.compute import Implied
from dashboard.views.efficient.controls import ENTRIES, key
from dashboard.views.efficient.text import kernel_name
from dashboard.widgets.panels import fact, plain
from dashboard.widgets.params import BOUND

SENTENCE, MOST_TOKENS = "The animal was too tired .", 48
FEATURES, FEW = (4, 16, 64, 256, 1024), (1, 2, 3, 4, 6, 8)


@st.fragment
def implied_weights() -> None:
    """The implied matrices beside the true one."""
    st.markdown("## What is weighed instead\n\nLinear and low-rank kernels never make weights. These are the weights "
                "that their outputs amount to, beside exact's.")
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        sentence = st.text_input("Sentence", SENTENCE, key=key("sentence"), **BOUND)
    with grid:
        head = st.selectbox("Head", range(compute.HEADS), key=key("head"), **BOUND)
        features = st.selectbox("Random features", FEATURES, 2, key=key("features"), **BOUND,
                                help=ENTRIES["performer"].params[0].meaning)
        few = st.selectbox("Rank, landmarks", FEW, 2, key=key("few"), **BOUND,
                           help="mixed keys of Linformer, landmarks of Nyström")
        causal = st.toggle("Causal", key=key("implied_causal"), **BOUND, help="Linformer and Nyström cannot be")
    tokens = tokenize(sentence or "").tokens[:MOST_TOKENS]
    if not tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return
    choices = [Choice("exact"), Choice("linear"), Choice.of("performer", features=features),
               Choice.of("linformer", rank=few), Choice.of("nystrom", landmarks=few), Choice("retention")]
    implied, errors = [], []
    for choice in choices:
        try:
            implied.append(cached(compute.implied, choice, tokens, causal))
        except ConfigError as error:
            errors.append(str(error))
    tiles = [Tile(ENTRIES[each.kernel].name, "softmax" if each.kernel == "exact" else
                  f"implied, off by {number(each.mean_error)}", each.weights[head]) for each in implied]
    sentence = _fact(implied, features, few)
    multiples(tiles, labels(tokens), key=key("maps"), fact=sentence, height=190)
    fact(sentence)
    st.caption(" ".join([f"Word vectors and maps of {compute.D_MODEL} numbers are random (seed {compute.SEED}), the "
                         "same for all. The kernels' matrices are implied: their output is these weights times the "
                         "values.", *errors]))


def _fact(implied: list[Implied], features: int, few: int) -> str:
    """The kernels with the smallest and the largest error, and the largest weight of linear."""
    approximations = [each for each in implied[1:] if each.kernel != "retention"]  # retention approximates no softmax
    exact, linear = implied[0], next(each for each in implied if each.kernel == "linear")
    near, *_, far = sorted(approximations, key=lambda each: each.mean_error)
    size = {"performer": f" with {features} features", "linformer": f" of rank {few}",
            "nystrom": f" with {few} landmarks"}
    return (f"{plain(ENTRIES[near.kernel].name)}{size.get(near.kernel, '')} misses exact's weights by "
            f"**{number(near.mean_error)}** a cell on average, {kernel_name(far.kernel)}{size.get(far.kernel, '')} by "
            f"**{number(far.mean_error)}**; linear's largest weight is {number(linear.largest)} where softmax has "
            f"{number(exact.largest)}.")
