"""Two moving pictures of a translator: through one vector, and with attention back to every input word."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.components.lib import draw


def translation_view(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], *, key: str,
                     picked: int, on_pick: Callable[[int], None]) -> None:
    """Draw both; `weights` (T, S) are the arrows of the right one, `picked` is the output word whose arrows are shown.

    `on_pick` is called with the index of an output word when a click or a key has picked it.
    """
    data = {"source": list(source), "target": list(target), "weights": [list(row) for row in weights],
            "picked": picked}
    draw("translation_view", "tv", data, key=key, on_word_change=functools.partial(_take, key, len(target), on_pick))


def _take(key: str, count: int, on_pick: Callable[[int], None]) -> None:
    word = st.session_state[key].get("word")
    if isinstance(word, int | float) and 0 <= word < count:
        on_pick(int(word))
