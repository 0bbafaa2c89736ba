"""The one process that speaks to the Ray cluster for a folder of runs: `python -m core.runs.ray_driver`.

It submits the runs of the queue directory, brings back what they write, and starts a run again where its node was lost.
Ray ends the process of a driver that loses the head of its cluster, so this one may end at any time: the next one finds
the runs of the queue directory and, by name, those of their actors that still live.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from core.files import server_folder
from core.runs import ray_queue
from core.runs.folder import RunFolder

if TYPE_CHECKING:
    from core.runs.ray_job import ClusterJob

STEP_SECONDS, STATE_SECONDS, RETRY_SECONDS = 0.1, 1.0, 3.0
PROBE_SECONDS, PROBES = 1.0, 4  # a head that does not answer so often is lost
IDLE_SECONDS = 120.0  # without a run, and without a page that shows the cluster
MISSING = 'Ray is not installed beside the server; install it with: pip install -r requirements.txt -e ".[ray]"'
LOST = (
    "The Ray cluster cannot be reached. The run continues from its last saved step when it is back."
)
PUBLIC_LOST = (
    "No worker can be reached now. The run continues from its last saved step when one can."
)


def connect() -> str:
    """Connect to the cluster; returns its head as HOST:PORT. ConnectionError, in a sentence, where it cannot."""
    chosen = ray_queue.address()
    try:
        import ray

        if chosen != "auto":
            _probe(chosen.removeprefix("ray://"))
        ray.init(
            chosen, namespace=ray_queue.NAMESPACE, logging_level=logging.ERROR, log_to_driver=False
        )
    except ImportError as error:
        raise ConnectionError(MISSING) from error
    except Exception as error:  # Ray has no common class for what can be wrong here
        print(f"{type(error).__name__}: {error}", flush=True)
        raise ConnectionError(
            f"The Ray cluster at {chosen} cannot be reached; the runs wait for it. The server's "
            ".cluster/driver.log says more."
        ) from error
    return (
        chosen.removeprefix("ray://")
        if chosen.startswith("ray://")
        else ray.get_runtime_context().gcs_address
    )


def _probe(head: str) -> None:
    """OSError or ValueError unless somebody listens at HOST:PORT."""
    host, _, port = head.rpartition(":")
    socket.create_connection((host, int(port)), timeout=PROBE_SECONDS).close()


def watch(head: str) -> None:
    """Queue the runs and end the process once the head is lost; a call to Ray would wait for it for a minute."""
    failures = 0
    while failures < PROBES:
        time.sleep(PROBE_SECONDS)
        try:
            _probe(head)
            failures = 0
        except (OSError, ValueError):
            failures += 1
    print(f"The head {head} does not answer.", flush=True)
    lose(LOST)
    os._exit(3)


def lose(message: str) -> None:
    """Queue every run of the queue directory that is under way."""
    ray_queue.save_state(ray_queue.ClusterState(message=message))
    for entry in ray_queue.entries():
        if entry.run.status().state in ("starting", "running"):
            entry.run.set_status("queued", ray_queue.words(message, PUBLIC_LOST))


class Driver:
    """The runs of the queue directory that are on the cluster."""

    def __init__(self) -> None:
        self.jobs: dict[Path, ClusterJob] = {}
        self.shown = 0.0

    def step(self) -> None:
        """Take what is new in the queue directory, and move every run on; nothing here waits."""
        for entry in ray_queue.entries():
            if entry.path in self.jobs:
                continue
            if not entry.run.exists():  # deleted with its folder
                ray_queue.remove(entry.run)
            else:
                from core.runs.ray_job import ClusterJob

                lock = entry.run.lock()
                with suppress(Timeout, OSError):  # another worker has it still
                    lock.acquire(timeout=0)
                    self.jobs[entry.path] = ClusterJob(entry, lock)
        if time.monotonic() - self.shown > STATE_SECONDS:
            import ray

            self.shown = time.monotonic()
            counts = (ray.cluster_resources(), ray.available_resources())
            ray_queue.save_state(
                ray_queue.ClusterState(
                    True,
                    "",
                    tuple(sorted(node["NodeName"] for node in ray.nodes() if node["Alive"])),
                    *(of.get(name, 0.0) for of in counts for name in ("CPU", "GPU", "memory")),
                )
            )
        self.jobs = {path: job for path, job in self.jobs.items() if self._advance(job)}

    def _advance(self, job: ClusterJob) -> bool:
        """Move a run on; what goes wrong with one of them costs that run alone."""
        try:
            return job.advance()
        except ConnectionError:
            raise
        except Exception as error:
            traceback.print_exc()
            return job.end(
                "failed",
                ray_queue.words(
                    f"The cluster's results could not be saved: {type(error).__name__}: {error}",
                    "What the worker wrote could not be saved. Continue starts from what was saved before.",
                ),
            )

    @property
    def idle(self) -> bool:
        return (
            not self.jobs and not ray_queue.entries() and ray_queue.seconds_unasked() > IDLE_SECONDS
        )


def main() -> int:
    ray_queue.folder().mkdir(parents=True, exist_ok=True)
    lock = RunFolder(ray_queue.folder()).lock()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return 0  # another one was first
    print(f"Driver {os.getpid()} of {server_folder()}", flush=True)
    while True:
        try:
            head = connect()
            break
        except ConnectionError as error:
            lose(str(error))
            if not ray_queue.entries() and ray_queue.seconds_unasked() > IDLE_SECONDS:
                return 1
            time.sleep(RETRY_SECONDS)
    threading.Thread(target=watch, args=(head,), daemon=True).start()
    driver = Driver()
    while not driver.idle:
        driver.step()
        time.sleep(STEP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
