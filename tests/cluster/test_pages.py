"""What pages show of a cluster, from the files that its driver writes."""

import pytest

from core.runs import ray_queue
from core.runs.ray_queue import ClusterState
from core.runs.runs import create_run
from core.training import Record
from dashboard.server import jobs
from dashboard.server.jobs import cluster_state, node_text
from tests.pages.app import app_at, page_text
from tests.training.small import small_run


@pytest.fixture(autouse=True)
def _cluster(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RAY", "192.0.2.1:6379")
    monkeypatch.setattr(ray_queue, "ensure_driver", lambda: None)
    monkeypatch.setattr(jobs, "_watch", lambda folder: None)
    ray_queue.save_state(ClusterState(True, "", ("red", "blue"), 4.0, 0.0, 16e9, 3.0, 0.0, 15e9))


def opened(page: str, run: str) -> str:
    app = app_at(page)
    app.query_params["run"] = run
    return page_text(app.run())


def test_runs_shows_what_is_free_and_where_a_run_was():
    run = create_run(small_run(), nodes=["red", "blue"])
    run.set_status("finished", "Finished after 4 steps.")
    text = opened("runs", run.id)
    assert "a Ray cluster of 2 machines (nodes red, blue). Free: 3 of 4 CPUs" in text
    assert "on node red, then blue" in text
    ray_queue.save_state(ClusterState(message="Nobody answers."))
    assert "Nobody answers" in opened("runs", run.id)


def test_a_public_copy_names_no_node(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    assert cluster_state() is None and node_text({"nodes": ["red"]}) == ""


def test_train_shows_where_a_run_is():
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


def test_one_machine_says_nothing_of_clusters(monkeypatch):
    monkeypatch.delenv("ATTENTION_LAB_RAY")
    run = create_run(small_run())
    run.set_status("finished", "Finished after 4 steps.")
    text = opened("runs", run.id)
    assert "luster" not in text and "on node" not in text
