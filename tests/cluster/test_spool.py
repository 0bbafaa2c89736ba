"""How a server hands runs to the cluster, with files alone: no Ray, and no bridge."""

import subprocess
import sys
import time

import pytest

from core.runs import ray_driver, ray_queue
from core.runs.executor import ClusterWorker, LocalBackend, RayBackend, backend
from core.runs.ray_queue import ClusterState, Needs, needs
from core.runs.runs import create_run
from dashboard.runtime import jobs
from dashboard.runtime.jobs import node_text
from dashboard.views.runs.text import cluster as cluster_text
from tests.training.small import small_run


@pytest.fixture
def no_bridge(monkeypatch):
    """A cluster whose bridge is played by the test."""
    monkeypatch.setenv("ATTENTION_LAB_RAY", "192.0.2.1:6379")
    monkeypatch.setattr(ray_queue, "ensure_bridge", lambda: None)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)


def test_the_address_chooses_the_place(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RAY", "  ")
    assert isinstance(backend(), LocalBackend)
    monkeypatch.setenv("ATTENTION_LAB_RAY", "auto")
    assert isinstance(backend(), RayBackend)


def test_runs_wait_here_until_the_cluster_is_reached_and_there_after(no_bridge, monkeypatch):
    runs = jobs.start_all([(small_run(seed=seed), {}) for seed in range(5)])
    assert {run.status().state for run in runs} == {"queued"} and ray_queue.entries() == []
    ray_queue.save_state(ClusterState(True, "", ("a",), cpus=2.0))
    jobs.tick()
    assert {entry.path for entry in ray_queue.entries()} == {run.path for run in runs}, (
        "all of them: the queue is Ray's"
    )
    assert {run.status().state for run in runs} == {"starting"} and jobs.max_workers() == 2
    assert RayBackend().room(2) > 2
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert RayBackend().room(2) == 2, "a public copy's own queue is fair"
    monkeypatch.delenv("ATTENTION_LAB_HOSTED")
    jobs.tick()
    assert {run.status().state for run in runs} == {"starting"}, (
        "a run without a bridge is not lost"
    )


def test_a_lost_cluster_queues_its_runs_once(no_bridge):
    ray_queue.save_state(ClusterState(True, cpus=2.0))
    running, ended = jobs.start_all([(small_run(seed=seed), {}) for seed in range(2)])
    running.set_status("running")
    ended.set_status("finished", "Finished after 4 steps.")
    ray_driver.lose(ray_driver.LOST)
    assert (running.status().state, running.status().message) == ("queued", ray_driver.LOST)
    assert ended.status().state == "finished"
    jobs.tick()
    assert running.status().state == "queued" and not ray_queue.load_state().reachable
    assert ray_queue.load_state().message == ray_driver.LOST


def test_a_state_that_nobody_renews_is_none(no_bridge, monkeypatch):
    ray_queue.save_state(ClusterState(True, "", ("a", "b"), 4.0, 1.0, 16e9, 3.0, 0.75, 15e9))
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
    worker = RayBackend().start(run)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(timeout=0.01)
    worker.terminate()
    assert run.stop_request() == "stop"
    ray_queue.remove(run)
    assert isinstance(worker, ClusterWorker)
    worker.wait(timeout=5)


def test_what_a_run_needs(monkeypatch):
    cpu, auto, cuda = ({"config": {"device": device}} for device in ("cpu", "auto", "cuda"))
    assert (
        needs(cpu, True)
        == needs(auto, False)
        == needs({"claim": {}}, True)
        == Needs(1.0, 0.0, 1_000.0)
    )
    assert needs(auto, True) == needs(cuda, False) == needs({"finetune": {"device": "cuda"}}, False)
    assert str(needs(cuda, True)) == "1 CPU, 0.25 of a GPU and 1 GB of memory"
    monkeypatch.setenv("ATTENTION_LAB_RAY_CPUS", "2")
    monkeypatch.setenv("ATTENTION_LAB_RAY_GPU", "1")
    monkeypatch.setenv("ATTENTION_LAB_RAY_MEMORY_MB", "many")
    two = needs(cuda, True)
    assert two.options() == {"num_cpus": 2.0, "num_gpus": 1.0, "memory": 1_000_000_000}
    assert two.fit({"CPU": 2, "GPU": 1, "memory": 1e9}) and not two.fit({"CPU": 64, "memory": 1e12})


def test_the_nodes_of_a_run_are_named_in_order():
    assert node_text({}) == node_text({"nodes": "a"}) == ""
    assert node_text({"nodes": ["a", "a", "b", 3, "a"]}) == "on node a, then b, then a"
    assert len(node_text({"nodes": ["x" * 1_000]})) < 120


def test_only_the_bridge_and_the_nodes_import_ray():
    """And neither imports PyTorch: a node runs two processes for a run, and only one of them trains."""
    code = (
        "import sys, core.runs.ray_driver, core.runs.ray_node, core.runs.ray_queue; "
        "print([name for name in ('torch', 'ray', 'numpy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], encoding="utf-8").strip() == "[]"
