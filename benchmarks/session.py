"""A reader without a browser: a session of Streamlit's protocol on loopback, which opens pages and moves a slider."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parents[1]


class Visitor:
    """One session; `open` and `move` return when the script has ended."""

    def __init__(self, port: int) -> None:
        self.socket = connect(f"ws://127.0.0.1:{port}/_stcore/stream", subprotocols=["streamlit"],  # type: ignore[list-item]
                              max_size=None, open_timeout=60)
        self.page, self.sliders, self.turn = "", list[tuple[Any, str]](), 0

    def open(self, page: str) -> None:
        """Open a page by its key."""
        self.page, self.sliders = page, []
        message = BackMsg()
        message.rerun_script.page_name = page
        self._run(message)

    def move(self) -> int:
        """Move the page's first slider one step, there or back; the number of moves, 0 where it has none."""
        if not self.sliders:
            return 0
        slider, fragment = self.sliders[0]
        self.turn += 1
        start = list(slider.default)
        step = slider.step or 1
        start[0] += (step if start[0] + step <= slider.max else -step) * (self.turn % 2)
        message = BackMsg()
        message.rerun_script.page_name = self.page
        if fragment:
            message.rerun_script.fragment_id = fragment
        state = message.rerun_script.widget_states.widgets.add(id=slider.id)
        state.double_array_value.data.extend(start)
        self._run(message)
        return 1

    def _run(self, message: BackMsg) -> None:
        self.socket.send(message.SerializeToString())
        while True:
            answer = ForwardMsg()
            answer.ParseFromString(self.socket.recv(timeout=120))  # type: ignore[arg-type]
            kind = answer.WhichOneof("type")
            if kind == "delta" and answer.delta.new_element.WhichOneof("type") == "slider":
                self.sliders.append((answer.delta.new_element.slider, answer.delta.fragment_id))
            if kind == "script_finished":
                return


@contextmanager
def server(folder: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """The dashboard on a free port of loopback, with runs in the folder; its process and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "streamlit_app.py", "--server.port", str(port),
               "--server.address", "127.0.0.1", "--server.headless", "true", "--server.fileWatcherType", "none"]
    env = {**os.environ, "ATTENTION_LAB_RUNS": str(folder), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process, port
    finally:
        process.terminate()
        process.wait(timeout=20)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """The resident memory of a process: more than its share where others use the same libraries."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6
