"""The part of Export that gives the page as Python: to copy, as a script, and as a notebook with its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import streamlit as st

from dashboard.draw.components import copy_buttons
from dashboard.draw.picture_files import Source
from dashboard.draw.pictures import Picture
from dashboard.draw.scripts import Script
from dashboard.runtime.page_pictures import page_script

HEIGHT = 300  # pixels of the code; more of it scrolls
NOTEBOOK_TYPE = "application/x-ipynb+json"


def code_section(source: Source, pictures: Mapping[str, Picture]) -> None:
    """Draw the script of the page, a button that copies it, and its two files; nothing where it computes nothing."""
    script = page_script()
    if script is None:
        return
    text = script.text(source.line)
    st.caption("What the page shows, computed again")
    st.code(text, language="python", height=HEIGHT)
    copy_buttons({"Copy as Python": ("text", text.encode)}, key="export:copy-python")
    with st.container(horizontal=True):
        st.download_button(
            "Python",
            text,
            source.file_name("", "py"),
            "text/x-python",
            on_click="ignore",
            key="export:python",
            help="The script above as a file",
        )
        st.download_button(
            "Notebook",
            partial(notebook_file, script, source, pictures),
            source.file_name("", "ipynb"),
            NOTEBOOK_TYPE,
            on_click="ignore",
            key="export:notebook",
            help="The same cells for Jupyter, with the page's pictures",
        )


def notebook_file(script: Script, source: Source, pictures: Mapping[str, Picture]) -> bytes:
    """The notebook, in which each cell that draws already has the page's drawing."""
    used = {cell.picture for cell in script.cells}
    drawings = {
        key: picture.svg() for key, picture in pictures.items() if key in used and picture.drawn
    }
    return script.notebook(source.line, drawings).encode()
