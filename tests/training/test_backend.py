"""How many runs this machine takes at once: no more than its container has cores for."""

import os

import pytest

from core.runs import executor


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("400000 100000", 4),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("9900000 100000", 12),
        ("max 100000", 12),
        ("nonsense", 12),
        (None, 12),
    ],
)
def test_a_container_with_fewer_cores_takes_fewer_runs(limit, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    file = tmp_path / "cpu.max"
    if limit:
        file.write_text(f"{limit}\n", encoding="utf-8")
    assert executor.cores(file) == cores
    monkeypatch.setattr(executor, "cores", lambda: cores)
    assert executor.LocalBackend().slots() == max(2, cores - 1)
