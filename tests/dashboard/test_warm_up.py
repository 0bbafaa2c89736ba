"""What a page would wait for is done ahead: libraries at the start, the rest in idle seconds after the first visit."""

from functools import partial
from importlib.util import find_spec

import pytest

from dashboard.server import idle


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """The steps taken, of a server with memory enough."""
    monkeypatch.setattr(idle, "is_small", lambda: False)
    monkeypatch.setattr(idle, "_threads", [])
    return []


@pytest.mark.parametrize("name", idle.AT_START)
def test_there_is_such_a_module(name):
    assert find_spec(name)


def test_each_step_waits_until_the_server_is_idle(done, monkeypatch):
    seconds = [5.0, 4.0, 0.0, 3.0, 0.1]  # of processor time, in one second after another
    clock = iter([value for used in seconds for value in (0.0, used)])
    monkeypatch.setattr(idle.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(idle.time, "sleep", lambda seconds: None)
    idle._take([lambda: done.append("one"), lambda: done.append("two")])
    assert done == ["one", "two"] and next(clock, None) is None, (
        "it looked as often as it was busy, and once more"
    )


def test_a_step_that_fails_leaves_the_next(done, monkeypatch):
    monkeypatch.setattr(idle, "wait_until_idle", lambda: None)
    idle._take([lambda: 1 / 0, lambda: done.append("two")])
    assert done == ["two"]


def test_nothing_is_done_where_memory_is_short(done, monkeypatch):
    monkeypatch.setattr(idle, "wait_until_idle", lambda: None)
    monkeypatch.setattr(idle, "is_small", lambda: True)
    idle._take([lambda: done.append("one")])
    assert not done


def test_a_second_visit_begins_nothing(done, monkeypatch):
    monkeypatch.setattr(idle, "wait_until_idle", lambda: None)
    for name in ("first", "second"):
        idle.after_a_visit(partial(done.append, name))
    idle._threads[0].join()
    assert done == ["first"]
