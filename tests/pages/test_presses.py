"""A button that starts runs starts one for the same settings, however often it is pressed while that one goes on."""

import os
from pathlib import Path

import pytest

from tests.pages.app import open_at

PAGES = {
    "train": {},
    "fine_tune": {},
    "sweeps": {},
    "claims": {"claim": "sinks"},
    "corpus": {"corpus:texts": "own"},
}


def runs_started():
    return len(list(Path(os.environ["ATTENTION_LAB_RUNS"]).rglob("run.json")))


@pytest.mark.parametrize("page", PAGES)
def test_many_presses_start_what_one_starts(page):
    app, counts = open_at(page, **PAGES[page]), []
    for _ in range(3):
        app.session_state[f"{page}:pressed"] = True
        app.run()
        counts.append(runs_started())
    assert counts[0] > 0 and counts == counts[:1] * 3
