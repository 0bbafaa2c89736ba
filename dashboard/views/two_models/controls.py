"""The controls: what is compared, the second side, the kind of attention, how heads are paired, and the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from core.interpret.map_transform import HeadChange
from core.interpret.trace import Kind
from core.pretrained import ModelInputs, PretrainedError, example_inputs
from dashboard.runtime.link_values import read_pair, write_pair
from dashboard.ui.presentation import pressed_point
from dashboard.views.two_models import text
from dashboard.views.two_models.compute import EXAMPLE, FINE_TUNED, Side, second_models
from dashboard.widgets.model_picker import ModelChoice, ModelRef
from dashboard.widgets.model_picker.head_choice import (
    KIND_HELP,
    KINDS,
    choose_head,
    current_head_of,
    head_field,
)
from dashboard.widgets.params import BOUND

TEXT_B = "two_models:text"
GRID, HEAD = "two_models:grid", "two_models:head"
OLD_EXAMPLE = ", kept"  # the end of an example's name in older links
SECOND = {
    "numbers": "nine thousand three hundred and twelve ; forty-eight",
    "induction": "the old king walked to the dark house . the old king walked to the dark",
    "only-attention": "the cold river and the dark house . we saw the dark",
    "names": "when ann and ben went to the shop , ann gave the book to",
    "": "The animal didn't cross the street because it was too wide.",
}
Second = int | tuple[str, ModelRef] | ModelInputs


@dataclass(frozen=True)
class Controls:
    """The mode, a key of `text.MODES`, and the second side: a seed of untrained weights, a named model, or inputs."""

    mode: str
    second: Second


def draw_controls(choice: ModelChoice) -> Controls:
    """Draw the mode and the control of the second side; PretrainedError where this model cannot be compared so."""
    row = st.columns([1.4, 1.6], vertical_alignment="bottom")
    mode = (
        row[0].segmented_control(
            "Compare",
            list(text.MODES),
            default="texts",
            required=True,
            format_func=text.modes(choice.pretrained).__getitem__,
            key="two_models:mode",
            wrap=True,
            help="One model on two inputs, two models on one text, or a model "
            "and its untrained copy.",
            **BOUND,
        )
        or "texts"
    )
    with row[1]:
        second = {"untrained": _seed, "models": _model, "texts": _inputs}[mode](choice)
    return Controls(mode, second)


def _seed(choice: ModelChoice) -> Second:
    return int(
        st.number_input(
            "Seed of the untrained weights",
            0,
            9999,
            0,
            key="two_models:seed",
            **BOUND,
            help="Each seed gives other random weights.",
        )
    )


def _model(choice: ModelChoice) -> Second:
    assert choice.pretrained is not None
    if not choice.pretrained.reads_text:
        raise PretrainedError(
            f"{choice.ref.name} reads a {choice.pretrained.reads}, and two models are compared on "
            "one text. Compare it trained and untrained, or choose a model that reads text."
        )
    models, key = second_models(choice), f"two_models:model:{choice.ref.name}"
    if (
        linked := st.query_params.get(key, "").removesuffix(OLD_EXAMPLE) + f", {EXAMPLE}"
    ) in models and (st.query_params[key].endswith(OLD_EXAMPLE)):
        st.session_state[key] = linked
    name = str(
        st.selectbox(
            "Model B",
            list(models),
            key=key,
            **BOUND,
            help="Also lists the models of the hub that were loaded in the field above.",
        )
    )
    return name, models[name]


def _inputs(choice: ModelChoice) -> Second:
    assert choice.pretrained is not None
    if choice.pretrained.reads == "picture":
        names = example_inputs.pictures(
            int(getattr(choice.pretrained.model.config, "num_channels", 3))
        )
        name = st.selectbox(
            "Picture B",
            list(names),
            min(1, len(names) - 1),
            key="two_models:picture",
            help="The picture that is compared with the one above.",
            **BOUND,
        )
        return ModelInputs(picture=example_inputs.picture(str(name)))
    if choice.pretrained.reads == "sound":
        raise PretrainedError(f"{choice.ref.name} reads sound; compare it trained and untrained.")
    default = SECOND.get(choice.ref.name, SECOND[""])
    return ModelInputs(
        st.text_input(
            "Text B",
            default,
            key=f"{TEXT_B}:{choice.ref.name}",
            **BOUND,
            help="Words that both texts share are aligned; the others are shown side by side.",
        )
        or ""
    )


def draw_kind(kinds: Sequence[Kind]) -> Kind:
    """Draw the choice of the kind of attention, where both sides have several."""
    if len(kinds) == 1:
        return kinds[0]
    names = [kind for kind in KINDS if kind in kinds]
    return (
        st.segmented_control(
            "Attention",
            names,
            default=kinds[0],
            required=True,
            format_func=KINDS.__getitem__,
            key=f"two_models:kind:{len(kinds)}",
            label_visibility="collapsed",
            help=KIND_HELP,
            **BOUND,
        )
        or kinds[0]
    )


def draw_nearest(second: Side) -> bool:
    """Draw whether each head is paired with its nearest; the heads of a fine-tuned model keep their positions."""
    fine_tuned = second.note.startswith(FINE_TUNED)
    return st.toggle(
        "Compare with the most similar head",
        not fine_tuned,
        key="two_models:nearest",
        **BOUND,
        help="Off: with the head at the same position, for a model that was trained from the other.",
    )


def current_head(heads: Sequence[HeadChange], ref: ModelRef, mode: str, kind: Kind) -> HeadChange:
    """The head of the link, else the one picked on another page, else the first in rank."""
    if st.session_state.setdefault("two_models:of", (ref, mode)) != (ref, mode):
        st.session_state["two_models:of"] = ref, mode
        write_pair("head", None)  # another comparison is about other heads
    by_index = {(item.layer, item.head): item for item in heads}
    shape = max(layer for layer, _ in by_index) + 1, max(head for _, head in by_index) + 1
    linked, error = read_pair("head", shape)
    if error:
        st.warning(error)
    if linked in by_index:
        choose_head(ref, kind, linked)
        return by_index[linked]
    stored = current_head_of(ref, kind, shape)
    if stored in by_index:
        write_pair("head", stored)
        return by_index[stored]
    return heads[0]


def draw_head(heads: Sequence[HeadChange], head: HeadChange, ref: ModelRef, kind: Kind) -> None:
    """Draw the field of the head."""
    head_field(
        {item.name: item for item in heads},
        head,
        lambda item: _choose(item, ref, kind),
        HEAD,
        order=", sorted by their difference",
    )


def pick_pressed_head(heads: Sequence[HeadChange], ref: ModelRef, kind: Kind) -> None:
    """Pick the head that was pressed in the grid; for a callback."""
    point = pressed_point(GRID)
    if head := next((item for item in heads if point and item.name == point["name"]), None):
        _choose(head, ref, kind)


def _choose(head: HeadChange, ref: ModelRef, kind: Kind) -> None:
    choose_head(ref, kind, (head.layer, head.head))
    write_pair("head", (head.layer, head.head))
