"""What a link of this page says: the weights that it leaves out, and values that the page lacks."""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.link_start import read_start
from dashboard.views.heads import minilm
from dashboard.views.heads.controls import (
    D_MODEL,
    FIRST,
    IDEAS,
    LAYER,
    LENGTH,
    LENGTHS,
    SIZES,
    WEIGHTS,
    first_weights,
    key,
)
from dashboard.widgets.panels import plain


def open_link() -> None:
    """Find out whether the link was made when this page opened on random weights; before the first widget."""
    read_start("heads", "minilm", "random")


def link_errors() -> list[str]:
    """A sentence for each value in the link that this page lacks; call it before the first widget takes its value."""
    allowed = {"idea": (list(IDEAS.values()), IDEAS[FIRST]),
               "weights": (list(WEIGHTS.values()), WEIGHTS[first_weights()]),
               "layer": (list(map(str, range(minilm.LAYERS))), str(LAYER)),
               "d_model": (list(map(str, SIZES)), str(D_MODEL)),
               "length": ([f"{length:,}" for length in LENGTHS], f"{LENGTH:,}")}
    errors = []
    for name, (options, default) in allowed.items():
        value = None if key(name) in st.session_state else st.query_params.get(key(name))
        if value and value not in options:
            errors.append(f"The link says {plain(name)} = {plain(value[:40])}; expected one of "
                          f"{plain(' | '.join(options))}. {plain(default)} is shown.")
    return errors
