"""The main file on Streamlit Community Cloud, which reads the requirements.txt beside it: streamlit_app.py's server."""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [str(ROOT), *(path for path in sys.path if path != str(ROOT))]

if (
    st.runtime.exists()
):  # something other than `streamlit run` started it, and runs it as a page's script
    runpy.run_path(str(ROOT / "dashboard" / "app.py"), run_name="__main__")
else:
    from streamlit_app import SERVER

    app = st.App(**SERVER)
