"""The worker of a run on a node, called as the bridge calls it, without Ray."""

import json
import os
import subprocess
import sys
import time

import pytest

from core.runs import ray_node as node_module
from core.runs.folder import apply, pack
from core.runs.ray_node import NodeWorker, pack_plugins
from core.runs.runs import create_run
from tests.training.small import small_run


@pytest.fixture
def worker(monkeypatch):
    one = NodeWorker()
    yield one
    monkeypatch.setattr(node_module.os, "_exit", lambda code: None)
    one.close()
    assert not one.home.exists()


def played_by(monkeypatch, script: str) -> None:
    """A script in place of the worker process."""
    begin = subprocess.Popen
    monkeypatch.setattr(
        node_module.subprocess,
        "Popen",
        lambda command, **more: begin([sys.executable, "-c", script, *command[3:]], **more),
    )


def until(what, seconds: float = 60):
    end = time.time() + seconds
    while not (answer := what()):
        assert time.time() < end, "waited too long"
        time.sleep(0.02)
    return answer


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
    assert until(lambda: worker.changes(None, "pause").ended)
    assert (worker.folder / "stop").read_text(encoding="utf-8") == "pause"


def test_what_the_worker_is_given_and_what_comes_back(worker, monkeypatch, tmp_path):
    played_by(
        monkeypatch,
        """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "metrics.jsonl").write_text(os.environ["ATTENTION_LAB_MEMORY_MB"] + "\\n")
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
    worker.start(run.id, pack(run.path), pack_plugins(plugins), {"ATTENTION_LAB_MEMORY_MB": "77"})
    changes = until(lambda: (new := worker.changes(None, "")).ended and new)
    apply(run.path, changes)
    assert (run.path / "metrics.jsonl").read_text(encoding="utf-8") == "77\n"
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
    for folder in (left, new):
        folder.mkdir()
        (folder / "lock").touch()
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
    until(lambda: run.records())
    process.stdin.close()
    assert process.wait(30) == 1 and not run.alive()
