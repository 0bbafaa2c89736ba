"""The server beside its pages: health and metrics, caches and memory, what its answers carry, and which it refuses."""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock, call
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import streamlit as st
import torch
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit import config
from streamlit.runtime.stats import StatsManager
from streamlit.web.server.starlette.starlette_routes import _stats_to_text

from core import memory
from core.entries import Cost
from core.interpret.evidence import Question
from core.pretrained import ModelInputs
from core.provenance import lab_version
from core.runs import worker
from core.runs.runs import create_run
from dashboard.server import cache, health, limits, queue, streamlit_internals, visitors
from dashboard.server.streamlit_internals import metrics_provider
from dashboard.server.visitors import UNKNOWN_NAME, HTTPGuard
from dashboard.ui.models import EMBEDDED, baseline_of, load_model
from tests.cases import PATIENCE, wait_for
from tests.training.small import small_run

SECRET = "zq7secret"


@pytest.fixture(autouse=True)
def _folder(monkeypatch, tmp_path):
    """A folder of its own, in which a queued run stays queued; every look is a fresh one."""
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(health, "FRESH", -1.0)
    monkeypatch.setattr(queue, "max_workers", lambda: 3)


def probe(base: str = "") -> tuple[int, dict]:
    answer = TestClient(Starlette(routes=[health.route(base)])).get(f"{base}/health")
    return answer.status_code, answer.json()


def runs(**states: int) -> None:
    for state, count in states.items():
        for _ in range(count):
            create_run(small_run(), name=SECRET).set_status(state, SECRET)


def test_a_server_says_how_much_it_has_to_do(monkeypatch):
    runs(queued=2, running=1, finished=3, failed=1)
    code, body = probe("/lab")
    free = body.pop("disk_free_mb"), body.pop("memory_free_mb")
    assert all(isinstance(number, int) and number > 100 for number in free)
    assert (code, body) == (
        200,
        {
            "status": "ok",
            "version": lab_version(),
            "workers": {"busy": 1, "most": 3},
            "queue": 2,
        },
    )
    usage = health.shutil.disk_usage("/")
    monkeypatch.setattr(health.shutil, "disk_usage", lambda path: usage._replace(free=3_000_000))
    code, body = probe()
    assert code == 503 and body["status"] == "unable" and "has 3\u00a0MB left" in body["problem"]


def test_runs_that_no_worker_takes_are_a_503(monkeypatch):
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
    cache._recent.clear()
    monkeypatch.setattr(limits, "statuses", statuses := Mock(return_value=[]))
    assert [probe()[0] for _ in range(5)] == [200] * 5 and statuses.call_count == 1


def test_metrics_count_what_is_there_in_openmetrics(
    monkeypatch,
):
    runs(queued=2, running=1, finished=3)
    monkeypatch.setattr(health, "counts", Counter({"worker_starts": 5, "queue_wait_seconds": 7.9}))
    manager = StatsManager()
    manager.register_provider(metrics_provider(health.FAMILIES))
    lines = _stats_to_text(manager.get_stats()).splitlines()
    assert {
        'lab_runs{state="queued"} 2',
        'lab_runs{state="finished"} 3',
        'lab_runs{state="paused"} 0',
        "lab_worker_starts_total 5",
        "lab_worker_failures_total 0",
        "lab_queue_wait_seconds_total 7",
    } <= set(lines)
    assert lines[-1] == "# EOF" and not [line for line in lines if SECRET in line]
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {*health.FAMILIES}
    line_of = re.compile(r'#.*|[a-z_]+(\{[a-z]+="[a-z]+"\})? \d+')
    assert [line for line in lines if not line_of.fullmatch(line)] == []
    text = (Path(__file__).resolve().parents[2] / "dashboard" / "server" / "queue.py").read_text(
        encoding="utf-8"
    )
    assert set(re.findall(r'add_count\("(\w+)"', text)) == {
        name.removeprefix("lab_")
        for name, family in health.FAMILIES.items()
        if family[0] == "counter"
    }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts shared pages")
def test_memory_counts_the_processes_it_started():
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
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    assert 0 < more["process", "server"] <= pages * os.sysconf("SC_PAGE_SIZE") * 1.05


# The shared memory: bounded by bytes and by count, each value made once, nothing of a failure remembered.


@dataclass(frozen=True)
class Pair:
    first: np.ndarray
    rest: tuple[object, ...]


def test_weights_are_the_bytes_of_what_is_held():
    assert (
        memory.size_bytes(np.zeros((3, 5), np.float32))
        == memory.size_bytes(torch.zeros(3, 5))
        == 60
    )
    # two parameters, two running figures, and a count of 8 bytes
    assert memory.size_bytes(torch.nn.BatchNorm1d(7)) == 4 * 7 * 4 + 8
    assert (
        memory.size_bytes(Pair(np.zeros(2, np.int16), ({"a": torch.zeros(2)}, "abc", 1.5, None)))
        == 4 + 8 + 3
    )


def test_a_cache_is_bounded_in_bytes_and_count_alone():
    held = memory.ByteLRUCache({"a": (100, 99)})
    for key in "abc":
        held.get("a", key, lambda: np.zeros(40, np.uint8))
        held.get("a", "a", lambda: pytest.fail("a is there"))
    assert list(held.sizes("a")) == ["c", "a"] and held.bytes("a") == 80
    held.get("a", "large", lambda: np.zeros(1000, np.uint8))
    assert held.sizes("a") == {"large": 1000}, "the last one stays, though alone too heavy"
    held = memory.ByteLRUCache({"a": (100, 2)})
    pytest.raises(ZeroDivisionError, held.get, "a", 0, lambda: 1 / 0)
    assert [held.get("a", key, lambda: 7) for key in range(5)] == [7] * 5 and [
        ("a", key) in held.entries for key in range(5)
    ] == [False, False, False, True, True]
    held = memory.ByteLRUCache({"models": (1000, 9), "results": (1000, 9)}, 100)
    for kind, key in (("models", "a"), ("results", "b"), ("models", "a"), ("results", "c")):
        held.get(kind, key, lambda: np.zeros(40, np.uint8))
    assert list(held.sizes("models")) == ["a"] and list(held.sizes("results")) == ["c"]
    assert held.bytes("models", "results") == 80
    held.get("models", "d", lambda: np.zeros(70, np.uint8))
    assert held.bytes("models") == 70 and held.bytes("results") == 0


def free(monkeypatch, *megabytes: float) -> None:
    """The machine has so much free beside the reserve, at each look; the last value from then on."""
    left = list(megabytes)
    monkeypatch.setattr(
        memory, "free_bytes", lambda: memory.RESERVE + 1e6 * (left.pop(0) if left[1:] else left[0])
    )
    monkeypatch.setattr(memory, "_caches", set())


def test_work_is_admitted_beside_what_is_under_way(monkeypatch):
    free(monkeypatch, 100)
    with memory.admitted(Cost(bytes=70e6), "One", "Wait."):
        with pytest.raises(memory.TooMuch, match=r"Two needs about 40 MB .* 30 MB is free. Wait."):
            memory.admitted(Cost(bytes=40e6), "Two", "Wait.").__enter__()
        with memory.admitted(Cost(bytes=30e6), "Three", "Wait."):
            pass
    with pytest.raises(ZeroDivisionError), memory.admitted(Cost(bytes=99e6), "Four", ""):
        raise ZeroDivisionError
    assert memory.room_bytes() == 100e6, "what failed gives back its room"


def test_work_of_many_seconds_is_refused_before_it_begins():
    with pytest.raises(memory.TooMuch, match="Five would take about 30 s on one core; .* Cut it."):
        memory.admitted(Cost(flops=30 * memory.FLOPS), "Five", "Cut it.").__enter__()


def test_caches_make_room_before_work_is_refused(monkeypatch):
    held = memory.ByteLRUCache({"a": (1e9, 9)})
    for key in "abc":
        held.get("a", key, lambda: np.zeros(20_000_000, np.uint8))
    free(monkeypatch, 10)
    monkeypatch.setattr(memory, "_caches", {held})
    assert memory.why_too_much(Cost(bytes=90e6), "Six", "") and len(held.sizes("a")) == 3
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.RESERVE + 70e6 - held.bytes("a"))
    assert memory.why_too_much(Cost(bytes=45e6), "Seven", "") == "" and [*held.sizes("a")] == ["c"]


def test_sessions_that_ask_at_once_share_one_making():
    held, others_done = memory.ByteLRUCache({"a": (100, 9)}), threading.Event()
    slowly = Mock(side_effect=lambda: others_done.wait(PATIENCE))
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(held.get, "a", "slow", slowly) for _ in "abc"]
        held.get("a", "quick", lambda: 1)  # would wait for ever if it waited for the slow one
        others_done.set()
    assert [one.result() for one in asked] == [True] * 3 and slowly.call_count == 1


def test_models_and_results_are_shared():
    # It makes 36 results that are shared: with room for 32, each walk would compute all of them again.
    for number in range(100):
        cache.shared(list, f"walk {number}")
    assert (
        cache.remembered(list, "walk 0")
        and not cache.remembered(list, "x")
        and cache.model(list, "x") is cache.model(list, "x")
    )
    assert cache.shared(list, "x") is cache.shared(list, "x") is not cache.shared(list, "y")


def holds(monkeypatch, files: dict[str, str]) -> None:
    """The machine has these files alone."""

    def read_text(path: Path, encoding: str | None = None) -> str:
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)


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
    holds(monkeypatch, files)
    assert cache.at_most(700_000, 1 / 4) == most


V2, V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "bytes"),
    [
        (
            {
                f"{V2}/memory.max": "1000\n",
                f"{V2}/memory.current": "700\n",
                f"{V2}/memory.stat": "anon 9\ninactive_file 200\n",
                f"{V2}/memory.events": "oom 4\noom_kill 3\n",
            },
            (1000, 500, 3),
        ),
        (
            {
                f"{V1}/memory.limit_in_bytes": "1000\n",
                f"{V1}/memory.usage_in_bytes": "700\n",
                f"{V1}/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
                f"{V1}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            },
            (1000, 500, 3),
        ),
        (
            {
                "/proc/self/cgroup": "4:cpu:/x\n0::/system.slice/lab.service\n",
                f"{V2}/system.slice/memory.max": "1000\n",
                f"{V2}/system.slice/memory.current": "500\n",
                f"{V2}/system.slice/lab.service/memory.max": "max\n",
                f"{V2}/system.slice/lab.service/memory.events": "oom_kill 3\n",
            },
            (1000, 500, 3),
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/lab/one\n3:cpu:/z\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
                f"{V1}/lab/one/memory.limit_in_bytes": "1000\n",
                f"{V1}/lab/one/memory.usage_in_bytes": "500\n",
                f"{V1}/lab/one/memory.oom_control": "oom_kill 3\n",
            },
            (1000, 500, 3),
        ),
        ({}, (8_192_000, 7_168_000, 0)),
        ({f"{V2}/memory.max": "1000\n", "/proc/vmstat": "oom_kill 7\n"}, (1000, 1000, 7)),
        ({f"{V2}/memory.max": "1000\n", f"{V2}/memory.current": "1500\n"}, (1000, 0, 0)),
    ],
    ids=[
        "version 2",
        "version 1",
        "a service",
        "a group of version 1",
        "none",
        "an empty one",
        "a full one",
    ],
)
def test_limit_of_control_group_holds_whatever_its_version(monkeypatch, files, bytes):
    holds(monkeypatch, {"/proc/meminfo": "MemTotal: 8000 kB\nMemAvailable: 7000 kB\n", **files})
    monkeypatch.delenv("ATTENTION_LAB_LIMITS", raising=False)
    assert (memory.total_bytes(), memory.free_bytes(), memory.out_of_memory_kills()) == bytes


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_glibc_gives_freed_memory_back(monkeypatch):
    glibc = Mock()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: glibc)
    memory.give_back()
    memory.set_malloc(M_ARENA_MAX=2)
    assert glibc.mock_calls == [call.malloc_trim(0), call.mallopt(-8, 2)]


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
    before = set(cache.store().sizes("results"))
    assert baseline_of(EMBEDDED, question).pretrained is load_model(EMBEDDED)
    sizes = [size for key, size in cache.store().sizes("results").items() if key not in before]
    assert sizes and max(sizes) < memory.size_bytes(load_model(EMBEDDED)) / 50


def test_a_small_machine_holds_nothing_that_only_saves_time(monkeypatch):
    monkeypatch.setattr(queue, "spawn_worker", lambda *_, **__: pytest.fail("no spare worker here"))
    monkeypatch.setattr(queue, "_spares", WeakKeyDictionary())
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=1000")
    queue.warm_up()
    assert memory.total_bytes() <= 1e9 and memory.free_bytes() < 1e9 - 50e6, (
        "this process holds some of it"
    )
    assert cache.store.__wrapped__().max_bytes <= 200e6 and memory.is_small()
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=2000")
    assert not memory.is_small()
    monkeypatch.setenv("ATTENTION_LAB_LIMITS", "server_mb=lots")
    pytest.raises(ValueError, memory.total_bytes).match(
        "ATTENTION_LAB_LIMITS: server_mb = 'lots' is no number above 0"
    )


def test_a_spare_worker_waits_while_it_may_be_needed(monkeypatch):
    started = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2)]
    left = iter(started[:])
    monkeypatch.setattr(queue, "spawn_worker", lambda *_, **__: next(left))
    monkeypatch.setattr(queue, "_spares", WeakKeyDictionary())
    assert queue.warm_up(live=True) is None
    one, other = queue.warm_up(), queue.warm_up()
    assert one is other and list(queue._spares.values()) == started[:1]
    started[0].kill()
    started[0].wait()
    assert (last := queue.warm_up()) is not one and queue.warm_up() is last
    del last
    assert started[1].wait(PATIENCE) == 0, "nobody holds it: its input has ended"
    one.close()


# What a page would wait for is done ahead: libraries at the start, the rest in idle seconds after the first visit.


@pytest.mark.parametrize("small", [False, True])
def test_a_step_is_taken_once_as_soon_as_the_server_is_idle(monkeypatch, small):
    assert all(map(find_spec, health.AT_START))
    seconds = [5.0, 4.0, 0.0]  # of processor time, in one second after another
    clock = iter([value for used in seconds for value in (0.0, used)])
    monkeypatch.setattr(health.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(health.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(health, "is_small", lambda: small)
    monkeypatch.setattr(health, "_threads", [])
    first, second = Mock(side_effect=ZeroDivisionError), Mock()  # which is nobody's trouble here
    for step in (first, second):
        health.after_a_visit(step)
    health._threads[0].join()
    assert (first.call_count, second.call_count) == (not small, 0)
    assert next(clock, None) is None, "it looked as often as it was busy, and once more"


# The answers of the server carry headers; unknown hosts and strangers at the metrics are refused.


TOKEN = "7f3d-token"


def client(base: str = "", address: str = "203.0.113.7") -> TestClient:
    """A server of one word at every address, and who asks it."""

    async def answer(_):
        return PlainTextResponse("here", headers={"Referrer-Policy": "origin"})

    app = Starlette(
        routes=[Route("/{path:path}", answer)], middleware=[Middleware(HTTPGuard, base=base)]
    )
    return TestClient(app, base_url="http://localhost", client=(address, 50000))


def test_every_answer_carries_the_headers():
    headers = client().get("/heads").headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "camera=()" in headers["Permissions-Policy"]
    assert headers["Referrer-Policy"] == "origin", "the answer's own"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self';" in policy and "frame-ancestors" not in policy
    assert not re.search(r"\*|//|\.", policy), "no other host"


def test_a_setting_names_who_may_show_the_lab_in_a_frame(monkeypatch):
    for setting, directive in {
        "none": "frame-ancestors 'none'",
        "https://course.example.org https://*.school.example": "frame-ancestors 'self' "
        "https://course.example.org",
    }.items():
        monkeypatch.setenv("ATTENTION_LAB_FRAMES", setting)
        assert directive in client().get("/").headers["Content-Security-Policy"]
    for setting in (
        "https://a.example; script-src *",
        "https://a.example, https://b.example",
        "a\nb",
    ):
        monkeypatch.setenv("ATTENTION_LAB_FRAMES", setting)
        pytest.raises(ValueError, client().get, "/").match("ATTENTION_LAB_FRAMES takes addresses")


ONES_OWN = ["localhost", "localhost:8501", "127.0.0.1:8501", "[::1]:8501", "192.168.1.7:8501"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example:8501",
    "127.0.0.1.evil.example",
    "",
    "[::1",
    "@",
    "a b",
]


@pytest.mark.parametrize(
    ("allowed", "address", "answered", "refused"),
    [
        *(([], own, [*ONES_OWN, own], FOREIGN) for own in ("localhost", "0.0.0.0", "laptop.home")),
        (
            ["lab.example.org", "*.school.example"],
            "localhost",
            ["lab.example.org:8501", "one.school.example"],
            ["evil.example"],
        ),
        ("hosted", "localhost", ["anything.example"], []),  # it serves strangers anyway
    ],
)
def test_only_allowed_hosts_are_answered(allowed, address, answered, refused, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1" if allowed == "hosted" else "")
    hosts = [] if allowed == "hosted" else allowed
    monkeypatch.setattr(
        config, "get_option", {"server.allowedHosts": hosts, "server.address": address}.__getitem__
    )
    for name in answered:
        assert client().get("/heads", headers={"Host": name}).status_code == 200, name
    for name in refused:
        answer = client().get("/heads", headers={"Host": name})
        assert (answer.status_code, answer.text) == (421, UNKNOWN_NAME), name
        assert (
            answer.headers["X-Content-Type-Options"] == "nosniff"
            and client("/lab").get("/lab/_stcore/health", headers={"Host": name}).status_code == 200
        )
        assert client().get("/health", headers={"Host": name}).status_code == 200


@pytest.mark.parametrize(
    ("address", "headers", "code", "token", "hosted"),
    [
        ("203.0.113.7", {}, 403, TOKEN, ""),
        ("203.0.113.7", {"Authorization": "Bearer wrong"}, 403, TOKEN, ""),
        ("203.0.113.7", {"Authorization": f"Bearer {TOKEN}"}, 200, TOKEN, ""),
        ("127.0.0.1", {}, 200, TOKEN, ""),
        ("::1", {}, 200, TOKEN, ""),
        # through a proxy on the same machine
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.7"}, 403, TOKEN, ""),
        ("testclient", {}, 403, TOKEN, ""),
        # without a token they are open on a laptop, and closed on a public copy
        ("203.0.113.7", {"Authorization": "Bearer "}, 200, "", ""),
        ("203.0.113.7", {"Authorization": "Bearer "}, 403, "", "1"),
    ],
)
def test_metrics_of_public_copy_need_token_or_same_machine(
    address, headers, code, token, hosted, monkeypatch
):
    monkeypatch.setenv("ATTENTION_LAB_METRICS_TOKEN", token)
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", hosted)
    for base in ("", "/lab"):
        answer = client(base, address).get(f"{base}/_stcore/metrics", headers=headers)
        assert answer.status_code == code
    assert client(address=address).get("/heads", headers=headers).status_code == 200


def test_a_file_that_no_page_took_is_deleted(monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(visitors, "UNTAKEN", 0.2)
    monkeypatch.setattr(visitors, "uploads", [])
    monkeypatch.setattr(visitors, "_owners", {"s": "203.0.113.7"})
    stored: set[str] = set()

    async def store(request):
        (stored.add if request.method == "PUT" else stored.discard)(
            request.url.path.rpartition("/")[2]
        )
        return PlainTextResponse("", 204)

    route = Route("/lab/_stcore/upload_file/{session}/{file}", store, methods=["PUT", "DELETE"])
    app = Starlette(routes=[route], middleware=[Middleware(HTTPGuard, base="/lab")])
    with TestClient(app, client=("203.0.113.7", 1)) as browser:
        for name in ("read", "left", "removed"):
            assert (
                browser.put(f"/lab/_stcore/upload_file/s/{name}", content=b"12345").status_code
                == 204
            )
        assert [(one.session, one.file, one.size, one.address) for one in visitors.uploads][0] == (
            "s",
            "read",
            5,
            "203.0.113.7",
        )
        visitors.take("read")
        assert browser.delete("/lab/_stcore/upload_file/s/removed").status_code == 204 and [
            one.file for one in visitors.uploads
        ] == ["read", "left"]
        wait_for(lambda: browser.get("/lab/nothing") and "left" not in stored)
        assert stored == {"read"} and [one.file for one in visitors.uploads] == ["read"]
    assert client().put("/_stcore/upload_file/s/f", content=b"1").status_code == 405 and [
        one.file for one in visitors.uploads
    ] == ["read"]


def test_an_address_of_ipv6_is_its_network():
    assert (
        visitors.network("2001:db8:1:2:3::4")
        == visitors.network("2001:db8:1:2::9")
        != visitors.network("2001:db8:1:3::9")
    )
    assert (
        visitors.network("192.0.2.1") == "192.0.2.1"
        and visitors.network("this computer") == "this computer"
    )


# What the lab takes of Streamlit beyond its public API is looked at again with each version.


def test_this_is_the_streamlit_they_were_made_for():
    assert st.__version__.startswith(f"{streamlit_internals.MADE_FOR}."), (
        "look at each function of streamlit_internals.py: is there a public way now?"
    )
    assert streamlit_internals.script_run() is None
