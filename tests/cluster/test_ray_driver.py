"""What the driver does with a run when nodes answer, do not answer or die: Ray is played by a few functions."""

import re
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError, RpcError

from core.runs import ray_driver, ray_queue
from core.runs.folder import Changes, RunFolder
from core.runs.runs import create_run
from tests.training.small import small_run


class PlayedRay:
    """Actors by name; `answers` are what their methods give, one after another, or raise; None is no answer yet."""

    def __init__(self) -> None:
        self.actors: dict[str, object] = {}
        self.answers: list[object] = []
        self.calls: list[str] = []
        self.kill = lambda actor: self.calls.append("kill")
        self.cluster_resources = lambda: {"CPU": 2.0}
        node = {"NodeID": "1", "NodeName": "red", "Alive": True}
        self.nodes = lambda: [node | {"Resources": {"CPU": 2.0, "memory": 4e9}}]

    def actor(self) -> SimpleNamespace:
        def method(name: str) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda *given: self.calls.append(name))

        return SimpleNamespace(
            **{one: method(one) for one in ("where", "start", "changes", "close")}
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


def test_an_actor_that_does_not_answer_for_a_moment_is_kept(played):
    again = {**HERE, "started": True}
    job = start_job(played, HERE, "", RUNNING, UNAVAILABLE, again, RUNNING, UNAVAILABLE, None)
    for _ in range(20):
        assert job.advance()
    assert len(played.actors) == 1 and played.calls.count("start") == 1
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
