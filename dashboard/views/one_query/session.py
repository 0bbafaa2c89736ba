"""The page's session keys, their bounds, and the defaults where nothing was picked."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.attention import AttentionConfig, Choice, heads_that_divide

D_MODEL, HEADS, SEED, STAGE = 16, 4, 1044, 5  # this seed shows a masked key that scores highest
STAGES = {1: "1 Project", 2: "2 Score", 3: "3 Scale + bias", 4: "4 Mask", 5: "5 Normalize", 6: "6 Weigh values"}
SOURCES = {"sentence": "Sentence", "matrices": "Matrices Q, K, V"}
NUMBERS = {"real": (0, 512), "seed": (0, 999_999)}
DEFAULT = AttentionConfig(D_MODEL, HEADS, position=Choice("alibi"), mask=Choice("causal"))
MAX_ROW_PILLS, MAX_HEAD_PILLS = 12, 8  # with more, a list


def key(name: str) -> str:
    """A widget's key, which is also its name in the link."""
    return f"one:{name}"


def get(name: str, default: Any = None) -> Any:
    return st.session_state.get(key(name), default)


def put(name: str, value: Any) -> None:
    st.session_state[key(name)] = value


def uses_matrices() -> bool:
    """Whether Q, K and V are typed, instead of a sentence."""
    return get("source") == "matrices"


def default_heads(d_model: int) -> int:
    """The most heads up to four that divide d_model."""
    return max(heads for heads in heads_that_divide(d_model) if heads <= HEADS)


def heads_of(d_model: int) -> int:
    """The heads that were picked, where they still divide d_model."""
    heads = get("heads", HEADS)
    return heads if d_model % heads == 0 else default_heads(d_model)


def query_row(names: tuple[str, ...]) -> int:
    """The row of the picked query; the last word where it is no longer there."""
    default = max((i for i, name in enumerate(names) if any(c.isalnum() for c in name)), default=len(names) - 1)
    picked = get("query")
    return names.index(picked) if picked in names else default


def picked_index(name: str, count: int) -> int:
    """The picked number below `count` (a head, a map), or the first."""
    picked = get(name, 0) or 0
    return picked if picked < count else 0
