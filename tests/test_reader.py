"""A reader without a browser: opens pages of a real server and moves controls over Streamlit's protocol."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes import descendants, held_bytes
from benchmarks.reader import PageError, reading
from core.memory import process_bytes
from tests.browser.conftest import start_server
from tests.browser.helpers import ending

SCRIPT = """import streamlit as st

def second():
    width = st.slider("Width", 0, 10, 4)
    st.html(f"<p>{width} wide</p>")
    if st.button("Fail"):
        raise ValueError("too wide")

@st.fragment
def part():
    st.html(f"<p>{st.selectbox('Letter', ['a', 'b'])}</p>")

st.navigation([st.Page(part, title="First", url_path="first", default=True), st.Page(second, title="Second")]).run()
"""


def test_a_page_opens_a_control_moves_and_an_exception_is_told(tmp_path):
    async def read(url: str) -> None:
        async with reading(url) as reader:
            await reader.open("")
            assert [widget.element.label for widget in reader.widgets()] == ["Letter"]
            await reader.move(reader.find("selectbox", "Letter"))
            opened = await reader.open("second")
            moved = await reader.move(reader.find("slider", "Width"))
            assert (
                0 < opened.picture <= opened.finished
                and 0 < moved.picture <= moved.finished
                and not reader.errors
            )
            await reader.move(reader.find("button"))
            assert [error for error in reader.errors if "too wide" in error]
            with pytest.raises(PageError, match="second has no number_input"):
                reader.find("number_input")

    script = tmp_path / "two_pages.py"
    script.write_text(SCRIPT, encoding="utf-8")
    process, server = start_server(tmp_path, script)
    with ending(process):
        asyncio.run(read(server.url))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_memory_of_processes_counts_what_they_share_once():
    child = "import sys; held = bytearray(b'1' * 50_000_000); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
        one, same = held_bytes([process.pid]), held_bytes([process.pid, process.pid])
        own, *others = process_bytes()
        assert own > 0 and any(50_000_000 < size <= one < 80_000_000 for size in others)
        assert one + 45_000_000 < same < 2 * one, (
            "libraries count once, what each of both wrote twice"
        )
        process.communicate()
    assert held_bytes([process.pid]) == 0
