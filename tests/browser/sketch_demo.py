"""The paper for a drawn line: ?demo=sketch writes what it sends below it."""

import streamlit as st

from dashboard.draw.page_views import sketch


def take(ys: list[float] | None) -> None:
    st.session_state["taken"] = ys


sketch((4, 8, 16, 32), 0.0, 1.0, key="sketch", x_title="d_k", take=take, log_x=True, share=True)
st.markdown(f"taken: {st.session_state.get('taken', 'nothing yet')}")
