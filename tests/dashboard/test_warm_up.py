"""Libraries are imported ahead: the first ones at once, the others in an idle second after the first visit."""

import threading
from importlib.util import find_spec

import pytest

from dashboard.runtime import warm_up


@pytest.mark.parametrize("name", [*warm_up.AT_START, *warm_up.AFTER_A_VISIT])
def test_there_is_such_a_module(name):
    assert find_spec(name)


def test_the_rest_waits_until_the_server_is_idle(monkeypatch):
    imported, busy = threading.Event(), [5.0, 4.0, 0.0]  # seconds of processor time in each second
    clock = iter(value for used in busy for value in (0.0, used))
    monkeypatch.setattr(warm_up.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(warm_up, "SECOND", 0.01)
    monkeypatch.setattr(warm_up.importlib, "import_module", lambda name: imported.set())
    warm_up._begin(("anything",), wait=True).join(5)
    assert imported.is_set() and next(clock, None) is None, "it looked as often as it was busy, and once more"


def test_a_second_visit_begins_nothing(monkeypatch):
    begun = []
    monkeypatch.setattr(warm_up, "_begin", lambda names, wait: begun.append(names))
    warm_up.after_a_visit.cache_clear()
    warm_up.after_a_visit()
    warm_up.after_a_visit()
    warm_up.after_a_visit.cache_clear()
    assert begun == [warm_up.AFTER_A_VISIT]
