"""The chooser of Look inside alone, and what it chose in one line; what it needs is in the session."""

import streamlit as st

from dashboard.ui.model_picker import choose_model

chosen = choose_model(st.session_state.get("needs", ()))
if chosen is None:
    st.code("nothing")
else:
    reading = chosen.reading
    st.code(
        f"{chosen.ref.source} {chosen.ref.written} {reading.trace.shape} {reading.trace.kinds} "
        f"{' '.join(reading.source.tokens[:6])} | {' '.join(reading.target.tokens) if reading.target else ''}"
    )
