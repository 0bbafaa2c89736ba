"""Memory of the server and its workers, by what readers do.

A server of its own, in the public copy's mode and without: after its start, after every page was opened once by one
reader, and at most while two readers use it and one of them trains. What processes share counts once, with the server:
the sum is that of proportional set sizes (PSS) on a machine where nothing else runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import descendants, held_bytes
from benchmarks.reader import Reader, reading
from dashboard.navigation import STEPS
from tests.browser.conftest import APP, start_server
from tests.browser.helpers import ending

MB = 1_000_000
TICK = os.sysconf("SC_CLK_TCK")
SMALL = "1000"  # MB of the small machine
BUDGETS = {"start": "–", "every page once": "≤ 600 MB", "two readers, one training": "≤ 1,000 MB"}
SETTLE = 15  # seconds
TURNS = 3  # rounds of the second reader while the first trains
VISITED = (
    "one_query",
    "mechanisms",
    "pretrained",
    "inside_weight",
    "lens",
    "generate",
    "two_models",
    "compare_runs",
)
MOVED = ("slider", "selectbox", "text_input", "button_group")
HEAD = "| mode | when | server | workers | all | budget |\n| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True)
class Held:
    """Bytes that the server and the processes that it started hold at one moment."""

    server: int
    workers: int

    @property
    def all(self) -> int:
        return self.server + self.workers


@dataclass(frozen=True)
class Row:
    mode: str
    when: str
    held: Held

    def markdown(self) -> str:
        held = self.held
        server, workers, both = (
            f"{count / MB:,.0f} MB" for count in (held.server, held.workers, held.all)
        )
        return f"| {self.mode} | {self.when} | {server} | {workers} | {both} | {BUDGETS.get(self.when, '–')} |"


@dataclass
class RunningServer:
    """A server under measurement: its address, its process, and its folder of runs."""

    url: str
    pid: int
    runs: Path

    def held(self) -> Held:
        server = held_bytes([self.pid])
        return Held(server, held_bytes([self.pid, *descendants(self.pid)]) - server)

    def metrics(self) -> dict[str, float]:
        """The server's metrics by name and labels."""
        with urllib.request.urlopen(f"{self.url}/_stcore/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return {
            name: float(value)
            for name, value in re.findall(r"^(\w+(?:{.*})?) ([\d.eE+-]+)$", text, re.M)
        }

    def cached(self) -> int:
        """Bytes that the server's bounded caches count."""
        return int(
            sum(
                value
                for name, value in self.metrics().items()
                if name.startswith("lab_cache_bytes")
            )
        )

    def blocks(self) -> int:
        """Blocks of memory that Python's objects hold: what is free within its pages does not count."""
        return int(self.metrics()["lab_python_blocks"])

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def cpu(self) -> float:
        """Processor seconds of the server alone, in steps of a hundredth."""
        user, system = (
            Path(f"/proc/{self.pid}/stat")
            .read_text(encoding="utf-8")
            .rpartition(")")[2]
            .split()[11:13]
        )
        return (int(user) + int(system)) / TICK


@contextmanager
def running_server(settings: Mapping[str, str], script: Path = APP) -> Iterator[RunningServer]:
    """A server of the script with these settings in its environment."""
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        with tempfile.TemporaryDirectory() as folder:
            process, server = start_server(Path(folder), script)
            with ending(process):
                yield RunningServer(server.url, process.pid, server.runs)
    finally:
        os.environ.clear()
        os.environ.update(before)


async def open_all(reader: Reader, server: RunningServer, show: bool) -> None:
    """Open every page once, in the order of the sidebar."""
    for step in STEPS:
        await reader.open(step.path)
        if show:
            print(f"  {step.key}: {server.held().all / MB:,.0f} MB", flush=True)


async def peak(server: RunningServer, work: asyncio.Task[None]) -> Held:
    """The most that was held at one moment while some work is done."""
    most = server.held()
    while not work.done():
        await asyncio.sleep(0.5)
        now = await asyncio.to_thread(server.held)
        most = max(most, now, key=lambda held: held.all)
    work.result()
    return most


async def use_and_train(server: RunningServer, learner: Reader) -> None:
    """One reader trains, and moves the step of the run; another opens pages and moves a control of each."""
    async with reading(server.url) as other:
        await learner.open("train")
        await learner.move(learner.find("button", "Train"))
        for _ in range(TURNS):
            for page in VISITED:
                await other.open(page)
                for sort in MOVED:
                    if any(
                        widget.sort == sort and not widget.element.disabled
                        for widget in other.widgets()
                    ):
                        await other.move(other.find(sort))
        errors(learner, other)


def errors(*readers: Reader) -> None:
    """RuntimeError with what pages showed as exceptions, if any did."""
    if shown := [error for reader in readers for error in reader.errors]:
        raise RuntimeError("; ".join(shown))


async def measure(mode: str, server: RunningServer, show: bool) -> list[Row]:
    rows = [Row(mode, "start", server.held())]
    async with reading(server.url) as reader:
        await open_all(reader, server, show)
        errors(reader)
        await asyncio.sleep(SETTLE)  # a spare worker ends once its imports are done
        rows.append(Row(mode, "every page once", server.held()))
        work = asyncio.create_task(use_and_train(server, reader))
        rows.append(Row(mode, "two readers, one training", await peak(server, work)))
    return rows


def rows(show: bool = True) -> Iterator[Row]:
    """One row a moment, of a server on this machine and of a public copy on one of 1 GB."""
    for mode, settings in {
        "as it is": {},
        "hosted, 1 GB": {"ATTENTION_LAB_HOSTED": "1", "ATTENTION_LAB_LIMITS": f"server_mb={SMALL}"},
    }.items():
        with running_server(settings) as server:
            yield from asyncio.run(measure(mode, server, show))
