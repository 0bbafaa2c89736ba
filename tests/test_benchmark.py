"""Measuring: memory to the byte on cases whose answer is known, races that can be stopped, slopes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import GeneratorType
from unittest.mock import Mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.__main__ import ON_DEVICE, chosen
from benchmarks.processes import descendants, held_bytes
from benchmarks.reader import PageError, reading
from core.attention import AttentionConfig, cost
from core.attention.cost import (
    Limits,
    Measurement,
    devices,
    exponent,
    peak_bytes,
    race,
    seconds,
    workload,
)
from tests.browser.conftest import start_server
from tests.browser.helpers import ending
from tests.cases import each, instance

FLOAT = 4


def test_peak_bytes_sees_what_is_freed_between():
    # a and b at once, then b and c: two matrices, though three were made and none is left.
    x = torch.randn(100, 250)

    def work():
        a = x * 2.0
        b = a * 2.0
        del a
        c = b * 2.0
        return c.shape

    assert peak_bytes(work) == pytest.approx(2 * x.numel() * FLOAT, abs=64)


def test_peak_bytes_starts_anew_and_counts_only_its_call():
    x = torch.randn(1000)
    held = x + 1
    assert peak_bytes(lambda: None) == 0
    assert peak_bytes(lambda: x + held) == peak_bytes(lambda: x + held) == 1000 * FLOAT
    pytest.raises(ZeroDivisionError, peak_bytes, lambda: 1 // 0)
    assert peak_bytes(lambda: torch.ones(10)) == 10 * FLOAT, "it stops where a call fails"


def points_of(reports):
    return [point for report in reports for point in report.points]


def test_a_race_measures_each_at_each_length():
    configs = {key: AttentionConfig(16, 2, kernel=key) for key in ("exact", "linear")}
    reports = list(race(configs, [64, 32], rounds=2))
    points = points_of(reports)
    assert [(p.name, p.length) for p in points] == [
        ("exact", 32),
        ("linear", 32),
        ("exact", 64),
        ("linear", 64),
    ]
    assert all(p.seconds > 0 and p.bytes > 0 and not p.skipped for p in points)
    fractions = [report.fraction for report in reports]
    assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1.0)


def test_backward_holds_the_gradients_too():
    # Linear forward and backward: the gradients of q, k and v at least.
    config = AttentionConfig(16, 2, kernel="linear")
    forward, both = (peak_bytes(workload(config, 64, backward)) for backward in (False, True))
    assert both >= forward + 3 * 64 * 16 * FLOAT


EXACT = {"exact": AttentionConfig(16, 2)}


def test_a_race_can_be_stopped_between_reports():
    reports = instance(race(EXACT, [32, 10**9], rounds=2), GeneratorType)
    next(reports)
    reports.close()
    assert next(reports, None) is None


def test_too_large_a_benchmark_is_said():
    small, large = points_of(race(EXACT, [32, 100_000], rounds=1))
    assert small.skipped == "" and "MB; the limit is 512 MB" in large.skipped
    assert large == Measurement("exact", 100_000, skipped=large.skipped)
    first, slow = points_of(race(EXACT, [64, 128], rounds=1, limits=Limits(seconds=1e-9)))
    assert "s a call; the limit is" in slow.skipped and not first.skipped


def test_the_slope_of_a_power_is_its_exponent():
    lengths = [128, 256, 1024]
    assert exponent(lengths, [3e-9 * length**2 for length in lengths]) == pytest.approx(2.0)
    assert exponent(lengths, [5.0, 5.0, 5.0]) == pytest.approx(0.0)
    pytest.raises(ValueError, exponent, [128], [1.0]).match("two lengths")


@pytest.fixture
def card(monkeypatch):
    """A graphics card, which notes what is asked of it."""
    card = Mock()
    names = ("synchronize", "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats")
    for name in names:
        monkeypatch.setattr(torch.cuda, name, getattr(card, name))
    return card


def calls_of(card: Mock) -> list[str]:
    return [name for name, *_ in card.mock_calls]


def test_a_card_is_offered_where_there_is_one(monkeypatch):
    for is_available, offered in ((True, ("cuda", "cpu")), (False, ("cpu",))):
        monkeypatch.setattr(
            torch.cuda, "is_available", lambda is_available=is_available: is_available
        )
        assert devices() == offered


def test_a_call_on_a_card_is_timed_to_the_end_of_its_work(card):
    card.clock.return_value = 0.0
    seconds(card.work, card.clock, "cuda")
    assert calls_of(card) == ["synchronize", "clock", "work", "synchronize", "clock"]


def test_peak_bytes_of_a_card_are_its_allocators(card):
    # The first call makes a workspace that stays, and a peak that is forgotten.
    card.memory_allocated.return_value = 1500
    card.max_memory_allocated.return_value = 2200
    assert peak_bytes(card.work, "cuda") == 700
    once = ["work", "synchronize"]
    begins = ["memory_allocated", "reset_peak_memory_stats"]
    assert calls_of(card) == [*once, *begins, *once, "max_memory_allocated"]


class Places(TorchDispatchMode):
    """The kinds of device on which results lie."""

    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.types |= {
            x.device.type
            for x in torch.utils._pytree.tree_leaves(out)
            if isinstance(x, torch.Tensor)
        }
        return out


@each("kernel", ["exact", "linear", "retention", "gated_delta"])
def test_a_workload_lives_on_its_device(kernel):
    # Meta is a device without memory, and on every machine.
    work = workload(AttentionConfig(16, 2, mask="causal", kernel=kernel), 8, real=6, device="meta")
    work()  # its tables are made once, on the CPU
    with Places() as places:
        work()
    assert places.types == {"meta"}


def test_a_race_measures_on_its_device(monkeypatch):
    measures = [Mock(return_value=value) for value in (None, 1, 1.0)]
    for name, measure in zip(("workload", "peak_bytes", "seconds"), measures, strict=True):
        monkeypatch.setattr(cost, name, measure)
    list(race({"exact": AttentionConfig(16, 2)}, [32], rounds=2, device="cuda"))
    used = [call for measure in measures for call in measure.call_args_list]
    assert [call.kwargs.get("device", call.args[-1]) for call in used] == ["cuda"] * 4


def test_benchmarks_are_refused_on_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pytest.raises(SystemExit, chosen, ["fused"], "cuda").match(
        "device = cuda is not on this machine"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert chosen([], "cuda") == ON_DEVICE
    pytest.raises(SystemExit, chosen, ["pages"], "cuda").match("no benchmark pages on device cuda")


# A reader without a browser: opens pages of a real server and moves controls over Streamlit's protocol.


SCRIPT = """import streamlit as st

def second():
    width = st.slider("Width", 0, 10, 4)
    st.html(f"<p>{width} wide</p>")
    if st.button("Fail"):
        raise ValueError("too wide")

@st.fragment
def part():
    st.html(f"<p>{st.selectbox('Letter', ['a', 'b'])}</p>")

st.navigation([st.Page(part, title="First", url_path="first", default=True), st.Page(second, title="Second")]).run()
"""


def test_page_opens_control_moves_and_exception_is_told(tmp_path):
    async def read(url: str) -> None:
        async with reading(url) as reader:
            await reader.open("")
            assert [widget.element.label for widget in reader.widgets()] == ["Letter"]
            await reader.move(reader.find("selectbox", "Letter"))
            opened = await reader.open("second")
            moved = await reader.move(reader.find("slider", "Width"))
            assert (
                0 < opened.picture <= opened.finished
                and 0 < moved.picture <= moved.finished
                and not reader.errors
            )
            await reader.move(reader.find("button"))
            assert [error for error in reader.errors if "too wide" in error]
            pytest.raises(PageError, reader.find, "number_input").match(
                "second has no number_input"
            )

    script = tmp_path / "two_pages.py"
    script.write_text(SCRIPT, encoding="utf-8")
    process, server = start_server(tmp_path, script)
    with ending(process):
        asyncio.run(read(server.url))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc")
def test_memory_of_processes_counts_what_they_share_once():
    child = "import sys; held = bytearray(b'1' * 50_000_000); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
        one, same = held_bytes([process.pid]), held_bytes([process.pid, process.pid])
        assert 50_000_000 < one < 80_000_000
        assert one + 45_000_000 < same < 2 * one, (
            "libraries count once, what each of both wrote twice"
        )
        process.communicate()
    assert held_bytes([process.pid]) == 0
