"""Upload of attention weights computed elsewhere, which become a source like any model."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.pretrained import ModelInputs, PretrainedError
from core.pretrained.arrays import LIMITS, MOST_BYTES, SHAPES
from core.pretrained.example_inputs import TEXT
from dashboard.draw.formats import plain
from dashboard.draw.picture_files import trace_npz
from dashboard.server.cache import cached
from dashboard.server.limits import LimitReached, admit_upload, at_most
from dashboard.widgets.model_picker import uploads
from dashboard.widgets.model_picker.models import EMBEDDED, reading_of
from dashboard.widgets.model_picker.resolve import select_model

FILE, TOKENS, WRONG = "inside:array-file", "inside:array-tokens", "inside:array-wrong"


def array_panel(container: Any) -> None:
    """Draw the limits, the file and token fields, and an example to download."""
    container.caption(
        f"{LIMITS} Expected: {SHAPES}. Name the tokens `tokens`, or `queries` and `keys`: an array of "
        "text in an NPZ, a JSON list in the metadata of safetensors."
    )
    file, tokens = st.columns([1, 1])
    file.file_uploader(
        "Weights",
        ["npz", "safetensors"],
        key=FILE,
        on_change=_uploaded,
        max_upload_size=at_most("upload_megabytes", MOST_BYTES // 10**6),
        help="A file with the attention weights of one or more layers.",
    )
    tokens.text_input(
        "Tokens, if the file has none",
        key=TOKENS,
        placeholder="the cat sat",
        on_change=_uploaded,
        help="One word per token, separated by spaces.",
    )
    tokens.download_button(
        "Example file, NPZ",
        lambda: cached(_example),
        "attention.npz",
        icon=":material/download:",
        on_click="ignore",
        help="The weights of the embedded model on its example sentence.",
    )
    if wrong := st.session_state.get(WRONG):
        st.error(plain(wrong), icon=":material/error:")


def _uploaded() -> None:
    """Read the upload, and select it if it is valid."""
    st.session_state.pop(WRONG, None)
    file = st.session_state.get(FILE)
    if file is None:
        return
    try:
        admit_upload(file)
        select_model(uploads.store(file.getvalue(), file.name, st.session_state.get(TOKENS) or ""))
    except (PretrainedError, LimitReached) as error:
        st.session_state[WRONG] = str(error)


def _example() -> bytes:
    return trace_npz(reading_of(EMBEDDED, ModelInputs(TEXT)).trace)
