"""The page's parts: the picture of an idea, its conditions, and where the encoding is from."""

from __future__ import annotations

import inspect

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AttentionConfig
from dashboard.runtime.rendering import render_before_widgets
from dashboard.views.positions import added, bias, compute, order, rotation
from dashboard.views.positions.controls import Chosen, choose, key, settings, unknown
from dashboard.views.positions.text import Equation
from dashboard.widgets.panels import entries_panel, next_page, plain, source_panel, title
from dashboard.widgets.train_with import train_with

PICTURES = {
    "x": {"encoding": added.encoding, "distance": added.distance, "shift": added.shift},
    "q, k": {"encoding": rotation.encoding, "distance": rotation.distance, "shift": bias.shift},
    "scores": {"encoding": bias.encoding, "distance": bias.distance, "shift": bias.shift},
}


def page() -> None:
    """Draw the page from top to bottom."""
    for sentence in unknown():
        st.warning(sentence)
    explore()
    source()
    next_page("positions")


@st.fragment
def explore() -> None:
    """Title, controls, picture and sentence; a control reruns nothing else.

    """
    asked, (symbols, said) = render_before_widgets(key("ready"), settings, controls, show)
    if said is not None:
        # One element of two parts, which a narrow page breaks between.
        symbols.markdown(" $\\quad$ ".join(rf"$\displaystyle {part}$" for part in said), text_alignment="center")
    st.session_state[key("asked")] = asked


def controls() -> Chosen:
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width=700):
            title("Positions", "Attention itself sees no order. Pick an encoding and see how it brings order in.")
        corner = st.container(width="content")
    return choose(corner)


def show(asked: Chosen) -> tuple[DeltaGenerator, Equation | None]:
    """The picture, its sentence and its conditions, or what is wrong; returns the equation, and its place above."""
    symbols = st.container()
    if asked.config is None:
        st.error(plain(asked.problem))
        return symbols, None
    try:
        said = picture(asked, asked.config)
    except ValueError as error:  # ConfigError too
        st.error(plain(str(error)))
        return symbols, None
    st.caption(conditions(asked, asked.config))
    return symbols, said


def picture(asked: Chosen, config: AttentionConfig) -> Equation | None:
    """The idea that is looked at, as the place where the encoding enters asks for."""
    if not asked.tokens and (asked.idea == "shuffle" or (asked.idea == "shift" and asked.item.enters != "x")):
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    if asked.idea == "shuffle":
        return order.shuffle(asked, config)
    if asked.item.enters in PICTURES:
        return PICTURES[asked.item.enters][asked.idea](asked, config)
    st.info(f"{asked.item.name} adds nothing anywhere, so there is nothing to draw. Shuffle the words, or pick "
            "another position.", icon=":material/straighten:")
    return None


def conditions(asked: Chosen, config: AttentionConfig) -> str:
    """What is learned here, and under which conditions the numbers hold."""
    layer = compute.layer_of(config, asked.seed)
    own = sum(weight.numel() for weight in layer.position.parameters())
    others = sum(weight.numel() for weight in layer.parameters()) - own
    learned = f"learns {own:,} numbers" if own else "learns nothing"
    drawn = " Learned numbers are drawn at random: their arithmetic is real, their shape means nothing yet." * bool(own)
    return " ".join([
        f"{asked.item.name} {learned}; the rest of this layer has {others:,} (d_model {config.d_model}, "
        f"{config.num_heads} heads). Weights and words are random (seed {asked.seed}); no mask, since a causal one "
        f"would itself tell the order.{drawn}", *asked.notes])


def source() -> None:
    """On request: equation, meaning, paper, and the class that just ran."""
    asked = st.session_state.get(key("asked"))
    if asked is not None and asked.config is not None:
        train_with("position", asked.config.position, key=key("train"))
    panel = st.expander("Equation, paper and the code that just ran", on_change="rerun", key=key("source"))
    if not panel.open or asked is None:
        return
    with panel:
        entries_panel([asked.item])
        if asked.config is not None:
            built = type(compute.layer_of(asked.config, asked.seed).position)
            source_panel(built)
            if inspect.getmro(built)[1].__module__ == built.__module__:
                source_panel(inspect.getmro(built)[1])


