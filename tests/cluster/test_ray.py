"""Runs on a real Ray cluster: two nodes made of processes of this machine, each with one CPU."""

import os
import random
import shutil
import signal
import tempfile
from dataclasses import replace

import pytest
import torch

pytest.importorskip("ray")

from ray.cluster_utils import Cluster as RayCluster

from core.claims.run import CELLS, ClaimConfig, load_cells
from core.interpret.corpus import CorpusConfig
from core.interpret.corpus_run import STATISTICS, VALUES, load
from core.models import ModelConfig
from core.runs import ray_queue
from core.runs.ray_driver import LOST
from core.runs.runs import Run, create_run, list_runs
from core.runs.worker import work
from core.tasks import TaskConfig
from core.tasks.reading import is_reference
from core.training.loop import FINAL
from dashboard.server import jobs
from tests.cases import wait_for
from tests.close import assert_close
from tests.training.small import SAME_LAST_BIT, record_numbers, small_run

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
# Speaks, and slows the nodes down, so that one can be killed while it trains.
PLUGIN = """import sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
print('A plug-in is here.', file=sys.stderr)
if 'pytest' not in sys.modules:
    register_optimizer_step_post_hook(lambda *_: time.sleep(0.02))
"""
NODE = {
    "num_gpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
}  # a GPU in name alone


@pytest.fixture(scope="module")
def nodes():
    """A cluster of a head, named a, and a node b."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setenv(name, value)
        home = tempfile.mkdtemp(prefix="ray-")  # pytest's own is too long for the name of a socket
        patch.setenv("RAY_TMPDIR", home)
        os.mkdir(
            os.path.join(home, "ray")
        )  # the cluster's address is written there, before Ray makes the folder
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
    """The second node; the sweep's test kills it."""
    return nodes.add_node(node_name="b", **NODE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of all runs here, so that the tests share a driver."""
    return tmp_path_factory.mktemp("ray") / "runs"


@pytest.fixture
def lab(nodes, runs, monkeypatch, tmp_path):
    """A server with this cluster; nothing of it is left under way."""
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(runs))
    monkeypatch.setenv("ATTENTION_LAB_RAY", nodes.address)
    monkeypatch.setattr(jobs, "WATCH_SECONDS", 0.1)
    yield nodes
    left = [run for run in list_runs() if not run.status().ended]
    for run in left:
        jobs.stop(run)
    wait_for(lambda: ended(*left))
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "elsewhere"))  # which ends the watcher
    if (watcher := jobs._watcher) is not None:
        watcher.join()


def end_bridges(how: int = signal.SIGTERM) -> None:
    for process, _ in ray_queue._drivers.values():
        os.kill(process.pid, how)
        process.wait()
    ray_queue._drivers.clear()


def ended(*runs: Run) -> bool:
    return all(run.status().ended and not run.alive() for run in runs)


@SAME_LAST_BIT
def test_a_claim_and_a_corpus_are_measured_on_both_nodes(lab, b, tmp_path, monkeypatch):
    """The cells of the claim are shared by two workers; every number is that of a worker of this machine."""
    wait_for(lambda: jobs.max_workers() == 2)
    group = jobs.measure_claim(ClaimConfig("iris", {"seeds": 2, "steps": 25}))
    texts = "the old man\nthe king and the queen"
    corpus = jobs.measure(CorpusConfig("lab:induction", "texts", texts, kind="causal"))
    wait_for(lambda: ended(*group.runs, corpus))
    said = [run.status().message for run in (*group.runs, corpus)]
    assert said == ["Measured 3 parts."] * 2 + ["Measured 2 texts."]
    assert {node for run in group.runs for node in run.metadata()["nodes"]} == {"a", "b"}
    assert ray_queue.entries() == []
    last = group.runs[1]
    here, measured = Run(tmp_path / last.id), Run(tmp_path / corpus.id)
    for run, own in ((last, (CELLS,)), (corpus, (VALUES, STATISTICS))):
        left = shutil.ignore_patterns("status.json", "lock", *own)
        shutil.copytree(run.path, tmp_path / run.id, ignore=left)
    monkeypatch.setattr("core.training.loop.FINAL", FINAL)  # which the tests' own processes cut
    assert [work(run.path) for run in (here, measured)] == ["finished", "finished"]
    theirs, ours = ([replace(one, seconds=0.0) for one in load_cells(run)] for run in (last, here))
    assert theirs == ours and len(group.results().cells) == 6
    assert (corpus.path / VALUES).read_bytes() == (measured.path / VALUES).read_bytes() != b""
    assert_close(vars(load(corpus).means), vars(load(measured).means), 0, 0)


@SAME_LAST_BIT
def test_a_sweep_gives_the_same_numbers_though_a_node_dies(lab, b, tmp_path, monkeypatch):
    """Two runs on two nodes: one node is killed while it trains, and its run goes on where it was last seen.

    They learn own data, and a plug-in goes with each.
    """
    end_bridges()  # the next one knows the plug-in
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "speaks.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setenv("ATTENTION_LAB_PLUGINS", str(plugins))
    words = "what goes to a node comes back again".split()
    text = "\n".join(" ".join(random.Random(n).choices(words, k=9)) for n in range(9_000))
    task = TaskConfig.of("own_text", data=text, length=16)
    model = ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned")
    config = small_run(task=task, model=model, steps=300, record_every=20, held_out=4)
    runs = jobs.start_all([(replace(config, seed=seed), {"sweep": {"id": "s"}}) for seed in (0, 1)])
    wait_for(
        lambda: any(
            run.metadata().get("nodes") == ["b"] and run.checkpoint_steps()[1:] for run in runs
        )
    )
    lab.remove_node(b, allow_graceful=False)
    wait_for(lambda: ended(*runs))
    assert {run.status().state for run in runs} == {"finished"}, [run.status() for run in runs]
    assert ["b", "a"] in [run.metadata()["nodes"] for run in runs]
    for run in runs:
        here = create_run(run.config(), path=tmp_path / f"here{run.config().seed}")
        work(here.path)
        theirs, ours = (
            [record_numbers(record) for record in one.records() if not record.final]
            for one in (run, here)
        )
        assert theirs == ours and ours and run.frame_steps() == here.frame_steps()
        assert run.checkpoint_steps() == here.checkpoint_steps()
        last, other = (one.checkpoint(one.checkpoint_steps()[-1])[0] for one in (run, here))
        torch.testing.assert_close(last, other, rtol=0, atol=0)
        assert "A plug-in is here." in (run.path / "worker.log").read_text(encoding="utf-8")
        assert is_reference(dict(run.config().task.params)["data"])
    assert ray_queue.entries() == [] and not any(run.alive() for run in runs)


def test_the_next_bridge_finds_what_still_runs(lab, monkeypatch):
    """The driver is killed: the run trains on, and the next driver, with less memory to give, brings back all of it."""
    run = jobs.start(small_run(steps=20_000, record_every=100, finish_early=False))
    wait_for(
        lambda: run.records() and run.status().state == "running"
    )  # the driver writes the status last
    end_bridges(signal.SIGKILL)
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "memory_mb=100")  # less than PyTorch takes
    assert not run.alive() and run.status().state == "running"
    step = run.records()[-1].step
    large = jobs.start(small_run(steps=5_000))
    assert run.status().state == "running"
    wait_for(lambda: run.records()[-1].step > step)
    jobs.stop(run)
    wait_for(lambda: ended(run, large))
    assert run.metadata()["nodes"] == ["a"] and run.status().state == "stopped"
    steps = [record.step for record in run.records()]
    assert steps == sorted(set(steps)) and set(run.frame_steps()) >= set(steps)
    assert (
        large.status().message == "The run needed more than 100 MB of memory; take a smaller model."
    )


def test_stop_pause_continue_and_a_lost_head(lab):
    """The last test: at its end it kills the head, and the run returns to the queue."""
    end_bridges()
    configs = [
        small_run(steps=20_000, record_every=100, seed=seed, finish_early=False)
        for seed in range(3)
    ]
    run, waits, wrong = jobs.start_all([(config, {}) for config in configs])
    wrong.update_metadata(config={**small_run().to_json(), "steps": -1})
    wait_for(lambda: run.records() or waits.records())
    if waits.records():
        run, waits = waits, run
    assert (
        waits.status().message
        == "Waits for 1 CPU, 0.25 of a GPU and 1 GB of memory on the cluster."
    )
    assert waits.alive() and run.alive() and ray_queue.load_state().nodes == ("a",)
    assert (ray_queue.load_state().free_cpus, ray_queue.load_state().free_gpus) == (0.0, 0.75)
    jobs.stop(waits)
    wait_for(lambda: ended(waits))
    assert (waits.status().state, waits.status().message) == ("stopped", "It had not begun.")
    jobs.stop(run, "pause")
    wait_for(lambda: ended(run, wrong))
    step = run.checkpoint_steps()[-1]
    assert step > 0 and (run.status().state, run.status().message) == (
        "paused",
        f"Paused at step {step:,}.",
    )
    assert wrong.status().state == "failed" and "steps = -1" in wrong.status().message
    jobs.resume(run)
    wait_for(lambda: run.records()[-1].step > step)
    assert run.metadata()["nodes"] == ["a", "a"]
    lab.head_node.kill_gcs_server()
    wait_for(lambda: run.status().state == "queued")
    assert run.status().message == LOST and run.records()[-1].step > step
    wait_for(lambda: "cannot be reached; the runs wait" in ray_queue.load_state().message)
    jobs.tick()
    assert run.status().state == "queued" and ray_queue.holds(run) and jobs.place(run).number == 1
    jobs.stop(run)
    assert run.status().state == "stopped"
