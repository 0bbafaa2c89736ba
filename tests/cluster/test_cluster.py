"""How a server hands runs to the cluster, with files alone: no Ray, and no driver."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from core.runs import folder, ray_driver, ray_node as node_module, ray_queue
from core.runs.executor import ClusterWorker, Executor, RayExecutor, executor
from core.runs.folder import Changes, apply, list_files, pack, read_changes, unpack
from core.runs.runs import Run, create_run
from core.training import Record
from dashboard.server import jobs
from pages.runs import cluster_text
from tests.cases import wait_for
from tests.pages.app import app_at, page_text
from tests.training.small import small_run


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


def test_only_what_grew_comes_back_and_a_file_that_was_cut_and_grew_again_comes_whole(tmp_path):
    """A worker that continues cuts the records after its checkpoint."""
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
    node.truncate(1)
    for step in range(2, 9):
        node.append(Record(step, loss=0.5 * step))
    exchange(server, node, second.known)
    assert [(r.step, r.loss) for r in server.records()] == [
        (r.step, r.loss) for r in node.records()
    ]


def test_a_deleted_checkpoint_is_deleted_and_frames_of_the_past_stay(tmp_path):
    server = create_run(small_run(), path=tmp_path / "server")
    for name in ("frames/000000", "frames/000002", "checkpoints/000002"):
        (server.path / f"{name}.safetensors").write_bytes(b"of before")
    node = Run(tmp_path / "node")
    known = unpack(node.path, pack(server.path))
    assert (
        node.frame_path(0).read_bytes() == b""
        and node.checkpoint_path(2).read_bytes() == b"of before"
    )
    node.frame_path(2).unlink()
    node.checkpoint_path(2).unlink()
    node.checkpoint_path(4).write_bytes(b"new")
    exchange(server, node, known)
    assert server.frame_path(0).read_bytes() == b"of before" and not server.frame_path(2).exists()
    assert server.checkpoint_steps() == [4]


def test_no_checkpoint_comes_without_its_records(tmp_path, monkeypatch):
    """The worker writes between any two reads of the node: what came back has every record up to its checkpoint."""
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


def test_folders_that_are_written_at_the_end_come_at_the_end_and_leave_none_empty(tmp_path):
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
    apply(folder, Changes(files, ("../kept.txt", "lock"), {}, {}, {}, False))
    assert unpack(folder, dict.fromkeys(names, b"x")) == {}
    assert list_files(tmp_path) == ["kept.txt"]


# The worker of a run on a node, called as the driver calls it, without Ray.


@pytest.fixture
def worker(monkeypatch):
    one = node_module.NodeWorker()
    yield one
    monkeypatch.setattr(node_module.os, "_exit", lambda code: None)
    one.close()
    assert not one.home.exists()


def played_by(monkeypatch, script: str) -> None:
    begin = subprocess.Popen
    monkeypatch.setattr(
        node_module.subprocess,
        "Popen",
        lambda command, **more: begin([sys.executable, "-c", script, *command[3:]], **more),
    )


def test_a_model_that_is_no_folder_of_the_node_is_refused_in_words(worker, tmp_path):
    for key in ("finetune", "corpus"):
        file = {"run.json": json.dumps({key: {"model": str(tmp_path / "none")}}).encode()}
        assert worker.start("a", file, None, {}).startswith(
            "The model of this run is a folder of the server"
        )
        assert worker.process is None


def test_a_worker_that_does_not_stop_is_ended(worker, monkeypatch):
    played_by(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(node_module, "STOP_SECONDS", 0.2)
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
        node_module.pack_plugins(plugins),
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
    left, new = tmp_path / f"{node_module.HOME}left", tmp_path / f"{node_module.HOME}new"
    for home in (left, new):
        home.mkdir()
        (home / "lock").touch()
    os.utime(left, (1, 1))
    os.utime(worker.home, (1, 1))
    worker.home.rename(tmp_path / worker.home.name)  # with the lock that this process holds
    worker.home = tmp_path / worker.home.name
    node_module.delete_left(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([worker.home.name, new.name])


def test_a_worker_ends_with_who_holds_its_input():
    """So nothing trains on where its actor was killed."""
    run = create_run(small_run(steps=20_000, record_every=100))
    process = subprocess.Popen(
        [sys.executable, "-m", "core.runs.worker", str(run.path), "--attended"],
        stdin=subprocess.PIPE,
    )
    wait_for(lambda: run.records())
    process.stdin.close()
    assert process.wait(30) == 1 and not run.alive()


@pytest.fixture
def no_bridge(monkeypatch):
    """A cluster whose driver is played by the test."""
    monkeypatch.setenv("ATTENTION_LAB_RAY", "192.0.2.1:6379")
    monkeypatch.setattr(ray_queue, "ensure_driver", lambda: None)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)


def test_runs_wait_here_until_the_cluster_is_reached_and_there_after(no_bridge, monkeypatch):
    for address, kind in (("  ", Executor), ("auto", RayExecutor)):
        monkeypatch.setenv("ATTENTION_LAB_RAY", address)
        assert type(executor()) is kind
    runs = jobs.start_all([(small_run(seed=seed), {}) for seed in range(5)])

    def states() -> set[str]:
        return {run.status().state for run in runs}

    assert states() == {"queued"} and ray_queue.entries() == [] and RayExecutor().slots() == 1
    ray_queue.save_state(ray_queue.ClusterState(True, "", ("a",), cpus=2.0))
    jobs.tick()
    assert {entry.path for entry in ray_queue.entries()} == {run.path for run in runs}, (
        "all of them: the queue is Ray's"
    )
    assert states() == {"starting"} and jobs.max_workers() == 2 and RayExecutor().room(2) > 2
    with monkeypatch.context() as patch:
        patch.setenv("ATTENTION_LAB_HOSTED", "1")
        assert RayExecutor().room(2) == 2, "a public copy's own queue is fair"
    jobs.tick()
    assert states() == {"starting"}, "a run without a driver is not lost"


def test_a_lost_cluster_queues_its_runs_once(no_bridge):
    ray_queue.save_state(ray_queue.ClusterState(True, cpus=2.0))
    running, ended = jobs.start_all([(small_run(seed=seed), {}) for seed in range(2)])
    running.set_status("running")
    ended.set_status("finished", "Finished after 4 steps.")
    ray_driver.lose(ray_driver.LOST)
    assert running.status().message == ray_driver.LOST and ended.status().state == "finished"
    jobs.tick()
    state = ray_queue.load_state()
    assert running.status().state == "queued" and not state.reachable
    assert state.message == ray_driver.LOST


def test_a_state_that_nobody_renews_is_none(no_bridge, monkeypatch):
    ray_queue.save_state(
        ray_queue.ClusterState(True, "", ("a", "b"), 4.0, 1.0, 16e9, 3.0, 0.75, 15e9)
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
    "text", ["", "[]", '{"at": "now"}', '{"at": 1e99}', '{"reachable": 1, "cpus": "x"}']
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
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(timeout=0.01)
    worker.terminate()
    assert run.stop_request() == "stop"
    ray_queue.remove(run)
    assert isinstance(worker, ClusterWorker)
    worker.wait(timeout=5)


def test_what_a_run_needs(monkeypatch):
    needs = ray_queue.needs
    cpu, auto, cuda = ({"config": {"device": device}} for device in ("cpu", "auto", "cuda"))
    assert needs(cpu, True) == needs(auto, False) == needs({"claim": {}}, True)
    assert needs(cpu, True) == ray_queue.Needs(1.0, 0.0, 1_000.0)
    tuned = {"finetune": {"device": "cuda"}}
    assert needs(auto, True) == needs(cuda, False) == needs(tuned, False)
    assert str(needs(cuda, True)) == "1 CPU, 0.25 of a GPU and 1 GB of memory"
    monkeypatch.setenv("ATTENTION_LAB_RAY_WORKER", "cpus=2 gpu=1")
    two = needs(cuda, True)
    assert two.options() == {"num_cpus": 2.0, "num_gpus": 1.0, "memory": 1_000_000_000}
    assert two.fit({"CPU": 2, "GPU": 1, "memory": 1e9}) and not two.fit({"CPU": 64, "memory": 1e12})


def test_only_the_bridge_and_the_nodes_import_ray():
    """And neither imports PyTorch: a node runs two processes for a run, and only one of them trains."""
    code = (
        "import sys, core.runs.ray_node, core.runs.ray_queue; held = {'ray', 'numpy'} & {*sys.modules}; "
        "import core.runs.ray_driver; print(held, 'torch' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], encoding="utf-8")
    assert printed.strip() == "set() False"


# What pages show of a cluster, from the files that its driver writes.


@pytest.fixture
def cluster(no_bridge):
    ray_queue.save_state(
        ray_queue.ClusterState(True, "", ("red", "blue"), 4.0, 0.0, 16e9, 3.0, 0.0, 15e9)
    )


def opened(page: str, run: str) -> str:
    app = app_at(page)
    app.query_params["run"] = run
    return page_text(app.run())


def test_runs_shows_what_is_free_and_where_a_run_was(cluster, monkeypatch):
    run = create_run(small_run(), nodes=["red", "blue"])
    run.set_status("finished", "Finished after 4 steps.")
    text = opened("runs", run.id)
    assert "a Ray cluster of 2 machines (nodes red, blue). Free: 3 of 4 CPUs" in text
    assert "on node red, then blue" in text
    ray_queue.save_state(ray_queue.ClusterState(message="Nobody answers."))
    assert "Nobody answers" in opened("runs", run.id)
    assert jobs.node_text({}) == jobs.node_text({"nodes": "a"}) == ""
    assert jobs.node_text({"nodes": ["a", "a", "b", 3, "a"]}) == "on node a, then b, then a"
    assert len(jobs.node_text({"nodes": ["x" * 1_000]})) < 120
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert jobs.cluster_state() is None and jobs.node_text({"nodes": ["red"]}) == "", (
        "a public copy names no node"
    )


def test_train_shows_where_a_run_is(cluster):
    run = create_run(small_run())
    ray_queue.submit(run)
    run.set_status("starting", "Waits for 1 CPU and 1 GB of memory on the cluster.")
    assert "Waits for 1 CPU and 1 GB of memory on the cluster." in opened("train", run.id).replace(
        "\\", ""
    )
    run.update_metadata(nodes=["blue"])
    run.set_status("running")
    run.append(Record(2, loss=1.0))
    assert "On node blue." in opened("train", run.id).replace("\\", "")
    assert run.status().state == "running", "its driver may come back"


def test_one_machine_says_nothing_of_clusters():
    run = create_run(small_run())
    run.set_status("finished", "Finished after 4 steps.")
    assert not re.search("luster|on node", opened("runs", run.id))
