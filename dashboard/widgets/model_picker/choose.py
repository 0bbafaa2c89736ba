"""The chooser that every page of Look inside begins with: a model, and what it is to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.pretrained import Given, Pretrained, PretrainedError, Reading
from core.pretrained.places import megabytes
from dashboard.widgets.model_picker.arrays import array_panel
from dashboard.widgets.model_picker.inputs import inputs
from dashboard.widgets.model_picker.models import MODEL, PICKED, ModelRef, loaded, readable_models, reading_of, stored
from dashboard.widgets.model_picker.needs import fitting, lacks, usual_for
from dashboard.widgets.model_picker.opening import BEFORE, opened, other_panel, picked, shelved, use
from dashboard.widgets.panels import plain
from dashboard.widgets.params import BOUND

HELP = ("The lab's own: **numbers** translates English number words into German, **induction** goes on with a passage "
        "that repeats, **digits** reads handwritten digits. Or type the name of any model of the Hugging Face hub, "
        "owner/name.")
USUAL = "inside:usual"
OTHER = "Another model…"
PANELS = {OTHER: other_panel, "Your own arrays…": array_panel}


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model and what it was given, and what it made of it; `pretrained` is None for an uploaded array."""

    ref: ModelRef
    given: Given
    pretrained: Pretrained | None
    reading: Reading


def choose(page: str, needs: tuple[str, ...] = ()) -> Chosen | None:
    """Draw the model and its inputs, and read; None after the page has been told why there is nothing to show.

    `needs` are what the page cannot do without, of "qkv", "head", "generate" and "model": a model that lacks one is
    refused in words, beside one that has it.
    """
    left, right = st.columns([1, 2])
    name = model_box(left, usual_for(needs), tuple(PANELS))
    try:
        if name in PANELS:
            PANELS[name](right)
            return None
        ref = opened(name)
        return None if ref is None else _read(ref, needs, right)
    except PretrainedError as error:
        st.info(plain(str(error)), icon=":material/edit:")
        return None


def model_box(place: Any, usual: ModelRef, panels: tuple[str, ...] = (OTHER,)) -> str:
    """The field of all models that are here, into which any other name may be typed; the name, or one of `panels`.

    Every page that has it goes on with the model that a person picked on another one.
    """
    state, names = st.session_state, [ref.name for ref in readable_models()]
    state[PICKED] = state.get(PICKED, False) or MODEL in st.query_params
    if not state[PICKED] and state.get(MODEL) and state[MODEL] == state.get(USUAL):
        state[MODEL] = usual.name  # another page's usual model, which nobody has asked for here
    state[USUAL] = usual.name
    current = state.get(MODEL) or st.query_params.get(MODEL)
    options = list(dict.fromkeys([*names, *shelved(), *panels, *filter(None, (current,))]))
    chosen = place.selectbox("Model", options, names.index(usual.name), key=MODEL, accept_new_options=True, **BOUND,
                             on_change=picked, help=HELP)
    state[BEFORE] = str(chosen or usual.name)
    return state[BEFORE]


def _read(ref: ModelRef, needs: tuple[str, ...], place: Any) -> Chosen | None:
    pretrained = None
    if ref.source != "array":
        with place, st.spinner(f"Loading {ref.name}, {megabytes(stored(ref))}, first time only"):
            pretrained = loaded(ref)
    if missing := lacks(pretrained, needs):
        _refuse("An uploaded array" if pretrained is None else pretrained.name, missing, needs)
        return None
    given = Given() if pretrained is None else inputs(ref, pretrained, place)
    with st.spinner("Reading"):
        reading = reading_of(ref, given)
    if pretrained is None:
        layers, heads = reading.trace.shape
        place.caption(f"{plain(reading.trace.source)}: {layers} layers of {heads} heads, {len(reading.source)} tokens.")
    if reading.cut:
        st.warning(plain(reading.cut), icon=":material/content_cut:")
    return Chosen(ref, given, pretrained, reading)


def _refuse(who: str, missing: str, needs: tuple[str, ...]) -> None:
    """Why this page has nothing to show of this model, and the models that it has something of."""
    st.info(plain(f"{who} {missing}"), icon=":material/block:")
    with st.container(horizontal=True):
        for other in fitting(needs)[:3]:
            st.button(f"Use {other.name}", key=f"inside:use:{other.name}", on_click=use, args=(other.name,))
