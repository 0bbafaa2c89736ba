"""A person's own data, from bytes to text to rows, and the files that keep it; errors name the line.

Bytes are decoded and the csv module splits lines; nothing is run, imported or evaluated. Long data is a file named by
its checksum, to which settings, links and runs refer. A reference is "sha256:" and 64 hex digits. The file lies in
`.data` of the runs' folder and, as a hard link where the disk allows it, in `data` of every run that uses it, so that
a run's folder is complete.
"""

import csv
import hashlib
import io
import os
import re
import shutil
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from core.entries import ConfigError, refuse_if
from core.files import runs_folder, sentence_of, write_atomically
from core.memory import with_pauses

MAX_SIGNS = 4_000_000
MAX_COLUMNS = 64
DELIMITERS = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars"}
MAX_LINES = 3  # wrong lines named in one message

_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_SEPARATOR = re.compile('"?sep=([\t;,|])"?[ \t]*(?:\n|$)', re.IGNORECASE)  # Excel's first line
_MAGIC = {
    b"PK\x03\x04": "a zip file or an Excel workbook",
    b"%PDF": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"\x1f\x8b": "a gzip file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite": "a database",
}


class EncodingError(ConfigError):
    """Bytes that are not UTF-8. `fits` is the encoding that reads them: "cp1252", or "" for none."""

    def __init__(self, message: str, fits: str) -> None:
        super().__init__(message)
        self.fits = fits


class Row(NamedTuple):
    """One row of a table and the line it begins in, counted from 1."""

    line: int
    cells: tuple[str, ...]


def decode_text(data: bytes, encoding: str = "utf-8") -> str:
    """The text in an uploaded file: UTF-8, UTF-16 with its mark, or Windows-1252 where `encoding` is "cp1252".

    ConfigError names the type of another file; EncodingError says whether Windows-1252 reads it.
    """
    for start, kind in _MAGIC.items():
        refuse_if(
            data.startswith(start),
            f"This is {kind}, not a text; save it as plain text or CSV in UTF-8, and take that.",
        )
    refuse_if(
        len(data) > 4 * MAX_SIGNS,
        f"The file has {len(data):,} bytes; a text may have {MAX_SIGNS:,} characters.",
    )
    coding = (
        "utf-16"
        if data.startswith((b"\xff\xfe", b"\xfe\xff"))
        else ("utf-8-sig" if encoding == "utf-8" else encoding)
    )
    try:
        return data.decode(coding)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        if coding == "utf-16":
            raise ConfigError(
                f"The file says that it is UTF-16, but breaks off at byte {error.start}."
            ) from error
        byte = f"its byte {column} is 0x{data[error.start]:02X}"
        if encoding == "cp1252":
            raise ConfigError(
                f"Line {line} is not Windows-1252: {byte}, which is no character there. Save the file "
                "as UTF-8 and take it again."
            ) from error
        as_windows = data[error.start : error.start + 1].decode("cp1252", "replace")
        # Windows-1252 leaves five bytes out.
        fits = "" if set(data) & {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "cp1252"
        way = "Read it as Windows-1252 (encoding cp1252), or save" if fits else "Save"
        raise EncodingError(
            f"Line {line} is not UTF-8: {byte} (in Windows-1252 {as_windows!r}). {way} the file as "
            "UTF-8 and take it again.",
            fits,
        ) from error


def validate_text(text: str, what: str = "text") -> str:
    """The text with newlines as line ends; ConfigError when it is empty, too long, or has control characters."""
    refuse_if(not text.strip(), f"There is no {what} yet; paste it or choose a file.")
    refuse_if(
        len(text) > MAX_SIGNS,
        f"The {what} has {len(text):,} characters; at most {MAX_SIGNS:,} are taken. Cut it shorter.",
    )
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if match := _CONTROL.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise ConfigError(
            f"Line {line} holds the control character U+{ord(match[0]):04X}, which no text has; is this "
            "really a text file in UTF-8?"
        )
    return text


def read_rows(text: str, what: str = "table") -> tuple[list[Row], str]:
    """All rows that are not empty, each as wide as the first, and their separator.

    The separator is the one that gives most rows the width of the first, at least two columns, or that a first line
    such as sep=; names. ConfigError names wider and narrower lines, and an unclosed quotation mark; `row_notes` tells
    which lines are no row of their own.
    """
    text, marks = validate_text(text, what), "".join(DELIMITERS)
    if named := _SEPARATOR.match(text):
        text, marks = f"\n{text[named.end() :]}", named[1]
    splits = {mark: _split(text, mark) for mark in marks if mark in text}
    if not splits:
        line = text.strip().split("\n")[0]
        raise ConfigError(
            f"The {what} has a single column: no tab, semicolon, comma or bar separates {line!r:.60}."
        )
    # Without error first, then by the number of rows as wide as the first, unless that has a single cell.
    best = max(
        splits,
        key=lambda mark: (
            not splits[mark][1],
            sum(len(row.cells) == len(splits[mark][0][0].cells) > 1 for row in splits[mark][0]),
        ),
    )
    rows, trouble = splits[best]
    if best == "\t":  # a cell over several lines of cells: its quotation marks are plain characters
        plain, _ = _split(text, best, quotes=False)
        over = any("\n" in cell and "\t" in cell for row in rows for cell in row.cells)
        if trouble or (over and len({len(row.cells) for row in plain}) == 1):
            rows, trouble = plain, ""
    refuse_if(trouble, trouble)
    refuse_if(not rows, f"All cells of the {what} are empty.")
    first = rows[0]
    width = len(first.cells)
    refuse_if(
        width < 2,
        f"The {what} has a single column in line {first.line}; it needs at least two, with tabs, "
        "semicolons, commas or bars between.",
    )
    refuse_if(
        width > MAX_COLUMNS, f"The {what} has {width} columns; at most {MAX_COLUMNS} are taken."
    )
    ragged = [row for row in rows if len(row.cells) != width]
    if ragged:
        lines = "; ".join(f"line {row.line} has {len(row.cells)}" for row in ragged[:MAX_LINES])
        more = f"; and {len(ragged) - MAX_LINES:,} more" if len(ragged) > MAX_LINES else ""
        raise ConfigError(
            f"Rows have different numbers of cells: line {first.line} has {width} cells, {lines}{more}. "
            f"{DELIMITERS[best].capitalize()} separate the cells; put a cell that holds one in "
            "quotation marks."
        )
    return rows, best


def _split(text: str, delimiter: str, quotes: bool = True) -> tuple[list[Row], str]:
    """The rows up to the first that cannot be read, and the error of that one."""
    reader = csv.reader(
        io.StringIO(text),
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
    )
    rows: list[Row] = []
    line = 1
    try:
        for cells in with_pauses(reader):
            if any(cell.strip() for cell in cells):
                rows.append(Row(line, tuple(cell.strip() for cell in cells)))
            line = reader.line_num + 1
    except csv.Error as error:
        if "end of data" in str(error):
            return rows, (
                f"Line {line} opens a quotation mark that is never closed. Close it, or write two "
                'quotation marks ("") where one belongs to the text.'
            )
        if "limit" in str(error):
            return (
                rows,
                f"Line {line} begins a cell of more than {csv.field_size_limit():,} characters; cut it.",
            )
        return rows, (
            f"Line {reader.line_num}: a cell in quotation marks continues after they are closed. Write two "
            'quotation marks ("") where one belongs to the text.'
        )
    return rows, ""


def row_notes(text: str, rows: Sequence[Row]) -> list[str]:
    """What became of the filled lines of a text in which none of all its rows begins; empty where there are none."""
    text, starts = validate_text(text), {row.line for row in rows}
    rest = {
        number: line
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and number not in starts and (number > 1 or not _SEPARATOR.match(text))
    }
    blank = [number for number, line in rest.items() if not line.strip("".join(DELIMITERS) + ' "')]
    notes = []
    if blank:
        notes.append(f"Nothing but separators, left out: {line_numbers(blank)}.")
    if joined := [number for number in rest if number not in blank]:
        notes.append(
            f"Part of a cell in quotation marks that begins before: {line_numbers(joined)}."
        )
    return notes


def names_columns(
    rows: Sequence[Row], header: str, known: Collection[str], labels: int = -1
) -> bool:
    """Whether the first of these rows names the columns: as `header` says, or, where that is "auto", by what it holds.

    It does where all its words are `known`; where its cell in the column of `labels` occurs in no other row; and, of
    pairs, where it has no digit though all others of its column do, or is a word among sentences. "auto" never takes
    one of fewer than three rows.
    """
    first, *others = (row.cells[:2] for row in rows)
    if header != "auto" or all(cell.casefold() in known for cell in first):
        return header != "no"
    if labels >= 0 or len(others) < 2:
        return len(others) > 1 and all(row[labels] != first[labels] for row in others)
    digits = any(
        not any(map(str.isdigit, name)) and all(any(map(str.isdigit, row[i])) for row in others)
        for i, name in enumerate(first)
    )
    sentences = sum(all(" " in cell for cell in row) for row in others)
    return digits or (not any(" " in name for name in first) and sentences > 0.9 * len(others))


def line_numbers(lines: list[int]) -> str:
    """Line numbers in words: "line 3", "lines 3, 9 and 4 more"."""
    first = ", ".join(map(str, lines[:MAX_LINES]))
    more = f" and {len(lines) - MAX_LINES:,} more" if len(lines) > MAX_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {first}{more}"


INLINE = 300_000  # characters; longer texts are stored
UNUSED = 86_400.0  # seconds after which data without a run is deleted
IN_RUN = "data"
_run_files: dict[str, Path] = {}  # the data of runs that this process has opened


def is_reference(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("sha256:[0-9a-f]{64}", value) is not None


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
    refuse_if(
        f"sha256:{hashlib.sha256(data).hexdigest()}" != reference,
        "The stored data was changed after it was stored; upload it again.",
    )


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
