"""One run on a node of the cluster: an actor that starts the same worker process as a single machine does.

The actor writes the folder, watches the process and answers with what changed; it trains nothing itself.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.files import lab_path, read_object, write_atomically
from core.runs.folder import Changes, RunFolder, Stamp, list_files, read_changes, unpack
from core.runs.ray_queue import code_version

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
        config = data.get("finetune") or data.get("corpus")
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
        }
        if plugins is not None:
            unpack(self.home / PLUGINS, plugins)
            env["ATTENTION_LAB_PLUGINS"] = str(self.home / PLUGINS)
        with open(self.folder / "worker.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "core.runs.worker", str(self.folder), "--attended"],
                cwd=lab_path(""),
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )  # its stdin ends with this process, and so does it
        return ""

    def changes(self, known: Mapping[str, Stamp] | None, stop: str) -> Changes:
        """What the server lacks; `stop` ("stop", "pause" or "") is handed to the worker."""
        self.polled = time.monotonic()
        assert self.process is not None
        file = self.folder / "stop"
        if stop and not file.exists():
            write_atomically(file, stop.encode())
        ended = (
            self.process.poll() is not None
        )  # before the files are read: an ended worker's are whole
        if not ended and file.exists() and time.time() - file.stat().st_mtime > STOP_SECONDS:
            self.process.kill()
        return read_changes(self.folder, self.sent if known is None else known, ended)

    def close(self) -> None:
        """Delete the folder and end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
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
                shutil.rmtree(path, ignore_errors=True)


def pack_plugins(folder: Path | None) -> dict[str, bytes] | None:
    """The Python files of the folder of plug-ins, to travel with a run; None without one."""
    if folder is None:
        return None
    return {
        name: (folder / name).read_bytes() for name in list_files(folder) if name.endswith(".py")
    }
