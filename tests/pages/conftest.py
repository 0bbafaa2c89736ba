import os

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.server import jobs
from dashboard.ui import runs

pytest.register_assert_rewrite("tests.pages.app")


@pytest.fixture(autouse=True)
def _no_workers_and_no_models(monkeypatch):
    """No worker is started nor waited for, and nothing is in the cache of the Hub."""
    monkeypatch.setattr(jobs, "warm_up", lambda *_, **__: None)
    monkeypatch.setattr(jobs, "_give", lambda run: None)
    monkeypatch.setattr(runs, "PATIENCE", 0.0)
    monkeypatch.setenv("HF_HOME", os.environ["ATTENTION_LAB_RUNS"] + "-hub")


@pytest.fixture(autouse=True)
def _no_exceptions(monkeypatch):
    """Every run of a page ends without an exception."""
    run = AppTest._run

    def checked(app: AppTest, *args, **named) -> AppTest:
        app = run(app, *args, **named)
        assert not app.exception, [element.value for element in app.exception]
        return app

    monkeypatch.setattr(AppTest, "_run", checked)
