"""Work on one run's folder in a process of its own: `python -m core.runs.worker RUN_DIR`.

A run is a folder. Whoever works on it holds its lock, reads `stop`, and writes records and at the end a final status.

A folder with checkpoints continues from the last one. With --spare it first imports torch and takes an optimizer step,
then reads RUN_DIR from its standard input. `python -m core.training` is the command for people.

A run may hold `memory_mb` of ATTENTION_LAB_LIMITS, by default 3,000 or half of what the server has.
"""

import argparse
import math
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch

from core import event_log
from core.attention import ConfigError
from core.files import clear_drafts, disk_refused, hosted, sentence_of, without_paths
from core.memory import give_way, total_bytes
from core.models import ModelConfig
from core.pretrained.base import PretrainedError
from core.runs.machine import KEY, gpus, record_machine
from core.runs.runs import CHECKPOINTS, Run
from core.settings import limits
from core.tasks import TaskConfig
from core.threads import num_threads
from core.training import Best, Record, RunConfig, cap_reached, prepare, train

# What works on a run, by its job, found by name: it lies above core.runs, and Hugging Face's Trainer is large.
WORK = {
    "finetune": "core.pretrained.finetune_run:fine_tune",
    "corpus": "core.interpret.corpus:work",
    "pairs": "core.interpret.pairs:work",
    "claim": "core.claims.run:work",
    "board": "core.scoreboard.run:work",
    "config": "core.runs.worker:train_run",
}
# said where the disk is full
CONTINUE = "Everything that was saved is kept; free some space, then continue the run."
MEMORY_MB = 3_000
WARM_UP = RunConfig(
    TaskConfig.of("reverse", length=6, vocab=12),
    ModelConfig.transformer(8, 1, layers=1, d_ff=8, position="learned"),
    steps=2,
    batch_size=4,
    record_every=1,
    held_out=4,
    num_examples=1,
)
# in the words of torch
NO_MEMORY = re.compile(
    "out of memory|(can't|cannot|could not) allocate|not enough memory", re.IGNORECASE
)


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
    return (
        f"Finished after {last.step:,} steps in {last.elapsed:.1f} s, {last.train_seconds:.1f} s of them training."
        f"{capped}{from_best}"
    )


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
    # the next run begins now: Python would hold the memory of this one for a second more
    os._exit(code)
