"""Measuring: memory to the byte on cases whose answer is known, races that can be stopped, slopes."""

from collections.abc import Generator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.__main__ import ON_DEVICE, chosen
from core.attention import AttentionConfig, Choice, cost
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
from tests.cases import each

FLOAT = 4


def test_peak_bytes_sees_what_is_freed_between():
    """a and b at once, then b and c: two matrices, though three were made and none is left."""
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


def test_peak_bytes_stops_recording_when_a_call_fails():
    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        peak_bytes(fails)
    assert peak_bytes(lambda: torch.ones(10)) == 10 * FLOAT


def points(reports):
    return [point for report in reports for point in report.points]


def test_a_race_measures_each_at_each_length():
    configs = {key: AttentionConfig(16, 2, kernel=key) for key in ("exact", "linear")}
    reports = list(race(configs, [64, 32], rounds=2))
    by_point = points(reports)
    assert [(p.name, p.length) for p in by_point] == [
        ("exact", 32),
        ("linear", 32),
        ("exact", 64),
        ("linear", 64),
    ]
    assert all(p.seconds > 0 and p.bytes > 0 and not p.skipped for p in by_point)
    fractions = [report.fraction for report in reports]
    assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1.0)


def test_backward_holds_the_gradients_too():
    """Linear forward and backward: the gradients of q, k and v at least."""
    config = AttentionConfig(16, 2, kernel="linear")
    forward, both = (peak_bytes(workload(config, 64, backward)) for backward in (False, True))
    assert both >= forward + 3 * 64 * 16 * FLOAT


def test_a_race_can_be_stopped_between_reports():
    reports = race({"exact": AttentionConfig(16, 2)}, [32, 10**9], rounds=2)
    next(reports)
    assert isinstance(reports, Generator)
    reports.close()
    with pytest.raises(StopIteration):
        next(reports)


def test_what_is_too_large_is_said_instead_of_made():
    by_point = points(race({"exact": AttentionConfig(16, 2)}, [32, 100_000], rounds=1))
    assert by_point[0].skipped == "" and "MB; the limit is 512 MB" in by_point[1].skipped
    assert by_point[1] == Measurement("exact", 100_000, skipped=by_point[1].skipped)


def test_what_would_take_too_long_is_said_instead_of_made():
    by_point = points(
        race({"exact": AttentionConfig(16, 2)}, [64, 128], rounds=1, limits=Limits(seconds=1e-9))
    )
    assert "s a call; the limit is" in by_point[1].skipped and not by_point[0].skipped


def test_every_kernel_can_be_measured():
    local = Choice.of("local", window=4)
    for key, mask in (
        ("local", local),
        ("block_sparse", local),
        ("performer", "causal"),
        ("chunked", "padding"),
    ):
        config = AttentionConfig(16, 2, mask=mask, kernel=key)
        assert all(
            p.seconds > 0 for p in points(race({key: config}, [32], rounds=1, backward=True))
        )


def test_the_slope_of_a_power_is_its_exponent():
    lengths = [128, 256, 1024]
    assert exponent(lengths, [3e-9 * length**2 for length in lengths]) == pytest.approx(2.0)
    assert exponent(lengths, [5.0, 5.0, 5.0]) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="two lengths"):
        exponent([128], [1.0])


class FakeCuda:
    """A graphics card that holds `held` bytes, `high` at most since the last reset, and notes what is asked of it."""

    def __init__(self, monkeypatch):
        self.held, self.high, self.calls = 1000, 9000, []
        for name, value in (("is_available", True), ("synchronize", None)):
            monkeypatch.setattr(
                torch.cuda, name, lambda name=name, value=value: self.note(name, value)
            )
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: self.note("held", self.held))
        monkeypatch.setattr(
            torch.cuda, "max_memory_allocated", lambda: self.note("high", self.high)
        )
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def note(self, name, value):
        self.calls.append(name)
        return value

    def reset(self):
        self.high = self.held

    def work(self):
        self.calls.append("work")
        self.held = 1500  # a workspace, which stays
        self.high = max(self.high, self.held + 700)


def test_a_card_is_offered_where_there_is_one(monkeypatch):
    FakeCuda(monkeypatch)
    assert devices() == ("cuda", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices() == ("cpu",)


def test_a_call_on_a_card_is_timed_to_the_end_of_its_work(monkeypatch):
    card = FakeCuda(monkeypatch)
    seconds(card.work, lambda: card.note("clock", 0.0), "cuda")
    assert card.calls == ["synchronize", "clock", "work", "synchronize", "clock"]


def test_peak_bytes_of_a_card_are_its_allocators_beyond_what_stays(monkeypatch):
    card = FakeCuda(monkeypatch)
    assert peak_bytes(card.work, "cuda") == 700
    assert card.calls == ["work", "synchronize", "held", "work", "synchronize", "high"]


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
    """Meta is a device without memory, and on every machine."""
    work = workload(AttentionConfig(16, 2, mask="causal", kernel=kernel), 8, real=6, device="meta")
    work()  # its tables are made once, on the CPU
    with Places() as places:
        work()
    assert places.types == {"meta"}


def test_a_race_measures_on_its_device(monkeypatch):
    used = []

    def returning(value):
        def note(*args, **options):
            used.append(options.get("device", args[-1]))
            return value

        return note

    for name, value in (("workload", None), ("peak_bytes", 1), ("seconds", 1.0)):
        monkeypatch.setattr(cost, name, returning(value))
    list(race({"exact": AttentionConfig(16, 2)}, [32], rounds=2, device="cuda"))
    assert used == ["cuda"] * 4


def test_benchmarks_are_refused_on_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="device = cuda is not on this machine"):
        chosen(["fused"], "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert chosen([], "cuda") == ON_DEVICE
    with pytest.raises(SystemExit, match="no benchmark pages on device cuda"):
        chosen(["pages"], "cuda")
