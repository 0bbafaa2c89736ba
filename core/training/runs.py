"""A run is a folder: what was asked, how it stands, every record, the attention frames and the weights.

    run.json        the config and when it was asked for; written once
    status.json     state, process, words; replaced whole, by one writer at a time
    metrics.jsonl   one record a line; only ever appended
    frames/         NNNNNN.safetensors, the attention of the watched examples at that step
    weights.safetensors
    stop            its presence asks the worker to end
    lock            held by the worker for as long as it lives: the one honest sign of life
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from core.training.config import RunConfig
from core.training.record import Record

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
ENDED = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class Status:
    """How a run stands: `state` is queued, starting, running, finished, stopped or failed; `message` says why."""

    state: str
    message: str = ""
    pid: int | None = None
    at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class Run:
    """One run's folder; reading never raises on a half-written or missing file."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def asked(self) -> dict:
        """What run.json says (config, created), or an empty dict."""
        return _read_json(self.path / "run.json")

    def config(self) -> RunConfig:
        """The run's config; raises ConfigError when the file does not describe one."""
        return RunConfig.from_json(self.asked().get("config"))

    def status(self) -> Status:
        data = _read_json(self.path / "status.json")
        if not isinstance(data.get("state"), str):
            return Status("queued", at=float(self.asked().get("created") or 0.0))
        return Status(data["state"], str(data.get("message") or ""), data.get("pid"), float(data.get("at") or 0.0))

    def set_status(self, state: str, message: str = "", pid: int | None = None) -> None:
        data = {"state": state, "message": message, "pid": pid, "at": time.time()}
        write_atomically(self.path / "status.json", json.dumps(data).encode())

    def append(self, record: Record) -> None:
        """Keep one record: its frames first, so that a line in metrics.jsonl always finds its picture."""
        if record.maps:
            maps = {key: np.ascontiguousarray(value, dtype=np.float16) for key, value in record.maps.items()}
            write_atomically(self.frame_path(record.step), save(maps))
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_json(), ensure_ascii=False) + "\n")

    def records(self) -> list[Record]:
        """Every record so far, without maps; a line still being written is left for the next look."""
        try:
            text = (self.path / "metrics.jsonl").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        lines = text.split("\n")[:-1]
        return [record for record in map(_record, lines) if record is not None]

    def frame_path(self, step: int) -> Path:
        return self.path / "frames" / f"{step:06d}.safetensors"

    def frame(self, step: int) -> dict[str, np.ndarray]:
        """The attention kept at a step: example number -> (layers, H, T, S), or empty."""
        try:
            return {key: value.astype(np.float32) for key, value in load_file(self.frame_path(step)).items()}
        except (OSError, SafetensorError):
            return {}

    def frame_steps(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.path / "frames").glob("[0-9]*.safetensors"))

    def save_weights(self, weights: dict[str, np.ndarray]) -> None:
        write_atomically(self.path / "weights.safetensors", save(weights))

    def ask_to_stop(self) -> None:
        (self.path / "stop").touch()

    def stop_asked(self) -> bool:
        return (self.path / "stop").exists()

    def stop_age(self) -> float:
        """Seconds since Stop was asked for; 0 when it was not."""
        try:
            return time.time() - (self.path / "stop").stat().st_mtime
        except OSError:
            return 0.0

    def alive(self) -> bool:
        """True while a worker holds the folder's lock (a process number may be reused, a lock may not)."""
        try:
            with open(self.path / "lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock: what a worker does from its first moment to its last."""
        with open(self.path / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def runs_folder() -> Path:
    """Where runs are kept: $ATTENTION_LAB_RUNS, or ~/.attention-lab/runs."""
    chosen = os.environ.get("ATTENTION_LAB_RUNS") or Path.home() / ".attention-lab" / "runs"
    return Path(chosen).expanduser().absolute()


def create_run(config: RunConfig, root: Path | None = None, path: Path | None = None) -> Run:
    """A new folder that asks for this run: under `root` with a fresh name, or exactly at `path`."""
    name = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
    run = Run(path or (root or runs_folder()) / name)
    (run.path / "frames").mkdir(parents=True, exist_ok=True)
    asked = {"config": config.to_json(), "created": time.time()}
    write_atomically(run.path / "run.json", json.dumps(asked, indent=1).encode())
    return run


def find_run(run_id: object, root: Path | None = None) -> Run | None:
    """The run of this name, or None; a name that is no run's name is never joined to a path."""
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        return None
    run = Run((root or runs_folder()) / run_id)
    return run if run.exists() else None


def list_runs(root: Path | None = None) -> list[Run]:
    """Every run in the folder, oldest first."""
    try:
        names = sorted(os.listdir(root or runs_folder()))
    except OSError:
        return []
    return [run for run in (find_run(name, root) for name in names) if run is not None]


def prune(keep: int, root: Path | None = None) -> None:
    """Delete the oldest ended runs so that at most `keep` remain."""
    runs = list_runs(root)
    spare = [run for run in runs if run.status().ended and not run.alive()]
    for run in spare[: max(0, len(runs) - keep)]:
        shutil.rmtree(run.path, ignore_errors=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file whole: a reader sees the old bytes or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(2)}")
    draft.write_bytes(data)
    os.replace(draft, path)


def _read_json(path: Path) -> dict:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _record(line: str) -> Record | None:
    try:
        return Record.from_json(json.loads(line))
    except (ValueError, TypeError, KeyError):
        return None
