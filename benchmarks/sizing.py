"""What so many readers at once need: from the measured costs of a session to replicas, cores, memory and storage.

`python -m benchmarks.sizing measure` measures the costs on this machine; `python -m benchmarks.sizing` writes the table
of docs/scaling.md anew from the costs that stand there.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

SCALING = Path(__file__).resolve().parents[1] / "docs" / "scaling.md"
READERS = (30, 100, 1_000, 10_000)
HEAD = "| readers at once | servers | their cores | runs at once | memory | runs on disk |"
EXAMPLE = Path(__file__).resolve().parents[1] / "dashboard" / "runtime" / "examples" / "example_run"
SESSIONS, MOVES = 20, 4
PAGES = ("", "why", "one_query", "heads", "positions", "masks", "transformer", "train", "scores")
LOADING = 15.0  # seconds in which an idle server imports what pretrained models need


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
    return (costs.page_ms / costs.seconds_between_pages + costs.move_ms / costs.seconds_between_moves) / 1000


def need(readers: int, costs: Costs) -> Need:
    """One server is one Python process: its scripts share one core, which is planned to be busy in part."""
    cores = readers * load_per_reader(costs)
    servers = max(1, math.ceil(cores / (costs.busy_percent / 100)))
    runs = math.ceil(readers * costs.training_percent / 100)
    memory = servers * costs.server_mb + readers * costs.session_mb + runs * costs.worker_mb
    return Need(servers, cores, runs, memory / 1000, readers * costs.runs_per_reader * costs.run_mb / 1000)


def read_costs(text: str) -> Costs:
    """The costs of the table: lines `| name | number | …`. KeyError for one that is missing."""
    cells = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text, re.M))
    return Costs(*(float(cells[field.name]) for field in fields(Costs)))


def table(costs: Costs) -> str:
    """The table of docs/scaling.md."""
    rows = [HEAD, "| --- " * 6 + "|"]
    for readers in READERS:
        one = need(readers, costs)
        rows.append(f"| {readers:,} | {one.servers:,} | {one.cores:.1f} | {one.runs:,} | {one.memory_gb:,.1f} GB | "
                    f"{one.disk_gb:,.1f} GB |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """The page with the table that its costs give."""
    start = text.index(HEAD)
    return text[:start] + table(read_costs(text)) + text[text.index("\n\n", start):]


def measure() -> dict[str, float]:
    """The measured costs: of a server on loopback that nobody else visits, and of a worker that trains the example."""
    from benchmarks.session import Visitor, cpu_seconds, resident_mb, server

    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as (process, port):
        first, opening, moving, moves = Visitor(port), 0.0, 0.0, 0
        for page in PAGES * 2:  # whatever is loaded and cached at a first sight
            first.open(page)
            first.move()
        time.sleep(LOADING)
        idle = resident_mb(process.pid)
        visitors = [Visitor(port) for _ in range(SESSIONS)]
        for visitor in visitors:
            for page in PAGES:
                begin = cpu_seconds(process.pid)
                visitor.open(page)
                opened = cpu_seconds(process.pid)
                moves += sum(visitor.move() for _ in range(MOVES))
                opening, moving = opening + opened - begin, moving + cpu_seconds(process.pid) - opened
        full = resident_mb(process.pid)
    return {"server_mb": idle, "session_mb": (full - idle) / SESSIONS,
            "page_ms": 1000 * opening / (SESSIONS * len(PAGES)), "move_ms": 1000 * moving / moves,
            "worker_mb": worker_mb(), "run_mb": sum(file.stat().st_size for file in EXAMPLE.rglob("*.*")) / 1e6}


def worker_mb() -> float:
    """The most memory of a worker while it trains the example run."""
    from benchmarks.session import resident_mb

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        (run / "run.json").write_bytes((EXAMPLE / "run.json").read_bytes())
        process, most = subprocess.Popen([sys.executable, "-m", "core.training.worker", str(run)],
                                         stdout=subprocess.DEVNULL), 0.0
        for _ in range(200):
            most = max(most, resident_mb(process.pid))
            if process.poll() is not None:
                break
            time.sleep(0.1)
        process.kill()
        process.wait()
    return most


def main() -> None:
    if sys.argv[1:] == ["measure"]:
        for name, value in measure().items():
            print(f"{name} {value:.1f}", flush=True)
    else:
        SCALING.write_text(with_table(SCALING.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
