"""Work on one run's folder in a process of its own: `python -m core.runs.worker RUN_DIR`.

And where runs are worked on: by worker processes of this machine, or on a Ray cluster ($ATTENTION_LAB_RAY).

A run is a folder. Whoever works on it holds its lock, reads `stop`, and writes records and at the end a final status.
Each GPU of this machine takes as many runs as its memory holds, the one with the most room first. A run on a GPU has
`gpu_mb` of ATTENTION_LAB_LIMITS (8,000 by default), and PyTorch refuses it more. A run that finds no room waits.

A folder with checkpoints continues from the last one. With --spare it first imports torch and takes an optimizer step,
then reads RUN_DIR from its standard input. `python -m core.training` is the command for people.

A run may hold `memory_mb` of ATTENTION_LAB_LIMITS, by default 3,000 or half of what the server has.
"""

import argparse
import math
import os
import pkgutil
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch

from core import event_log
from core.attention import ConfigError
from core.files import clear_drafts, disk_refused, hosted, lab_path, sentence_of, without_paths
from core.memory import give_way, total_bytes
from core.models import ModelConfig
from core.pretrained.base import PretrainedError
from core.runs import ray_queue
from core.runs.folder import RunFolder
from core.runs.runs import CHECKPOINTS, Run
from core.settings import limits, settings
from core.tasks import TaskConfig
from core.threads import num_threads
from core.training import Best, Record, RunConfig, cap_reached, prepare, train

KINDS = {"threads": int, "torch": str, "device": str, "capability": str, "libraries": str}
LONGEST, MAX_MACHINES = 100, 5  # characters of a name, and machines, that are read from a file
SETTINGS = ("ATEN_", "DNNL_", "MKL_", "OMP_", "ONEDNN_")  # of PyTorch, MKL, oneDNN and OpenMP


def machine(device: str) -> dict[str, Any]:
    """Threads, torch's version, the processor or GPU, its instruction set or compute capability, and its libraries:
    which of MKL and oneDNN compute, and what the environment sets of them."""
    name, capability = processor(), torch.backends.cpu.get_cpu_capability()
    name = name if device == "cpu" else f"{name} ({device})"
    if device == "cuda":
        name = torch.cuda.get_device_name()
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    on = {"MKL": torch.backends.mkl.is_available(), "oneDNN": onednn}
    named = [f"{key}={one}" for key, one in sorted(os.environ.items()) if key.startswith(SETTINGS)]
    libraries = ", ".join(
        [f"{key} {'on' if there else 'off'}" for key, there in on.items()] + named
    )
    return {
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "device": name,
        "capability": capability,
        "libraries": libraries[: 3 * LONGEST],
    }


def record_machine(run: Run, device: str) -> None:
    """Add this machine to a run's run.json, unless it is the last one there."""
    before, here = valid(run.metadata().get("machines")), machine(device)
    if before[-1:] != [here]:
        run.update_metadata(machines=[*before, here])


def processor() -> str:
    """The model of the CPU, or its architecture where the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine()])[0]


def valid(data: object) -> list[dict[str, Any]]:
    """The valid machines in a run.json, oldest first."""
    listed = [
        {"libraries": "", **item}
        for item in (data[-MAX_MACHINES:] if isinstance(data, list) else [])
        if isinstance(item, dict)
    ]  # until 0.16 no libraries were recorded
    longest = dict.fromkeys(KINDS, LONGEST) | {"libraries": 3 * LONGEST}
    return [
        {name: item[name] if name == "threads" else item[name][: longest[name]] for name in KINDS}
        for item in listed
        if all(type(item.get(name)) is kind for name, kind in KINDS.items())
    ]


def line(data: object) -> str:
    """The machines in a run.json as text; empty for none."""
    return "; then ".join(
        f"{item['device']} ({item['capability']}), {item['threads']} thread{'s' if item['threads'] != 1 else ''}, "
        f"PyTorch {item['torch'].partition('+')[0]}"
        for item in valid(data)
    )


KEY = "gpu"  # of run.json: the number of the run's GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"


@cache
def gpus() -> tuple[float, ...]:
    """The memory of each CUDA device in MB, in PyTorch's order."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(torch.cuda.get_device_properties(n).total_memory / 1e6 for n in range(count))


def number_of(run: Run) -> int | None:
    """The number of the run's GPU among those of this machine; None on the CPU."""
    number = run.metadata().get(KEY)
    return number if type(number) is int and 0 <= number < len(gpus()) else None


def environment(number: int | None) -> dict[str, str]:
    """The variables with which a worker sees that GPU alone."""
    if number is None:
        return {}
    names = [name for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return {VISIBLE: names[number] if number < len(names) else str(number)}


def spawn_worker(
    arguments: Sequence[str],
    stdin: int | None = None,
    log: Path | None = None,
    gpu: int | None = None,
) -> subprocess.Popen:
    """A worker with these arguments, on one of several GPUs; without a log, its errors are visible on our standard
    error."""
    # Tensors of 4 MB and more outside the heap, in huge pages: in it a model of 4 million parameters left holes, up to
    # 13 GB in 500 steps, and took a tenth longer.
    malloc = "glibc.malloc.mmap_threshold=4194304:glibc.malloc.hugetlb=1"
    env = {
        **os.environ,
        **environment(gpu),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        "GLIBC_TUNABLES": malloc,
    }
    with open(log or os.devnull, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "core.runs.worker", *arguments],
            cwd=lab_path(""),
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=out if log else None,
            start_new_session=True,
        )  # a run outlives the server and Ctrl-C


MAX_SLOTS = 50  # runs into which a claim is split at most
MAX_RUNS = 1_000  # that are handed to a cluster at once
POLL_SECONDS = 0.2


def start_process(run: Run) -> subprocess.Popen:
    """A worker that trains or measures a run's folder, and writes its log there."""
    return spawn_worker([str(run.path)], log=run.path / "worker.log", gpu=number_of(run))


class Executor:
    """Where runs are worked on: worker processes of this machine, whose queue is the caller's."""

    def start(self, run: Run) -> "Worker":
        """Begin or continue a run, now or as soon as there is room."""
        return start_process(run)

    def slots(self) -> int:
        """How many runs are worked on at once: one core is left to the pages, but two runs are allowed where memory has
        room for them beside the server."""
        room = min(1e3, (total_bytes() - SERVER_BYTES) / WORKER_BYTES)
        return max(1, min(max(2, cores() - 1), int(room)))

    def room(self, free: int) -> int:
        """How many more runs can be started where `free` slots are."""
        return max(0, free)

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        """Whether a run can start beside the busy ones; where it needs a GPU, its number is written into run.json."""
        taken = Counter(number_of(one) for one in busy)
        room = [
            max(1, int(memory // limits().gpu_mb)) - taken[number]
            for number, memory in enumerate(gpus())
        ]
        needed = bool(room) and bool(ray_queue.needs(run.metadata(), True).gpus)
        if needed and max(room) < 1:
            return False
        with suppress(OSError):  # it was deleted, or waits on, since the disk is full
            if room:
                run.update_metadata(gpu=room.index(max(room)) if needed else None)
            return True
        return False

    def holds(self, run: RunFolder) -> bool:
        """Whether the run is in good hands, though nobody may hold its lock right now."""
        return False


class RayExecutor(Executor):
    """The nodes of a Ray cluster, which queues what it has no room for."""

    def start(self, run: Run) -> "Worker":
        ray_queue.submit(run)
        return ClusterWorker(run)

    def slots(self) -> int:
        """One until the cluster is reached."""
        ray_queue.ensure_driver()
        return max(
            1, min(MAX_SLOTS, int(ray_queue.load_state().has[0] / settings().ray_worker.cpus))
        )

    def room(self, free: int) -> int:
        """Every run, once the cluster is reached: the queue is Ray's, except on a public copy, whose own is fair."""
        ray_queue.ensure_driver()
        if not ray_queue.load_state().reachable:
            return 0
        return max(0, free) if hosted() else MAX_RUNS

    def admit(self, run: Run, busy: Sequence[Run]) -> bool:
        return True

    def holds(self, run: RunFolder) -> bool:
        return ray_queue.holds(run)


@dataclass(frozen=True)
class ClusterWorker:
    """The work on a run of the cluster, seen through its folder."""

    run: Run

    def wait(self, timeout: float | None = None) -> None:
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while ray_queue.holds(self.run) or self.run.alive():
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.run.id, timeout or 0.0)
            ray_queue.ensure_driver()
            time.sleep(POLL_SECONDS)

    def terminate(self) -> None:
        self.run.request_stop()


Worker = (
    subprocess.Popen | ClusterWorker
)  # the work on one run: it can be waited for and terminated


def executor() -> Executor:
    """The cluster where its address is set, else this machine."""
    return RayExecutor() if ray_queue.address() else Executor()


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores of this machine that this process may use: those of its container where that has fewer."""
    machine = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = map(
            int, limit.read_text(encoding="utf-8").split()
        )  # microseconds in as many, or "max"
    except (OSError, ValueError):
        return machine
    return max(1, min(machine, quota // period))


# The worker of one run.


# What works on a run, by its job, found by name: it lies above core.runs, and Hugging Face's Trainer is large.
WORK = {
    "finetune": "core.pretrained.finetune_run:fine_tune",
    "corpus": "core.interpret.corpus:work",
    "claim": "core.claims.run:work",
    "config": "core.runs.worker:train_run",
}
CONTINUE = (
    "Everything that was saved is kept; free some space, then continue the run."  # a full disk
)
MEMORY_MB = 3_000
SERVER_BYTES, WORKER_BYTES = 800_000_000, 200_000_000  # with all pages open; of a small run
WARM_UP = RunConfig(
    TaskConfig.of("reverse", length=6, vocab=12),
    ModelConfig.transformer(8, 1, layers=1, d_ff=8, position="learned"),
    steps=2,
    batch_size=4,
    record_every=1,
    held_out=4,
    num_examples=1,
)
NO_MEMORY = re.compile(
    "out of memory|(can't|cannot|could not) allocate|not enough memory", re.IGNORECASE
)  # torch


def work(
    path: Path,
    memory_mb: float | None = None,
    on_record: Callable[[Any], object] = lambda record: None,
) -> str:
    """Work on the run in this folder, call `on_record` with each record, and return the final state.

    Every end, a crash too, is written to status.json; the line about it is printed first, so that whoever reads a final
    status finds the whole log.
    """
    run = Run(path)
    # Stop by the stop file, a signal or Ctrl-C, and where the run was deleted.
    signalled = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: signalled.set())

    def stop() -> bool:
        return signalled.is_set() or bool(run.stop_request()) or not run.exists()

    with run.lock():
        if (status := run.status()).state in ("finished", "stopped", "paused"):
            print(f"{status.state}: {status.message}")
            return status.state  # another worker had it first, or it was stopped before it began
        run.set_status("running", pid=os.getpid())
        for folder in (run.path, run.path / "frames", run.path / "checkpoints"):
            clear_drafts(folder)
        try:
            if KEY in run.metadata() and gpus():  # it sees one, and takes no more than its share
                torch.cuda.set_per_process_memory_fraction(min(1.0, limits().gpu_mb / gpus()[0]), 0)
            with _memory_limit(run, memory_mb or memory_limit_mb()):
                state, message = pkgutil.resolve_name(WORK[run.job])(run, stop, on_record)
        except (ConfigError, FloatingPointError, ValueError, PretrainedError) as error:
            state, message = "failed", without_paths(str(error))
        except Exception as error:  # a crash costs this run alone
            event_log.log_error(error)
            state = "failed"
            if disk_refused(error):
                message = sentence_of(error, CONTINUE)
            elif isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
                message = "The run needed more memory than is free. Take a smaller model or batch, or end other runs."
            elif not hosted():
                message = f"The worker met an error: {type(error).__name__}: {error}"
            else:  # a number by which the log has it
                reference = event_log.reference(error)
                with suppress(OSError):  # of a log on a full disk
                    print(f"reference {reference}")
                message = (
                    "The worker met an error of the lab's own. Its number in the server's log is "
                    f"{reference}."
                )
        if not run.exists():  # somebody deleted the folder
            print("failed: The run was deleted.")
            return "failed"
        try:
            print(f"{state}: {message}")
        finally:  # a shell that no longer reads closes the pipe
            run.set_status(state, message, pid=os.getpid())
    return state


@num_threads(1)
def train_run(
    run: Run, stop: Callable[[], bool], on_record: Callable[[Record], object]
) -> tuple[str, str]:
    """Train, or continue from the last checkpoint, and return the final state and its message."""
    config = run.config()
    session = prepare(config)
    record_machine(run, session.device)
    if (saved := run.last_checkpoint()) is not None:
        session.restore(*saved)
    now = session.progress
    run.truncate(now.step or -1)  # the loop measures step 0 again, and no later one
    if config.keep_best:
        while (best := run.best_step()) is not None:
            try:
                session.best = Best(best, run.checkpoint(best)[0])
                break
            except ValueError as error:  # it is damaged: the best that can be read counts
                print(error)
                run.checkpoint_path(best).unlink()
                # The next best must only be better than the weights that are left.
                left = run.best_step()
                now.best = math.inf if left is None else run.validation_losses()[left]
    records = [record for record in run.records() if record.step == now.step]
    session.record = next((record for record in reversed(records) if not record.final), None)
    if records and records[-1].final:
        if now.step >= config.steps:
            return "finished", _finished(records[-1], run)  # killed after its final record
        now.passes = now.waited = 0  # or a run continued after its end would end again
    last, tenth = None, max(1, config.steps // CHECKPOINTS)
    for last in train(config, session, stop):
        run.append(last)
        on_record(last)
        smallest = session.best is not None and session.best.step == last.step
        if last.step % tenth < config.record_every or (smallest and not last.final):
            run.save_checkpoint(session, config)
    run.save_checkpoint(session, config)
    if last is not None and last.final:
        return "finished", _finished(last, run)
    if run.stop_request() == "pause":
        return "paused", f"Paused at step {now.step:,}."
    return "stopped", f"Stopped; everything up to step {now.step:,} is saved."


def _finished(last: Record, run: Run) -> str:
    config, losses, best = run.config(), run.validation_losses(), last.best
    capped = cap_reached(config.max_seconds, config.steps) if last.capped else ""
    smallest = min(losses, key=lambda step: losses[step], default=best)
    which = f" The validation loss was smallest at step {smallest:,}"
    from_best = "" if best is None else f"{which}; its weights are used."
    if config.keep_best and smallest not in (None, used := best or last.step):
        from_best = f"{which}, whose weights are no longer saved; those of step {used:,} are used."
    return f"Finished after {last.step:,} steps in {last.elapsed:.1f} s.{capped}{from_best}"


def memory_limit_mb() -> float:
    """The most memory of a run in MB: the setting, or a default that leaves the server half of what there is."""
    total = total_bytes() / 1e6
    return min(limits().memory_mb or min(MEMORY_MB, total / 2), total)


@contextmanager
def _memory_limit(run: Run, limit_mb: float) -> Iterator[None]:
    """Fail the run and end the process when its resident memory exceeds `limit_mb`.

    It is polled, because a limit of address space says little about what torch really holds.
    """
    ended, process = threading.Event(), psutil.Process()

    def watch() -> None:
        while True:
            if process.memory_info().rss > limit_mb * 2**20:
                message = (
                    f"The run needed more than {limit_mb:,.0f} MB of memory; take a smaller model."
                )
                with suppress(OSError):  # of a log on a full disk, or a folder that was deleted
                    print(f"failed: {message}")
                with suppress(OSError):
                    run.set_status("failed", message)
                os._exit(1)
            if ended.wait(0.1):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m core.runs.worker", description=__doc__.splitlines()[0]
    )
    parser.add_argument("run_dir", nargs="?", type=Path)
    parser.add_argument(
        "--spare", action="store_true", help="warm up, then read RUN_DIR from standard input"
    )
    parser.add_argument(
        "--attended", action="store_true", help="end with standard input, so with who holds it open"
    )
    chosen = parser.parse_args(arguments)
    if chosen.attended:

        def end_with_input() -> None:
            while os.read(0, 4096):  # sys.stdin has a lock, which Python cannot take at its end
                pass
            os._exit(1)

        threading.Thread(target=end_with_input, daemon=True).start()
    torch.set_num_threads(1)
    if style := event_log.style():
        event_log.install(style)
    path = chosen.run_dir
    if chosen.spare:  # the first steps make the next start fast
        for _ in islice(train(WARM_UP), 2):
            pass
        print("ready")
        if not (line := sys.stdin.readline().strip()):
            return 0
        path = Path(line)
        log = os.open(path / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
    if path is None:
        return parser.error("RUN_DIR is missing")
    return 0 if work(path) != "failed" else 1


if __name__ == "__main__":
    give_way()
    code = main()
    sys.stdout.flush()
    os._exit(
        code
    )  # the next run begins now: Python would hold the memory of this one for a second more
