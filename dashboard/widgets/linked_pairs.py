"""Pairs of the link that belong to one model and one text, such as a pinned cell or a picked head."""

from __future__ import annotations

import streamlit as st

from dashboard.runtime.query_params import Pair, read_pair, write_pair


def read_linked(page: str, name: str, bounds: Pair, of: object) -> Pair | None:
    """The link's pair, else this page's last one; none once `of`, the model or text it belongs to, has changed."""
    key = f"{page}:{name}-of"
    before: tuple[object, Pair | None] | None = st.session_state.get(key)
    if before is not None and before[0] != of:
        write_pair(name, None)
    pair, error = read_pair(name, bounds)
    if error:
        st.warning(error)
    if name not in st.query_params and before is not None and before[0] == of and before[1] is not None:
        pair = before[1] if before[1][0] < bounds[0] and before[1][1] < bounds[1] else None
    st.session_state[key] = of, pair
    return pair


def write_linked(page: str, name: str, pair: Pair | None) -> None:
    """Write the pair into the link, and store it for the next visit of this page."""
    key = f"{page}:{name}-of"
    st.session_state[key] = st.session_state[key][0], pair
    write_pair(name, pair)
