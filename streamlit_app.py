"""The dashboard as a server, which a bare `streamlit run` finds here; its script is dashboard/app.py."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dashboard.runtime import logs
from dashboard.runtime.http_guard import HTTPGuard
from dashboard.runtime.index_page import base_path, routes
from dashboard.runtime.warm_up import at_start

logs.start()
at_start()
app = st.App(Path(__file__).resolve().parent / "dashboard" / "app.py", routes=routes(),
             middleware=[Middleware(HTTPGuard, base=base_path())], lifespan=logs.lifespan,
             on_script_error=logs.on_script_error)
