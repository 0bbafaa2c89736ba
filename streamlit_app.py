"""The dashboard as a server, which a bare `streamlit run` finds here; its script is dashboard/app.py."""

from pathlib import Path

import streamlit as st

from dashboard.runtime.index_page import routes
from dashboard.runtime.warm_up import at_start

at_start()
app = st.App(Path(__file__).resolve().parent / "dashboard" / "app.py", routes=routes())
