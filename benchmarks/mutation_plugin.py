"""Pytest plugin of `make mutate`: runs each test again with every mutant that it reaches."""

import os
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from types import FrameType

from _pytest.runner import runtestprotocol

REACHED = Path(tempfile.mkdtemp())
os.environ["MUTANTS_REACHED"] = str(REACHED)
CAUGHT = Path(os.environ["MUTANTS_CAUGHT"])
IMPORTED = Path(os.environ["MUTANTS_IMPORTED"])


def pytest_collection_finish() -> None:
    """Note what imports have reached: no test runs that again."""
    for number in import_module("core.mutation_switch").reached:
        (IMPORTED / str(number)).touch()


def pytest_runtest_protocol(item, nextitem) -> bool:
    """The test as it is, reported; then with each mutant, unreported."""
    reached = import_module("core.mutation_switch").reached  # in the copy that is tested

    reached.clear()
    for file in REACHED.iterdir():
        file.unlink()
    start = time.monotonic()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if all(report.passed for report in reports):
        limit = 30 + 10 * (time.monotonic() - start)
        for number in sorted(int(file.name) for file in REACHED.iterdir()):
            if not (CAUGHT / str(number)).exists() and fails_with(item, number, limit):
                (CAUGHT / str(number)).write_text(item.nodeid, "utf-8")
    return True


def fails_with(item, number: int, limit: float) -> bool:
    """Whether the test fails, or does not end in time, while this mutant is on, its fixtures made anew."""
    clear_caches()
    item.session._setupstate.teardown_exact(None)
    os.environ["MUTANT"] = str(number)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        item._initrequest()
        return any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        del os.environ["MUTANT"]
        clear_caches()


def end(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("The mutant does not end.")


def clear_caches() -> None:
    """Forget what functions remembered, so that no mutant's result is taken for another's."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("core", "dashboard", "tests"):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
