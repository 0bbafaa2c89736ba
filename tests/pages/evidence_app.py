"""The page Evidence in AppTest, and what stands on it."""

import re

from streamlit.testing.v1 import AppTest

from dashboard.ui import progress
from tests.pages.app import app_at, html_text


def evidence_app(monkeypatch) -> AppTest:
    """The page, not run yet, in which all that can be measured is measured at once."""
    monkeypatch.setenv("ATTENTION_LAB_FOLDERS", "1")
    monkeypatch.setattr(
        progress, "AT_ONCE", 60.0
    )  # a busy machine measures slowly, and what is tested is measured
    return app_at("evidence")


def shown(app: AppTest, model: str, **link: str) -> AppTest:
    for name, value in ({"inside:model": model} | link).items():
        app.query_params[name] = value
    return app.run()


def fact_text(app: AppTest) -> str:
    """All sentences and tables of the page, without the tags."""
    return re.sub(r"<[^>]+>", "", html_text(app))
