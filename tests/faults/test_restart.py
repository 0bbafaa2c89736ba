"""A real server, ended and started again: what waited goes on without a visitor."""

import json
import secrets
import time
import urllib.request

import pytest

from core.files import PEOPLE
from core.runs.runs import Run, create_run, new_id
from tests.browser.conftest import running
from tests.training.small import small_run

WAIT = 90.0  # seconds; a worker's start on a machine that does other things


def state_of(run: Run, states: tuple[str, ...]) -> str:
    """The state of the run once it is one of these, or after WAIT."""
    end = time.monotonic() + WAIT
    while (state := run.status().state) not in states and time.monotonic() < end:
        time.sleep(0.1)
    return state


@pytest.mark.parametrize("mode", ["local", "hosted"])
def test_a_restarted_server_starts_what_waits_before_anybody_comes(mode, tmp_path, monkeypatch):
    person = secrets.token_hex(16)
    home = tmp_path / "runs" / (f"{PEOPLE}/{person}" if mode == "hosted" else "")
    if mode == "hosted":
        monkeypatch.setenv("ATTENTION_LAB_HOSTED", "1")
    home.mkdir(parents=True)
    runs = [create_run(small_run(steps=4, seed=seed), path=home / new_id()) for seed in range(2)]
    with running(tmp_path) as server:
        assert [state_of(run, ("finished", "failed")) for run in runs] == ["finished"] * 2
        health = json.load(urllib.request.urlopen(f"{server.url}/health", timeout=60))
        assert health["status"] == "ok" and health["queue"] == 0
