"""The components alone, for the browser tests and for looking at them: ?demo=view or ?demo=multiples."""

import runpy
from pathlib import Path

import streamlit as st

runpy.run_path(str(Path(__file__).with_name(f"{st.query_params['demo']}_demo.py")))
