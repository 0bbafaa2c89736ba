"""The files by which servers and shells hand runs to the bridge, and by which it says what the cluster has free.

    .cluster/entries/     RUN.json: a run that is the cluster's: its folder, and how often it was submitted
    .cluster/state.json   what the cluster has, or why it cannot be reached
    .cluster/lock         held by the bridge for as long as it lives;  bridge.log  what it printed

They lie in the folder of runs. An entry stays until its run has ended, so that any later bridge finds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.cluster.settings import ROOT
from core.files import read_object, seconds_of, server_folder, text_of, write_atomically
from core.run_folder import RunFolder

FRESH_SECONDS = 15.0  # the bridge writes the state every second or two
SPAWN_SECONDS = 5.0  # between two attempts to start a bridge
NODES, LONGEST_NAME = (
    5,
    100,
)  # nodes of a run, and characters of a name, that are read from its run.json

_lock = threading.Lock()
_bridges: dict[
    Path, tuple[subprocess.Popen, float]
] = {}  # of this process by folder, and when each was started


@dataclass(frozen=True)
class Entry:
    """A run of the cluster; `attempt` counts the actors that were made for it since it was submitted, at that time in
    ms."""

    path: Path
    submitted: int
    attempt: int = 0

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def actor(self) -> str:
        """The name of its latest actor."""
        return f"{self.path.name}/{self.submitted}/{self.attempt}"

    def save(self) -> None:
        data = {"path": str(self.path), "submitted": self.submitted, "attempt": self.attempt}
        write_atomically(_entry_path(self.path.name), json.dumps(data).encode())


@dataclass(frozen=True)
class ClusterState:
    """What the cluster has and has free: CPUs, GPUs, bytes of memory, the names of its nodes; `message` where it cannot
    be reached."""

    reachable: bool = False
    message: str = "Connecting to the Ray cluster."
    nodes: tuple[str, ...] = ()
    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    free_cpus: float = 0.0
    free_gpus: float = 0.0
    free_memory: float = 0.0


def folder() -> Path:
    return server_folder() / ".cluster"


def submit(run: RunFolder) -> None:
    """Hand a run to the cluster, unless it has it."""
    if not holds(run):
        Entry(run.path.absolute(), int(time.time() * 1000)).save()
    ensure_bridge()


def entries() -> list[Entry]:
    """The runs that are the cluster's, in the order in which they came."""
    valid = []
    for path in (folder() / "entries").glob("[!.]*.json"):
        data = read_object(path)
        if isinstance(data.get("path"), str) and all(
            type(data.get(name)) is int for name in ("submitted", "attempt")
        ):
            valid.append(Entry(Path(data["path"]), data["submitted"], data["attempt"]))
    return sorted(valid, key=lambda entry: (entry.submitted, entry.path.name))


def holds(run: RunFolder) -> bool:
    """Whether a run is the cluster's: on a node, or waiting for one."""
    return _entry_path(run.id).exists()


def remove(run: RunFolder) -> None:
    """Take a run back from the cluster."""
    _entry_path(run.id).unlink(missing_ok=True)


def save_state(state: ClusterState) -> None:
    write_atomically(
        folder() / "state.json", json.dumps({**asdict(state), "at": time.time()}).encode()
    )


def load_state() -> ClusterState:
    """The latest state; not reachable where the bridge wrote none for a while."""
    data = read_object(folder() / "state.json")
    if time.time() - seconds_of(data.get("at")) > FRESH_SECONDS:
        return ClusterState()
    numbers = {
        name: seconds
        for name in ("cpus", "gpus", "memory", "free_cpus", "free_gpus", "free_memory")
        if (seconds := _number(data.get(name))) is not None
    }
    names = data.get("nodes")
    nodes = tuple(text_of(name, LONGEST_NAME) for name in names) if isinstance(names, list) else ()
    return ClusterState(
        data.get("reachable") is True, text_of(data.get("message")), nodes, **numbers
    )


def node_names(metadata: Mapping[str, Any]) -> list[str]:
    """The nodes on which a run of this run.json was, the latest last."""
    nodes = metadata.get("nodes")
    names = nodes[-NODES:] if isinstance(nodes, list) else []
    return [name[:LONGEST_NAME] for name in names if isinstance(name, str)]


def ensure_bridge() -> None:
    """Start the bridge unless it lives; it ends some time after the last run and the last call of this."""
    with _lock:
        here = folder()
        here.mkdir(parents=True, exist_ok=True)
        (here / "asked").touch()
        process, started = _bridges.get(here, (None, -SPAWN_SECONDS))
        if (
            process is not None and process.poll() is None
        ) or time.monotonic() - started < SPAWN_SECONDS:
            return
        if RunFolder(here).alive():  # that of another server
            return
        with open(here / "bridge.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "core.cluster.bridge"],
                cwd=ROOT,
                env=os.environ.copy(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _bridges[here] = process, time.monotonic()


def seconds_unasked() -> float:
    """Since `ensure_bridge` was last called, by any process."""
    return time.time() - _modified(folder() / "asked")


def _entry_path(run_id: str) -> Path:
    return folder() / "entries" / f"{run_id}.json"


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e18 else None
