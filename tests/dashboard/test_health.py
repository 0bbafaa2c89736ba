"""The health route and the metrics: what they count is what the folders hold, and nothing of what people typed."""

import os
import re
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.runtime.stats import StatsManager
from streamlit.web.server.starlette.starlette_routes import _stats_to_text

from core import memory
from core.interpret.evidence import Question
from core.pretrained import ModelInputs
from core.runs import worker
from core.runs.runs import create_run
from dashboard.server import cache, health, idle, jobs, people
from dashboard.server.streamlit_internals import MetricsProvider
from dashboard.ui.models import EMBEDDED, baseline_of, load_model
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


# The shared memory: bounded by bytes and by count, each value made once, nothing of a failure remembered.


@dataclass(frozen=True)
class Pair:
    first: np.ndarray
    rest: tuple[object, ...]


def test_weights_are_the_bytes_of_what_is_held():
    assert (
        cache.size_bytes(np.zeros((3, 5), np.float32)) == cache.size_bytes(torch.zeros(3, 5)) == 60
    )
    layer = torch.nn.BatchNorm1d(7)
    assert (
        cache.size_bytes(layer) == 4 * 7 * 4 + 8
    )  # two parameters, two running figures, and a count of 8 bytes
    assert (
        cache.size_bytes(Pair(np.zeros(2, np.int16), ({"a": torch.zeros(2)}, "abc", 1.5, None)))
        == 4 + 8 + 3
    )


def test_the_longest_unused_leaves_when_the_bytes_are_spent():
    memory = cache.ByteLRUCache(100, 99)
    for key in "abc":
        memory.get(key, lambda: np.zeros(40, np.uint8))
        memory.get("a", lambda: pytest.fail("a is there"))
    assert "a" in memory and "b" not in memory and "c" in memory and memory.bytes == 80
    memory.get("large", lambda: np.zeros(1000, np.uint8))
    assert memory.bytes == 1000 and "large" in memory, "the last one stays, though alone too heavy"


def test_the_count_is_bounded_too_and_a_failure_is_not_remembered():
    memory = cache.ByteLRUCache(100, 2)
    with pytest.raises(ZeroDivisionError):
        memory.get(0, lambda: 1 / 0)
    assert [memory.get(key, lambda: 7) for key in range(5)] == [7] * 5
    assert [key in memory for key in range(5)] == [False, False, False, True, True]


def test_sessions_that_ask_at_once_share_one_making_and_others_do_not_wait():
    memory, made = cache.ByteLRUCache(100, 9), []

    others_done = threading.Event()

    def slowly() -> None:
        assert others_done.wait(timeout=20)
        made.append(1)

    ask = [threading.Thread(target=memory.get, args=("slow", slowly)) for _ in "abc"]
    for thread in ask:
        thread.start()
    memory.get("quick", lambda: 1)  # would wait for ever if it waited for the slow one
    others_done.set()
    for thread in ask:
        thread.join()
    assert made == [1]


def made(text: str) -> list[str]:
    return [text]


def test_models_and_results_are_shared_and_a_walk_through_all_pages_evicts_no_small_one():
    """It makes 36 results that are shared: with room for 32, each walk would compute all of them again."""
    for number in range(100):
        cache.shared(made, f"walk {number}")
    assert cache.remembered(made, "walk 0") and not cache.remembered(made, "x")
    assert cache.model(made, "x") is cache.model(made, "x")
    assert cache.shared(made, "x") is cache.shared(made, "x") is not cache.shared(made, "y")


@pytest.mark.parametrize(
    "files, most",
    [
        (
            {
                "/proc/meminfo": "MemFree: 9 kB\nMemTotal:       2000 kB\n",
                "/sys/fs/cgroup/memory.max": "max\n",
            },
            512_000,
        ),
        (
            {"/proc/meminfo": "MemTotal: 2000 kB\n", "/sys/fs/cgroup/memory.max": "400000\n"},
            100_000,
        ),
        ({"/proc/meminfo": "MemTotal: 9000000000 kB\n"}, 700_000),
        ({}, 700_000),
    ],
)
def test_a_small_machine_keeps_less(monkeypatch, files, most):
    def read_text(path: Path, encoding: str | None = None) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)
    assert cache.at_most(700_000, 1 / 4) == most


V2, V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    "files",
    [
        {
            f"{V2}/memory.max": "1000\n",
            f"{V2}/memory.current": "700\n",
            f"{V2}/memory.stat": "anon 9\ninactive_file 200\n",
            f"{V2}/memory.events": "oom 4\noom_kill 3\n",
        },
        {
            f"{V1}/memory.limit_in_bytes": "1000\n",
            f"{V1}/memory.usage_in_bytes": "700\n",
            f"{V1}/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
            f"{V1}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        },
        {
            "/proc/self/cgroup": "4:cpu:/x\n0::/system.slice/lab.service\n",
            f"{V2}/system.slice/memory.max": "1000\n",
            f"{V2}/system.slice/memory.current": "500\n",
            f"{V2}/system.slice/lab.service/memory.max": "max\n",
            f"{V2}/system.slice/lab.service/memory.events": "oom_kill 3\n",
        },
        {
            "/proc/self/cgroup": "4:memory:/lab/one\n3:cpu:/z\n",
            f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{V1}/lab/one/memory.limit_in_bytes": "1000\n",
            f"{V1}/lab/one/memory.usage_in_bytes": "500\n",
            f"{V1}/lab/one/memory.oom_control": "oom_kill 3\n",
        },
    ],
    ids=["version 2", "version 1", "a service", "a group of version 1"],
)
def test_the_limit_of_a_control_group_holds_whatever_its_version(monkeypatch, files):
    known = {"/proc/meminfo": "MemTotal: 8000 kB\nMemAvailable: 7000 kB\n", **files}

    def read_text(path: Path, encoding: str | None = None) -> str:
        if str(path) not in known:
            raise FileNotFoundError(path)
        return known[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.delenv("ATTENTION_LAB_LIMITS", raising=False)
    assert (memory.total_bytes(), memory.free_bytes(), memory.out_of_memory_kills()) == (
        1000,
        500,
        3,
    )


@pytest.mark.parametrize(
    ("total", "setting", "most"),
    [
        (1_000, "", 500),
        (24_000, "", 3_000),
        (1_000, "800", 800),
        (1_000, "3000", 1_000),
        (float("inf"), "", 3_000),
    ],
)
def test_a_run_may_not_hold_more_memory_than_its_server_has(monkeypatch, total, setting, most):
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", setting and f"memory_mb={setting}")
    monkeypatch.setattr(worker, "total_bytes", lambda: total * 1e6)
    assert worker.memory_limit_mb() == most


def test_a_result_that_is_kept_does_not_hold_its_model():
    question = Question(ModelInputs("A small green dog."), against="A dog.")
    results = cache.cache_of("results")
    before = set(results.sizes())
    assert baseline_of(EMBEDDED, question).pretrained is load_model(EMBEDDED)
    sizes = [size for key, size in results.sizes().items() if key not in before]
    assert sizes and max(sizes) < cache.size_bytes(load_model(EMBEDDED)) / 50


def test_caches_that_share_a_budget_evict_what_was_used_longest_ago_in_any():
    budget = cache.Budget(100)
    models, results = cache.ByteLRUCache(1000, 9, budget), cache.ByteLRUCache(1000, 9, budget)
    for cache_, key in ((models, "a"), (results, "b"), (models, "a"), (results, "c")):
        cache_.get(key, lambda: np.zeros(40, np.uint8))
    assert "a" in models and "b" not in results and "c" in results and budget.bytes == 80
    results.evict("c")
    assert budget.bytes == 40 and results.bytes == 0


def test_a_small_machine_holds_nothing_that_only_saves_time(monkeypatch):
    monkeypatch.setattr(jobs, "spawn_worker", lambda *_, **__: pytest.fail("no spare worker here"))
    monkeypatch.setattr(jobs, "_spare", None)
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=1000")
    jobs.warm_up()
    assert memory.total_bytes() <= 1e9 and memory.free_bytes() < 1e9 - 50e6, (
        "this process holds some of it"
    )
    assert cache.budget.__wrapped__().most_bytes <= 200e6
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=lots")
    with pytest.raises(
        ValueError, match="ATTENTION_LAB_LIMITS: server_mb = 'lots' is no number above 0"
    ):
        memory.total_bytes()


# What a page would wait for is done ahead: libraries at the start, the rest in idle seconds after the first visit.


@pytest.mark.parametrize("small", [False, True])
def test_a_step_is_taken_once_as_soon_as_the_server_is_idle_and_has_memory(monkeypatch, small):
    assert all(map(find_spec, idle.AT_START))
    seconds = [5.0, 4.0, 0.0]  # of processor time, in one second after another
    clock = iter([value for used in seconds for value in (0.0, used)])
    monkeypatch.setattr(idle.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(idle.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(idle, "is_small", lambda: small)
    monkeypatch.setattr(idle, "_threads", [])
    done: list[str] = []

    def step(name: str) -> None:
        done.append(name)
        raise ZeroDivisionError  # which is nobody's trouble here

    for name in ("first", "second"):
        idle.after_a_visit(partial(step, name))
    idle._threads[0].join()
    assert done == ["first"] * (not small)
    assert next(clock, None) is None, "it looked as often as it was busy, and once more"
