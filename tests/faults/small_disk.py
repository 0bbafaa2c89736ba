"""A disk of some hundred kilobytes, which really is full: a tmpfs that one process of its own has mounted."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

NEW_MOUNTS, NEW_USERS = (
    0x00020000,
    0x10000000,
)  # of unshare(2): with users of its own, nobody need be root
PAGE = 4096  # bytes: what a file takes on a tmpfs is whole pages
READ_ONLY, REMOUNT = 1, 32  # of mount(2)
BALLAST = "ballast"
CANNOT = 77


def on_small_disk(folder: Path, size: int, body: Callable[[Path], None]) -> None:
    """Call `body` with the folder, on which a disk of `size` bytes lies, in a fork of this process.

    AssertionError with the error of the body; skips the test where no user may mount.
    """
    ends, begins = os.pipe()
    child = os.fork()
    if not child:
        os.close(ends)
        os._exit(_run(folder, size, body, begins))
    os.close(begins)
    with os.fdopen(ends, encoding="utf-8") as words:
        error = words.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == CANNOT:
        pytest.skip(error)
    assert code == 0, error


def _run(folder: Path, size: int, body: Callable[[Path], None], words: int) -> int:
    """The exit status of the fork, which writes its error to the file `words`."""
    try:
        _mount(folder, size)
    except OSError as error:
        os.write(words, f"a disk cannot be mounted here: {error}".encode())
        return CANNOT
    try:
        body(folder)
        return 0
    except BaseException:
        os.write(words, traceback.format_exc().encode())
        return 1


def _mount(folder: Path, size: int) -> None:
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS | NEW_USERS):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="utf-8")
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


def close(folder: Path) -> None:
    """Let nobody write on the disk any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, os.fsencode(folder), None, READ_ONLY | REMOUNT, None):
        raise OSError(ctypes.get_errno(), "mount")


def fill(folder: Path, room: int) -> None:
    """Leave `room` bytes, in whole pages, on the disk."""
    with open(folder / BALLAST, "wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)):
                pass
        except OSError:
            file.truncate(os.fstat(file.fileno()).st_size // PAGE * PAGE - room)


def empty(folder: Path) -> None:
    """Make room again."""
    (folder / BALLAST).unlink()
