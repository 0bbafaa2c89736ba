"""A public copy of the lab, for tests that ask as one person or another."""

import json
from collections import defaultdict, deque
from contextlib import contextmanager

import pytest

from core.files import _person
from core.runs.runs import Run
from dashboard.server import jobs, limits, visitors

ANNA, BEN = "a" * 32, "b" * 32


def ended(run: Run, state: str = "finished") -> Run:
    run.set_status(state, "Done.")
    return run


def set_at(run: Run, state: str, at: float) -> None:
    """Put a run in a state since that time."""
    (run.path / "status.json").write_text(json.dumps({"state": state, "at": at}), encoding="utf-8")


@pytest.fixture
def who(monkeypatch):
    """A public copy on which nothing trains, and a context in which a person asks."""
    monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    monkeypatch.setattr(jobs, "_give", lambda run: None)
    monkeypatch.setattr(visitors, "_visits", {})
    monkeypatch.setattr(limits, "_uploads", defaultdict(deque))
    asks = [""]
    for module in (limits, visitors):
        monkeypatch.setattr(module, "me", lambda: asks[0])
    before, _person[:] = _person[:], [lambda: asks[0]]

    @contextmanager
    def is_asking(key, address=""):
        earlier, asks[0] = asks[0], key
        visitors._visits[key] = (0.0, address or key)
        yield
        asks[0] = earlier

    yield is_asking
    _person[:] = before
