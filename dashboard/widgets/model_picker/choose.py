"""The model picker of the pages that look inside a model: the model and its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import streamlit as st

from core.files import without_paths
from core.pretrained import ModelInputs, Pretrained, PretrainedError, Reading
from core.pretrained.hub import format_bytes
from dashboard.draw.formats import plain
from dashboard.draw.page_pictures import describe
from dashboard.ui.links import BOUND
from dashboard.widgets.model_picker import resolve
from dashboard.widgets.model_picker.allowed import hub_help
from dashboard.widgets.model_picker.arrays import array_panel
from dashboard.widgets.model_picker.inputs import model_inputs
from dashboard.widgets.model_picker.models import (
    EMBEDDED,
    MODEL,
    PICKED,
    ModelRef,
    is_loaded,
    load_model,
    local_models,
    reading_of,
    stored_bytes,
)

MISSING = {
    "model": "has attention weights only; this page needs a model.",
    "qkv": "does not expose its queries, keys and values, which this page needs.",
    "head": "outputs an embedding; this page needs a model that outputs words or classes.",
    "tokens": "gives no probabilities to tokens; this page needs a model that fills masks or writes text.",
    "generate": "generates no text; this page needs a model that does.",
}

HELP = (
    "The lab's own models: **numbers** translates English number words into German, **induction** continues a "
    "passage that repeats, **only-attention** does so without feed-forward layers, **names** ends sentences with "
    "the right one of two names, **digits** reads handwritten digits. "
)
USUAL = "inside:usual"
SKELETON = 240  # pixels in which a model that loads will show its controls
OTHER = "Another model…"
PANELS = {OTHER: resolve.other_panel, "Your own arrays…": array_panel}


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """The model and its inputs; `pretrained` is None for an uploaded array."""

    ref: ModelRef
    inputs: ModelInputs
    pretrained: Pretrained | None

    @cached_property
    def reading(self) -> Reading:
        """The model's reading of the inputs; PretrainedError where it cannot read them."""
        return reading_of(self.ref, self.inputs)


def choose_model(
    page: str, needs: tuple[str, ...] = (), at_once: bool = True
) -> ModelChoice | None:
    """Draw the picker and the inputs, and read; None after a message on why there is nothing to show.

    `needs` are required features, of "qkv", "head", "tokens", "generate" and "model"; models without them are refused.
    If not `at_once`, the page itself calls `read_inputs`, for instance after a picture that needs no attention maps.
    """
    with st.container():  # which keeps its place, whatever it says of the model
        left, right = st.columns([1, 2])
        name = model_box(left, default_model(needs), tuple(PANELS))
        with input_errors():
            if name in PANELS:
                PANELS[name](right)
            elif (ref := resolve.resolve_model(name)) is not None:
                return _choice(ref, needs, right, at_once)
    return None


@contextmanager
def input_errors() -> Iterator[None]:
    """Show a PretrainedError as a note, and go on after the block."""
    try:
        yield
    except PretrainedError as error:
        st.info(plain(without_paths(str(error))), icon=":material/edit:")


def model_box(container: Any, usual: ModelRef, panels: tuple[str, ...] = (OTHER,)) -> str:
    """A select box of the local models that takes any other name; returns the name, or one of `panels`."""
    state, names = st.session_state, [ref.name for ref in local_models()]
    state[PICKED] = state.get(PICKED, False) or MODEL in st.query_params
    if not state[PICKED] and state.get(MODEL) and state[MODEL] == state.get(USUAL):
        state[MODEL] = usual.name  # another page's default, not the user's choice
    state[USUAL] = usual.name
    current = state.get(MODEL) or st.query_params.get(MODEL)
    options = list(
        dict.fromkeys([*names, *resolve.downloaded_models(), *panels, *filter(None, (current,))])
    )
    choice = container.selectbox(
        "Model",
        options,
        names.index(usual.name),
        key=MODEL,
        accept_new_options=True,
        **BOUND,
        on_change=resolve.on_model_change,
        help=HELP + hub_help(),
    )
    state[resolve.BEFORE] = name = str(choice or usual.name)
    if name not in panels:
        describe(model=name.rstrip("/").rpartition("/")[2])
    return name


def choose_weights(usual: ModelRef, needs: tuple[str, ...]) -> tuple[ModelRef, Pretrained] | None:
    """Draw the picker alone, for a page on the weights of a model; `usual` is its first one. None after a message."""
    with st.container():
        left, right = st.columns([1, 2])
        name = model_box(left, usual)
        with input_errors():
            if name == OTHER:
                resolve.other_panel(right)
            elif (ref := resolve.resolve_model(name)) is not None and (
                model := _load(ref, needs, right)
            ) is not None:
                return ref, model
    return None


def _load(ref: ModelRef, needs: tuple[str, ...], container: Any) -> Pretrained | None:
    """The model, None for arrays; None, too, after a message on what it lacks."""
    pretrained = None
    if ref.source != "array":
        name = without_paths(ref.name)
        place = container.empty()
        if not is_loaded(ref):
            place.skeleton(height=SKELETON)
        with (
            container,
            st.spinner(f"Loading {name}, {format_bytes(stored_bytes(ref))}, only the first time"),
        ):
            pretrained = load_model(ref)
        place.empty()
    if missing := missing_feature(pretrained, needs):
        _refuse("An uploaded array" if pretrained is None else pretrained.name, missing, needs)
        return None
    return pretrained


def _choice(
    ref: ModelRef, needs: tuple[str, ...], container: Any, at_once: bool
) -> ModelChoice | None:
    pretrained = _load(ref, needs, container)
    if pretrained is None and (needs or ref.source != "array"):
        return None
    choice = ModelChoice(
        ref,
        ModelInputs() if pretrained is None else model_inputs(ref, pretrained, container),
        pretrained,
    )
    if at_once:
        read_inputs(choice)
    if pretrained is None:
        trace = choice.reading.trace
        layers, heads = trace.shape
        container.caption(
            f"{plain(trace.source)}: {layers} layers of {heads} heads, "
            f"{len(choice.reading.source)} tokens."
        )
    if choice.inputs.text:
        describe(text=choice.inputs.text)
    return choice


def read_inputs(choice: ModelChoice) -> None:
    """Let the model read its inputs, and say so if they were cut; PretrainedError where it cannot read them."""
    with st.spinner("Running the model"):
        reading = choice.reading
    if reading.cut:
        st.warning(plain(reading.cut), icon=":material/content_cut:")


def _refuse(name: str, missing: str, needs: tuple[str, ...]) -> None:
    """Draw what the model lacks, and up to three models that have it."""
    st.info(plain(f"{name} {missing}"), icon=":material/block:")
    with st.container(horizontal=True):
        for other in suitable_models(needs)[:3]:
            st.button(
                f"Use {other.name}",
                key=f"inside:use:{other.name}",
                on_click=resolve.select_model,
                args=(other.name,),
            )


# The features that pages require of a model, and which models have them.


def missing_feature(pretrained: Pretrained | None, needs: tuple[str, ...]) -> str:
    """The first missing feature of a model (None for arrays), as the end of a sentence; empty where none is missing."""
    for need in needs:
        if pretrained is None:
            return MISSING["model"]
        has = {
            "model": True,
            "qkv": pretrained.recordable,
            "head": pretrained.head != "none",
            "tokens": pretrained.head in ("masked", "next", "seq2seq"),
            "generate": pretrained.head in ("next", "seq2seq"),
        }
        if not has[need]:
            return MISSING[need]
    return ""


def suitable_models(
    needs: tuple[str, ...], among: tuple[ModelRef, ...] | None = None
) -> list[ModelRef]:
    """The local models that have all features, those that read text first."""
    text: list[ModelRef] = []
    others: list[ModelRef] = []
    for ref in local_models() if among is None else among:
        try:
            pretrained = load_model(ref)
        except PretrainedError:
            continue
        if not missing_feature(pretrained, needs):
            (text if pretrained.reads == "text" else others).append(ref)
    return text + others


def default_model(needs: tuple[str, ...]) -> ModelRef:
    """The model that a page shows first: the embedded one, or the first of the lab's own that fits."""
    if set(needs) <= {"model", "qkv"}:
        return EMBEDDED
    own = tuple(
        ref for ref in local_models() if ref.source == "lab"
    )  # small, so that loading each is quick
    return next(iter(suitable_models(needs, own)), EMBEDDED)
