"""The next page's data is computed piece by piece, only while nobody waits, and within bounds."""

from collections.abc import Iterator

import pytest

from dashboard.runtime import prefetch
from dashboard.views.evidence import heads, tokens
from dashboard.views.pretrained import page
from tests.pages.app import open_at


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """The pauses for which the thread looked whether the server is idle; here it always is."""
    made: list[float] = []
    monkeypatch.setattr(prefetch, "wait_until_idle", made.append)
    monkeypatch.setattr(prefetch, "free_bytes", lambda: prefetch.FREE)
    return made


def pieces(done: list[int], count: int = 5) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        yield


def test_after_each_piece_it_waits_until_nobody_else_works(waits):
    done: list[int] = []
    assert prefetch.run(pieces(done)) and done == [0, 1, 2, 3, 4] and waits == 5 * [prefetch.PAUSE]


def test_a_busy_server_is_waited_for(monkeypatch):
    clock = iter([0.0, 1.0, 1.0, 1.2, 1.2, 1.21])  # processor time before and after each pause
    monkeypatch.setattr(prefetch.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(prefetch.time, "sleep", lambda seconds: None)
    prefetch.wait_until_idle(0.25)
    assert next(clock, None) is None


def test_it_ends_where_memory_is_short_or_the_page_takes_long(waits, monkeypatch):
    free = iter([prefetch.FREE, prefetch.FREE, prefetch.FREE - 1])
    monkeypatch.setattr(prefetch, "free_bytes", lambda: next(free))
    done: list[int] = []
    assert not prefetch.run(pieces(done)) and done == [0, 1, 2]
    monkeypatch.setattr(prefetch, "free_bytes", lambda: prefetch.FREE)
    clock = iter([0.0, 1.0, prefetch.MOST + 1])
    monkeypatch.setattr(prefetch.time, "thread_time", lambda: next(clock))
    done.clear()
    assert not prefetch.run(pieces(done)) and done == [0, 1]


def test_an_error_ends_a_page_and_not_the_thread(waits):
    def broken() -> Iterator[None]:
        yield
        raise OSError("no such file")

    assert not prefetch.run(broken())


def test_nothing_is_computed_where_no_page_was_visited_and_each_page_once(monkeypatch):
    asked: list[str] = []

    class Pages:
        put = staticmethod(asked.append)

    monkeypatch.setattr(prefetch, "_pages", Pages)
    prefetch.prefetch.cache_clear()
    prefetch.prefetch("masks")
    monkeypatch.setattr(
        prefetch.after_a_visit,
        "cache_info",
        lambda: type("Info", (), {"currsize": 1}),
        raising=False,
    )
    prefetch.prefetch.cache_clear()
    for key in ("heads", "heads", "masks"):
        prefetch.prefetch(key)
    prefetch.prefetch.cache_clear()
    assert asked == ["heads", "masks"]


def test_evidence_and_pretrained_models_open_on_what_was_computed(waits, monkeypatch):
    """Nothing that they measure is left to measure."""
    assert prefetch.run(prefetch._pieces("evidence")) and prefetch.run(
        prefetch._pieces("pretrained")
    )
    assert len(waits) > 72

    def not_again(*given: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(heads, "ablate_heads", not_again)
    monkeypatch.setattr(tokens, "hide_token", not_again)
    monkeypatch.setattr(page, "_measure_roles", not_again)
    for key in ("evidence", "pretrained"):
        app = open_at(key)
        assert not app.exception and app.get("html")
