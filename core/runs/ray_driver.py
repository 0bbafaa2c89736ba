"""The one process that speaks to the Ray cluster for a folder of runs: `python -m core.runs.ray_driver`.

It submits the runs of the queue directory, brings back what they write, and starts a run again where its node was lost.
Ray ends the process of a driver that loses the head of its cluster, so this one may end at any time: the next one finds
the runs of the queue directory and, by name, those of their actors that still live.
"""

import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

try:
    import ray
    from ray.exceptions import (
        ActorUnavailableError,
        RayActorError,
        RayError,
        RaySystemError,
        RpcError,
    )
except ImportError:
    ray = None  # type: ignore[assignment]  # `connect` says so

from core.files import HOSTED, hosted, server_folder
from core.plugins import folder as plugins_folder
from core.runs import folder, ray_queue

STEP_SECONDS, STATE_SECONDS, RETRY_SECONDS = 0.1, 1.0, 3.0
PROBE_SECONDS, PROBES = 1.0, 4  # a head that does not answer so often is lost
IDLE_SECONDS = 120.0  # without a run, and without a page that shows the cluster
MISSING = 'Ray is not installed beside the server; install it with: pip install "ray[client]"'
LOST = (
    "The Ray cluster cannot be reached. The run continues from its last saved step when it is back."
)
PUBLIC_LOST = (
    "No worker can be reached now. The run continues from its last saved step when one can."
)
POLL_SECONDS = 0.3  # between two questions to a node, or PAUSE times as long as the answer took
PAUSE = 4.0
RETRIES = 3  # after a node was lost
ACTOR_SECONDS = 1.0  # until an actor that does not answer is looked for again
FROM_NODE = ("machines", "measures", "roles")  # of run.json, what a worker writes
TRAVELS = ("ATTENTION_LAB_LIMITS", HOSTED)  # a public copy's worker writes no paths


def connect() -> str:
    """Connect to the cluster; returns its head as HOST:PORT. ConnectionError, in a sentence, where it cannot."""
    if ray is None:
        raise ConnectionError(MISSING)
    chosen = ray_queue.address()
    try:
        if chosen != "auto":
            _probe(chosen.removeprefix("ray://"))
        ray.init(
            chosen, namespace=ray_queue.NAMESPACE, logging_level=logging.ERROR, log_to_driver=False
        )
    except Exception as error:  # Ray has no common class for what can be wrong here
        print(f"{type(error).__name__}: {error}")
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
    print(f"The head {head} does not answer.")
    lose(LOST)
    os._exit(3)


def lose(message: str) -> None:
    """Queue every run of the queue directory that is under way."""
    ray_queue.save_state(ray_queue.ClusterState(message=message))
    for entry in ray_queue.entries():
        if entry.run.status().state in ("starting", "running"):
            entry.run.set_status("queued", ray_queue.words(message, PUBLIC_LOST))


class ClusterJob:
    """A run whose lock this process holds, from the place for its actor to its last record."""

    def __init__(self, entry: ray_queue.Entry, lock: FileLock) -> None:
        self.entry, self.run, self.lock = entry, entry.run, lock
        self.actor: Any = None
        self.waits = False  # whether the actor was requested here and has no place yet
        self.node = ""
        self._steps = self._follow()

    def advance(self) -> bool:
        """Move the run on without waiting; whether it goes on. What goes wrong with it costs this run alone.

        ConnectionError where the cluster is at fault, and not the run.
        """
        try:
            if self.run.status().ended or not self.run.exists():
                return self.end()  # stopped while the cluster was away, or deleted
            if self.waits and self.run.stop_request():
                return self._stop("It had not begun.")
            return next(self._steps, False)
        except (RpcError, RaySystemError) as error:
            raise ConnectionError(str(error)) from error
        except Exception as error:
            traceback.print_exc()
            return self.end(
                "failed",
                ray_queue.words(
                    f"The cluster's results could not be saved: {type(error).__name__}: {error}",
                    "What the worker wrote could not be saved. Continue starts from what was saved before.",
                ),
            )

    def _follow(self) -> Generator[bool, None, bool]:
        """One actor after another until the run has ended; True whenever an answer is waited for."""
        dead = False  # whether the latest actor is known to be
        while True:
            try:
                return (yield from self._attempt(dead))
            except ActorUnavailableError:  # it may live: look for it again
                dead = False
                yield from _pause(ACTOR_SECONDS)
            except RayActorError as error:
                # It died with its node: begin again on another, from what came back.
                where = self.node or "no node"
                print(f"{self.run.id}: attempt {self.entry.attempt} on {where}: {error}")
                dead, lost = True, f"{self._node_text()} was lost;"
                if self.run.stop_request():
                    return self._stop(f"{lost} what came back is saved.")
                self.run.set_status("starting", f"{lost} the run starts again on another.")
            except (RpcError, RaySystemError):
                raise
            except RayError as error:
                print(f"{self.run.id}: {error}")
                return self.end(
                    "failed",
                    ray_queue.words(
                        f"{self._node_text()} could not start it; the server's .cluster/driver.log says why. "
                        "Every node needs the lab and its packages.",
                        "The worker could not start it. Try again later.",
                    ),
                )

    def _attempt(self, dead: bool) -> Generator[bool, None, bool]:
        """Find the run's actor, or request one, and bring back what it writes; False at the end."""
        self.actor = None if dead else find_actor(self.entry)
        self.waits, self.node = False, ""
        if self.actor is None:
            if self.entry.attempt > RETRIES:
                return self.end(
                    "failed",
                    f"{ray_queue.words('Its node', 'Its worker')} was lost {self.entry.attempt} times; "
                    "what came back is saved, and Continue starts from there.",
                )
            need = ray_queue.needs(self.run.metadata(), ray.cluster_resources().get("GPU", 0.0) > 0)
            self.entry = replace(self.entry, attempt=self.entry.attempt + 1)
            self.entry.save()
            options = dict(name=self.entry.actor, lifetime="detached", max_restarts=0)
            self.actor = (
                ray.remote(ray_queue.NodeWorker).options(**options, **need.options()).remote()
            )
            self.waits = True
            fits = any(need.fit(node["Resources"]) for node in ray.nodes() if node["Alive"])
            waits = f"Waits for {need} on the cluster."
            self.run.set_status(
                "starting",
                ray_queue.words(
                    waits if fits else f"{waits} No node of it has as much.",
                    "Waits for a free worker.",
                ),
            )
        here = yield from _answer(self.actor.where.remote())
        self.waits = False
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
        self.node = names.get(here["node"], here["node"])[: ray_queue.LONGEST_NAME]
        if not here["started"]:  # by an earlier driver
            if self.run.stop_request():
                return self._stop("It had not begun.")
            if here["version"] != ray_queue.code_version():
                return self.end(
                    "failed",
                    ray_queue.words(
                        f"The node {self.node} has another version of the lab or of PyTorch than this server; update it, or "
                        "the same seed gives other numbers.",
                        "No worker of this version is free. Try again later.",
                    ),
                )
            if not hosted():
                nodes = [*ray_queue.node_names(self.run.metadata()), self.node]
                self.run.update_metadata(nodes=nodes[-ray_queue.NODES :])
            self.run.set_status(
                "starting", ray_queue.words(f"Starts on the node {self.node}.", "Starts.")
            )
            environ = {name: os.environ[name] for name in TRAVELS if name in os.environ}
            files, plugins = folder.pack(self.run.path), ray_queue.pack_plugins(plugins_folder())
            start = self.actor.start.remote(self.run.id, files, plugins, environ)
            if refusal := (yield from _answer(start)):
                public = (
                    "The worker lacks the model of this run. Take a model that comes with the lab."
                )
                return self.end("failed", ray_queue.words(refusal, public))
        known = None
        while True:
            sent_at = time.monotonic()
            changes = yield from _answer(self.actor.changes.remote(known, self.run.stop_request()))
            state, message = self._take(changes)
            if changes.ended:
                return self.end(state, message) if state in folder.ENDED else self.end()
            known, took = changes.known, time.monotonic() - sent_at
            yield from _pause(max(POLL_SECONDS, PAUSE * took))

    def _take(self, changes: folder.Changes) -> tuple[str, str]:
        """Write what came back, the status last, so that a final one finds everything there; the node's own status."""
        folder.apply(self.run.path, changes)
        before = self.run.metadata()
        new = {name: changes.metadata[name] for name in FROM_NODE if name in changes.metadata}
        if new != {name: before.get(name) for name in new}:
            self.run.update_metadata(**new)
        state, message = (str(changes.status.get(name, "")) for name in ("state", "message"))
        shown = self.run.status()
        if (
            not changes.ended
            and state == "running"
            and (shown.state, shown.message) != (state, message)
        ):
            self.run.set_status(state, message)
        return state, message

    def _stop(self, message: str) -> bool:
        return self.end("paused" if self.run.stop_request() == "pause" else "stopped", message)

    def _node_text(self) -> str:
        return ray_queue.words(f"The node {self.node}" if self.node else "Its node", "Its worker")

    def end(self, state: str = "", message: str = "") -> bool:
        """Give the run back, with its final state unless it has one; without any, its server says what came. False."""
        ray_queue.remove(self.run)
        if state and self.run.exists():
            self.run.set_status(state, message)
        self.lock.release()
        with suppress(RayError, ValueError):
            actor = self.actor or find_actor(self.entry)
            if actor is not None and self.waits:
                ray.kill(actor)
            elif actor is not None:
                actor.close.remote()
        return False


def _answer(question: Any) -> Generator[bool, None, Any]:
    while not ray.wait([question], timeout=0)[0]:
        yield True
    return ray.get(question)


def _pause(seconds: float) -> Generator[bool]:
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        yield True


def find_actor(entry: ray_queue.Entry) -> Any:
    """The latest actor of a run, or None; it may live longer than the driver that requested it."""
    try:
        return ray.get_actor(entry.actor)
    except ValueError:
        return None


def idle() -> bool:
    """Whether no run is the cluster's, and nobody has looked at it for a while."""
    return not ray_queue.entries() and ray_queue.seconds_unasked() > IDLE_SECONDS


def main() -> int:
    ray_queue.folder().mkdir(parents=True, exist_ok=True)
    lock = folder.RunFolder(ray_queue.folder()).lock()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return 0  # another one was first
    print(f"Driver {os.getpid()} of {server_folder()}")
    while True:
        try:
            head = connect()
            break
        except ConnectionError as error:
            lose(str(error))
            if idle():
                return 1
            time.sleep(RETRY_SECONDS)
    threading.Thread(target=watch, args=(head,), daemon=True).start()
    jobs: dict[Path, ClusterJob] = {}
    shown = 0.0
    while jobs or not idle():  # nothing in here waits
        for entry in ray_queue.entries():
            if entry.path not in jobs and not entry.run.exists():  # deleted with its folder
                ray_queue.remove(entry.run)
            elif entry.path not in jobs:
                lock = entry.run.lock()
                with suppress(Timeout, OSError):  # another worker has it still
                    lock.acquire(timeout=0)
                    jobs[entry.path] = ClusterJob(entry, lock)
        if time.monotonic() - shown > STATE_SECONDS:
            shown = time.monotonic()
            counts = (ray.cluster_resources(), ray.available_resources())
            ray_queue.save_state(
                ray_queue.ClusterState(
                    True,
                    "",
                    tuple(sorted(node["NodeName"] for node in ray.nodes() if node["Alive"])),
                    *(tuple(of.get(name, 0.0) for name in ray_queue.RESOURCES) for of in counts),
                )
            )
        jobs = {path: job for path, job in jobs.items() if job.advance()}
        time.sleep(STEP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
