"""Files of a person's own long data, named by their checksums, to which settings, links and runs refer.

A reference is "sha256:" and 64 hex digits. The file lies in `.data` of the runs' folder and, as a hard link where the
disk allows it, in `data` of every run that uses it, so that a run's folder is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from functools import lru_cache
from pathlib import Path

from core.entries import ConfigError
from core.files import runs_folder, sentence_of, write_atomically

INLINE = 300_000  # characters; longer texts are stored
UNUSED = 86_400.0  # seconds after which data without a run is deleted
IN_RUN = "data"
_REFERENCE = re.compile(r"sha256:([0-9a-f]{64})")
_run_files: dict[str, Path] = {}  # the data of runs that this process has opened


def is_reference(value: object) -> bool:
    """Whether a setting is a reference to stored data."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def put(text: str) -> str:
    """Store a text and return its reference; the same text has the same one."""
    data = text.encode()
    reference = f"sha256:{hashlib.sha256(data).hexdigest()}"
    path = _stored(reference)
    if path.exists():
        os.utime(path)  # used today
    else:
        try:
            write_atomically(path, data)
        except OSError as error:
            raise ConfigError(f"The data cannot be stored. {sentence_of(error)}") from error
    return reference


def put_if_long(text: str) -> str:
    """The text itself, or its reference where it has more than INLINE characters."""
    return put(text) if len(text) > INLINE else text


def read(value: str) -> str:
    """The text that a setting is or refers to; ConfigError where it is missing or was changed."""
    return _read(value) if is_reference(value) else value


@lru_cache(maxsize=2)
def _read(reference: str) -> str:
    data = path_of(reference).read_bytes()
    _verify(data, reference)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("The stored data is not UTF-8; upload it again.") from error


def _verify(data: bytes, reference: str) -> None:
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != reference:
        raise ConfigError("The stored data was changed after it was stored; upload it again.")


def path_of(reference: str) -> Path:
    """The file of stored data; ConfigError where it is not on this machine."""
    for path in (_run_files.get(reference), _stored(reference)):
        if path is not None and path.is_file():
            return path
    raise ConfigError(
        f"The data {reference[:15]}… is not on this machine; upload the file again, give it with "
        "--data, or upload the run as a zip."
    )


def note(folder: Path, verify: bool = False) -> None:
    """Register the data in a run's folder; with `verify` ConfigError where it was changed."""
    for path in (folder / IN_RUN).glob("*.txt"):
        if verify:
            _verify(path.read_bytes(), f"sha256:{path.stem}")
        _run_files[f"sha256:{path.stem}"] = path


def link(reference: str, folder: Path) -> None:
    """Link stored data into a run's folder; ConfigError where it is not on this machine."""
    source, target = (
        path_of(reference),
        folder / IN_RUN / f"{reference.removeprefix('sha256:')}.txt",
    )
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


def prune(root: Path | None = None) -> None:
    """Delete data without a run that was stored more than a day ago."""
    for path in ((root or runs_folder()) / ".data").glob("*.txt"):
        try:
            stat = path.stat()
            if stat.st_nlink == 1 and time.time() - stat.st_mtime > UNUSED:
                path.unlink()
        except OSError:  # another process was first
            continue


def _stored(reference: str) -> Path:
    return runs_folder() / ".data" / f"{reference.removeprefix('sha256:')}.txt"
