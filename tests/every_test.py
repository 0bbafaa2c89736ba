"""What holds for every test: annotated shapes are checked, nothing is fetched, nothing is random."""

import gc
import itertools
import locale
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings
from streamlit import config as streamlit_config
from streamlit.testing.v1 import app_test
from streamlit.util import calc_hash

from tests import apps, typecheck
from tests.weather import noise

if os.environ.get("ATTENTION_LAB_WEATHER"):
    # as any library may: numbers are read and written by C with it
    locale.setlocale(locale.LC_ALL, "")
if os.environ.get("ATTENTION_LAB_NOISE"):
    noise.install()

gc.disable()  # until all is collected
typecheck.install()
apps.install()
streamlit_config.get_config_options()  # the lab's: the first test of a page may be in another folder


def _switch_page(self: app_test.AppTest, page_path: str) -> app_test.AppTest:
    """Switch to a page by the file that holds it: AppTest finds no page that is a function, as the lab's are."""
    self._page_hash = calc_hash(Path(page_path).stem)
    return self


app_test.AppTest.switch_page = _switch_page  # type: ignore[method-assign]

settings.register_profile(
    "lab",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lab")


@pytest.fixture(scope="session")
def _labs(tmp_path_factory):
    """Names of folders that do not exist yet, each for the runs of one test."""
    base = tmp_path_factory.mktemp("labs")
    return (str(base / str(number)) for number in itertools.count())


@pytest.fixture(autouse=True)
def _alone(_labs, monkeypatch):
    """Each test has one seed, the threads that were asked for, and its own runs; a run ends after 20 items.

    The last record of a run measures 1,000 held-out items elsewhere: that takes a second.
    """
    # torch.manual_seed would note the call for a GPU, with its whole stack
    torch.default_generator.manual_seed(86)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    monkeypatch.setattr("core.training.loop.FINAL", 20)
    monkeypatch.setenv("ATTENTION_LAB_RUNS", next(_labs))
    # what a process says is read here, its warnings too
    monkeypatch.delenv("PYTHONWARNDEFAULTENCODING", raising=False)


@pytest.fixture
def worker_here(monkeypatch):
    """A worker may run in this process: nothing limits its memory, and its signals end with the test."""
    monkeypatch.setattr("core.runs.worker._memory_limit", lambda *_: nullcontext())
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


@pytest.fixture
def without_new_entries():
    """What is registered goes with the test."""
    from core.attention import AXES  # which must not come before the check of shapes
    from core.claims.catalogue import CLAIMS
    from core.tasks import METRICS, TASKS

    before: list[list] = [*AXES.values(), CLAIMS, TASKS]
    entries, metrics = [list(one) for one in before], {**METRICS}
    yield
    for one, those in zip(before, entries, strict=True):
        one[:] = those
    for key in METRICS.keys() - metrics.keys():
        del METRICS[key]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """In a new clone the workers import the tests in turn: the first compiles them for all, a minute's work."""
    last = Path(__file__).parent.glob("training/__pycache__/test_sweeps*pytest*")
    cold = not (session.config.option.file_or_dir or sys.dont_write_bytecode or any(last))
    with FileLock(f"{__cached__}.lock") if cold else nullcontext():  # type: ignore[name-defined]
        return (yield)


def pytest_collection_modifyitems(items):
    """What takes long or waits begins before the others: as the last one it would leave a core without work.

    Of workers, each of which begins with an equal part of the list, each gets its share of that.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = [item for item in items if item.get_closest_marker("first")]
    others = [item for item in items if not item.get_closest_marker("first")]
    count, items[:] = len(items), []
    for worker in range(workers):
        end = count * (worker + 1) // workers  # of this worker's part
        items += first[worker::workers]
        room = max(0, end - len(items))
        items += others[:room]
        del others[:room]
    items += others


def pytest_collection_finish():
    """What was imported stays: no garbage collection goes through it again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_sessionfinish():
    """What is left ends with the process: pytest's own collections go through none of it."""
    gc.freeze()
