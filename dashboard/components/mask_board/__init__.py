"""A board of cells of a mask, switched on and off by pointer or keys.

    mask_board(allowed, tokens, key="masks:board", on_draw=take)

`on_draw` is called when a person has changed cells; `drawing_text(key)` is then the drawing (core.masks.Drawing).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st
import torch

from core.masks import Drawing, parse_drawing
from core.tokens import token_text
from dashboard.components.attention_view.payload import READS
from dashboard.components.lib import draw
from dashboard.draw.maps import PictureMap
from dashboard.draw.pictures import MapsPicture
from dashboard.runtime.page_pictures import add


def mask_board(
    allowed: np.ndarray,
    tokens: Sequence[str],
    *,
    key: str,
    on_draw: Callable[[], None],
    query: int | None = None,
    title: str = "",
    note: str = "",
    fact: str = "",
) -> None:
    """Draw the cells `allowed` (T, T), True = may attend, T at most 64, which a person may switch on and off.

    `query` is the row in the accent while nothing is under the pointer; `fact` is what a screen reader hears first.
    """
    text = Drawing.of(torch.from_numpy(np.ascontiguousarray(allowed))).text()
    names = [token_text(str(token)) for token in tokens]
    data = {
        "cells": text,
        "names": names,
        "query": query,
        "title": title,
        "note": note,
        "fact": fact,
        "turn": st.session_state.get(f"{key}:turn", 0),
    }
    add(key, functools.partial(picture_of, allowed, tuple(names), title or "Mask", note, query))
    draw("mask_board", "mb", data, key=key, on_cells_change=functools.partial(_take, key, on_draw))


def picture_of(
    allowed: np.ndarray, names: tuple[str, ...], title: str, note: str, query: int | None
) -> MapsPicture:
    """The board as a map of 1, may attend, and 0."""
    drawn = PictureMap(title, allowed.astype(float), names, names, note, allowed, noun="may attend")
    return MapsPicture(title, (drawn,), query, READS["self"])


def drawing_text(key: str) -> str:
    """The board's drawing as validated text; ConfigError when the browser sent anything else."""
    text = str(dict(st.session_state[key].get("cells") or {}).get("text", ""))
    return parse_drawing(text).text()


def _take(key: str, on_draw: Callable[[], None]) -> None:
    st.session_state[f"{key}:turn"] = int(
        dict(st.session_state[key].get("cells") or {}).get("turn", 0)
    )
    on_draw()
