"""The folder of runs, atomic writes, zips, and checked reads of JSON files."""

import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from core.settings import hosted as hosted, settings

T = TypeVar("T")
HOSTED = "ATTENTION_LAB_HOSTED"  # set on a public copy, where each person has a folder of their own
PEOPLE = "people"
# folders of measurements, within that of runs, whose list they stay out of
MEASUREMENTS = CORPORA, CLAIMS, BOARDS = ("corpora", "claims", "scoreboard")
SWEEPS, REPORTS = "sweeps", "reports"  # folders of files, there, too
_QUOTED = r"(?<={0})(?:[A-Za-z]:)?(?:[/\\][^/\\{0}\n]+){{2,}}(?={0})|"  # also with spaces
_PATH = re.compile(
    _QUOTED.format("'")
    + _QUOTED.format('"')
    + r"(?<![\w.:/\\])(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+){2,}"
)
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
# As NumPy, PyTorch, safetensors and tokenizers say it, whose errors have no number.
_FULL_WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|(?<!\d)\d+ requested and \d+ written"
    r"|inline_container\.cc\S{0,20} \. (unexpected pos|PytorchStreamWriter failed writing)"
)
_NO_WRITING = (errno.EROFS, errno.EACCES, errno.EPERM)
_person: list[Callable[[], str]] = []  # says whose page asks; a server sets it


def lab_path(name: str) -> Path:
    """A file or folder that came with the lab, by its path from the root of the repository."""
    return Path(__file__).resolve().parents[1] / name


def server_folder() -> Path:
    """The folder of all that the server stores: $ATTENTION_LAB_RUNS, or ~/.attention-lab/runs."""
    return Path(settings().runs or Path.home() / ".attention-lab" / "runs").expanduser().absolute()


def runs_folder() -> Path:
    """The folder of runs, and of all beside them: the server's, on a public copy that of the person who asks."""
    key = _person[-1]() if _person and hosted() else ""
    return server_folder() / PEOPLE / key if key else server_folder()


def shared_files(name: str) -> list[Path]:
    """The files of this name beside the runs of anybody, the oldest first: of what people hand out by a short link."""
    return sorted(
        server_folder().glob(f"{PEOPLE}/*/{name}" if hosted() else name),
        key=modified,
    )


def without_paths(text: str) -> str:
    """A message for a reader, on a public copy without the paths of the server."""
    return _PATH.sub("…", text) if hosted() else text


def set_person(key: Callable[[], str]) -> None:
    """Set what says whose page asks: the name of the person's folder, "" outside of any page."""
    _person[:] = [key]


def write_atomically(path: Path, data: bytes, new: bool = False) -> None:
    """Replace a file atomically: a reader sees the old bytes or the new. Of a write that fails nothing stays.

    With `new` FileExistsError where there is one, for all but one of several writers.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(2)}")
    try:
        draft.write_bytes(data)
        if not new:
            os.replace(draft, path)
            return
        try:
            os.link(draft, path)  # whole at once, which "xb" is not
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with open(path, "xb") as file:
                file.write(data)
    finally:
        with suppress(OSError):
            draft.unlink()


def remove_tree(folder: Path) -> None:
    """Delete a folder, or as much of it as can be deleted."""
    shutil.rmtree(folder, ignore_errors=True)


def clear_drafts(folder: Path) -> None:
    """Delete what writers left of a folder's files that were killed; nobody may write there meanwhile."""
    for path in folder.glob(".*.*"):
        if re.fullmatch(r"\..+\.[0-9]+\.[0-9a-f]{4}", path.name):  # as write_atomically names them
            path.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Append a line; one that was left half written ends first, so that it does not spoil this one."""
    with open(path, "a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                line = b"\n" + line
        file.write(line + b"\n")


def is_full(error: BaseException) -> bool:
    """Whether the disk, or somebody's share of it, has no room left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return bool(_FULL_WORDS.search(str(error)))


def disk_refused(error: BaseException) -> bool:
    """Whether a disk is full, read-only, closed to this user or broken: nothing that the lab did wrong."""
    codes = (*_NO_WRITING, errno.EIO)
    return is_full(error) or isinstance(error, OSError) and error.errno in codes


def sentence_of(error: BaseException, full: str = "", folder: Path | None = None) -> str:
    """An error as a reader learns of it: what the system refused in words, with what helps; any other one by its own.

    `full` is what helps where the disk has no room. The system does not say of which file a write failed: then it was
    one in `folder`, which is that of the runs unless it is given.
    """
    if getattr(error, "errno", None) is None and is_full(error):
        error = OSError(errno.ENOSPC, str(error))
    if not isinstance(error, OSError) or error.errno is None:
        return without_paths(str(error))
    home, named = server_folder(), isinstance(error.filename, str | bytes)
    file = Path(os.fsdecode(error.filename)) if named else folder or home
    ours = file.is_relative_to(home)
    disk = (
        "The disk of this server"
        if hosted()
        else f"The disk of {home if ours else file.parent if named else file}"
    )
    other = (
        "set ATTENTION_LAB_RUNS to another folder and restart the lab"
        if ours
        else "choose another folder"
    )
    remedy = "Whoever runs this server can mend that." if hosted() else f"Change that, or {other}."
    if is_full(error):
        files = ("runs" if hosted() else "runs or other files on it") if ours else "files on it"
        return f"{disk} is full. {full or f'Delete {files}, then try again.'}"
    if error.errno == errno.EROFS:
        return f"{disk} can be read, but not written. {remedy}"
    if error.errno in _NO_WRITING:
        return f"{disk} may not be written or read by the user of the lab. {remedy}"
    missing = isinstance(error, FileNotFoundError)
    why = "is not there" if missing else f"cannot be read or written: {error.strerror}"
    return without_paths(f"{file} {why}.")


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where the file is missing, invalid, too deep, or not an object."""
    return object_of(read_bytes(path))


def object_of(data: bytes | None) -> dict[str, Any]:
    """The object in a JSON text in UTF-8; {} where there is none, or it is invalid, too deep, or no object."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads((data or b"").decode()), dict):
            return value
    return {}


def read_bytes(path: Path) -> bytes | None:
    """The bytes of a file; None without it."""
    with suppress(OSError):
        return path.read_bytes()
    return None


def modified(path: Path | os.DirEntry[str], missing: float = 0.0) -> float:
    """When a file or folder was last changed, in seconds since 1970; `missing` where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return missing


def folder_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a draft may be renamed meanwhile
                total += os.stat(os.path.join(path, name)).st_size
    return total


def converted(data: object, kind: type[T]) -> T | None:
    """The dataclass in plain values, of which unknown fields are left out; None where one does not fit its type."""
    try:
        return msgspec.convert(data, kind, dec_hook=lambda other, value: other(value))
    except msgspec.ValidationError:
        return None


def zip_files(folder: str, files: Mapping[str, bytes | Path]) -> bytes:
    """A zip of files by their names in a folder: each what it holds, or where it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in files.items():
            file.writestr(
                f"{folder}/{name}", data if isinstance(data, bytes) else data.read_bytes()
            )
    return out.getvalue()


def zip_of(folder: Path) -> bytes:
    """A folder of files as a zip, under the folder's name."""
    return zip_files(folder.name, {path.name: path for path in sorted(folder.iterdir())})


def seconds_of(value: object) -> float:
    """A stored time in seconds; 0 for anything else."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e11 else 0.0


def text_of(value: object, longest: int = 2_000) -> str:
    """A stored text, cut, with "?" for what UTF-8 cannot encode; "" for anything else."""
    return value[:longest].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


# Checksums: in the text of a JSON object, its last field, so that it stays JSON, and of the files of a folder.


FIELD = "crc32"
FOLDER = "checksums.json"  # in a sealed folder, the SHA-256 of each of its files
_START = f', "{FIELD}": "'.encode()
_LENGTH = len(_START) + len('01234567"}')


def with_checksum(text: str) -> bytes:
    """The text of a JSON object that has fields, and at its end the CRC-32 of its UTF-8 bytes as they were before."""
    data = text.encode()
    return data[:-1] + _end(data)


def read_checked(data: bytes) -> dict[str, Any]:
    """The object of a text as `with_checksum` wrote it, or of an older one without a checksum.

    ValueError where it was changed, or is no object.
    """
    data = data.rstrip()
    body, end = data[:-_LENGTH] + b"}", data[-_LENGTH:]
    if not end.startswith(_START):
        body = data
    elif end != _end(body):
        raise ValueError("it was changed after it was written")
    value = json.loads(body.decode())
    if not isinstance(value, dict) or FIELD in value:
        raise ValueError("it is no object, or its checksum was changed")
    return value


def read_lines(path: Path, parse: Callable[[dict[str, Any]], T]) -> list[tuple[bytes, T | None]]:
    """Each whole line of a file and what `parse` makes of its object: None where it was damaged, or raises ValueError.

    A last line that is still being written has no end, and is left out. No file, no lines.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    read: list[tuple[bytes, T | None]] = []
    for line in filter(None, lines):
        value = None
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            value = parse(read_checked(line))
        read.append((line, value))
    return read


def _end(data: bytes) -> bytes:
    return _START + f'{zlib.crc32(data):08x}"}}'.encode()


def seal(folder: Path) -> None:
    """Write the checksums of a folder's files beside them."""
    sums = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    write_atomically(folder / FOLDER, with_checksum(json.dumps(sums)))


def is_intact(folder: Path) -> bool:
    """Whether each file of a folder is as it was sealed; so is one that never was."""
    if not (folder / FOLDER).exists():
        return True
    try:
        sums = read_checked((folder / FOLDER).read_bytes())
        return all(sha256(folder / name) == value for name, value in sums.items())
    except (OSError, ValueError):
        return False


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
