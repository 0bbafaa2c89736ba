"""Libraries are imported ahead: the first ones at the start, the others in idle seconds after the first visit."""

from importlib.util import find_spec

import pytest

from dashboard.runtime import warm_up


@pytest.mark.parametrize("name", [*warm_up.AT_START, *warm_up.AFTER_A_VISIT])
def test_there_is_such_a_module(name):
    assert find_spec(name)


def test_the_rest_waits_until_the_server_is_idle(monkeypatch):
    imported: list[str] = []
    seconds = [5.0, 4.0, 0.0, 3.0, 0.1]  # of processor time, in one second after another
    clock = iter([value for used in seconds for value in (0.0, used)])
    monkeypatch.setattr(warm_up.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(warm_up, "SECOND", 0.0)
    monkeypatch.setattr(warm_up.importlib, "import_module", imported.append)
    warm_up._import_when_idle(("one", "two"))
    assert imported == ["one", "two"] and next(clock, None) is None, (
        "it looked as often as it was busy, and once more"
    )


def test_a_second_visit_begins_nothing(monkeypatch):
    runs: list[object] = []
    monkeypatch.setattr(warm_up, "_import_when_idle", runs.append)
    warm_up.after_a_visit.cache_clear()
    first, second = warm_up.after_a_visit(), warm_up.after_a_visit()
    first.join()
    warm_up.after_a_visit.cache_clear()
    assert first is second and runs == [warm_up.AFTER_A_VISIT]
