"""A run's config, records, attention frames and checkpoints; and the folder of runs: sizes, pruning, copies, deletion."""

import json
import os
import re
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save
from safetensors.torch import save as save_tensors

from core.entries import refuse_if
from core.files import (
    append_line,
    folder_bytes,
    hosted,
    modified,
    read_lines,
    remove_tree,
    runs_folder,
    sentence_of,
    text_of,
    with_checksum,
    write_atomically,
)
from core.models import Model, build_model
from core.runs.folder import RUN_ID, RunFolder, open_index, run_names
from core.runs.store import bring, forget, may_leave
from core.settings import limits
from core.tasks import Task, make_task, reading
from core.training import Record, RunConfig, Session, load_weights

METRICS = "metrics.jsonl"
STEP = re.compile(r"[0-9]{6,9}")
LISTED = 200  # runs among which a menu chooses
CHECKSUM = "crc32"  # among the texts of a checkpoint
CHECKPOINTS = 10  # of a run, the last one among them


@dataclass(frozen=True)
class Run(RunFolder):
    """One run's folder; reading never raises on a half-written or missing file."""

    def config(self) -> RunConfig:
        """The run's config; raises ConfigError when the file does not describe one."""
        reading.note(self.path)
        metadata = self.metadata()
        refuse_if(
            "watched" in metadata,
            "it is watched in a loop of its own. Its curves and maps are on Runs.",
        )
        return RunConfig.from_json(metadata.get("config"))

    def append(self, record: Record) -> None:
        """Save a record: its frames first, so that every line of metrics.jsonl has its frame."""
        self.require()
        if record.maps:
            maps = {
                key: np.ascontiguousarray(value, dtype=np.float16)
                for key, value in record.maps.items()
            }
            write_atomically(self.frame_path(record.step), save(maps))
        append_line(
            self.path / METRICS, with_checksum(json.dumps(record.to_json(), ensure_ascii=False))
        )

    def records(self) -> list[Record]:
        """Every record so far, without maps; lines that were damaged are left out."""
        return self.read_records()[0]

    def read_records(self) -> tuple[list[Record], int]:
        """Every record so far, without maps, and the number of lines that were damaged after they were written."""
        records = [record for _, record in read_lines(self.path / METRICS, Record.from_json)]
        return [record for record in records if record is not None], records.count(None)

    def frame_path(self, step: int) -> Path:
        return self.path / "frames" / f"{step:06d}.safetensors"

    def frame(self, step: int) -> dict[str, np.ndarray]:
        """The attention saved at a step: "0:cross" -> (layers, H, T, S), or empty."""
        try:
            maps = load_file(self.frame_path(step))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            return {}
        maps = {key: value.astype(np.float32) for key, value in maps.items() if value.ndim == 4}
        return maps if all(np.isfinite(value).all() for value in maps.values()) else {}

    def frame_steps(self) -> list[int]:
        return _steps(self.path / "frames")

    def checkpoint_path(self, step: int) -> Path:
        return self.path / "checkpoints" / f"{step:06d}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        return _steps(self.path / "checkpoints")

    def save_checkpoint(self, session: Session, config: RunConfig) -> None:
        """Save the session; keep the checkpoints nearest to every tenth of the run, the last, and with `keep_best` the
        best."""
        self.require()
        tensors, text = session.state()
        now = session.progress.step
        write_atomically(
            self.checkpoint_path(now),
            save_tensors(tensors, text | {CHECKSUM: _checksum(tensors, text)}),
        )
        tenth = max(1, config.steps // CHECKPOINTS)
        steps = self.checkpoint_steps()
        near = {
            min(steps, key=lambda step: abs(step - mark)) for mark in range(0, now + tenth, tenth)
        } | {now}
        if config.keep_best and (best := self.best_step()) is not None:
            near.add(best)
        for step in set(steps) - near:
            self.checkpoint_path(step).unlink()

    def validation_losses(self) -> dict[int, float]:
        """The validation loss of each step after the first that has a record, those of a last record left out."""
        return {
            record.step: loss
            for record in self.records()
            if record.step and not record.final and (loss := record.validation_loss) is not None
        }

    def best_step(self) -> int | None:
        """The checkpoint of the smallest validation loss; None before there is one with a record."""
        losses = self.validation_losses()
        return min(
            losses.keys() & self.checkpoint_steps(),
            key=lambda step: (losses[step], step),
            default=None,
        )

    def default_step(self) -> int:
        """The step whose weights count: the best with `keep_best`, else the last; ValueError without checkpoints."""
        steps = self.checkpoint_steps()
        refuse_if(not steps, "This run has saved no weights yet.")
        best = self.best_step() if self.config().keep_best else None
        return steps[-1] if best is None else best

    def checkpoint(self, step: int) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """The state saved at a step, as from `Session.state`; ValueError when it cannot be read."""
        try:
            with safe_open(self.checkpoint_path(step), "pt") as file:
                names = file.keys()  # a safetensors file is no dict: it cannot be iterated
                tensors, text = (
                    {name: file.get_tensor(name) for name in names},
                    file.metadata() or {},
                )
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"The checkpoint of step {step:,} cannot be read: {sentence_of(error)}"
            ) from error
        refuse_if(  # None in those of older versions
            text.pop(CHECKSUM, None) not in (None, _checksum(tensors, text)),
            f"The checkpoint of step {step:,} was changed after it was saved.",
        )
        return tensors, text

    def last_checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, str]] | None:
        """The latest checkpoint that can be read; None where none was saved, ValueError where all are damaged."""
        steps = self.checkpoint_steps()
        for step in reversed(steps):
            with suppress(ValueError):
                return self.checkpoint(step)
        return self.checkpoint(steps[-1]) if steps else None

    def model(self, step: int | None = None) -> tuple[Model, Task]:
        """The trained model at a checkpoint (by default `default_step`), in eval mode, and its task.

        ValueError when there is no checkpoint, or it does not fit. torch's generator is left unchanged.
        """
        step = self.default_step() if step is None else step
        config = self.config()
        task = make_task(config.task)
        with torch.random.fork_rng(devices=[]):
            model = build_model(config.model, task.shape)
        load_weights(model, self.checkpoint(step)[0])
        return model.eval(), task

    def truncate(self, step: int) -> None:
        """Delete the records, frames and checkpoints after a step; damaged lines stay among the records before it."""
        lines = [
            (line, record)
            for line, record in read_lines(self.path / METRICS, Record.from_json)
            if record is None or record.step <= step
        ]
        while lines and lines[-1][1] is None:  # what they held is measured again
            lines.pop()
        write_atomically(self.path / METRICS, b"".join(line + b"\n" for line, _ in lines))
        for path in self.saved_at_steps():
            if int(path.stem) > step:
                path.unlink()

    def saved_at_steps(self) -> list[Path]:
        """The files of its frames and checkpoints."""
        frames = map(self.frame_path, self.frame_steps())
        return [*frames, *map(self.checkpoint_path, self.checkpoint_steps())]

    def copy_past(self, other: "Run") -> None:
        """Copy the records, frames and checkpoints into another run's folder."""
        for folder in ("frames", "checkpoints"):
            shutil.copytree(self.path / folder, other.path / folder, dirs_exist_ok=True)
        with suppress(FileNotFoundError):  # a run that never started
            shutil.copy(self.path / METRICS, other.path / METRICS)

    @property
    def name(self) -> str:
        """The name that a person gave it, or its id."""
        return text_of(self.metadata().get("name")) or self.id


_numbers = count(secrets.randbelow(4096))  # random alone would give two ids of one moment alike


def new_id() -> str:
    """A unique run id that sorts by age: the time to a quarter of a millisecond, 3 digits that this process counts from
    a random start, and on a public copy 32 random ones, as whoever has a run's link may look at it."""
    now, more = time.time(), secrets.token_hex(16) if hosted() else ""
    return (
        f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{int(now % 1 * 4096):03x}"
        f"{next(_numbers) % 4096:03x}{more}"
    )


def create_run(
    config: RunConfig | None, root: Path | None = None, path: Path | None = None, **more: object
) -> Run:
    """A new run's folder under `root` with a fresh id, or exactly at `path`; `more` goes into run.json (name, parent,
    sweep; watched, of a run without a config)."""
    run = Run(path or (root or runs_folder()) / new_id())
    try:
        for folder in ("frames", "checkpoints"):
            (run.path / folder).mkdir(parents=True, exist_ok=True)
        if config is not None:
            more["config"] = config.with_stored_data(run.path).to_json()
        run.create(**more)
    except OSError:
        if path is None:
            remove_tree(run.path)  # on a full disk, half a folder
        raise
    return run


def find_run(run_id: object, root: Path | None = None) -> Run | None:
    """The run of this id, or None; anything that is no run's id is never joined to a path."""
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        return None
    run = Run((root or runs_folder()) / run_id)
    return run if run.exists() else None


def open_run(name: str | Path) -> Run:
    """The run of that id, or in that folder; ValueError when there is none."""
    bring(str(name))
    run = find_run(name) or Run(Path(name))
    refuse_if(
        not run.exists(),
        f"There is no run {name}; `python -m core.training list` lists all runs.",
    )
    return run


def list_runs(root: Path | None = None, latest: int | None = None) -> list[Run]:
    """Every run in the folder, or the `latest` ones, oldest first."""
    names = sorted(run_names(root or runs_folder()), reverse=True)
    return [*islice(filter(None, (find_run(name, root) for name in names)), latest)][::-1]


def _steps(folder: Path) -> list[int]:
    names = [path.stem for path in folder.glob("*.safetensors")]
    return sorted(int(name) for name in names if STEP.fullmatch(name))


def _checksum(tensors: dict[str, torch.Tensor], text: dict[str, str]) -> str:
    value = zlib.crc32(json.dumps(sorted(text.items())).encode())
    for name in sorted(tensors):
        data = tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data
        value = zlib.crc32(data, zlib.crc32(name.encode(), value))
    return f"{value:08x}"


MAX_RUNS = int(limits().max_runs)
GRACE = 3_600.0  # seconds in which a deleted run can be restored
LONGEST_NAME = 80
DELETED = ".deleted"  # not a run id, so nothing in it is listed
DRAFT = ".draft-"


def max_disk_bytes() -> int:
    return int(limits().disk_mb * 1e6)


def prune(
    keep: int = MAX_RUNS,
    root: Path | None = None,
    max_bytes: int | None = None,
    source: Run | None = None,
) -> None:
    """Delete ended runs until at most `keep` remain and all fit into `max_bytes`: first the oldest without a name,
    then the oldest with one, but never `source`. Deleted runs go before them, and after an hour in any case."""
    max_bytes, root = max_disk_bytes() if max_bytes is None else max_bytes, root or runs_folder()
    with open_index(root) as index:
        sizes, order = index.sizes(), index.oldest_first()
    count, total = len(sizes), sum(sizes.values())
    room = max_bytes - total
    for run in deleted_runs(root):  # the latest first
        room -= folder_bytes(run.path)
        if room < 0 or time.time() - modified(run.path) > GRACE:
            remove_tree(run.path)
            forget(root, run.id)
    for path in root.glob(f"{DRAFT}*"):  # left by a server that was killed
        if time.time() - modified(path) > GRACE:
            remove_tree(path)
    reading.prune(root)
    for run in map(Run, (root / name for name in order)):
        if count <= keep and total <= max_bytes:
            return
        if run != source and run.status().ended and not run.alive() and may_leave(run.path):
            remove_tree(run.path)
            count, total = count - 1, total - sizes[run.id]


@contextmanager
def draft_folder(root: Path | None = None) -> Iterator[Path]:
    """A temporary folder beside the runs."""
    root = root or runs_folder()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=root) as folder:
        yield Path(folder)


@contextmanager
def new_run(config: RunConfig | None, root: Path | None = None, **more: Any) -> Iterator[Run]:
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
        run.copy_past(copied)
        left = ("stopped", "Copied while it was still training.")
        copied.set_status(*(status.state, status.message) if status.ended else left)
    return Run((root or runs_folder()) / copied.id)


def discard(run: Run) -> None:
    """Delete a run, restorable for an hour; ValueError while it is under way."""
    refuse_if(
        not run.status().ended or run.alive(),
        "This run is still training; stop it first, then delete it.",
    )
    deleted = run.path.parent / DELETED
    deleted.mkdir(exist_ok=True)
    run.path.rename(deleted / run.id)
    os.utime(deleted / run.id)  # the hour begins now


def restore(run_id: str, root: Path | None = None) -> Run | None:
    """Restore a deleted run; None when it no longer exists."""
    for run in deleted_runs(root):
        if run.id == run_id:
            return Run(run.path.rename((root or runs_folder()) / run_id))
    return None


def deleted_runs(root: Path | None = None) -> list[Run]:
    """The deleted runs that can be restored, latest first."""
    deleted = (root or runs_folder()) / DELETED
    return sorted(
        [Run(deleted / name) for name in run_names(deleted)],
        key=lambda run: modified(run.path),
        reverse=True,
    )
