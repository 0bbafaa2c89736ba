"""The files of a run that say how it is: run.json, status.json, stop and lock; readable without PyTorch."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from core.checksum import read_checked, with_checksum
from core.files import is_full, read_object, seconds_of, text_of, write_atomically

UNDER_WAY = ("queued", "starting", "running")
ENDED = ("finished", "stopped", "paused", "failed")
RUN_ID = re.compile(
    r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}([0-9a-f]{32})?"
)  # the longer one cannot be guessed
JOURNAL = ".changes"  # in a folder of runs that has an index: the ids of the runs that were changed
STATUS = {"state", "message", "pid", "at"}
DAMAGED = (
    "The file of its state was damaged. All that it saved is there; Continue takes it up again."
)
PROBE = 0.03  # seconds alive() waits for the lock, so that two probes do not take each other for a worker


@dataclass(frozen=True)
class Status:
    """`state` is queued, starting, running or one of ENDED; `message` says why; `at` is when it was set."""

    state: str
    message: str = ""
    pid: int | None = None
    at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class RunFolder:
    """The files by which a run is followed and stopped; reading never raises on a half-written or missing file."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def metadata(self) -> dict:
        """The contents of run.json (config, created), or an empty dict."""
        return read_object(self.path / "run.json")

    def status(self) -> Status:
        try:
            data = read_checked((self.path / "status.json").read_bytes())
        except FileNotFoundError:
            return Status("queued", at=seconds_of(self.metadata().get("created")))
        except (OSError, ValueError, RecursionError):
            data = {}
        if data.get("state") not in (*UNDER_WAY, *ENDED) or not data.keys() <= STATUS:
            # It is replaced as a whole, so somebody else damaged it.
            return Status("running" if self.alive() else "stopped", DAMAGED)
        pid = data.get("pid")
        known = (
            isinstance(pid, int) and not isinstance(pid, bool) and 1 < pid < 2**31
        )  # kill(-1) would end everything
        return Status(
            data["state"],
            text_of(data.get("message")),
            pid if known else None,
            seconds_of(data.get("at")),
        )

    def set_status(self, state: str, message: str = "", pid: int | None = None) -> None:
        data = {"state": state, "message": message, "pid": pid, "at": time.time()}
        text = with_checksum(json.dumps(data))
        try:
            self._write("status.json", text)
        except OSError as error:
            if not is_full(error) or not (self.path / "status.json").exists():
                raise
            with open(
                self.path / "status.json", "r+b"
            ) as file:  # in its place, which takes no room
                file.write(text.ljust(os.fstat(file.fileno()).st_size))
        self._note_change()

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file; FileNotFoundError in words where the run was deleted, whose folder is not made again."""
        self.require()
        write_atomically(self.path / name, data)

    def require(self) -> None:
        """FileNotFoundError, in words, where the run was deleted."""
        if not self.path.is_dir():
            raise FileNotFoundError(f"The run {self.id} was deleted.")

    def update_metadata(self, **values: object) -> None:
        """Set values in run.json (config, name, …); None deletes one."""
        data = {
            key: value for key, value in {**self.metadata(), **values}.items() if value is not None
        }
        self._write("run.json", json.dumps(data, indent=1).encode())
        self._note_change()

    def _note_change(self) -> None:
        """Append the run to the journal of its folder's index, where it has one."""
        with suppress(OSError):
            file = os.open(self.path.parent / JOURNAL, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, f"{self.id}\n".encode())
            finally:
                os.close(file)

    def request_stop(self, reason: str = "stop") -> None:
        """Request the worker to stop or (reason = "pause") to pause the run."""
        try:
            self._write("stop", reason.encode())
        except OSError as error:
            if not is_full(error):
                raise
            (self.path / "stop").touch()  # an empty file takes no room, and stops

    def requeue(self) -> None:
        """Withdraw a stop request and queue the run again, to continue from its last checkpoint."""
        (self.path / "stop").unlink(missing_ok=True)
        self.set_status("queued")

    def stop_request(self) -> str:
        """The requested end: "stop", "pause", or "" without a request."""
        try:
            return "pause" if (self.path / "stop").read_bytes() == b"pause" else "stop"
        except OSError:
            return ""

    def stop_age(self) -> float:
        """Seconds since the stop request; 0 without one."""
        path = self.path / "stop"
        try:
            age = time.time() - path.stat().st_mtime
            if age < 0:
                os.utime(path)  # the clock was set back: the seconds count from now
            return max(0.0, age)
        except OSError:
            return 0.0

    def alive(self) -> bool:
        """True while a worker holds the folder's lock (a process number may be reused, a lock may not)."""
        path = self.path / "lock"
        try:
            with (
                FileLock(path, timeout=PROBE, poll_interval=0.002)
                if path.exists()
                else nullcontext()
            ):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def lock(self) -> FileLock:
        """The folder's lock, which a worker holds for as long as it lives."""
        return FileLock(self.path / "lock")
