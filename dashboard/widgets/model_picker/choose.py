"""The chooser that every page of Look inside begins with: a model, and what it is to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.pretrained import ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.model_storage import format_bytes
from dashboard.widgets.model_picker.arrays import array_panel
from dashboard.widgets.model_picker.inputs import model_inputs
from dashboard.widgets.model_picker.models import (
    MODEL,
    PICKED,
    ModelRef,
    load_model,
    local_models,
    reading_of,
    stored_bytes,
)
from dashboard.widgets.model_picker.needs import default_model, missing_feature, suitable_models
from dashboard.widgets.model_picker.resolve import (
    BEFORE,
    downloaded_models,
    on_model_change,
    other_panel,
    resolve_model,
    select_model,
)
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND

HELP = ("The lab's own: **numbers** translates English number words into German, **induction** goes on with a passage "
        "that repeats, **digits** reads handwritten digits. Or type the name of any model of the Hugging Face hub, "
        "owner/name.")
USUAL = "inside:usual"
OTHER = "Another model…"
PANELS = {OTHER: other_panel, "Your own arrays…": array_panel}


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The model and what it was given, and what it made of it; `pretrained` is None for an uploaded array."""

    ref: ModelRef
    given: ModelInputs
    pretrained: Pretrained | None
    reading: Reading


def choose_model(page: str, needs: tuple[str, ...] = ()) -> ModelChoice | None:
    """Draw the model and its inputs, and read; None after the page has been told why there is nothing to show.

    `needs` are what the page cannot do without, of "qkv", "head", "generate" and "model": a model that lacks one is
    refused in words, beside one that has it.
    """
    left, right = st.columns([1, 2])
    name = model_box(left, default_model(needs), tuple(PANELS))
    try:
        if name in PANELS:
            PANELS[name](right)
            return None
        ref = resolve_model(name)
        return None if ref is None else _read(ref, needs, right)
    except PretrainedError as error:
        st.info(plain(str(error)), icon=":material/edit:")
        return None


def model_box(place: Any, usual: ModelRef, panels: tuple[str, ...] = (OTHER,)) -> str:
    """The field of all models that are here, into which any other name may be typed; the name, or one of `panels`.

    Every page that has it goes on with the model that a person picked on another one.
    """
    state, names = st.session_state, [ref.name for ref in local_models()]
    state[PICKED] = state.get(PICKED, False) or MODEL in st.query_params
    if not state[PICKED] and state.get(MODEL) and state[MODEL] == state.get(USUAL):
        state[MODEL] = usual.name  # another page's usual model, which nobody has asked for here
    state[USUAL] = usual.name
    current = state.get(MODEL) or st.query_params.get(MODEL)
    options = list(dict.fromkeys([*names, *downloaded_models(), *panels, *filter(None, (current,))]))
    chosen = place.selectbox("Model", options, names.index(usual.name), key=MODEL, accept_new_options=True, **BOUND,
                             on_change=on_model_change, help=HELP)
    state[BEFORE] = str(chosen or usual.name)
    return state[BEFORE]


def _read(ref: ModelRef, needs: tuple[str, ...], place: Any) -> ModelChoice | None:
    pretrained = None
    if ref.source != "array":
        with place, st.spinner(f"Loading {ref.name}, {format_bytes(stored_bytes(ref))}, first time only"):
            pretrained = load_model(ref)
    if missing := missing_feature(pretrained, needs):
        _refuse("An uploaded array" if pretrained is None else pretrained.name, missing, needs)
        return None
    given = ModelInputs() if pretrained is None else model_inputs(ref, pretrained, place)
    with st.spinner("Reading"):
        reading = reading_of(ref, given)
    if pretrained is None:
        layers, heads = reading.trace.shape
        place.caption(f"{plain(reading.trace.source)}: {layers} layers of {heads} heads, {len(reading.source)} tokens.")
    if reading.cut:
        st.warning(plain(reading.cut), icon=":material/content_cut:")
    return ModelChoice(ref, given, pretrained, reading)


def _refuse(who: str, missing: str, needs: tuple[str, ...]) -> None:
    """Why this page has nothing to show of this model, and the models that it has something of."""
    st.info(plain(f"{who} {missing}"), icon=":material/block:")
    with st.container(horizontal=True):
        for other in suitable_models(needs)[:3]:
            st.button(f"Use {other.name}", key=f"inside:use:{other.name}", on_click=select_model, args=(other.name,))
