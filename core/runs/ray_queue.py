"""The files by which servers and shells hand runs to the driver, and by which it says what the cluster has free.

    .cluster/entries/     RUN.json: a run that is the cluster's: its folder, and how often it was submitted
    .cluster/state.json   what the cluster has, or why it cannot be reached
    .cluster/lock         held by the driver for as long as it lives;  driver.log  what it printed

They lie in the folder of runs. An entry stays until its run has ended, so that any later driver finds it.

And the actor that works on one run on a node: it writes the folder, watches the process and answers with what changed; it
trains nothing itself.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from core.files import (
    converted,
    hosted,
    lab_path,
    modified,
    read_object,
    remove_tree,
    seconds_of,
    server_folder,
    write_atomically,
)
from core.runs.folder import Changes, RunFolder, Stamp, list_files, read_changes, unpack
from core.settings import settings

NAMESPACE = "attention-lab"
RESOURCES = ("CPU", "GPU", "memory")  # by Ray's names, memory in bytes


def address() -> str:
    """auto, HOST:PORT or ray://HOST:PORT; empty where runs stay on this machine."""
    return settings().ray


def words(text: str, public: str) -> str:
    """A message about the cluster; on a public copy the one that names no machine and nothing else of its inside."""
    return public if hosted() else text


@dataclass(frozen=True)
class Needs:
    """What the cluster sets aside for a run: CPUs, a share of a GPU, and memory in MB."""

    cpus: float = 1.0
    gpus: "Amount" = 0.0
    memory: float = 1_000.0

    def options(self) -> dict[str, float]:
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": int(self.memory * 1e6)}

    def fit(self, resources: Mapping[str, float]) -> bool:
        """Whether a node of these resources could ever run it."""
        return (
            resources.get("CPU", 0) >= self.cpus
            and resources.get("GPU", 0) >= self.gpus
            and resources.get("memory", 0) >= self.memory * 1e6
        )

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}"]
        if self.gpus:
            parts.append(f"{self.gpus:g} of a GPU" if self.gpus < 1 else f"{self.gpus:g} GPU")
        return f"{', '.join(parts)} and {self.memory / 1_000:g} GB of memory"


def needs(metadata: Mapping[str, Any], cluster_has_gpu: bool) -> Needs:
    """What a run of this run.json needs: a share of a GPU for the device cuda, and for auto where there is one."""
    config = metadata.get("config") or metadata.get("finetune")
    device = config.get("device", "auto") if isinstance(config, dict) else "cpu"
    on_gpu = device == "cuda" or (device == "auto" and cluster_has_gpu)
    worker = settings().ray_worker
    return Needs(worker.cpus, worker.gpu if on_gpu else 0.0, worker.memory_mb)


@cache
def code_version() -> str:
    """A digest of core's files and PyTorch's version: the same one gives the same numbers from the same seeds."""
    digest = hashlib.sha256(version("torch").partition("+")[0].encode())
    for path in sorted(lab_path("core").rglob("*.py")):
        digest.update(bytes(path.relative_to(lab_path(""))) + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


FRESH_SECONDS = 15.0  # the driver writes the state every second or two
SPAWN_SECONDS = 5.0  # between two attempts to start a driver
# nodes of a run, and characters of a name, that are read from its run.json
NODES, LONGEST_NAME = (5, 100)

Amount = Annotated[float, Meta(ge=0, lt=1e18)]

_lock = threading.Lock()
_drivers: dict[
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
        data = json.dumps({**vars(self), "path": str(self.path)}).encode()
        write_atomically(_entry_path(self.path.name), data)


@dataclass(frozen=True)
class ClusterState:
    """The names of the cluster's nodes, and how much it has and has free of each of RESOURCES; `message` where it cannot
    be reached."""

    reachable: bool = False
    message: str = "Connecting to the Ray cluster."
    nodes: tuple[str, ...] = ()
    has: tuple[Amount, Amount, Amount] = (0.0, 0.0, 0.0)
    free: tuple[Amount, Amount, Amount] = (0.0, 0.0, 0.0)


def folder() -> Path:
    return server_folder() / ".cluster"


def submit(run: RunFolder) -> None:
    """Hand a run to the cluster, unless it has it."""
    if not holds(run):
        Entry(run.path.absolute(), int(time.time() * 1000)).save()
    ensure_driver()


def entries() -> list[Entry]:
    """The runs that are the cluster's, in the order in which they came."""
    files = map(read_object, (folder() / "entries").glob("[!.]*.json"))
    valid = (entry for data in files if (entry := converted(data, Entry)) is not None)
    return sorted(valid, key=lambda entry: (entry.submitted, entry.path.name))


def holds(run: RunFolder) -> bool:
    """Whether a run is the cluster's: on a node, or waiting for one."""
    return _entry_path(run.id).exists()


def remove(run: RunFolder) -> None:
    _entry_path(run.id).unlink(missing_ok=True)


def save_state(state: ClusterState) -> None:
    write_atomically(
        folder() / "state.json", json.dumps({**asdict(state), "at": time.time()}).encode()
    )


def load_state() -> ClusterState:
    """The latest state; not reachable where the driver wrote none for a while."""
    data = read_object(folder() / "state.json")
    if time.time() - seconds_of(data.get("at")) > FRESH_SECONDS:
        return ClusterState()
    return converted(data, ClusterState) or ClusterState()


def node_names(metadata: Mapping[str, Any]) -> list[str]:
    """The nodes on which a run of this run.json was, the latest last."""
    nodes = metadata.get("nodes")
    names = nodes[-NODES:] if isinstance(nodes, list) else []
    return [name[:LONGEST_NAME] for name in names if isinstance(name, str)]


def ensure_driver() -> None:
    """Start the driver unless it lives; it ends some time after the last run and the last call of this."""
    with _lock:
        here = folder()
        here.mkdir(parents=True, exist_ok=True)
        (here / "asked").touch()
        process, started = _drivers.get(here, (None, -SPAWN_SECONDS))
        if (
            process is not None and process.poll() is None
        ) or time.monotonic() - started < SPAWN_SECONDS:
            return
        if RunFolder(here).alive():  # that of another server
            return
        with open(here / "driver.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "core.runs.ray_driver"],
                cwd=lab_path(""),
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "ATTENTION_LAB_RUNS": str(server_folder()),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _drivers[here] = process, time.monotonic()


def seconds_unasked() -> float:
    """Since `ensure_driver` was last called, by any process."""
    return time.time() - modified(folder() / "asked")


def _entry_path(run_id: str) -> Path:
    return folder() / "entries" / f"{run_id}.json"


# One run on a node of the cluster: an actor that starts the same worker process as a single machine does.


STOP_SECONDS = 3.0  # as long as a worker on the server's own machine has
COLLECT_SECONDS = 86_400.0  # an ended run that no server has asked for in this time is given up
HOME, PLUGINS = "attention-lab-node-", "plugins"
YOUNG = 60.0  # seconds in which a new folder may have no lock yet


class NodeWorker:
    """The worker of one run; its methods are called by the driver, `changes` again and again."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.sent: dict[str, Stamp] = {}  # what the server had at the start
        delete_left(Path(tempfile.gettempdir()))
        self.home = Path(tempfile.mkdtemp(prefix=HOME))
        self.lock = RunFolder(self.home).lock()
        self.lock.acquire()
        self.folder = self.home / "run"
        self.polled = time.monotonic()
        threading.Thread(target=self._give_up, daemon=True).start()

    def where(self) -> dict[str, Any]:
        """The node's id, the version of its code, and whether the run was started here before."""
        import ray

        return {
            "node": ray.get_runtime_context().get_node_id(),
            "version": code_version(),
            "started": self.process is not None,
        }

    def start(
        self,
        run_id: str,
        files: Mapping[str, bytes],
        plugins: Mapping[str, bytes] | None,
        environ: Mapping[str, str],
    ) -> str:
        """Write the folder and start its worker; returns what keeps it from running here, or an empty text."""
        self.folder = self.home / run_id
        self.sent = unpack(self.folder, files)
        data = read_object(self.folder / "run.json")
        config = data.get("finetune") or data.get("corpus") or data.get("pairs")
        model = Path(str(config.get("model", "")) if isinstance(config, dict) else "")
        if model.is_absolute() and not model.is_dir():
            return (
                "The model of this run is a folder of the server, which does not travel. Put it at the same path on "
                "every node, such as in a shared HF_HOME, or take a model that comes with the lab."
            )
        env = {
            **os.environ,
            **environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONUTF8": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if plugins is not None:
            unpack(self.home / PLUGINS, plugins)
            env["ATTENTION_LAB_PLUGINS"] = str(self.home / PLUGINS)
        with open(self.folder / "worker.log", "ab") as log:
            # its stdin ends with this process, and so does it
            self.process = subprocess.Popen(
                [sys.executable, "-m", "core.runs.worker", str(self.folder), "--attended"],
                cwd=lab_path(""),
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        return ""

    def changes(self, known: Mapping[str, Stamp] | None, stop: str) -> Changes:
        """What the server lacks; `stop` ("stop", "pause" or "") is handed to the worker."""
        self.polled = time.monotonic()
        assert self.process is not None
        file = self.folder / "stop"
        if stop and not file.exists():
            write_atomically(file, stop.encode())
        # before the files are read: an ended worker's are whole
        ended = self.process.poll() is not None
        if not ended and file.exists() and time.time() - file.stat().st_mtime > STOP_SECONDS:
            self.process.kill()
        return read_changes(self.folder, self.sent if known is None else known, ended)

    def close(self) -> None:
        """Delete the folder and end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        remove_tree(self.home)
        os._exit(0)

    def _give_up(self) -> None:
        while time.monotonic() - self.polled < COLLECT_SECONDS or (
            self.process and self.process.poll() is None
        ):
            time.sleep(60)
        self.close()


def delete_left(folder: Path) -> None:
    """Delete the folders of actors that were killed: nobody holds their lock."""
    for path in folder.glob(f"{HOME}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > YOUNG and not RunFolder(path).alive():
                remove_tree(path)


def pack_plugins(folder: Path | None) -> dict[str, bytes] | None:
    """The Python files of the folder of plug-ins, to travel with a run; None without one."""
    if folder is None:
        return None
    return {
        name: (folder / name).read_bytes() for name in list_files(folder) if name.endswith(".py")
    }
