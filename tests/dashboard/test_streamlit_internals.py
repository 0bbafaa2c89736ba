"""What the lab takes of Streamlit beyond its public API is looked at again with each version, and nothing else is taken."""

import re
from pathlib import Path

import streamlit as st

from dashboard.server import streamlit_internals

ROOT = Path(__file__).resolve().parents[2]
INTERNAL = re.compile(r"streamlit\.(runtime|proto|elements|web|config|file_util)\b")


def test_this_is_the_streamlit_they_were_made_for():
    assert st.__version__.startswith(f"{streamlit_internals.MADE_FOR}."), (
        "look at each function of streamlit_internals.py: is there a public way now?"
    )


def test_nothing_else_imports_what_streamlit_keeps_to_itself():
    found = {
        path.name
        for top in ("core", "dashboard", "pages", "streamlit_app.py")
        for path in ([ROOT / top] if top.endswith(".py") else (ROOT / top).rglob("*.py"))
        if INTERNAL.search(path.read_text("utf-8"))
    }
    assert found == {"streamlit_internals.py"}


def test_outside_of_a_page_there_is_no_run():
    assert streamlit_internals.script_run() is None


def test_without_streamlits_manager_of_metrics_the_server_goes_on(monkeypatch):
    monkeypatch.setattr("streamlit.runtime.get_instance", object)
    streamlit_internals.register_metrics({})
