"""What holds for every test of a page. Where it names this folder, pytest imports it before tests/every_test.py."""

import os

import pytest

pytest.register_assert_rewrite("tests.pages.app")


@pytest.fixture(autouse=True)
def _no_workers_and_no_models(monkeypatch):
    """No worker is started nor waited for, and nothing is in the cache of the Hub."""
    monkeypatch.setattr("dashboard.server.queue.warm_up", lambda *_, **__: None)
    monkeypatch.setattr("dashboard.server.queue._give", lambda run: None)
    monkeypatch.setattr("dashboard.ui.runs.PATIENCE", 0.0)
    monkeypatch.setenv("HF_HOME", os.environ["ATTENTION_LAB_RUNS"] + "-hub")


@pytest.fixture(autouse=True)
def _no_exceptions(monkeypatch):
    """Every run of a page ends without an exception."""
    from streamlit.testing.v1 import AppTest

    run = AppTest._run

    def checked(app, *args, **named):
        app = run(app, *args, **named)
        assert not app.exception, [element.value for element in app.exception]
        return app

    monkeypatch.setattr(AppTest, "_run", checked)
