"""What binds a widget to the URL, and pairs of numbers that no widget can hold: the picked head and the pinned cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from dashboard.charts.tokens import plain

Pair = tuple[int, int]
KEEP: dict[str, Any] = {"persist_state": "session"}  # in the session alone
BOUND: dict[str, Any] = {"bind": "query-params", **KEEP}  # in the link and the session


def read_pair(name: str, bounds: Pair) -> tuple[Pair | None, str | None]:
    """The pair ?name=a.b of the URL, and a sentence when it is malformed or out of bounds (then no pair)."""
    text = st.query_params.get(name)
    return (None, None) if text is None else _pair(name, text, bounds)


def read_pairs(name: str, bounds: Pair) -> tuple[list[Pair], str | None]:
    """The pairs ?name=a.b_c.d of the URL, and a sentence about the first that is none (then those before it)."""
    pairs: list[Pair] = []
    for text in filter(None, st.query_params.get(name, "").split("_")):
        pair, error = _pair(name, text, bounds)
        if pair is None:
            return pairs, error
        pairs.append(pair)
    return pairs, None


def _pair(name: str, text: str, bounds: Pair) -> tuple[Pair | None, str | None]:
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        return None, f"The link says {name} = {plain(text[:40])}; expected two whole numbers, such as {name}=3.1."
    first, second = int(parts[0]), int(parts[1])
    if first >= bounds[0] or second >= bounds[1]:
        return None, (f"The link says {name} = {first}.{second}, but here these run from 0.0 "
                      f"to {bounds[0] - 1}.{bounds[1] - 1}.")
    return (first, second), None


def write_pair(name: str, pair: Pair | None) -> None:
    """Write the pair to the URL, or remove it, where it changed."""
    write_pairs(name, [] if pair is None else [pair])


def write_pairs(name: str, pairs: Iterable[Pair]) -> None:
    """Write the pairs to the URL, or remove them, where they changed."""
    text = "_".join(f"{first}.{second}" for first, second in pairs) or None
    if text == st.query_params.get(name):
        return
    if text is None:
        del st.query_params[name]
    else:
        st.query_params[name] = text
