"""The runs folder: sizes, pruning, copies and deletion."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core import stored_runs
from core.run_index import open_index
from core.tasks import data_store
from core.training.config import RunConfig
from core.training.runs import RUN_ID, Run, create_run, new_id, runs_folder

_MOST = os.environ.get("ATTENTION_LAB_MAX_RUNS", "")
MAX_RUNS = int(_MOST) if _MOST.isdecimal() else 200  # runs
MAX_BYTES = 2_000_000_000  # of all of them, unless $ATTENTION_LAB_DISK_MB is set
GRACE = 3_600.0  # seconds in which a deleted run can be restored
LONGEST_NAME = 80
DELETED = ".deleted"  # not a run id, so nothing in it is listed
DRAFT = ".draft-"
FOLDERS = ("frames", "checkpoints", "data", "*-tuned", "trainer/*")


def most_bytes() -> int:
    """The most bytes that all runs together may take."""
    return int(float(os.environ.get("ATTENTION_LAB_DISK_MB") or MAX_BYTES / 1e6) * 1e6)


def size(run: Run) -> int:
    """The bytes of a run's files."""
    total = 0
    for folder in (run.path, *(path for name in FOLDERS for path in run.path.glob(name))):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # a draft may be renamed meanwhile
                    total += entry.stat().st_size if entry.is_file() else 0
    return total


def prune(
    keep: int = MAX_RUNS,
    root: Path | None = None,
    most: int | None = None,
    source: Run | None = None,
) -> None:
    """Delete ended runs until at most `keep` remain and all fit into `most` bytes: first the oldest without a name,
    then the oldest with one, but never `source`. Deleted runs go before them, and after an hour in any case."""
    most, root = most_bytes() if most is None else most, root or runs_folder()
    with open_index(root) as index:
        sizes, order = index.sizes(lambda path: size(Run(path))), index.oldest_first()
    count, total = len(sizes), sum(sizes.values())
    room = most - total
    for run in deleted_runs(root):  # the latest first
        room -= size(run)
        if room < 0 or time.time() - _deletion_time(run) > GRACE:
            shutil.rmtree(run.path, ignore_errors=True)
            stored_runs.forget(root, run.id)
    for path in root.glob(f"{DRAFT}*"):  # left by a server that was killed
        if time.time() - path.stat().st_mtime > GRACE:
            shutil.rmtree(path, ignore_errors=True)
    data_store.prune(root)
    for run in map(Run, (root / name for name in order)):
        if count <= keep and total <= most:
            return
        if (
            run != source
            and run.status().ended
            and not run.alive()
            and stored_runs.may_leave(run.path)
        ):
            shutil.rmtree(run.path, ignore_errors=True)
            count, total = count - 1, total - sizes[run.id]


@contextmanager
def draft_folder(root: Path | None = None) -> Iterator[Path]:
    """A temporary folder beside the runs."""
    root = root or runs_folder()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=root) as folder:
        yield Path(folder)


@contextmanager
def new_run(config: RunConfig, root: Path | None = None, **more: Any) -> Iterator[Run]:
    """A draft run to be filled; it joins the other runs under a new id when the block ends."""
    with draft_folder(root) as folder:
        run = create_run(config, path=folder / new_id(), **more)
        yield run
        run.path.rename(folder.parent / run.id)


def duplicate(run: Run, name: str, root: Path | None = None) -> Run:
    """A copy of a run under a new id; ConfigError when its config cannot be read."""
    status = run.status()
    with new_run(
        run.config(), root, name=name[:LONGEST_NAME], parent=run.metadata().get("parent")
    ) as copied:
        for folder in ("frames", "checkpoints"):
            shutil.copytree(run.path / folder, copied.path / folder, dirs_exist_ok=True)
        with suppress(FileNotFoundError):  # a run that never started
            shutil.copy(run.path / "metrics.jsonl", copied.path / "metrics.jsonl")
        ended = (
            (status.state, status.message)
            if status.ended
            else ("stopped", "Copied while it was still training.")
        )
        copied.set_status(*ended)
    return Run((root or runs_folder()) / copied.id)


def discard(run: Run) -> None:
    """Delete a run, restorable for an hour; ValueError while it is under way."""
    if not run.status().ended or run.alive():
        raise ValueError("This run is still training; stop it first, then delete it.")
    deleted = run.path.parent / DELETED
    deleted.mkdir(exist_ok=True)
    run.path.rename(deleted / run.id)
    os.utime(deleted / run.id)  # the hour begins now


def restore(run_id: str, root: Path | None = None) -> Run | None:
    """Restore a deleted run; None when it no longer exists."""
    match = next((run for run in deleted_runs(root) if run.id == run_id), None)
    if match is None:
        return None
    return Run(match.path.rename((root or runs_folder()) / run_id))


def deleted_runs(root: Path | None = None) -> list[Run]:
    """The deleted runs that can be restored, latest first."""
    deleted = (root or runs_folder()) / DELETED
    with suppress(OSError):
        runs = [Run(deleted / name) for name in os.listdir(deleted) if RUN_ID.fullmatch(name)]
        return sorted(runs, key=_deletion_time, reverse=True)
    return []


def _deletion_time(run: Run) -> float:
    try:
        return run.path.stat().st_mtime
    except OSError:
        return 0.0
