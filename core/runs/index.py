"""An index of a folder of runs: one SQLite file beside them, a cache that may be deleted at any time.

The folders stay the truth. A refresh lists the folder once, and then reads of its runs only what can have changed: new
ones, those that have not ended, those in the journal (to which whoever changes a run appends its id), and some others
in turn, so that what another program changed is noticed too. Few runs need no file: their index is in memory.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from core.files import folder_bytes
from core.runs.folder import ENDED, JOURNAL, RUN_ID, RunFolder, Status

FILE, IN_MEMORY = ".index.sqlite", ":memory:"
FEW = 100  # runs that are read each time
TURN = 50  # further runs that a refresh compares with their folders
MAX_JOURNAL = 1_000_000  # bytes
FILL_SECONDS = 0.3
WAIT_SECONDS = 10.0  # for another process that writes
VERSION = 1
STAMPED = ("status.json", "run.json", "metrics.jsonl", "checkpoints")
TABLES = """
CREATE TABLE runs(id TEXT PRIMARY KEY, stamp TEXT, state TEXT, at REAL, named INTEGER, bytes INTEGER,
    text TEXT, task TEXT, config TEXT, score REAL, trained REAL, measured INTEGER) WITHOUT ROWID;
CREATE INDEX by_state ON runs(state);
CREATE INDEX by_task ON runs(task, score);
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Details:
    """What a search and a comparison need of a run: casefolded words; digests of its task and config, and its best
    result (higher is better), where it has them; seconds trained; whether it has measured a loss."""

    text: str
    task: str | None = None
    config: str | None = None
    score: float | None = None
    trained: float = 0.0
    measured: bool = False


@dataclass(frozen=True)
class RunIndex:
    """The runs of a folder as of the last refresh, the newest first."""

    root: Path
    database: sqlite3.Connection
    complete: bool = False  # whether every run was just read

    def ids(self) -> list[str]:
        return self._ids("SELECT id FROM runs ORDER BY id DESC")

    def unfinished(self) -> list[str]:
        """The runs that wait or are under way."""
        return self._ids(f"SELECT id FROM runs WHERE state NOT IN {ENDED} ORDER BY id")

    def statuses(self) -> list[Status]:
        """The state of every run, and since when."""
        return [
            Status(state, at=at)
            for state, at in self.database.execute("SELECT state, at FROM runs")
        ]

    def search(self, words: Sequence[str], start: int = 0, count: int = -1) -> list[str]:
        """The runs that have every word in their text, or as their id; `count` of them from `start` on."""
        where, values = _matching(words)
        return self._ids(
            f"SELECT id FROM runs WHERE {where} ORDER BY id DESC LIMIT ? OFFSET ?",
            *values,
            count,
            start,
        )

    def count(self, words: Sequence[str] = ()) -> int:
        """How many runs `search` finds."""
        where, values = _matching(words)
        return int(self._value(f"SELECT count(*) FROM runs WHERE {where}", *values))

    def best(self, task: str, config: str) -> str | None:
        """The run of this task with the best result among those with another config; of equals the faster."""
        query = (
            "SELECT id FROM runs WHERE task = ? AND config != ? AND score IS NOT NULL "
            "ORDER BY score DESC, trained LIMIT 1"
        )
        name: str | None = self._value(query, task, config)
        return name

    def first_measured(self, words: Sequence[str]) -> str | None:
        """The newest run of a search that has measured something."""
        where, values = _matching(words)
        query = f"SELECT id FROM runs WHERE measured AND {where} ORDER BY id DESC LIMIT 1"
        name: str | None = self._value(query, *values)
        return name

    def stamps(self) -> dict[str, str]:
        """What changes with every run's files."""
        return dict(self.database.execute("SELECT id, stamp FROM runs"))

    def sizes(self) -> dict[str, int]:
        """The bytes of every run; those that are not known are counted."""
        self.database.executemany(
            "UPDATE runs SET bytes = ? WHERE id = ?",
            [
                (folder_bytes(self.root / name), name)
                for name in self._ids("SELECT id FROM runs WHERE bytes IS NULL")
            ],
        )
        return dict(self.database.execute("SELECT id, bytes FROM runs"))

    def oldest_first(self) -> list[str]:
        """The ended runs in the order in which they may go: without a name, then with one, each the oldest first."""
        return self._ids(f"SELECT id FROM runs WHERE state IN {ENDED} ORDER BY named, id")

    def fill(self, describe: Callable[[str], Details], seconds: float = FILL_SECONDS) -> int:
        """Read the details of runs without any, the newest first, for some seconds; returns how many are left."""
        missing = self._ids("SELECT id FROM runs WHERE text IS NULL ORDER BY id DESC")
        rows: list[tuple[object, ...]] = []
        end = time.monotonic() + seconds
        for name in missing:
            if len(rows) >= FEW and time.monotonic() > end:
                break
            rows.append((*astuple(describe(name)), name))
        self.database.executemany(
            "UPDATE runs SET text = ?, task = ?, config = ?, score = ?, trained = ?, "
            "measured = ? WHERE id = ?",
            rows,
        )
        return len(missing) - len(rows)

    def refresh(self) -> None:
        """Read what has changed in the folder."""
        names, rows = run_names(self.root), self.stamps()
        changed, check = self._journal()
        self.database.executemany(
            "DELETE FROM runs WHERE id = ?", [(name,) for name in (rows.keys() - names)]
        )
        suspects = rows.keys() if check else {*changed, *self.unfinished()}
        if not self.complete:  # the next ones in turn
            last = self._value("SELECT value FROM meta WHERE name = 'turn'") or ""
            turn = self._ids("SELECT id FROM runs WHERE id > ? ORDER BY id LIMIT ?", last, TURN)
            self.database.execute(
                "INSERT OR REPLACE INTO meta VALUES ('turn', ?)", (turn[-1] if turn else "",)
            )
            suspects = suspects | set(turn)
        known = suspects & rows.keys() & names
        stale = {name for name in known if rows[name] != stamp_of(self.root / name)}
        for name in stale | (names - rows.keys()) | (changed & names):
            run = RunFolder(self.root / name)
            stamp = stamp_of(run.path)
            if not run.exists():
                self.database.execute("DELETE FROM runs WHERE id = ?", (name,))
                continue
            status, named = run.status(), bool(run.metadata().get("name"))
            self.database.execute(
                "INSERT OR REPLACE INTO runs(id, stamp, state, at, named) VALUES (?, ?, ?, ?, ?)",
                (name, stamp, status.state, status.at, named),
            )

    def _journal(self) -> tuple[set[str], bool]:
        """The runs in the journal since the last refresh; and whether all must be compared with their folders."""
        path = self.root / JOURNAL
        start = int(self._value("SELECT value FROM meta WHERE name = 'journal'") or 0)
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(start)
                lines = file.read().decode("ascii", "replace").split("\n") if size > start else []
        except OSError:
            return set(), False
        lost = size < start
        if lost or size > MAX_JOURNAL:
            with suppress(OSError):
                os.truncate(path, 0)  # before the comparison, which finds what is written meanwhile
            size = 0
        if size != start:
            self.database.execute("INSERT OR REPLACE INTO meta VALUES ('journal', ?)", (size,))
        return {line for line in lines if RUN_ID.fullmatch(line)}, lost or size == 0 < start

    def _ids(self, query: str, *values: object) -> list[str]:
        return [row[0] for row in self.database.execute(query, values)]

    def _value(self, query: str, *values: object) -> Any:
        row = self.database.execute(query, values).fetchone()
        return row[0] if row else None


def _matching(words: Sequence[str]) -> tuple[str, list[str]]:
    """The condition that a run has every word in its text, or as its id, and the values for its marks."""
    where = " AND ".join(["(instr(text, ?) OR id = ?)"] * len(words)) or "1"
    return where, [value for word in words for value in (word, word)]


def unfinished(root: Path) -> list[str]:
    """The ids of the runs of a folder that wait or are under way, the oldest first."""
    names = run_names(root)
    if len(names) > FEW:
        with open_index(root) as index:
            return index.unfinished()
    runs = [RunFolder(root / name) for name in sorted(names)]
    return [run.id for run in runs if run.exists() and not run.status().ended]


def list_statuses(root: Path) -> list[Status]:
    """The state of every run of a folder, and since when."""
    if not run_names(root):
        return []
    with open_index(root) as index:
        return index.statuses()


@contextmanager
def open_index(root: Path) -> Iterator[RunIndex]:
    """The index of a folder of runs, refreshed; what the block adds to it is saved.

    It is in a file; in memory for few runs, and where there can be no file. A broken file is replaced.
    """
    index = None
    for _ in range(2 if len(run_names(root)) > FEW else 0):
        with suppress(sqlite3.OperationalError, OSError):
            try:
                (root / JOURNAL).touch()  # from now on changes are appended
                index = _load(root, str(root / FILE))
                break
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                (root / FILE).unlink(missing_ok=True)
    index = index or _load(root, IN_MEMORY)
    try:
        yield index
    finally:
        with suppress(sqlite3.Error):  # a full disk: it is read again next time
            index.database.commit()
        index.database.close()


def _load(root: Path, path: str) -> RunIndex:
    """The index in a file, refreshed."""
    database = sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)
    try:
        database.execute("PRAGMA synchronous = OFF")  # it can be read again from the folders
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            database.executescript(
                f"DROP TABLE IF EXISTS runs; DROP TABLE IF EXISTS meta; {TABLES}"
                f"PRAGMA user_version = {VERSION};"
            )
        index = RunIndex(root, database, complete=path == IN_MEMORY)
        database.execute("BEGIN IMMEDIATE")
        index.refresh()
        database.commit()
    except BaseException:
        database.close()
        raise
    return index


def run_names(root: Path) -> set[str]:
    """The names of the runs' folders in a folder."""
    try:
        return {name for name in os.listdir(root) if RUN_ID.fullmatch(name)}
    except OSError:
        return set()


def version(path: Path) -> list[int] | None:
    """The size and time of a file; None without it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def stamp_of(folder: Path, names: Sequence[str] = STAMPED) -> str:
    """The times and sizes of the files that a row is read from."""
    versions = (version(folder / name) for name in names)
    return " ".join(f"{one[1]}:{one[0]}" if one else "" for one in versions)
