"""Two moving pictures of a translator: through one vector, and with attention back to every input word."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from dashboard.components.attention_view.payload import READS
from dashboard.components.lib import draw
from dashboard.draw.maps import PictureMap
from dashboard.draw.pictures import MapsPicture
from dashboard.runtime.page_pictures import add


def translation_view(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    *,
    key: str,
    picked: int,
    on_pick: Callable[[int], None],
) -> None:
    """Draw both; `weights` (T, S) are the arrows of the right one, `picked` is the output word whose arrows are shown.

    `on_pick` is called with the index of an output word when a click or a key has picked it.
    """
    data = {
        "source": list(source),
        "target": list(target),
        "weights": [list(row) for row in weights],
        "picked": picked,
    }
    add(key, functools.partial(picture_of, source, target, weights, picked))
    draw(
        "translation_view",
        "tv",
        data,
        key=key,
        on_word_change=functools.partial(_take, key, len(target), on_pick),
    )


def picture_of(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], picked: int
) -> MapsPicture:
    """The arrows as a map, the picked output word outlined."""
    drawn = PictureMap(
        "Attention",
        np.array(weights, dtype=np.float32),
        tuple(target),
        tuple(source),
        noun="weight",
    )
    return MapsPicture(
        "Attention of the translator",
        (drawn,),
        picked,
        READS["cross"],
        about={"text": " ".join(source)},
    )


def _take(key: str, count: int, on_pick: Callable[[int], None]) -> None:
    word = st.session_state[key].get("word")
    if isinstance(word, int | float) and 0 <= word < count:
        on_pick(int(word))
