"""Numbers and equations as the page says them."""

from __future__ import annotations

from html import escape

import streamlit as st


def equation(symbols: str, numbers: str) -> None:
    """An equation in symbols, which stays, and the numbers in it as plain text: setting type takes a rerun too long."""
    with st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="xsmall"):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        text = f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>'
        st.html(text, width="content")
