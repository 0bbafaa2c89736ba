"""The weights that linear and low-rank kernels never make, beside exact's, on a sentence."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.attention import Choice, ConfigError
from core.sentence import labels, tokenize
from dashboard.charts.numbers import number
from dashboard.components.multiples import Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.runtime.link_values import fragment, read_linked, write_linked
from dashboard.runtime.page_pictures import add_script
from dashboard.views.efficient import compute
from dashboard.views.efficient.compute import Implied
from dashboard.views.efficient.controls import ENTRIES, key
from dashboard.views.efficient.script import implied_script
from dashboard.views.efficient.text import kernel_name
from dashboard.widgets.panels import caption, fact
from dashboard.widgets.params import BOUND

SENTENCE, MOST_TOKENS = "The animal was too tired .", 48
FEATURES, FEW = (4, 16, 64, 256, 1024), (1, 2, 3, 4, 6, 8)


@fragment
def implied_weights() -> None:
    """Draw the implied weights next to the exact ones."""
    st.markdown("## Implied weights\n\nLinear and low-rank kernels compute no weights. These are the weights that "
                "would give their outputs, next to the weights of exact attention.")
    grid = st.grid(6, min_column_width=120)
    with grid.cell(column_span=2):
        sentence = st.text_input("Sentence", SENTENCE, key=key("sentence"), **BOUND,
                                 help="Each word is one token.")
    with grid:
        head = st.selectbox("Head", range(compute.HEADS), key=key("head"), **BOUND, help="The head that is drawn.")
        features = st.selectbox("Random features", FEATURES, 2, key=key("features"), **BOUND,
                                help=ENTRIES["performer"].params[0].help)
        few = st.selectbox("Rank, landmarks", FEW, 2, key=key("few"), **BOUND,
                           help="The number of projected keys in Linformer and of landmarks in Nyström.")
        causal = st.toggle("Causal", key=key("implied_causal"), **BOUND,
                           help="Hides later keys. Linformer and Nyström cannot do this and are left out.")
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
    add_script(partial(implied_script, choices, implied, tokens, causal, head), "implied")
    tiles = [Tile(ENTRIES[each.kernel].name, "softmax" if each.kernel == "exact" else
                  f"implied, error {number(each.mean_error)}", each.weights[head]) for each in implied]
    sentence = _fact(implied, features, few)
    pin = read_linked("efficient", key("pin"), (len(tokens), len(tokens)))
    pin = multiples(tiles, labels(tokens), key=key("maps"), fact=sentence, height=190, pin=pin)
    write_linked("efficient", key("pin"), pin)
    fact(sentence)
    caption(" ".join([f"Token vectors and projections of {compute.D_MODEL} numbers are random (seed {compute.SEED}) "
                      "and the same for all. Implied weights: the kernel's output is these weights times the "
                      "values. Error: the mean difference from the weights of exact attention.", *errors]))


def _fact(implied: list[Implied], features: int, few: int) -> str:
    """The kernels with the smallest and the largest error, and the largest weight of linear."""
    approximations = [each for each in implied[1:] if each.kernel != "retention"]  # retention approximates no softmax
    exact, linear = implied[0], next(each for each in implied if each.kernel == "linear")
    near, *_, far = sorted(approximations, key=lambda each: each.mean_error)
    size = {"performer": f" with {features} features", "linformer": f" of rank {few}",
            "nystrom": f" with {few} landmarks"}
    first, last = (f"{kernel_name(each.kernel)}{size.get(each.kernel, '')}" for each in (near, far))
    return (f"On average, a weight of {first} differs from exact attention by **{number(near.mean_error)}**, one of "
            f"{last} by **{number(far.mean_error)}**. The largest weight of linear attention is "
            f"{number(linear.largest)}, that of softmax {number(exact.largest)}.")
