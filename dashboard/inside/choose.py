"""The chooser that every page of Look inside begins with: a model, and what it is to read."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.pretrained import Given, Pretrained, PretrainedError, Reading
from dashboard.controls import BOUND
from dashboard.inside.models import ModelRef, loaded, readable_models, reading_of

EXAMPLE = "The animal didn't cross the street because it was too tired."


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
    refused in words which name one that has it.
    """
    refs = {ref.name: ref for ref in readable_models()}
    left, right = st.columns([1, 2])
    name = left.selectbox("Model", list(refs), key="inside:model", **BOUND)
    text = right.text_input("Text", EXAMPLE, key="inside:text", **BOUND) or ""
    ref, given = refs[name], Given(text)
    try:
        with st.spinner("Loading the model, first time only"):
            return Chosen(ref, given, loaded(ref), reading_of(ref, given))
    except PretrainedError as error:
        st.info(str(error), icon=":material/edit:")
        return None
