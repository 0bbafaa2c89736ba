"""The page: controls, the picture of one idea, the guide, the equation, and the sources."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial

import streamlit as st

from core.attention import AttentionConfig
from core.attention.positions.rotary import Position
from core.seeding import seeded_layer
from dashboard.draw.formats import number
from dashboard.runtime.link_values import between, fragment, link_value
from dashboard.runtime.page_pictures import add_script
from dashboard.runtime.rendering import render_before_widgets
from dashboard.runtime.threads import one_thread
from dashboard.server.cache import cached
from dashboard.ui.export import begin_before_title
from dashboard.ui.train_with import train_with
from dashboard.views.positions import added, bias, compute, order, rotation
from dashboard.views.positions.charts import Equation
from dashboard.views.positions.compute import GUIDE_SHIFT
from dashboard.views.positions.controls import (
    D_MODEL,
    HEADS,
    Controls,
    draw_controls,
    key,
    link_errors,
    read_controls,
)
from dashboard.views.positions.script import script
from dashboard.widgets.guide import Move, Question, in_picture, predict, try_this
from dashboard.widgets.panels import (
    caption,
    details,
    entries_panel,
    next_page,
    plain,
    source_panel,
    title,
)

OPTIONS = {
    "sinusoidal": "Sinusoidal, added to the input",
    "learned": "Learned, added to the input",
    "rope": "RoPE, which rotates q and k",
}
WHY = {
    "sinusoidal": "The sinusoids are added to the words before $W_q$ and $W_k$, so the absolute position enters "
    "each score.",
    "learned": "Each position has its own learned vector, so the absolute position enters each score.",
    "rope": "Query and key are rotated by angles that grow with the position, so only their distance is left in the "
    "score.",
}

GUIDE_CONFIG, GUIDE_TOKENS = AttentionConfig(D_MODEL, HEADS), 12  # of the question
PICTURES = {
    "x": {"encoding": added.encoding, "distance": added.distance, "shift": added.shift},
    "q, k": {"encoding": rotation.encoding, "distance": rotation.distance, "shift": order.shift},
    "scores": {"encoding": bias.encoding, "distance": bias.distance, "shift": order.shift},
}


def page() -> None:
    """Draw the page from top to bottom."""
    for sentence in link_errors():
        st.warning(sentence)
    explore()
    sources()
    next_page("positions")


@fragment
def explore() -> None:
    """Draw title, controls, picture and sentence, which rerun alone."""
    begin_before_title()
    link_value(key("order"), 1, between(1, 9999))  # how often the words were shuffled
    controls, parts = render_before_widgets(
        key("ready"), read_controls, header, in_picture("positions", show)
    )
    if controls.tokens:
        few = controls.tokens[:GUIDE_TOKENS]
        predict(
            "positions", question(cached(compute.shift_changes, GUIDE_CONFIG, few, controls.seed))
        )
    try_this("positions", MOVES)
    if parts is not None:
        st.markdown(f"## What it means\n\n{controls.item.meaning}")
        if (
            controls.idea == "shuffle"
            and controls.item.key == "sinusoidal"
            and controls.config is not None
        ):
            parts = added.waves(controls, controls.config)
        # One element of two parts, which a narrow page breaks between.
        st.markdown(
            " $\\quad$ ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center"
        )
        if controls.item.latex in parts:
            caption(SYMBOLS.get(controls.item.key, ""))
    st.session_state[key("controls")] = controls


def header() -> Controls:
    """Draw the title with the controls below it; returns the controls."""
    title(
        "Positions",
        "Attention ignores the order of words; a position encoding adds it.",
        first=False,
    )
    return draw_controls()


def show(controls: Controls) -> Equation | None:
    """Draw picture, sentence and conditions, or the error; returns the equation."""
    if controls.config is None:
        st.error(plain(controls.problem))
        return None
    try:
        with one_thread():
            parts = picture(controls, controls.config)
        if parts is not None:
            add_script(partial(script, controls, controls.config))
    except ValueError as error:  # ConfigError too
        st.error(plain(str(error)))
        return None
    caption(
        " ".join([f"Layer and word vectors are random (seed {controls.seed}).", *controls.notes])
    )
    return parts


def picture(controls: Controls, config: AttentionConfig) -> Equation | None:
    """Draw the idea for the stage of the formula at which the encoding enters."""
    needs_words = controls.idea == "shuffle" or (
        controls.idea == "shift" and controls.item.enters != "x"
    )
    if needs_words and not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    if controls.idea == "shuffle":
        return order.shuffle(controls, config)
    if controls.item.enters in PICTURES:
        return PICTURES[controls.item.enters][controls.idea](controls, config)
    st.info(
        f"{controls.item.name} changes nothing, so there is nothing to draw here. Shuffle the words, or pick "
        "another encoding.",
        icon=":material/straighten:",
    )
    return None


def conditions(controls: Controls, config: AttentionConfig) -> str:
    """The number of learned parameters, and why there is no mask."""
    layer = seeded_layer(config, controls.seed)
    count = sum(weight.numel() for weight in layer.position.parameters())
    others = sum(weight.numel() for weight in layer.parameters()) - count
    learned = f"has {count:,} parameters" if count else "has no parameters"
    note = " Its parameters are random here, not trained."
    return (
        f"{controls.item.name} {learned}; the rest of the layer has {others:,} (d_model {config.d_model}, "
        f"{config.num_heads} heads). There is no mask: a causal mask would also tell the order."
        f"{note * bool(count)}"
    )


def sources() -> None:
    """Draw the way to train with the encoding, and on request where it is from."""
    controls: Controls | None = st.session_state.get(key("controls"))
    if controls is None:
        return
    if controls.config is not None:
        train_with("position", controls.config.position, key=key("train"))
    details("Equation, paper and code of the encoding", partial(source, controls), key("source"))


def source(controls: Controls) -> None:
    """Draw equation, meaning and paper, and the class that just ran."""
    entries_panel([controls.item])
    if controls.config is not None:
        caption(conditions(controls, controls.config))
        built = type(seeded_layer(controls.config, controls.seed).position)
        source_panel(built)
        base = inspect.getmro(built)[1]
        if base is not Position and base.__module__ == built.__module__:
            source_panel(base)


# What a reader predicts and tries on Positions.


def question(changes: Mapping[str, float]) -> Question:
    """Which encoding keeps the scores of a sentence that comes later; `changes` are the largest changes of a score."""
    keys = list(OPTIONS)
    right = min(keys, key=lambda key: changes[key])
    answer = (
        f" With {OPTIONS[right].partition(',')[0]} it is {number(changes[right])}: {WHY[right]}"
    )
    reasons = tuple(
        f"Measured on this sentence, the largest change of a score is {number(changes[key])}. {WHY[key]}"
        f"{answer if key != right else ''}"
        for key in keys
    )
    return Question(
        f"Sinusoidal adds waves of fixed lengths to the words, Learned a vector that training finds for "
        "each position. RoPE adds nothing: it rotates queries and keys, by an angle that grows with the "
        f"position. Now {GUIDE_SHIFT} other words stand before the sentence. With which encoding do the "
        "scores between its own words stay the same?",
        tuple(OPTIONS.values()),
        keys.index(right),
        reasons,
    )


SYMBOLS = {
    "sinusoidal": "i is the position, C the count of numbers in a word's vector, and b the base. m counts the pairs of "
    "sine and cosine from 0.",
    "learned": "i is the position, x_i the vector of its word, and P_i the learned vector of the position.",
    "rope": "i and j are the positions of query and key. R_i rotates each pair of numbers by i times the pair's angle.",
    "alibi": "i and j are the positions of query and key. m_h is the slope of head h, counted from 0; H is the count "
    "of heads.",
}


MOVES = (
    Move(
        "Remove the positions",
        {"positions:position": "none", "positions:idea": "shuffle"},
        "Each word keeps its output when the sentence is shuffled. Without positions, attention reads a sentence as a "
        "set of words.",
    ),
    Move(
        "Rotate with RoPE",
        {"positions:position": "rope", "positions:idea": "encoding"},
        "Each pair of dimensions is a hand that rotates by the same angle at each position: the first pair fast, the "
        "last one slowly.",
    ),
    Move(
        "Move the sentence",
        {"positions:position": "rope", "positions:idea": "shift", "positions:shift": 5},
        "The same words have the same scores five positions later. Pick Sinusoidal above and they change.",
    ),
    Move(
        "Prefer near words",
        {"positions:position": "alibi", "positions:idea": "distance"},
        "ALiBi lowers a score in proportion to the distance. Each head has its own slope, so some heads read far and "
        "some near.",
    ),
)
