"""Whatever comes through a door is taken, or refused in a sentence; nothing else happens, and it takes no time.

`make test` reads as many cases a door as seconds allow, always the same; `make fuzz` thousands, others each time,
from a seed that it prints.
"""

import gc
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import folders, pages, typed, uploads
from tests.fuzz.guard import MAX_MEMORY, Door, peak, reset_peak, watched

DOORS = (*typed.DOORS, *uploads.DOORS, *folders.DOORS, *pages.DOORS)
LONGEST_MESSAGE = 2_000
CASES = int(os.environ.get("ATTENTION_LAB_FUZZ") or 0)  # of a door


def check_words(error: Exception) -> None:
    """The message of an error is a sentence for a person."""
    text = str(error)
    text.encode()
    assert 10 < len(text) <= LONGEST_MESSAGE and "Traceback" not in text, text[:200]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_a_door_takes_a_case_or_refuses_it_in_words(door: Door, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_RUNS", str(tmp_path / "lab"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    pages.quiet(monkeypatch)
    seconds: list[float] = []  # of each case

    @settings(
        max_examples=CASES or door.short,
        derandomize=not CASES,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(door.cases)
    def enter(case):
        if not seconds:
            _enter(door, case, tmp_path)  # imports what it needs, unwatched
        with watched(tmp_path) as watch:
            _enter(door, case, tmp_path)
        seconds.append(watch.seconds)
        if len(seconds) % 100 == 0:
            gc.collect()  # which the tests put off: what is not a leak should not look like one

    before = reset_peak()
    enter()
    memory = peak() - before
    print(
        f"{door.name}: {len(seconds):,} cases, the longest {max(seconds):.2f} s, {memory / 1e6:.0f} MB more memory"
    )
    assert memory < MAX_MEMORY


def _enter(door: Door, case, folder) -> None:
    try:
        door.enter(case, folder)
    except door.errors as error:
        check_words(error)
