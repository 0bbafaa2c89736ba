"""Plug-ins on the pages: listed with a mark beside the lab's own, and a sentence where one could not be loaded."""

import runpy
from pathlib import Path

import pytest

from core import plugins
from core.attention import AXES, register
from core.entries import Entry
from tests.pages.app import html_text, open_at, page_text

WORKED = Path(__file__).resolve().parents[2] / "docs" / "plugins"


@pytest.fixture
def loaded():
    """The three plug-ins of docs/plugins, registered for one test."""
    before = {axis: list(entries) for axis, entries in AXES.items()}
    for file in sorted(WORKED.glob("*.py")):
        runpy.run_path(str(file))
    yield
    for axis, entries in before.items():
        AXES[axis][:] = entries


def test_a_page_lists_plug_ins_with_a_mark_and_dashes_for_times_nobody_measured(loaded):
    app = open_at("scores")
    assert not app.exception
    row = html_text(app).split("</span>Cosine power (plug-in)</th>")[1].split("</tr>")[0]
    assert row.count("–") == 3 and "cos(q, k)^p" in row


def test_a_score_that_fails_after_its_trial_is_left_out_with_the_reason(loaded):
    working = [True]

    def score(q, k):
        if not working:
            raise OSError("the table is gone")
        return q @ k.mT

    register(
        "score",
        Entry(
            "from_table",
            "From a table",
            lambda config: score,
            "q^T k",
            "A product that needs a table.",
            "Someone",
            2026,
            "https://example.org",
        ),
    )
    working.clear()
    app = open_at("scores", "scores:", equation="from_table")
    assert not app.exception and app.selectbox(key="scores:equation").value == "scaled_dot"
    assert "score = from_table failed. test_plugins.py, line" in page_text(app)
    assert "OSError: the table is gone. It is left out." in page_text(app)
    assert "From a table (plug-in)</th>" not in html_text(app)


def test_all_three_are_drawn_together(loaded):
    app = open_at(
        "one_query",
        "one:",
        score="cosine_power(power=2.0)",
        mask="every_second_key",
        normalizer="power_weights",
    )
    assert not app.exception and not app.error and not app.warning
    assert (
        app.session_state["one:score"] == "cosine_power"
        and app.session_state["one:mask"] == "every_second_key"
    )


def test_a_plug_in_that_could_not_be_loaded_is_named_above_every_page(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, str(WORKED))
    monkeypatch.setattr(
        plugins, "problems", ["Plug-in a.py, line 3: ZeroDivisionError: division by zero."]
    )
    for page in ("start", "masks"):
        assert "Plug-in a.py, line 3: ZeroDivisionError: division by zero. Correct it" in page_text(
            open_at(page)
        )
    monkeypatch.delenv(plugins.VARIABLE)
    assert "Plug-in a.py" not in page_text(open_at("masks"))
