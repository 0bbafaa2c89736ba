"""The door of links: each page opened by parameters that are near what it writes itself."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

from dashboard.navigation import STEPS
from dashboard.runtime import jobs
from tests.damage import PIECES, damaged_text
from tests.fuzz.door import Door, seeded
from tests.pages.app import app_at

PAGES = tuple(step.key for step in STEPS)
COMMON = ("run", "runs", "sweep", "claim", "head", "cell", "lesson", "lesson-code", "report", "step", "m", "query",
          "visited")
VALUES = ("3.1", "0.0", "999999.1", "20261120-120000-abcdef", "example_run", "true", "-1", "1e400", "causal", "L1·H2")


@cache
def controls(page: str) -> dict[str, str]:
    """The names of a page's controls, each with its value as a text."""
    app = app_at(page).run()
    kinds = ("selectbox", "select_slider", "slider", "number_input", "toggle", "multiselect", "text_input", "text_area")
    drawn = {element.key: str(element.value) for kind in kinds for element in list[Any](app.get(kind)) if element.key}
    return drawn | {name: str(app.query_params[name]) for name in app.query_params}


def link(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A page, and parameters of its link; the page was opened once, unwatched, for what it imports."""
    page = rng.choice(PAGES)
    known = controls(page)
    names = [*known, *COMMON]
    values = {}
    for name in rng.sample(names, min(len(names), rng.randint(1, 6))):
        usual = rng.choice((known.get(name, ""), *VALUES))
        text = damaged_text(usual, rng) if rng.random() < 0.6 else rng.choice((*VALUES, *PIECES))
        values[name] = text.encode("utf-8", "replace").decode()  # as a browser sends it
    return page, values


def open_link(case: tuple[str, dict[str, str]], _: Path) -> None:
    """The page opens without an exception, whatever the link says."""
    page, values = case
    app = app_at(page)
    for name, value in values.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, [element.value for element in app.exception]


def quiet(monkeypatch) -> None:
    """No worker is started for a page."""
    monkeypatch.setattr(jobs, "warm_up", lambda: None)
    monkeypatch.setattr(jobs, "_give", lambda run: None)


DOORS = (Door("link of a page", seeded(link), open_link, (), 10, 500),)
