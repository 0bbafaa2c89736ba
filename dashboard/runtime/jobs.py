"""Start, queue, stop and follow runs: each in a worker process, a few at a time, with one warm spare waiting.

Nothing here is remembered that the runs' folders do not say, so a reload, a second tab or a restarted server finds
every run as it is. Only the spare's process handle lives in memory, and the thread that keeps the queue moving.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from core.finetune.config import FineTuneConfig
from core.finetune.run import create
from core.training.config import RunConfig
from core.training.run_storage import MAX_RUNS, new_run, prune
from core.training.runs import Run, create_run, list_runs, runs_folder

ROOT = Path(__file__).resolve().parents[2]
QUEUE = 100
START_SECONDS = 60.0
STOP_SECONDS = 3.0
WATCH_SECONDS = 1.0


class QueueFull(Exception):
    """Too many runs wait already."""


@dataclass
class _Spare:
    process: subprocess.Popen | None = None

    def ready(self) -> bool:
        return self.process is not None and self.process.poll() is None


_spare = _Spare()
_lock = threading.RLock()
_watcher: threading.Thread | None = None


def max_workers() -> int:
    """How many runs train at once: one core is left to the pages, but two models can always race each other."""
    return max(2, (os.cpu_count() or 2) - 1)


def warm_up() -> None:
    """Have a spare worker waiting; costs nothing when there is one."""
    with _lock:
        if not _spare.ready():
            _spare.process = _spawn(["--spare"], stdin=subprocess.PIPE)


def start(config: RunConfig, **more: Any) -> Run:
    """Ask for a run and return its folder at once; it trains now or waits its turn. Raises QueueFull.

    `more` is kept beside the config in run.json (name, sweep).
    """
    return start_all([(config, more)])[0]


def start_all(configs: Sequence[tuple[RunConfig, dict[str, Any]]]) -> list[Run]:
    """Ask for several runs at once, all of them or, raising QueueFull, none."""
    _check_queue(len(configs))
    prune(MAX_RUNS - len(configs))
    runs = [create_run(config, **more) for config, more in configs]
    tick()
    return runs


def fine_tune(config: FineTuneConfig, **more: Any) -> Run:
    """Ask for a pretrained model to go on learning. Raises QueueFull, and ConfigError or PretrainedError in words."""
    _check_queue()
    prune(MAX_RUNS - 1)
    run = create(config, **more)
    tick()
    return run


def stop(run: Run, how: str = "stop") -> None:
    """Ask a run to stop, or to pause (how = "pause"), keeping what it reached; a run that still waits ends at once."""
    with _folder_lock():
        run.request_stop(how)
        if run.status().state == "queued":
            run.set_status("paused" if how == "pause" else "stopped", "It had not begun.")


def resume(run: Run, **changes: Any) -> None:
    """Let an ended run go on from its last checkpoint, with changes to its config (steps=2000 trains it longer).

    Raises QueueFull, and ConfigError when the changed config cannot be.
    """
    _check_queue()
    if changes:
        run.update_metadata(config=replace(run.config(), **changes).to_json())
    run.requeue()
    tick()


def fork(run: Run, step: int, config: RunConfig, name: str | None = None) -> Run:
    """A new run that shares another's past up to a kept step and goes on from there, perhaps otherwise.

    Raises QueueFull, and ValueError when nothing was kept at that step or the model is another one.
    """
    _check_queue()
    if step not in run.checkpoint_steps():
        raise ValueError(f"Nothing was kept at step {step:,}; take one of {run.checkpoint_steps()}.")
    if config.model != run.config().model or config.task != run.config().task:
        raise ValueError("A fork keeps its model and its task; only how it is trained may change.")
    prune(MAX_RUNS - 1)
    with new_run(config, name=name, parent={"run": run.id, "step": step}) as made:
        shutil.copy(run.path / "metrics.jsonl", made.path / "metrics.jsonl")
        for folder in ("frames", "checkpoints"):
            shutil.copytree(run.path / folder, made.path / folder, dirs_exist_ok=True)
        made.truncate(step)
    forked = Run(runs_folder() / made.id)
    forked.requeue()
    tick()
    return forked


def _check_queue(more: int = 1) -> None:
    if (there := len(waiting())) + more > QUEUE:
        room = "stop one of them" if more == 1 else f"there is room for {QUEUE - there} of these {more}; stop some"
        raise QueueFull(f"{there} runs wait already; {room} first.")


def waiting() -> list[Run]:
    """The runs in the queue, first the one that comes next: a run that a person waits for goes before a sweep's."""
    queued = [(run, status.at) for run in list_runs() if (status := run.status()).state == "queued"]
    return [run for run, _ in sorted(queued, key=lambda pair: ("sweep" in pair[0].metadata(), pair[1]))]


def queue_position(run: Run) -> int | None:
    """The run's place in the queue, counted from 1; None when it does not wait."""
    ids = [other.id for other in waiting()]
    return ids.index(run.id) + 1 if run.id in ids else None


def tick() -> None:
    """Bring the folders up to date: name the dead, end the deaf, and give free workers to those who wait."""
    global _watcher
    under_way = _tick()
    with _lock:
        if under_way and (_watcher is None or not _watcher.is_alive()):
            _watcher = threading.Thread(target=_watch, args=(runs_folder(),), daemon=True)
            _watcher.start()


def _tick() -> bool:
    """Whether anything is under way still."""
    with _folder_lock():
        busy = sum(_still_busy(run) for run in list_runs())
        waits = waiting()
        for run in waits[: max(0, max_workers() - busy)]:
            run.set_status("starting")
            _give(run)
        return bool(busy or waits)


def _watch(folder: Path) -> None:
    """Keep the queue moving though no page looks: workers that an earlier server began end without telling this one."""
    global _watcher
    while True:
        time.sleep(WATCH_SECONDS)
        with _lock:
            if runs_folder() != folder or not _tick():
                _watcher = None
                return


def _still_busy(run: Run) -> bool:
    status = run.status()
    if status.ended or status.state == "queued":
        return False
    if run.alive():
        if run.stop_age() > STOP_SECONDS and status.pid:
            _kill(status.pid)
        return True
    if status.state == "starting" and time.time() - status.at < START_SECONDS:
        return True
    after = run.status()  # the worker may have ended between the two looks
    if not after.ended:
        state = {"stop": "stopped", "pause": "paused"}.get(run.stop_request(), "failed")
        run.set_status(state, _last_words(run))
    return False


def _last_words(run: Run) -> str:
    reached = run.records()
    saved = f"everything up to step {reached[-1].step:,} is kept" if reached else "it had not measured anything yet"
    return f"{'Stopped' if run.stop_request() else 'The worker ended without a word'}; {saved}."


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, 9)


def _give(run: Run) -> None:
    """Hand the folder to the spare, or to a new worker when there is none."""
    given = run.status().at
    with _lock:
        process, _spare.process = (_spare.process, None) if _spare.ready() else (None, None)
        if process is not None:
            try:
                process.stdin.write(f"{run.path}\n".encode())
                process.stdin.close()
            except OSError:
                process = None
        if process is None:
            process = _spawn([str(run.path)], log=run.path / "worker.log")
    threading.Thread(target=_attend, args=(process, run, given), name=f"attend {run.id}", daemon=True).start()


def _attend(process: subprocess.Popen, run: Run, given: float) -> None:
    """Wait for a worker to end, then let the next run begin; the next spare warms up once the run is under way.

    `given` is when the worker was given the run: by its end another one may have been, after a pause.
    """
    try:
        process.wait(timeout=4)
    except subprocess.TimeoutExpired:
        warm_up()
        process.wait()
    status = run.status()
    if status.state == "starting" and status.at == given and not run.alive():
        run.set_status("failed", _last_words(run))  # it ended before its first word
    warm_up()
    tick()


def _spawn(arguments: list[str], stdin: int | None = None, log: Path | None = None) -> subprocess.Popen:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # The spare shares our standard error until it has a run: what goes wrong while warming up must be seen.
    with open(log or os.devnull, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "core.training.worker", *arguments],
            cwd=ROOT,
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,  # a run outlives the server that began it, and Ctrl-C there
        )


@contextmanager
def _folder_lock() -> Iterator[None]:
    """One tick at a time, across threads and across servers that share the folder."""
    folder = runs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock, FileLock(folder / ".lock"):
        yield
