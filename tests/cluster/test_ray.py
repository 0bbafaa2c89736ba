"""What the driver does with a run: Ray is played by a few functions, and then a real cluster of two nodes."""

import os
import random
import re
import shutil
import signal
import tempfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("ray")

from ray.cluster_utils import Cluster as RayCluster
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError, RpcError

from core.claims.run import CELLS, ClaimConfig, load_cells
from core.interpret.corpus import CorpusConfig
from core.interpret.corpus_run import STATISTICS, VALUES, load
from core.models import ModelConfig
from core.runs import ray_driver, ray_queue
from core.runs.folder import Changes, RunFolder
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
    run = create_run(small_run())
    entry = ray_queue.Entry(run.path, 7)
    entry.save()
    lock = run.lock()
    lock.acquire()
    ray.answers = list(answers)
    return ray_driver.ClusterJob(entry, lock)


def advance_to_the_end(job: ray_driver.ClusterJob) -> None:
    for _ in range(60):
        if not job.advance():
            assert not ray_queue.holds(job.run) and not job.run.alive()
            return
    raise AssertionError("it goes on for ever")


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
    """It is not taken for one that has not begun."""
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
    assert (job.run.status().state, job.run.status().message) == (
        "paused",
        "It had not begun.",
    )
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
        # jobs says what is saved, as of any worker that died
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
def test_a_public_copy_names_no_machine_and_nothing_of_the_cluster(played, monkeypatch, answers):
    messages = []
    set_status = RunFolder.set_status

    def note(self: RunFolder, state: str, message: str = "", pid: int | None = None) -> None:
        messages.append(message)
        set_status(self, state, message, pid)

    monkeypatch.setattr(RunFolder, "set_status", note)
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    job = start_job(played, *answers)
    for _ in range(60):
        if not job.advance():
            break
    assert job.run.status().state == "failed" and "nodes" not in job.run.metadata()
    waiting = create_run(small_run())
    ray_queue.Entry(waiting.path, 8).save()
    waiting.set_status("starting")
    ray_driver.lose(ray_driver.LOST)
    assert waiting.status().message == ray_driver.PUBLIC_LOST
    assert not re.search(
        r"\bred\b|node|cluster|bridge|driver|/|\bray\b", " ".join(messages).casefold()
    ), messages


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
# Speaks, and slows the second node down, so that it can be killed while it trains.
PLUGIN = """import os, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
print('A plug-in is here.', file=sys.stderr)
if 'SLOW' in os.environ:
    register_optimizer_step_post_hook(lambda *_: time.sleep(0.1))
"""
NODE = {
    "num_gpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
}  # a GPU in name alone


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of a head, named a, whose driver knows a plug-in."""
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "speaks.py").write_text(PLUGIN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (QUICK | {"ATTENTION_LAB_PLUGINS": str(plugins)}).items():
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOW", "1")
        return nodes.add_node(node_name="b", **NODE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
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
    group = jobs.measure_claim(ClaimConfig("concatenation", {"seeds": 2, "steps": 50}))
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
def test_a_sweep_gives_the_same_numbers_though_a_node_dies(lab, b, tmp_path):
    """Two runs on two nodes: one node is killed while it trains, and its run goes on where it was last seen.

    They learn own data, and a plug-in goes with each.
    """
    words = "what goes to a node comes back again".split()
    text = "\n".join(" ".join(random.Random(n).choices(words, k=9)) for n in range(9_000))
    task = TaskConfig.of("own_text", data=text, length=16)
    model = ModelConfig.transformer(8, 2, 1, 16, kind="decoder", position="learned")
    config = small_run(task=task, model=model, steps=60, record_every=6, held_out=4)
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


def test_stop_pause_continue_a_driver_that_is_killed_and_a_lost_head(lab):
    """The run trains on while there is no driver, and the next one brings back all of it.

    The last test: at its end it kills the head, and the run returns to the queue.
    """
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
    wait_for(lambda: run.records()[-1].step > step and run.status().state == "running")
    end_bridges(signal.SIGKILL)
    assert not run.alive() and run.status().state == "running"
    step = run.records()[-1].step
    ray_queue.ensure_driver()
    wait_for(lambda: run.records()[-1].step > step)
    assert run.metadata()["nodes"] == ["a", "a"] and run.status().state == "running"
    steps = [record.step for record in run.records()]
    assert steps == sorted(set(steps)) and set(run.frame_steps()) >= set(steps)
    lab.head_node.kill_gcs_server()
    wait_for(lambda: run.status().state == "queued")
    assert run.status().message == LOST and run.records()[-1].step > step
    wait_for(lambda: "cannot be reached; the runs wait" in ray_queue.load_state().message)
    jobs.tick()
    assert run.status().state == "queued" and ray_queue.holds(run) and jobs.place(run).number == 1
    jobs.stop(run)
    assert run.status().state == "stopped"
