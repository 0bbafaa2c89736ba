"""One run on the cluster: from the place for its actor to its last record."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from filelock import FileLock
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RaySystemError, RpcError

from core.files import HOSTED, hosted
from core.plugins import folder as plugins_folder
from core.runs import folder, ray_queue
from core.runs.ray_node import NodeWorker, pack_plugins

POLL_SECONDS = 0.3  # between two questions to a node, or PAUSE times as long as the answer took
PAUSE = 4.0
RETRIES = 3  # after a node was lost
RETRY_SECONDS = 1.0  # until an actor that does not answer is looked for again
NO_MODEL = "The worker lacks the model of this run. Take a model that comes with the lab."
FROM_NODE = ("machines", "measures", "roles")  # of run.json, what a worker writes
TRAVELS = ("ATTENTION_LAB_LIMITS", HOSTED)  # a public copy's worker writes no paths


class ClusterJob:
    """A run whose lock this process holds; `advance` moves it on without waiting, and says whether it goes on."""

    def __init__(self, entry: ray_queue.Entry, lock: FileLock) -> None:
        self.entry, self.run, self.lock = entry, entry.run, lock
        self.actor: Any = None
        self.question: Any = None  # what the actor was asked last
        self.answered: Any = None  # the method that takes its answer
        self.known: Mapping[str, folder.Stamp] | None = None
        self.new = (
            False  # whether the actor was requested here, and so has not begun before it arrives
        )
        self.dead = False  # whether the latest actor is known to be
        self.node, self.due, self.sent_at = "", 0.0, 0.0

    def advance(self) -> bool:
        """Raises ConnectionError where the cluster is at fault, and not the run."""
        try:
            return self._advance()
        except (RpcError, RaySystemError) as error:
            raise ConnectionError(str(error)) from error

    def _advance(self) -> bool:
        if (
            self.run.status().ended or not self.run.exists()
        ):  # stopped while the cluster was away, or deleted
            return self.end()
        if self.new and not self.node and self.run.stop_request():
            return self._stop("It had not begun.")
        if self.question is None:
            if time.monotonic() < self.due:
                return True
            if self.actor is None:
                return self._place()
            self._ask(self.actor.changes.remote(self.known, self.run.stop_request()), self._take)
        if not ray.wait([self.question], timeout=0)[0]:
            return True
        try:
            answer, self.question = ray.get(self.question), None
            return self.answered(answer)
        except ActorUnavailableError:  # it may live: look for it again
            self.actor = self.question = self.known = None
            self.due = time.monotonic() + RETRY_SECONDS
            return True
        except RayActorError as error:
            # It died with its node: begin again on another, from what came back.
            where = self.node or "no node"
            print(f"{self.run.id}: attempt {self.entry.attempt} on {where}: {error}", flush=True)
            lost = f"{self._node_text()} was lost;"
            if self.run.stop_request():
                return self._stop(f"{lost} what came back is saved.")
            self.run.set_status("starting", f"{lost} the run starts again on another.")
            self.actor = self.question = self.known = None
            self.dead, self.due = True, 0.0
            return True
        except (RpcError, RaySystemError):
            raise
        except RayError as error:
            print(f"{self.run.id}: {error}", flush=True)
            return self.end(
                "failed",
                ray_queue.words(
                    f"{self._node_text()} could not start it; the server's .cluster/driver.log says why. Every node needs "
                    "the lab and its packages.",
                    "The worker could not start it. Try again later.",
                ),
            )

    def _ask(self, question: Any, answered: Any) -> None:
        self.question, self.answered, self.sent_at = question, answered, time.monotonic()

    def _place(self) -> bool:
        """Find the run's actor, or request one; False where that was done too often."""
        self.actor = None if self.dead else find_actor(self.entry)
        self.new, self.dead, self.node = False, False, ""
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
            self.actor = (
                ray.remote(NodeWorker)
                .options(
                    name=self.entry.actor, lifetime="detached", max_restarts=0, **need.options()
                )
                .remote()
            )
            self.new = True
            fits = any(need.fit(node["Resources"]) for node in ray.nodes() if node["Alive"])
            waits = f"Waits for {need} on the cluster."
            self.run.set_status(
                "starting",
                ray_queue.words(
                    waits if fits else f"{waits} No node of it has as much.",
                    "Waits for a free worker.",
                ),
            )
        self._ask(self.actor.where.remote(), self._arrive)
        return True

    def _arrive(self, here: Mapping[str, Any]) -> bool:
        """The actor has its place."""
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
        self.node = names.get(here["node"], here["node"])[: ray_queue.LONGEST_NAME]
        if here["started"]:  # by an earlier driver
            return True
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
        self._ask(
            self.actor.start.remote(
                self.run.id, folder.pack(self.run.path), pack_plugins(plugins_folder()), environ
            ),
            lambda refusal: not refusal or self.end("failed", ray_queue.words(refusal, NO_MODEL)),
        )
        return True

    def _take(self, changes: folder.Changes) -> bool:
        """Write what came back; the status last, so that a final one finds everything there."""
        folder.apply(self.run.path, changes)
        now = time.monotonic()
        self.known, self.due = changes.known, now + max(POLL_SECONDS, PAUSE * (now - self.sent_at))
        before = self.run.metadata()
        new = {name: changes.metadata[name] for name in FROM_NODE if name in changes.metadata}
        if new != {name: before.get(name) for name in new}:
            self.run.update_metadata(**new)
        state, message = (
            str(changes.status.get("state", "")),
            str(changes.status.get("message", "")),
        )
        if changes.ended:
            return self.end(state, message) if state in folder.ENDED else self.end()
        shown = self.run.status()
        if state == "running" and (shown.state, shown.message) != (state, message):
            self.run.set_status(state, message)
        return True

    def _stop(self, message: str) -> bool:
        return self.end("paused" if self.run.stop_request() == "pause" else "stopped", message)

    def _node_text(self) -> str:
        return ray_queue.words(f"The node {self.node}" if self.node else "Its node", "Its worker")

    def end(self, state: str = "", message: str = "") -> bool:
        """Give the run back, with its final state unless it has one; without any, its server says what came."""
        ray_queue.remove(self.run)
        if state and self.run.exists():
            self.run.set_status(state, message)
        self.lock.release()
        with suppress(RayError, ValueError):
            actor = self.actor or find_actor(self.entry)
            if actor is not None:
                if self.new and not self.node:
                    ray.kill(actor)  # it waits for its place still
                else:
                    actor.close.remote()
        return False


def find_actor(entry: ray_queue.Entry) -> Any:
    """The latest actor of a run, or None; it may live longer than the driver that requested it."""
    try:
        return ray.get_actor(entry.actor)
    except ValueError:
        return None
