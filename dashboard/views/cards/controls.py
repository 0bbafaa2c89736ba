"""The controls of the page: the model, and those whose caches are compared with its own."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.models.cards import CARDS, card
from dashboard.widgets.params import BOUND

FIRST, COMPARED = "gemma3", ("llama3", "deepseek_v32", "qwen3_next")
MOST = 5  # models beside the chosen one: six curves in a figure
STORING = tuple(one.key for one in CARDS if one.stores)


@dataclass(frozen=True)
class Controls:
    """The key of the chosen card, and those of the cards that it is compared with."""

    model: str
    compared: tuple[str, ...]


key = "cards:{}".format  # a widget's key, which is also its name in the link


def draw_controls() -> Controls:
    """Draw the model and the comparison."""
    left, right = st.columns([3, 1], gap="medium", vertical_alignment="bottom")
    with left:
        keys = [one.key for one in CARDS]
        model = (
            st.selectbox(
                "Model",
                keys,
                keys.index(FIRST),
                format_func=name,
                key=key("model"),
                **BOUND,
                help="The published model whose card is drawn below.",
            )
            or FIRST
        )
    with right, st.popover("Compare caches", icon=":material/show_chart:", width="stretch"):
        compared = st.multiselect(
            f"Up to {MOST} models",
            STORING,
            list(COMPARED),
            format_func=name,
            max_selections=MOST,
            key=key("compared"),
            **BOUND,
            help="Models whose caches are drawn beside that of the chosen one.",
        )
    return Controls(model, tuple(compared))


def name(model: str) -> str:
    """A card's name with its year."""
    one = card(model)
    return f"{one.name} · {one.year}"
