"""The health route and the metrics: what they count is what the folders hold, and nothing of what people typed."""

import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.runtime.stats import StatsManager
from streamlit.web.server.starlette.starlette_routes import _stats_to_text

from core.runs.runs import create_run
from dashboard.server import health, jobs, people
from dashboard.server.streamlit_internals import MetricsProvider
from tests.training.small import small_run

ROOT = Path(__file__).resolve().parents[2]
SECRET = "zq7secret"


@pytest.fixture(autouse=True)
def _folder(monkeypatch, tmp_path):
    """A folder of its own, in which a queued run stays queued; every look is a fresh one."""
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(health, "FRESH", -1.0)
    monkeypatch.setattr(jobs, "max_workers", lambda: 3)


def probe(base: str = "") -> tuple[int, dict]:
    answer = TestClient(Starlette(routes=[health.route(base)])).get(f"{base}/health")
    return answer.status_code, answer.json()


def runs(**states: int) -> None:
    for state, count in states.items():
        for _ in range(count):
            create_run(small_run(), name=SECRET).set_status(state, SECRET)


def metric_lines() -> list[str]:
    manager = StatsManager()
    manager.register_provider(MetricsProvider(health.FAMILIES))
    return _stats_to_text(manager.get_stats()).splitlines()


def test_a_server_that_can_serve_says_how_much_it_has_to_do():
    runs(queued=2, running=1, finished=3, failed=1)
    code, body = probe("/lab")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    free = body.pop("disk_free_mb"), body.pop("memory_free_mb")
    assert code == 200 and body == {
        "status": "ok",
        "version": version,
        "workers": {"busy": 1, "most": 3},
        "queue": 2,
    }
    assert all(isinstance(number, int) and number > 100 for number in free)


def test_a_full_disk_is_a_503_with_a_sentence(monkeypatch):
    usage = health.shutil.disk_usage("/")
    monkeypatch.setattr(health.shutil, "disk_usage", lambda path: usage._replace(free=3_000_000))
    code, body = probe()
    assert code == 503 and body["status"] == "unable" and "has 3\u00a0MB left" in body["problem"]


def test_runs_that_no_worker_takes_are_a_503_and_a_busy_queue_is_not(monkeypatch):
    runs(queued=1)
    assert probe()[0] == 200
    now = time.time()
    monkeypatch.setattr(health.time, "time", lambda: now + 300)
    code, body = probe()
    assert code == 503 and re.search(r"waits for 300 s: restart", body["problem"])
    runs(running=1)
    assert probe()[0] == 200


def test_many_probes_read_the_folders_once(monkeypatch):
    monkeypatch.setattr(health, "FRESH", 60.0)
    looks = Counter[str]()

    def statuses() -> list:
        looks["read"] += 1
        return []

    monkeypatch.setattr(health, "_last", [])
    monkeypatch.setattr(people, "statuses", statuses)
    assert [probe()[0] for _ in range(5)] == [200] * 5 and looks == {"read": 1}


def test_metrics_count_what_is_there_in_openmetrics_without_typed_text(monkeypatch):
    runs(queued=2, running=1, finished=3)
    monkeypatch.setattr(health, "_counts", Counter({"worker_starts": 5, "queue_wait_seconds": 7.9}))
    lines = metric_lines()
    assert {
        'lab_runs{state="queued"} 2',
        'lab_runs{state="finished"} 3',
        'lab_runs{state="paused"} 0',
        "lab_worker_starts_total 5",
        "lab_worker_failures_total 0",
        "lab_queue_wait_seconds_total 7",
    } <= set(lines)
    assert lines[-1] == "# EOF" and not [line for line in lines if SECRET in line]
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert named == set(health.FAMILIES)
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[a-z]+"\})? \d+')
    assert [line for line in lines if not line.startswith("#") and not sample.fullmatch(line)] == []


def test_a_counter_is_named_wherever_one_is_added():
    text = (ROOT / "dashboard" / "server" / "jobs.py").read_text(encoding="utf-8")
    assert set(re.findall(r'health\.add_count\("(\w+)"', text)) == {
        name.removeprefix("lab_")
        for name, family in health.FAMILIES.items()
        if family[0] == "counter"
    }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts shared pages")
def test_memory_is_that_of_this_process_and_of_those_it_started():
    before = health.memory_bytes()
    hold = "import sys; held = bytearray(60_000_000); print(1, flush=True); sys.stdin.read()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"  # so do those that it starts
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        more = health.memory_bytes()
        process.communicate()
    assert 55e6 < (more["process", "workers"] - before["process", "workers"]) < 120e6
    rss = int(
        Path(f"/proc/{os.getpid()}/statm").read_text(encoding="utf-8").split()[1]
    ) * os.sysconf("SC_PAGE_SIZE")
    assert 0 < more["process", "server"] <= rss * 1.05
