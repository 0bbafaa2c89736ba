"""How a server hands runs to the cluster: with files alone, with Ray played by a few functions, and to two real nodes."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from core.claims.run import CELLS, ClaimConfig, load_cells
from core.interpret.corpus import STATISTICS, VALUES, CorpusConfig, load
from core.models import ModelConfig
from core.runs import folder, ray_driver, ray_queue
from core.runs.executor import ClusterWorker, Executor, RayExecutor, executor
from core.runs.folder import Changes, RunFolder, apply, list_files, pack, read_changes, unpack
from core.runs.ray_driver import LOST
from core.runs.runs import Run, create_run, list_runs
from core.runs.worker import work
from core.tasks import TaskConfig
from core.tasks.reading import is_reference
from core.training import Record
from core.training.loop import FINAL
from dashboard.draw.runs import cluster_text
from dashboard.server import queue
from tests.cases import PATIENCE, wait_for
from tests.close import assert_close
from tests.pages.app import assert_says, open_at, page_text
from tests.training.small import SAME_LAST_BIT, record_numbers, small_run

pytest.importorskip("ray")

from ray.cluster_utils import Cluster as RayCluster
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError, RpcError

# What goes to a node and comes back, by files alone.


def exchange(server: Run, node: Run, known, ended: bool = False):
    changes = read_changes(node.path, known, ended)
    apply(server.path, changes)
    return changes


def sent(tmp_path) -> tuple[Run, Run, dict]:
    server, node = create_run(small_run(), path=tmp_path / "server"), Run(tmp_path / "node")
    return server, node, unpack(node.path, pack(server.path))


def same_files(server: Run, node: Run) -> bool:
    names = [name for name in list_files(node.path) if name not in ("run.json", "status.json")]
    return all(
        (server.path / name).read_bytes() == (node.path / name).read_bytes() for name in names
    )


def test_only_what_grew_comes_back(tmp_path):
    # A worker that continues cuts the records after its checkpoint.
    server, node, known = sent(tmp_path)
    node.append(Record(0, loss=2.0))
    first = exchange(server, node, known)
    for step in range(1, 5):
        node.append(Record(step, loss=float(step)))
    second = exchange(server, node, first.known)
    assert [(name, offset) for name, offset, _ in second.files] == [
        ("metrics.jsonl", len(first.files[0][2]))
    ]
    assert same_files(server, node) and exchange(server, node, second.known).files == ()
    os.utime(node.path / "metrics.jsonl", (1, 1))
    assert exchange(server, node, second.known).files == (), "nothing grew"
    node.truncate(1)
    for step in range(2, 9):
        node.append(Record(step, loss=0.5 * step))
    exchange(server, node, second.known)
    assert [(r.step, r.loss) for r in server.records()] == [
        (r.step, r.loss) for r in node.records()
    ]


def test_a_deleted_checkpoint_is_deleted(tmp_path):
    server = create_run(small_run(), path=tmp_path / "server")
    for name in ("frames/000000", "frames/000002", "checkpoints/000002"):
        (server.path / f"{name}.safetensors").write_bytes(b"of before")
    node = Run(tmp_path / "node")
    known = unpack(node.path, pack(server.path))
    assert node.frame_path(0).read_bytes() == b""
    assert node.checkpoint_path(2).read_bytes() == b"of before"
    node.frame_path(2).unlink()
    node.checkpoint_path(2).unlink()
    node.checkpoint_path(4).write_bytes(b"new")
    exchange(server, node, known)
    assert server.frame_path(0).read_bytes() == b"of before" and not server.frame_path(2).exists()
    assert server.checkpoint_steps() == [4]


def test_no_checkpoint_comes_without_its_records(tmp_path, monkeypatch):
    server, node, known = sent(tmp_path)
    rng, step, busy, stat, names = random.Random(3), [0], [False], os.stat, folder.list_files

    def work_on() -> None:
        if not busy[0] and step[0] < 60 and rng.random() < 0.2:
            step[0] += 1
            busy[0] = True  # what it writes with calls stat, too
            node.append(Record(step[0], loss=1.0, maps={"0:self": np.zeros((1, 1, 2, 2))}))
            node.checkpoint_path(step[0]).write_bytes(b"state")
            busy[0] = False

    def late_stat(path, *args, **more):
        work_on()
        return stat(path, *args, **more)

    def late_names(folder):
        work_on()
        return names(folder)

    for _ in range(12):
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", late_stat)
            patch.setattr(folder, "list_files", late_names)
            changes = read_changes(node.path, known, False)
        apply(server.path, changes)
        known = dict(changes.known)
        steps = [record.step for record in server.records()]
        assert steps == list(range(1, len(steps) + 1))
        assert set(server.checkpoint_steps()) <= set(steps) <= set(server.frame_steps())
    assert step[0] == 60


def test_folders_that_are_written_at_end_come_at_end(tmp_path):
    server, node, known = sent(tmp_path)
    for name in ("trainer/checkpoint-3", "bert-tuned"):
        (node.path / name).mkdir(parents=True)
        (node.path / name / "model.safetensors").write_bytes(b"half")
    assert exchange(server, node, known).files == ()
    known = exchange(server, node, known, ended=True).known
    assert same_files(server, node) and (server.path / "bert-tuned" / "model.safetensors").exists()
    shutil.rmtree(node.path / "trainer")
    exchange(server, node, known)
    assert not (server.path / "trainer").exists() and server.exists()


def test_a_name_that_leads_out_of_the_folder_is_ignored(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    (tmp_path / "kept.txt").write_text("kept", encoding="utf-8")
    names = ["../away.txt", "/tmp/away.txt", "a/../../away.txt", ".hidden", "a/.hidden"]
    files = tuple((name, 0, b"x") for name in (*names, "run.json", "lock", "stop", ""))
    apply(folder, Changes(files, ("../kept.txt", "lock", "gone.txt"), {}, {}, {}, False))
    assert unpack(folder, dict.fromkeys(names, b"x")) == {} and list_files(tmp_path) == ["kept.txt"]


# The worker of a run on a node, called as the driver calls it, without Ray.


@pytest.fixture
def worker(monkeypatch):
    one = ray_queue.NodeWorker()
    yield one
    monkeypatch.setattr(ray_queue.os, "_exit", lambda code: None)
    one.close()
    assert not one.home.exists()


def played_by(monkeypatch, script: str) -> None:
    begin = subprocess.Popen
    monkeypatch.setattr(
        ray_queue.subprocess,
        "Popen",
        lambda command, **more: begin([sys.executable, "-c", script, *command[3:]], **more),
    )


def test_a_model_that_is_no_folder_of_the_node_is_refused(worker, tmp_path):
    for key in ("finetune", "corpus", "pairs"):
        file = {"run.json": json.dumps({key: {"model": str(tmp_path / "none")}}).encode()}
        assert worker.start("a", file, None, {}).startswith(
            "The model of this run is a folder of the server"
        )
        assert worker.process is None


def test_a_worker_that_does_not_stop_is_ended(worker, monkeypatch):
    played_by(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(ray_queue, "STOP_SECONDS", 0.2)
    assert worker.start("a", pack(create_run(small_run()).path), None, {}) == ""
    assert not worker.changes(None, "").ended
    assert wait_for(lambda: worker.changes(None, "pause").ended)
    assert (worker.folder / "stop").read_text(encoding="utf-8") == "pause"


def test_what_the_worker_is_given_and_what_comes_back(worker, monkeypatch, tmp_path):
    played_by(
        monkeypatch,
        """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "metrics.jsonl").write_text(os.environ["ATTENTION_LAB_LIMITS"] + "\\n")
(folder / "status.json").write_text('{"state": "finished", "message": "Done."}')
print(sorted(path.name for path in Path(os.environ["ATTENTION_LAB_PLUGINS"]).rglob("*.py")), sys.argv[2])
""",
    )
    plugins = tmp_path / "plugins"
    (plugins / "more").mkdir(parents=True)
    for name in ("one.py", "more/two.py", "data.csv", ".hidden.py"):
        (plugins / name).write_text("", encoding="utf-8")
    run = create_run(small_run())
    (run.path / "worker.log").write_text("Of before.\n", encoding="utf-8")
    worker.start(
        run.id,
        pack(run.path),
        ray_queue.pack_plugins(plugins),
        {"ATTENTION_LAB_LIMITS": "memory_mb=77"},
    )
    changes = wait_for(lambda: (new := worker.changes(None, "")).ended and new)
    apply(run.path, changes)
    assert (run.path / "metrics.jsonl").read_text(encoding="utf-8") == "memory_mb=77\n"
    assert (run.path / "worker.log").read_text(
        encoding="utf-8"
    ) == "Of before.\n['one.py', 'two.py'] --attended\n"
    assert (
        changes.status == {"state": "finished", "message": "Done."}
        and run.status().state == "queued"
    )
    assert worker.changes(changes.known, "").files == ()


def test_folders_of_killed_actors_are_deleted(worker, monkeypatch, tmp_path):
    left, new = tmp_path / f"{ray_queue.HOME}left", tmp_path / f"{ray_queue.HOME}new"
    for home in (left, new):
        home.mkdir()
        (home / "lock").touch()
    os.utime(left, (1, 1))
    os.utime(worker.home, (1, 1))
    worker.home.rename(tmp_path / worker.home.name)  # with the lock that this process holds
    worker.home = tmp_path / worker.home.name
    ray_queue.delete_left(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([worker.home.name, new.name])


def test_a_worker_ends_with_who_holds_its_input():
    run = create_run(small_run(steps=20_000, record_every=100))
    process = subprocess.Popen(
        [sys.executable, "-m", "core.runs.worker", str(run.path), "--attended"],
        stdin=subprocess.PIPE,
    )
    wait_for(lambda: run.records())
    process.stdin.close()
    assert process.wait(PATIENCE) == 1 and not run.alive()


@pytest.fixture
def no_bridge(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RAY", "192.0.2.1:6379")
    monkeypatch.setattr(ray_queue, "ensure_driver", lambda: None)
    monkeypatch.setattr(queue, "_watch", lambda folder: None)


def test_runs_wait_here_until_the_cluster_is_reached(no_bridge, monkeypatch):
    for address, kind in (("  ", Executor), ("auto", RayExecutor)):
        monkeypatch.setenv("ATTENTION_LAB_RAY", address)
        assert type(executor()) is kind
    runs = queue.start_all([(small_run(seed=seed), {}) for seed in range(5)])

    def states() -> set[str]:
        return {run.status().state for run in runs}

    assert states() == {"queued"} and ray_queue.entries() == [] and RayExecutor().slots() == 1
    ray_queue.save_state(ray_queue.ClusterState(True, "", ("a",), (6.0, 0.0, 0.0)))
    monkeypatch.setenv("ATTENTION_LAB_RAY_WORKER", "cpus=3")
    queue.tick()
    assert {entry.path for entry in ray_queue.entries()} == {run.path for run in runs}, (
        "all of them: the queue is Ray's"
    )
    assert states() == {"starting"} and queue.max_workers() == 2 and RayExecutor().room(2) > 2
    with monkeypatch.context() as patch:
        patch.setenv("ATTENTION_LAB_HOSTED", "1")
        rooms = [kind().room(free) for kind in (Executor, RayExecutor) for free in (-1, 2)]
        assert rooms == [0, 2, 0, 2], "a public copy's own queue is fair"
    queue.tick()
    assert states() == {"starting"}, "a run without a driver is not lost"


def test_a_lost_cluster_queues_its_runs_once(no_bridge, monkeypatch):
    ray_queue.save_state(ray_queue.ClusterState(True, has=(2.0, 0.0, 0.0)))
    running, ended = queue.start_all([(small_run(seed=seed), {}) for seed in range(2)])
    running.set_status("running")
    ended.set_status("finished", "Finished after 4 steps.")
    monkeypatch.setenv("ATTENTION_LAB_RAY", "127.0.0.1:1")
    with pytest.raises(ConnectionError, match="1:1 cannot be reached; the runs wait for") as error:
        ray_driver.connect()
    ray_driver.lose(str(error.value))
    assert running.status().message == str(error.value) and ended.status().state == "finished"
    queue.tick()
    state = ray_queue.load_state()
    assert running.status().state == "queued" and not state.reachable
    assert state.message == str(error.value)


def test_a_state_that_nobody_renews_is_none(no_bridge, monkeypatch):
    ray_queue.save_state(
        ray_queue.ClusterState(True, "", ("a", "b"), (4.0, 1.0, 16e9), (3.0, 0.75, 15e9))
    )
    assert ray_queue.load_state().reachable
    assert cluster_text(ray_queue.load_state()).replace("\u00a0", " ") == (
        "Runs train on a Ray cluster of 2 machines (nodes a, b). "
        "Free: 3 of 4 CPUs, 0.75 of 1 GPUs, 15 GB of 16 GB of memory."
    )
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + ray_queue.FRESH_SECONDS + 1)
    assert cluster_text(ray_queue.load_state()).startswith("Connecting to the Ray cluster")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"at": "now"}', '{"at": 1e99}', '{"reachable": 1, "free": "x"}']
)
def test_damaged_files_are_read_as_nothing(no_bridge, text):
    entries = ray_queue.folder() / "entries"
    entries.mkdir(parents=True)
    (ray_queue.folder() / "state.json").write_text(text, encoding="utf-8")
    (entries / "20260101-000000-abcdef.json").write_text(text, encoding="utf-8")
    assert not ray_queue.load_state().reachable and ray_queue.entries() == []


def test_a_shell_waits_for_the_end(no_bridge):
    run = create_run(small_run())
    worker = RayExecutor().start(run)
    pytest.raises(subprocess.TimeoutExpired, worker.wait, timeout=0.01)
    worker.terminate()
    assert run.stop_request() == "stop" and isinstance(worker, ClusterWorker)
    threading.Timer(0.05, ray_queue.remove, [run]).start()
    worker.wait(timeout=PATIENCE)
    ray_queue.remove(run)
    assert not ray_queue.holds(run), "whoever comes second has nothing to do"


def test_what_a_run_needs(monkeypatch):
    needs = ray_queue.needs
    cpu, auto, cuda = ({"config": {"device": device}} for device in ("cpu", "auto", "cuda"))
    assert needs(cpu, True) == needs(auto, False) == needs({"claim": {}}, True)
    assert needs(cpu, True) == ray_queue.Needs(1.0, 0.0, 1_000.0)
    assert needs(auto, True) == needs(cuda, False) == needs({"finetune": {"device": "cuda"}}, False)
    assert str(needs(cuda, True)) == "1 CPU, 0.25 of a GPU and 1 GB of memory"
    monkeypatch.setenv("ATTENTION_LAB_RAY_WORKER", "cpus=2 gpu=1")
    two = needs(cuda, True)
    assert two.options() == {"num_cpus": 2.0, "num_gpus": 1.0, "memory": 1_000_000_000}
    assert two.fit({"CPU": 2, "GPU": 1, "memory": 1e9}) and not two.fit({"CPU": 64, "memory": 1e12})
    assert not two.fit({"CPU": 2, "GPU": 1, "memory": 1e9 - 1})
    assert not needs(cpu, True).fit({"memory": 1e12}) and str(two) == (
        "2 CPUs, 1 GPU and 1 GB of memory"
    )


def test_only_the_bridge_and_the_nodes_import_ray():
    # And neither imports PyTorch: a node runs two processes for a run, and only one of them trains.
    code = (
        "import sys, core.runs.ray_queue; held = {'ray', 'numpy'} & {*sys.modules}; "
        "import core.runs.ray_driver; print(held, 'torch' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], encoding="utf-8")
    assert printed.strip() == "set() False"


# What pages show of a cluster, from the files that its driver writes.


@pytest.fixture
def cluster(no_bridge):
    ray_queue.save_state(
        ray_queue.ClusterState(True, "", ("red", "blue"), (4.0, 0.0, 16e9), (3.0, 0.0, 15e9))
    )


def test_runs_shows_what_is_free_and_where_a_run_was(cluster, monkeypatch):
    run = create_run(small_run(), nodes=["red", "blue"])
    run.set_status("finished", "Finished after 4 steps.")
    app = open_at("runs", run=run.id)
    free = "a Ray cluster of 2 machines (nodes red, blue). Free: 3 of 4 CPUs"
    assert_says(app, free, "on node red, then blue")
    ray_queue.save_state(ray_queue.ClusterState(message="Nobody answers."))
    assert_says(app.run(), "Nobody answers")
    assert queue.node_text({}) == queue.node_text({"nodes": "a"}) == ""
    assert queue.node_text({"nodes": ["a", "a", "b", 3, "a"]}) == "on node a, then b, then a"
    assert len(queue.node_text({"nodes": ["x" * 1_000]})) < 120
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert queue.cluster_state() is None and queue.node_text({"nodes": ["red"]}) == "", (
        "a public copy names no node"
    )


def test_train_shows_where_a_run_is(cluster):
    run = create_run(small_run())
    ray_queue.submit(run)
    run.set_status("starting", "Waits for 1 CPU and 1 GB of memory on the cluster.")
    app = open_at("train", run=run.id)
    assert "Waits for 1 CPU and 1 GB of memory on the cluster." in page_text(app).replace("\\", "")
    run.update_metadata(nodes=["blue"])
    run.set_status("running")
    run.append(Record(2, loss=1.0))
    assert "On node blue." in page_text(app.run()).replace("\\", "")
    assert run.status().state == "running", "its driver may come back"


# What the driver does with a run: Ray is played by a few functions.


class PlayedRay:
    """Actors by name; `answers` are what their methods give, one after another, or raise; None is no answer yet."""

    def __init__(self) -> None:
        self.actors: dict[str, object] = {}
        self.answers: list[object] = []
        self.calls: list[str] = []
        self.given: tuple = ()  # what the worker was started with
        self.kill = lambda actor: self.calls.append("kill")
        self.cluster_resources = lambda: {"CPU": 2.0}
        node = {"NodeID": "1", "NodeName": "red", "Alive": True}
        self.nodes = lambda: [node | {"Resources": {"CPU": 2.0, "memory": 4e9}}]

    def actor(self) -> SimpleNamespace:
        def call(name: str, *given: object) -> None:
            self.calls.append(name)
            self.given = given if name == "start" else self.given

        names = ("where", "start", "changes", "close")
        return SimpleNamespace(
            **{name: SimpleNamespace(remote=partial(call, name)) for name in names}
        )

    def get_actor(self, name):
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def remote(self, of):
        def options(name, **more):
            return SimpleNamespace(remote=lambda: self.actors.setdefault(name, self.actor()))

        return SimpleNamespace(options=options)

    def wait(self, questions, timeout):
        return (questions if self.answers and self.answers[0] is not None else [], [])

    def get(self, question):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


HERE = {"node": "1", "version": ray_queue.code_version(), "started": False}
RUNNING = Changes((), (), {}, {}, {"state": "running"}, False)
DIED = ActorDiedError()
NO_LAB = RayTaskError("where", "No module named core", ModuleNotFoundError("core"))
UNAVAILABLE = ActorUnavailableError("not now", None)


@pytest.fixture
def played(monkeypatch):
    ray = PlayedRay()
    monkeypatch.setattr(ray_driver, "ray", ray)
    for name in ("POLL_SECONDS", "PAUSE", "ACTOR_SECONDS"):
        monkeypatch.setattr(ray_driver, name, 0.0)
    return ray


def start_job(ray: PlayedRay, *answers: object) -> ray_driver.ClusterJob:
    entry = ray_queue.Entry(create_run(small_run()).path, 7)
    entry.save()
    lock = entry.run.lock()
    lock.acquire()
    ray.answers = list(answers)
    return ray_driver.ClusterJob(entry, lock)


def advance_to_the_end(job: ray_driver.ClusterJob) -> None:
    assert not all(job.advance() for _ in range(60)), "it goes on for ever"
    assert not ray_queue.holds(job.run) and not job.run.alive()


def test_a_node_that_is_lost_again_and_again_ends_in_words(played):
    job = start_job(played, *[HERE, "", RUNNING, DIED] * 4)
    advance_to_the_end(job)
    assert job.run.status().state == "failed"
    assert job.run.status().message == (
        "Its node was lost 4 times; what came back is saved, and Continue starts from there."
    )
    assert list(played.actors) == [f"{job.run.id}/7/{attempt}" for attempt in (1, 2, 3, 4)]
    assert job.run.metadata()["nodes"] == ["red"] * 4


def test_an_actor_that_does_not_answer_for_a_moment_is_kept(played, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "memory_mb=100")
    again = {**HERE, "started": True}
    job = start_job(played, HERE, "", RUNNING, UNAVAILABLE, again, RUNNING, UNAVAILABLE, None)
    for _ in range(20):
        assert job.advance()
    assert len(played.actors) == 1 and played.calls.count("start") == 1
    run_id, files, _, environ = played.given
    assert (run_id, environ) == (job.run.id, {"ATTENTION_LAB_LIMITS": "memory_mb=100"})
    assert files["run.json"] and "status.json" not in files
    assert job.run.metadata()["nodes"] == ["red"] and job.run.status().state == "running"


def test_a_stop_reaches_a_run_that_an_earlier_bridge_began(played):
    status = {"state": "stopped", "message": "Stopped; everything up to step 9 is saved."}
    stopped = Changes((), (), {}, {}, status, True)
    job = start_job(played, {**HERE, "started": True}, RUNNING, stopped)
    played.actors[job.entry.actor] = played.actor()
    job.run.request_stop()
    advance_to_the_end(job)
    assert job.run.status().message == status["message"]
    assert played.calls == ["where", "changes", "changes", "close"]


def test_a_stop_while_a_run_waits_ends_its_actor(played):
    job = start_job(played)
    assert job.advance() and job.advance()
    job.run.request_stop("pause")
    advance_to_the_end(job)
    assert (job.run.status().state, job.run.status().message) == ("paused", "It had not begun.")
    assert played.calls == ["where", "kill"]


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (
            {**HERE, "version": "another"},
            "failed",
            "The node red has another version of the lab or of PyTorch",
        ),
        (NO_LAB, "failed", "Every node needs the lab and its packages."),
        # the queue says what is saved, as of any worker that died
        (Changes((), (), {}, {}, {"state": "running"}, True), "running", ""),
    ],
    ids=["other code", "no lab", "no last word"],
)
def test_how_a_run_ends_on_its_node(played, answer, state, words):
    job = start_job(played, *([HERE, "", RUNNING] if state == "running" else []), answer)
    advance_to_the_end(job)
    assert job.run.status().state == state and words in job.run.status().message


def test_the_fault_of_the_cluster_is_not_the_run_s(played):
    job = start_job(played, HERE, "", RUNNING, RpcError("unavailable"))
    with pytest.raises(ConnectionError):
        for _ in range(9):
            job.advance()
    assert job.run.status().state == "running" and ray_queue.holds(job.run)


@pytest.mark.parametrize(
    "answers",
    [
        (HERE, "", RUNNING, DIED) * 4,
        ({**HERE, "version": "another"},),
        (HERE, "The model of this run is a folder of the server, which does not travel."),
        (NO_LAB,),
        (HERE, "", OSError("/srv/lab/runs: no such folder")),
    ],
    ids=["lost", "other code", "no model", "no lab", "no disk"],
)
def test_a_public_copy_names_no_machine(played, monkeypatch, answers):
    messages, set_status = list[str](), RunFolder.set_status

    def note(run: RunFolder, state: str, message: str = "", *more: Any) -> None:
        messages.append(message)
        set_status(run, state, message, *more)

    monkeypatch.setattr(RunFolder, "set_status", note)
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    job = start_job(played, *answers)
    advance_to_the_end(job)
    assert job.run.status().state == "failed" and "nodes" not in job.run.metadata()
    waiting = create_run(small_run())
    waiting.set_status("starting")
    ray_queue.Entry(waiting.path, 8).save()
    ray_driver.lose(LOST)
    assert waiting.status().message == ray_driver.PUBLIC_LOST
    named = r"\bred\b|node|cluster|bridge|driver|/|\bray\b"
    assert not re.search(named, " ".join(messages).casefold()), messages


# A real cluster: two nodes made of processes of this machine, each with one CPU.


# As short as a busy machine allows, so that a lost node is noticed within two seconds.
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "400",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}
# Speaks, and slows training down while there is a file, so that nodes and drivers can be killed meanwhile: after the
# first steps of a process so much that no run ends before a slow machine has noticed what was killed.
PLUGIN = """import itertools, os, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
print('A plug-in is here.', file=sys.stderr)
steps = itertools.count()
register_optimizer_step_post_hook(
    lambda *_: os.path.exists(os.environ['SLOW']) and time.sleep(0.1 if next(steps) < 25 else 0.5)
)
"""
# a GPU in name alone
NODE = {
    "num_gpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of a head, named a, whose driver knows a plug-in."""
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "speaks.py").write_text(PLUGIN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        own = {"ATTENTION_LAB_PLUGINS": str(plugins), "SLOW": str(plugins / "slow")}
        for name, value in (QUICK | own).items():
            patch.setenv(name, value)
        home = tempfile.mkdtemp(prefix="ray-")  # pytest's own is too long for the name of a socket
        patch.setenv("RAY_TMPDIR", home)
        # the cluster's address is written there, before Ray makes the folder
        os.mkdir(os.path.join(home, "ray"))
        try:
            cluster = RayCluster(
                initialize_head=True, head_node_args={"node_name": "a", "temp_dir": home, **NODE}
            )
        except Exception as error:  # nothing of ours has run yet
            pytest.skip(f"Ray starts no cluster on this machine: {error}")
        try:
            yield cluster
        finally:
            end_bridges()
            cluster.shutdown()
            shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def b(nodes):
    return nodes.add_node(node_name="b", **NODE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("ray") / "runs"


@pytest.fixture
def lab(nodes, runs, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(runs))
    monkeypatch.setenv("ATTENTION_LAB_RAY", nodes.address)
    monkeypatch.setattr(queue, "WATCH_SECONDS", 0.1)
    yield nodes
    left = [run for run in list_runs() if not run.status().ended]
    for run in left:
        queue.stop(run)
    wait_for(lambda: ended(*left))
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "elsewhere"))  # which ends the watcher
    if (watcher := queue._watcher) is not None:
        watcher.join()


def end_bridges(how: int = signal.SIGTERM) -> None:
    for process, _ in ray_queue._drivers.values():
        assert os.getpgid(process.pid) == process.pid, "a terminal's Ctrl-C does not reach it"
        os.kill(process.pid, how)
        process.wait()
    ray_queue._drivers.clear()


def ended(*runs: Run) -> bool:
    return all(run.status().ended and not run.alive() for run in runs)


@pytest.mark.first
@SAME_LAST_BIT
def test_a_claim_and_a_corpus_are_measured_on_both_nodes(lab, b, tmp_path, monkeypatch):
    wait_for(lambda: queue.max_workers() == 2)
    monkeypatch.setattr(queue, "max_workers", lambda: 1)
    (last,) = queue.measure_claim(ClaimConfig("concatenation", {"seeds": 2, "steps": 50})).runs
    texts = "the old man\nthe king and the queen"
    corpus = queue.measure(CorpusConfig("lab:induction", "texts", texts, kind="causal"))
    wait_for(lambda: ended(last, corpus))
    assert [run.status().message for run in (last, corpus)] == [
        "Measured 6 parts.",
        "Measured 2 texts.",
    ]
    assert sorted(run.metadata()["nodes"] for run in (last, corpus)) == [["a"], ["b"]]
    assert ray_queue.entries() == []
    here, measured = Run(tmp_path / last.id), Run(tmp_path / corpus.id)
    for run, own in ((last, (CELLS,)), (corpus, (VALUES, STATISTICS))):
        left = shutil.ignore_patterns("status.json", "lock", *own)
        shutil.copytree(run.path, tmp_path / run.id, ignore=left)
    monkeypatch.setattr("core.training.loop.FINAL", FINAL)  # which the tests' own processes cut
    assert [work(run.path) for run in (here, measured)] == ["finished", "finished"]
    theirs, ours = ([replace(one, seconds=0.0) for one in load_cells(run)] for run in (last, here))
    assert theirs == ours and len(ours) == 6
    assert (corpus.path / VALUES).read_bytes() == (measured.path / VALUES).read_bytes() != b""
    assert_close(vars(load(corpus).roles), vars(load(measured).roles), 0, 0)


@pytest.mark.first
@SAME_LAST_BIT
def test_a_lost_node_changes_no_number(lab, b, tmp_path):
    # Two runs of own data on two nodes, and a plug-in goes with each. The last test: at its end it kills the head.
    words, slow = "what goes to a node comes back again".split(), Path(os.environ["SLOW"])
    text = "\n".join(" ".join(random.Random(n).choices(words, k=9)) for n in range(9_000))
    task = TaskConfig.of("own_text", data=text, length=16)
    model = ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned")
    config = small_run(task=task, model=model, steps=200, record_every=10, held_out=4)
    slow.touch()
    runs = queue.start_all(
        [(replace(config, seed=seed), {"sweep": {"id": "s"}}) for seed in (0, 1)]
    )
    wait_for(lambda: all(run.checkpoint_steps()[1:] for run in runs))
    other, lost = sorted(runs, key=lambda run: run.metadata()["nodes"])
    lab.remove_node(b, allow_graceful=False)
    needs = "1 CPU, 0.25 of a GPU and 1 GB of memory"
    wait_for(lambda: lost.status().message == f"Waits for {needs} on the cluster.")
    wait_for(
        lambda: (state := ray_queue.load_state()).nodes == ("a",) and state.free[:2] == (0, 0.75)
    )
    assert lost.alive() and other.alive()
    queue.stop(other, "pause")
    wait_for(lambda: ended(other), other.frame_steps)
    paused = other.checkpoint_steps()[-1]
    assert paused > 0 and other.status().message == f"Paused at step {paused}."
    before = lost.frame_steps()[-1]
    wait_for(
        lambda: lost.frame_steps()[-1] > before and lost.status().state == "running", lost.status
    )
    end_bridges(signal.SIGKILL)  # the run trains on, and the next driver brings back all of it
    assert not lost.alive() and lost.status().state == "running"
    slow.unlink()
    ray_queue.ensure_driver()
    wait_for(lambda: ended(lost), lost.frame_steps)
    assert lost.status().state == "finished" and lost.metadata()["nodes"] == ["b", "a"]
    slow.touch()
    queue.resume(other)
    wait_for(lambda: other.frame_steps()[-1] > paused and other.status().state == "running")
    lab.head_node.kill_gcs_server()
    wait_for(lambda: other.status().state == "queued")
    assert other.status().message == LOST and other.metadata()["nodes"] == ["a", "a"]
    queue.tick()
    assert other.status().state == "queued" and ray_queue.holds(other)
    assert queue.place(other).number == 1
    queue.stop(other)
    assert other.status().state == "stopped"
    for run in runs:
        here = create_run(run.config(), path=tmp_path / f"here{run.config().seed}")
        work(here.path)
        theirs, ours = (
            [record_numbers(record) for record in one.records() if not record.final]
            for one in (run, here)
        )
        assert theirs == ours[: len(theirs)] and set(run.frame_steps()) <= set(here.frame_steps())
        step = max({*run.checkpoint_steps()} & {*here.checkpoint_steps()})
        last, same = (one.checkpoint(step)[0] for one in (run, here))
        torch.testing.assert_close(last, same, rtol=0, atol=0)
        assert run is other or run.frame_steps() == here.frame_steps()
        assert run is other or run.checkpoint_steps() == here.checkpoint_steps()
        assert "A plug-in is here." in (run.path / "worker.log").read_text(encoding="utf-8")
        assert is_reference(dict(run.config().task.params)["data"])
