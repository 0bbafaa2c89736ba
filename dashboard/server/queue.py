"""Start, queue and stop runs.

Each run is in a worker process, a few at a time, with one warm spare waiting. All state is in the runs' folders, so that
a reload, a second tab or a restarted server finds every run; only the spare's process and the thread that moves the queue
live in memory.
"""

import errno
import heapq
import os
import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from filelock import FileLock

from core import memory
from core.claims import run as claim_run
from core.entries import ConfigError
from core.event_log import log
from core.files import (
    BOARDS,
    PEOPLE,
    folder_bytes,
    hosted,
    remove_tree,
    runs_folder,
    sentence_of,
    server_folder,
)
from core.interpret import corpus, pairs
from core.interpret.corpus import MeasurementConfig
from core.pretrained.finetune import FineTuneConfig
from core.pretrained.finetune_run import create
from core.runs import ray_queue
from core.runs.executor import RayExecutor, executor, spawn_worker, start_process
from core.runs.machine import gpus, number_of
from core.runs.runs import MAX_RUNS, Run, create_run, new_run
from core.runs.store import take_over
from core.runs.sweeps import Sweep, create_sweep, delete_sweep
from core.runs.worker import CONTINUE
from core.scoreboard import run as scoreboard
from core.scoreboard.base import Board
from core.training.config import RunConfig
from core.training.sweeps import Cell, SweepConfig
from dashboard.server.cache import recent
from dashboard.server.counters import add_count
from dashboard.server.limits import (
    QueueFull,
    admit_config,
    check_disk,
    check_owner,
    check_runs,
    is_over,
    make_room,
    max_run_seconds,
    mine,
    owner,
    spent,
    unfinished_runs,
)
from dashboard.server.visitors import forget_person, limits

FRESH_SECONDS = 1.0


class Place(NamedTuple):
    """A run's place in the queue, from 1, and the seconds until it begins; None where nothing tells them."""

    number: int
    seconds: float | None


def queue() -> tuple[list[Run], list[Run]]:
    """The queued runs of everybody in order, and those that workers have.

    People take turns, those who have runs under way later. Of one person single runs come before a sweep's, then the
    earlier ones: the whole order where this is no public copy, as all are one person.
    """
    states = [(run, run.status()) for run in unfinished_runs()]
    busy = [
        run
        for run, status in states
        if not (status.ended or status.state == "queued" or run.job == "watched")
    ]
    turns: Counter[str] = Counter(owner(run) for run in busy)
    order: list[tuple[int, float, Run]] = []
    for run, at in sorted(
        [(run, status.at) for run, status in states if status.state == "queued"],
        key=lambda pair: ("sweep" in pair[0].metadata(), pair[1]),
    ):
        order.append((turns[owner(run)], at, run))
        turns[owner(run)] += 1
    return [run for _, _, run in sorted(order, key=lambda place: place[:2])], busy


def place(run: Run) -> Place | None:
    """The run's place in the queue, from 1, and how long it will wait; None when it does not wait.

    The queue is read at most once in FRESH_SECONDS, however many sessions poll.
    """
    if run.status().state != "queued":
        return None
    known = recent(FRESH_SECONDS, _places, server_folder())
    return (known if run in known else recent(-1.0, _places, server_folder())).get(run)


def _places(_: Path) -> dict[Run, Place]:
    return places(*queue(), max_workers())


def places(waiting: Sequence[Run], busy: Sequence[Run], workers: int) -> dict[Run, Place]:
    """The place of each waiting run: each takes the first worker that is free."""
    # seconds a step of runs of a kind
    paces: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in busy:
        config, records = _config(run), run.records()
        if config is not None and records and records[-1].step:
            paces[config.task.key, config.model.kind].append(records[-1].elapsed / records[-1].step)
    known = {kind: sum(values) / len(values) for kind, values in paces.items()}
    # When each worker is free: none once nothing tells when the next run begins
    left, workers = [_seconds_left(run, known) for run in busy], max(1, workers)
    ends = [seconds for seconds in left if seconds is not None]
    free = sorted([*ends, *[0.0] * (workers - len(busy))])[-workers:] if ends == left else []
    order = {}
    for number, run in enumerate(waiting, 1):
        order[run] = Place(number, free[0] if free else None)
        if free and (seconds := _seconds_left(run, known)) is not None:
            heapq.heapreplace(free, free[0] + seconds)
        else:
            free = []
    return order


def _seconds_left(run: Run, paces: Mapping[tuple[str, str], float]) -> float | None:
    """Seconds that a run still takes: by its pace or that of its kind, at most its limit; None where none is known."""
    config = _config(run)
    if config is None:  # of a corpus, a claim or a pretrained model
        return float(limits()["seconds"]) if hosted() else None
    last = next(reversed(run.records()), None)
    step, elapsed = (last.step, last.elapsed) if last else (0, 0.0)
    cap = min(config.max_seconds, max_run_seconds()) - elapsed
    pace = elapsed / step if step else paces.get((config.task.key, config.model.kind))
    if pace is None:
        return max(0.0, cap) if cap <= 300.0 else None  # up to which the limit itself says it
    return max(0.0, min(cap, (config.steps - step) * pace))


def _config(run: Run) -> RunConfig | None:
    try:
        return run.config()
    except (ConfigError, TypeError, ValueError, KeyError):
        return None


def cluster_state() -> ray_queue.ClusterState | None:
    """What the cluster has and has free; None where runs stay on this machine, and on a public copy."""
    if not ray_queue.address() or hosted():
        return None
    ray_queue.ensure_driver()
    return ray_queue.load_state()


def node_text(metadata: Mapping[str, Any]) -> str:
    """On which nodes of a cluster a run of this run.json was, in order; empty for one of this machine."""
    nodes = [name for name, _ in groupby([] if hosted() else ray_queue.node_names(metadata))]
    return f"on node {', then '.join(nodes)}" if nodes else ""


_ends: dict[Run, str] = {}  # of workers that ended, what their folder has no room for yet
_kills: dict[Run, float] = {}  # how often memory had run out when each run began here

QUEUE = 100
MAX_CORPORA, CORPORA_BYTES = 50, 300_000_000
MAX_CLAIM_RUNS, CLAIM_BYTES = 100, 50_000_000
NO_ROOM = 1_000_000  # bytes free on a disk that is full
START_SECONDS, STOP_SECONDS, WATCH_SECONDS = 60.0, 3.0, 1.0


SPARE = "jobs:spare"  # in the session's state, until it opens another page
_spares = WeakKeyDictionary[IO[bytes], subprocess.Popen]()  # by the input of each
_lock = threading.RLock()
# one start at a time, so that two tabs do not share the room for one run
_admission = threading.Lock()
_watcher: threading.Thread | None = None


def max_workers() -> int:
    return executor().slots()


def warm_up(live: bool = False) -> IO[bytes] | None:
    """The input of a spare worker, unless memory is short or the page's own run is live; on a cluster the nodes start them.

    It holds 160 MB, and ends once nobody keeps what this returns: each session, as SPARE, on a page that starts runs.
    """
    if isinstance(executor(), RayExecutor):
        ray_queue.ensure_driver()
    elif not live and not memory.is_small():
        with _lock:
            if (
                spare := next((one for one in _spares if _spares[one].poll() is None), None)
            ) is None:
                process = spawn_worker(["--spare"], subprocess.PIPE, gpu=0 if gpus() else None)
                spare = cast(IO[bytes], process.stdin)
                process.stdin = None  # else the process, which lasts, would hold it
                _spares[spare] = process
                add_count("worker_starts")
            return spare
    return None


def start(config: RunConfig, **more: Any) -> Run:
    """Create a run, to train now or in its turn; `more` is kept in run.json (name, sweep). Raises QueueFull."""
    return start_all([(config, more)])[0]


def start_all(configs: Sequence[tuple[RunConfig, dict[str, Any]]]) -> list[Run]:
    admitted = [(admit_config(config), more) for config, more in configs]
    with _admit(len(configs)):
        return [create_run(config, **more) for config, more in admitted]


def fine_tune(config: FineTuneConfig, **more: Any) -> Run:
    """Create a run that fine-tunes a model. Raises QueueFull, ConfigError and PretrainedError."""
    with _admit():
        return create(config, **more)


def measure(config: MeasurementConfig) -> Run:
    """Create a measurement of a corpus or of pairs. Raises QueueFull, ConfigError and PretrainedError."""
    with _admit(1, MAX_CORPORA, corpus.corpora_folder(), CORPORA_BYTES):
        return config.create()


def measure_claim(config: claim_run.ClaimConfig) -> claim_run.Group:
    """Create the runs that measure a claim, one a worker. Raises QueueFull."""
    with _admit(max_workers(), MAX_CLAIM_RUNS, claim_run.claims_folder(), CLAIM_BYTES):
        return claim_run.create(config, max_workers())


def measure_board(board: Board) -> list[Run]:
    """Create the runs that measure what is left of a board, one a worker. Raises QueueFull."""
    with _admit(max_workers(), MAX_RUNS, runs_folder() / BOARDS, CLAIM_BYTES):
        return scoreboard.create(board, max_workers())


def start_sweep(config: SweepConfig) -> Sweep:
    """A new sweep with all its runs in the queue. ConfigError and QueueFull leave nothing on the disk."""
    config.try_models()
    sweep = create_sweep(config)
    try:
        _start_cells(sweep, config, config.cells)
    except QueueFull:
        delete_sweep(sweep)
        raise
    return sweep


def resume_sweep(sweep: Sweep) -> None:
    """Queue all runs that have not finished: a stopped one continues, a failed or lost one starts again.

    Raises QueueFull, NotYours.
    """
    check_owner(sweep)
    outcomes, runs, missing = sweep.outcomes(), sweep.runs(), sweep.missing()
    ended = ("stopped", "paused")
    paused = [cell for cell in missing if cell in runs and outcomes[cell].state in ended]
    for cell in paused:
        resume(runs[cell])
    if lost := [cell for cell in missing if cell not in paused]:
        _start_cells(sweep, sweep.config(), lost)


def _start_cells(sweep: Sweep, config: SweepConfig, cells: Sequence[Cell]) -> None:
    of = [(config.run(*cell), {"sweep": {"id": sweep.id, "value": cell[0]}}) for cell in cells]
    sweep.add_runs(dict(zip(cells, start_all(of), strict=True)))


def stop_sweep(sweep: Sweep) -> None:
    """Stop all runs of a sweep. Raises NotYours."""
    check_owner(sweep)
    _stop_all(run for run in sweep.runs().values() if not run.status().ended)


def _stop_all(runs: Iterable[Run]) -> None:
    """Stop runs, the waiting ones first, so that none of them takes the worker of another."""
    for run in sorted(runs, key=lambda run: run.status().state != "queued"):
        stop(run)


@contextmanager
def _admit(
    more: int = 1,
    keep: int = MAX_RUNS,
    root: Path | None = None,
    max_bytes: int | None = None,
    source: Run | None = None,
) -> Iterator[None]:
    """Room for more runs, which the block creates, in the queue and on the disk: `keep` runs of `max_bytes` bytes in `root`.

    A run that the block copies, `source`, is not deleted for it. Raises QueueFull.
    """
    with _admission:
        _check_queue(more)
        check_runs(more)
        make_room(folder_bytes(source.path) if source else 0, more, keep, root, max_bytes, source)
        yield
    tick()


def stop(run: Run, how: str = "stop") -> None:
    """Ask a run to stop, or to pause (how = "pause"), keeping its results; a queued run ends at once. NotYours."""
    check_owner(run)
    with _folder_lock(), suppress(FileNotFoundError):  # another tab may have deleted it
        run.request_stop(how)
        if run.status().state == "queued":
            run.set_status("paused" if how == "pause" else "stopped", "It had not begun.")
            recent(-1.0, _places, server_folder())


def resume(run: Run, **changes: Any) -> None:
    """Continue an ended run from its last checkpoint, with changes to its config. Raises QueueFull, ConfigError
    and StoreError."""
    check_owner(run)
    if not run.status().ended:
        return  # another tab was first
    _check_queue()
    check_runs(1)
    check_disk()
    take_over(run)
    if changes:
        run.update_metadata(
            config=admit_config(replace(run.config(), **changes), spent(run)).to_json()
        )
    run.requeue()
    tick()


def fork(run: Run, step: int, config: RunConfig, name: str | None = None) -> Run:
    """A new run that copies another's past up to a checkpoint and continues from there; only its training may change.

    Raises QueueFull, and ValueError without a checkpoint at that step or with another model or task.
    """
    if step not in run.checkpoint_steps():
        raise ValueError(
            f"Nothing was saved at step {step:,}; take one of {run.checkpoint_steps()}."
        )
    if config.model != run.config().model or config.task != run.config().task:
        raise ValueError("A fork keeps its model and its task; only how it is trained may change.")
    config = admit_config(config, spent(run, step))
    with _admit(source=run):
        # of another person's run an id would open it
        parent = {"run": run.id, "step": step} if mine(run) else None
        with new_run(config, name=name, parent=parent) as copy:
            run.copy_past(copy)
            copy.truncate(step)
        forked = Run(runs_folder() / copy.id)
        forked.requeue()
    return forked


def _check_queue(more: int = 1) -> None:
    most = limits()["queue"] if hosted() else QUEUE
    if (count := len(queue()[0])) + more > most:
        room = (
            "stop one of them"
            if more == 1
            else f"there is room for {most - count} of these {more}; stop some"
        )
        raise QueueFull(
            "The queue is full. Try again in a few minutes."
            if hosted()
            else f"{count} runs wait already; {room} first."
        )


def tick(fresh: float = 0.0) -> None:
    """Update the folders: mark dead workers, end unresponsive ones, and start queued runs.

    Nothing is done where any session did so less than `fresh` seconds ago: with many, each poll would read all runs.
    """
    recent(fresh, _tick_and_watch, server_folder())


def _tick_and_watch(folder: Path) -> None:
    global _watcher
    under_way = _tick()
    with _lock:
        if under_way and (_watcher is None or not _watcher.is_alive()):
            _watcher = threading.Thread(target=_watch, args=(folder,), daemon=True)
            _watcher.start()


def _tick() -> bool:
    with _folder_lock():
        busy = [run for run in unfinished_runs() if _still_busy(run)]
        waits, room = queue()[0], executor().room(max_workers() - len(busy))
        for run in islice((run for run in waits if executor().admit(run, busy)), room):
            waited = max(0.0, time.time() - run.status().at)
            with suppress(OSError):  # it was deleted, or waits on, since the disk is full
                run.set_status("starting")
                busy.append(run)
                # its end for want of memory is known by it
                _kills[run] = memory.out_of_memory_kills()
                add_count("queue_wait_seconds", waited)
                _give(run)
        return bool(busy or waits)


def _watch(folder: Path) -> None:
    """Move the queue while no page polls: workers of an earlier server end without telling this one."""
    global _watcher
    while True:
        time.sleep(WATCH_SECONDS)
        with _lock, suppress(OSError):  # a disk that is full or away is looked at again
            if server_folder() != folder or not _tick():
                _watcher = None
                return


def _still_busy(run: Run) -> bool:
    status = run.status()
    if status.ended or status.state == "queued":
        return False
    if run.alive():
        if run.job == "watched":  # a process of its own, which takes no worker and is never ended
            return False
        if is_over(run, status) and not run.stop_request():
            run.request_stop("pause")  # what cannot pause stops; either can be continued
        if run.stop_age() > STOP_SECONDS and status.pid:
            with suppress(OSError):
                os.kill(status.pid, 9)
        return True
    starts = status.state == "starting" and abs(time.time() - status.at) < START_SECONDS
    # of one that is held the driver has ended, and the next one finds it
    if starts or executor().holds(run):
        return True
    if not run.status().ended:
        _end(run)
    return False


def _end(run: Run) -> None:
    """Write how a worker ended without a word. Where the disk is full, the next tick does, with what was known first."""
    with suppress(OSError):  # deleted meanwhile, or the disk is full
        message = _ends.setdefault(run, end_message(run))
        usual = "stopped" if run.job == "watched" else "failed"
        run.set_status(
            {"stop": "stopped", "pause": "paused"}.get(run.stop_request(), usual), message
        )
        del _ends[run]


def _give(run: Run) -> None:
    if isinstance(elsewhere := executor(), RayExecutor):
        elsewhere.start(run)
        return
    started = run.status().at
    with _lock:
        process = None
        if not number_of(run):  # a spare sees the first GPU
            try:
                spare, process = _spares.popitem()
                spare.write(f"{run.path}\n".encode())
                spare.close()
            except (KeyError, OSError):
                process = None
        if process is None:
            process = start_process(run)
            add_count("worker_starts")
    threading.Thread(
        target=_wait_for, args=(process, run, started), name=f"wait for {run.id}", daemon=True
    ).start()


def _wait_for(process: subprocess.Popen, run: Run, started: float) -> None:
    """Wait for a worker to end, then start the next run; `started` is when it was given this one."""
    _next = warm_up(live=not queue()[0])  # kept for a run that waits
    process.wait()
    add_count("worker_failures", process.returncode != 0)
    status = run.status()
    log("run", state=status.state, seconds=round(time.time() - started))
    if status.state == "starting" and status.at == started and not run.alive():
        _end(run)  # before its first word
    tick()


@contextmanager
def _folder_lock() -> Iterator[None]:
    folder = server_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock, FileLock(folder / ".lock"):
        yield


def end_message(run: Run) -> str:
    """What a run is told whose worker ended without a word: whether it was stopped, or memory or the disk ran out, and
    how much of it is saved."""
    if run.job == "corpus":
        reached = [f"text {texts:,}"] if (texts := corpus.load(run).texts) else []
    elif run.job == "pairs":
        reached = [f"pair {done:,}"] if (done := len(pairs.load_lines(run))) else []
    elif run.job == "claim":
        reached = [f"part {cells:,}"] if (cells := len(claim_run.load_cells(run))) else []
    else:
        reached = [f"step {record.step:,}" for record in run.records()[-1:]]
    saved = f"everything up to {reached[0]} is saved" if reached else "nothing was measured yet"
    if run.stop_request():
        return f"Stopped; {saved}."
    if run.job == "watched":
        return f"Its process ended without closing its watcher; {saved}."
    if memory.out_of_memory_kills() > _kills.pop(run, float("inf")):
        return (
            "The machine's memory ran out, and the system ended the worker. Take a smaller model or batch, or end "
            f"other runs; {saved}."
        )
    if shutil.disk_usage(run.path).free < NO_ROOM:
        return sentence_of(OSError(errno.ENOSPC, ""), CONTINUE)
    return f"The worker ended without a message; {saved}."


def delete_mine() -> None:
    """Delete all that the person who asks has stored, and end what trains for them; they go on with nothing."""
    folder = runs_folder()
    if folder.parent.name != PEOPLE:  # no assert, which python -O leaves out: a folder is deleted
        raise AssertionError("only a person's folder is deleted")
    runs = unfinished_runs([folder])
    _stop_all(runs)
    for run in runs:
        # End a worker at once: what it would still save is deleted anyway
        if run.alive() and (pid := run.status().pid) is not None:
            with suppress(OSError):
                os.kill(pid, 9)
    remove_tree(folder)
    forget_person(folder.name)
