"""The page's keys, what each may hold, and what follows from them where nothing was picked."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AttentionConfig, Choice, heads_that_divide

D_MODEL, HEADS, SEED, STAGE = 16, 4, 126, 5
STAGES = {1: "1 Project", 2: "2 Score", 3: "3 Scale + bias", 4: "4 Mask", 5: "5 Normalize", 6: "6 Weigh values"}
SOURCES = {"sentence": "Sentence", "matrices": "Matrices Q, K, V"}
NUMBERS = {"real": (0, 512), "seed": (0, 999_999)}
USUAL = AttentionConfig(D_MODEL, HEADS, position=Choice("alibi"), mask=Choice("causal"))
FEW_ROWS, FEW_HEADS = 12, 8  # up to here pills, above a list


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"one:{name}"


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def given() -> bool:
    """Whether Q, K and V are given, instead of a sentence."""
    return get("source") == "matrices"


def default_heads(d_model: int) -> int:
    """The most heads up to the usual four that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= HEADS)


def heads_of(d_model: int) -> int:
    """The heads that were picked, where they still divide d_model."""
    heads = get("heads", HEADS)
    return heads if d_model % heads == 0 else default_heads(d_model)


def row_of(names: tuple[str, ...]) -> int:
    """The row that was picked; the last word where it is no longer there."""
    usual = max((i for i, name in enumerate(names) if any(c.isalnum() for c in name)), default=len(names) - 1)
    picked = get("query")
    return names.index(picked) if picked in names else usual


def one_of(name: str, count: int) -> int:
    """A number below `count` that was picked (a head, a map), or the first."""
    picked = get(name, 0) or 0
    return picked if picked < count else 0
