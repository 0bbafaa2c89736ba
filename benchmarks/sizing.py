"""What so many readers at once need: from the measured costs of a session to replicas, cores, memory and storage.

`python -m benchmarks.sizing measure` measures the costs on this machine and writes them into docs/scaling.md;
`python -m benchmarks.sizing` alone writes what follows from the costs that stand there.
"""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import held_bytes

if TYPE_CHECKING:
    from benchmarks.memory import RunningServer

SCALING = Path(__file__).resolve().parents[1] / "docs" / "scaling.md"
READERS = (30, 100, 1_000, 10_000)
HEAD = "| readers at once | servers | their cores | runs at once | memory | runs on disk |"
EXAMPLE = Path(__file__).resolve().parents[1] / "dashboard" / "examples" / "example_run"
SESSIONS, VISITS = 20, 5  # and the pages that each opens, others than the session before
REST = 30.0  # seconds in which an idle server imports what pretrained models need, and returns freed memory


@dataclass(frozen=True)
class Costs:
    """Measured, then assumed; the names are those of the table of docs/scaling.md."""

    server_mb: float
    session_mb: float
    page_ms: float
    move_ms: float
    worker_mb: float
    run_mb: float
    seconds_between_pages: float
    seconds_between_moves: float
    training_percent: float
    runs_per_reader: float
    busy_percent: float


@dataclass(frozen=True)
class Need:
    """For so many readers: server processes, cores for them, runs at once (a core each), GB of memory and of disk."""

    servers: int
    cores: float
    runs: int
    memory_gb: float
    disk_gb: float


def load_per_reader(costs: Costs) -> float:
    """The share of a core that a reader's pages and moves take."""
    return (
        costs.page_ms / costs.seconds_between_pages + costs.move_ms / costs.seconds_between_moves
    ) / 1000


def need(readers: int, costs: Costs) -> Need:
    """One server is one Python process: its scripts share one core, which is planned to be busy in part."""
    cores = readers * load_per_reader(costs)
    servers = max(1, math.ceil(cores / (costs.busy_percent / 100)))
    runs = math.ceil(readers * costs.training_percent / 100)
    memory = servers * costs.server_mb + readers * costs.session_mb + runs * costs.worker_mb
    return Need(
        servers, cores, runs, memory / 1000, readers * costs.runs_per_reader * costs.run_mb / 1000
    )


def read_costs(text: str) -> Costs:
    """The costs of the table: lines `| name | number | …`. KeyError for one that is missing."""
    cells = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text, re.M))
    return Costs(*(float(cells[field.name]) for field in fields(Costs)))


def table(costs: Costs) -> str:
    """The table of docs/scaling.md."""
    rows = [HEAD, "| --- " * 6 + "|"]
    for readers in READERS:
        one = need(readers, costs)
        rows.append(
            f"| {readers:,} | {one.servers:,} | {one.cores:.1f} | {one.runs:,} | {one.memory_gb:,.1f} GB | "
            f"{one.disk_gb:,.1f} GB |"
        )
    return "\n".join(rows)


def with_costs(text: str, costs: Mapping[str, float], when: date) -> str:
    """The page with these costs in its first table, and the day of their measurement."""
    for name, value in costs.items():
        number = f"{value:.0f}" if value >= 10 else f"{value:.1f}"
        text = re.sub(rf"^\| `{name}` \| [\d.]+ \|", f"| `{name}` | {number} |", text, flags=re.M)
    return re.sub(
        r"(benchmarks\.sizing measure` on ).*?( on )", rf"\g<1>{when.isoformat()}\2", text
    )


def with_table(text: str) -> str:
    """The page with the load and the table that its costs give."""
    costs, start = read_costs(text), text.index(HEAD)
    text = text[:start] + table(costs) + text[text.index("\n\n", start) :]
    return re.sub(r"[\d.]+ ms a second", f"{1000 * load_per_reader(costs):.1f} ms a second", text)


def measure() -> dict[str, float]:
    """The measured costs: of a server on loopback that nobody else visits, and of a worker that trains the example."""
    from benchmarks.memory import running_server

    with running_server({}) as server:
        costs = asyncio.run(server_costs(server))
    disk = sum(file.stat().st_size for file in EXAMPLE.rglob("*.*"))
    return {**costs, "worker_mb": worker_mb(), "run_mb": disk / 1e6}


async def server_costs(server: RunningServer) -> dict[str, float]:
    """Memory of a server whose pages were all in use, and of open sessions; processor time of pages and moves."""
    from benchmarks.load import Times, costs, visit, warm
    from benchmarks.pages import PAGES
    from benchmarks.reader import reading

    await warm(server)
    await asyncio.sleep(REST)
    idle, times = server.held().server, Times()
    async with AsyncExitStack() as sessions:
        for number in range(SESSIONS):
            reader = await sessions.enter_async_context(reading(server.url))
            for place in range(VISITS):
                await visit(reader, PAGES[(number * VISITS + place) % len(PAGES)], times, 0.0)
        await asyncio.sleep(REST)
        full = server.held().server
    alone = await costs(server)
    return {
        "server_mb": idle / 1e6,
        "session_mb": (full - idle) / SESSIONS / 1e6,
        "page_ms": 1000 * alone.page_cpu / len(alone.pages),
        "move_ms": 1000 * alone.move_cpu / len(alone.moves),
    }


def worker_mb() -> float:
    """The most memory of a worker while it trains the example run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        (run / "run.json").write_bytes((EXAMPLE / "run.json").read_bytes())
        process, most = (
            subprocess.Popen(
                [sys.executable, "-m", "core.runs.worker", str(run)], stdout=subprocess.DEVNULL
            ),
            0,
        )
        for _ in range(200):
            most = max(most, held_bytes([process.pid]))
            if process.poll() is not None:
                break
            time.sleep(0.1)
        process.kill()
        process.wait()
    return most / 1e6


def main() -> None:
    text = SCALING.read_text("utf-8")
    if sys.argv[1:] == ["measure"]:
        text = with_costs(text, measure(), date.today())
    SCALING.write_text(with_table(text), "utf-8")


if __name__ == "__main__":
    main()
