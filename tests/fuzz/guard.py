"""What no door may do with what it is given: run code, start a process, connect, or write outside of one folder."""

import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

LONGEST = 5.0  # seconds of the processor for one case
MAX_MEMORY = (
    1_000_000_000  # bytes by which the peak of a door's cases may exceed what the process had
)
ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.startfile",
    "pty.spawn",
    "socket.connect",
    "socket.getaddrinfo",
    "pickle.find_class",
    "code.__new__",
}
CHANGES = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.utime",
    "shutil.rmtree",
    "shutil.move",
    "shutil.copyfile",
    "shutil.copytree",
    "shutil.unpack_archive",
}
# What st.cache_data keeps in memory is of these packages.
CACHED = {"streamlit", "dashboard", "core", "numpy", "pandas", "altair", "torch", "collections"}
AT = {"os.remove", "os.rmdir"}
COPIES = {"shutil.copyfile", "shutil.copytree"}  # from the first path, to the second
BASES = "fuzz-base-"  # folders that cases copy: read, and never changed
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What makes classes and functions of text that is its own.
MAKERS = (
    "dataclasses.py",
    "collections/__init__.py",
    "typecheck.py",
    "enum.py",
    "functools.py",
    "/typing.py",
    "_make.py",
    "jaxtyping",
    "beartype",
)


class Audit:
    """What happened while a case was read: sentences about each thing that no case may cause."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self.readable = (
            self.folder,
            str(ROOT),
            os.path.realpath(sys.prefix),
            sys.base_prefix,
            "/usr",
            "/proc",
            "/sys",
            "/dev",
            "/lib",
            "/etc",
            "/bin",
            os.path.join(tempfile.gettempdir(), BASES),
            os.path.expanduser("~/.streamlit"),
        )
        self.faults: list[str] = []
        self.seconds = 0.0  # of the processor
        self.deaf_to = set[int | None]()  # threads of tests before, which wait for a run's end

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = bool((flags or 0) & WRITES) or any(sign in str(mode or "") for sign in "wax+")
            if not isinstance(path, int) and not self.inside(path, writes):
                self.faults.append(f"{'writes' if writes else 'reads'} {path!r}")
        elif event in CHANGES:
            at = next(
                (
                    f"/proc/self/fd/{part}"
                    for part in args
                    if isinstance(part, int) and part >= 0 and event in AT
                ),
                "",
            )  # the folder that a relative path begins in
            paths = [
                os.path.join(at, os.fsdecode(part))
                for part in args
                if isinstance(part, str | bytes | os.PathLike)
            ]
            paths = paths[1:] if event in COPIES else paths
            self.faults += [f"{event} {path!r}" for path in paths if not self.inside(path, True)]
        elif event == "exec":
            if getattr(args[0], "co_filename", "<").startswith("<") and not _made():
                self.faults.append(f"runs {args[0]!r} ")
        elif event == "pickle.find_class" and str(args[0]).partition(".")[0] in CACHED:
            pass
        elif (
            event in OUTSIDE
            or event == "ctypes.dlopen"
            and args[0]
            and not self.inside(args[0], False)
        ):
            self.faults.append(f"{event} {args!r:.200}")

    def inside(self, path: Any, writes: bool) -> bool:
        whole = os.path.realpath(os.fsdecode(path))
        own = (
            whole == "/dev/null" or "__pycache__" in whole or "torchinductor" in whole
        )  # of Python and of torch
        return own or whole.startswith((self.folder,) if writes else self.readable)


def _made() -> bool:
    """Whether the code that is run belongs to an import, or was made by one of MAKERS."""
    frame, caller = sys._getframe(2), ""
    while frame is not None:
        name = frame.f_code.co_filename
        caller = caller or (name if name != __file__ else "")
        if name.startswith("<frozen importlib"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return any(part in caller for part in MAKERS)


_current: list[Audit] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _current and threading.get_ident() not in _current[-1].deaf_to:
        watch = _current.pop()  # what the watch itself opens is not watched
        try:
            watch.note(event, args)
        finally:
            _current.append(watch)


@cache
def install() -> None:
    """Begin to hear what the process does; a hook stays until the process ends, and is deaf outside of `watched`."""
    sys.addaudithook(_hook)


@contextmanager
def watched(folder: Path) -> Iterator[Audit]:
    """AssertionError where the block does what no door may, or takes longer than LONGEST."""
    install()
    watch, start = Audit(folder), time.process_time()
    watch.deaf_to = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    _current.append(watch)
    try:
        yield watch
    finally:
        _current.clear()
        watch.seconds = time.process_time() - start
    assert not watch.faults, watch.faults
    assert watch.seconds < LONGEST, f"{watch.seconds:.1f} s"


def peak() -> int:
    """The peak of this process's memory in bytes, since `reset_peak` where the system can."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> int:
    """Begin to measure the peak anew; returns the memory of now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return peak()


# A door: a way by which something that somebody else wrote comes into the lab, and what may come of it.


Enter = Callable[[Any, Path], object]


@dataclass(frozen=True)
class Door:
    """`enter` reads a case, with a folder for what it writes; `errors` are those whose message a person reads.

    `short` cases are read in `make test`.
    """

    name: str
    cases: st.SearchStrategy[Any]
    enter: Enter
    errors: tuple[type[Exception], ...]
    short: int = 60


def seeded(make: Callable[[random.Random], Any]) -> st.SearchStrategy[Any]:
    """Cases that a seeded generator makes; hypothesis draws the seed."""
    return st.integers(0, 2**40).map(lambda seed: make(random.Random(seed)))
