"""The doors of links: what each page reads of one, and each page opened by parameters near what it writes itself."""

import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from dashboard.navigation import STEPS
from dashboard.server import jobs
from dashboard.ui import links
from tests.damage import PIECES, damaged_text
from tests.fuzz.guard import Door, seeded
from tests.pages.app import app_at

PAGES = tuple(step.key for step in STEPS)
COMMON = (
    "run",
    "runs",
    "sweep",
    "claim",
    "head",
    "cell",
    "lesson",
    "lesson-code",
    "report",
    "step",
    "m",
    "query",
    "visited",
)
VALUES = (
    "3.1",
    "0.0",
    "999999.1",
    "20261120-120000-abcdef",
    "example_run",
    "true",
    "-1",
    "1e400",
    "causal",
    "L1·H2",
)


@cache
def opened(page: str) -> tuple[dict[str, str], dict[str, links.Reader]]:
    """The values of a page's controls as texts, and the readers of what it takes from a link; both by name."""
    readers: dict[str, links.Reader] = {}
    whole = links.take_link

    def take(key: str, read: links.Reader, *, name: str | None = None) -> None:
        readers[name or key] = read
        whole(key, read, name=name)

    with patch.object(links, "take_link", take):
        app = app_at(page).run()
    kinds = (
        "selectbox",
        "select_slider",
        "slider",
        "number_input",
        "toggle",
        "multiselect",
        "text_input",
        "text_area",
    )
    drawn = {
        element.key: str(element.value)
        for kind in kinds
        for element in list[Any](app.get(kind))
        if element.key
    }
    return drawn | {name: str(app.query_params[name]) for name in app.query_params}, readers


def near(usual: str, rng: random.Random) -> str:
    """A text near that one, or far from it, as a browser sends it."""
    usual = rng.choice((usual, *VALUES))
    text = damaged_text(usual, rng) if rng.random() < 0.6 else rng.choice((*VALUES, *PIECES))
    return text.encode("utf-8", "replace").decode()


def texts(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A page, and a text for each value that it reads of a link."""
    page = rng.choice(PAGES)
    known, readers = opened(page)
    return page, {name: near(known.get(name, ""), rng) for name in readers}


def read_texts(case: tuple[str, dict[str, str]], _: Path) -> None:
    """Each reader gives a value or a ValueError, for which the page has its own."""
    page, values = case
    for name, text in values.items():
        with suppress(ValueError):
            opened(page)[1][name](text)


def read_pairs(text: str, _: Path) -> None:
    """Pairs within their bounds, or a sentence."""
    with patch.object(links, "st", SimpleNamespace(query_params={"head": text})):
        pair, trouble = links.read_pair("head", (3, 5))
        pairs, more = links.read_pairs("head", (3, 5))
    assert all(0 <= a < 3 and 0 <= b < 5 for a, b in [*pairs, *[pair] * (pair is not None)])
    assert pair or trouble
    assert "".join(filter(None, (trouble, more))).encode() is not None


def link(rng: random.Random) -> tuple[str, dict[str, str]]:
    """A page, and parameters of its link; the page was opened once, unwatched, for what it imports."""
    page = rng.choice(PAGES)
    known, _ = opened(page)
    names = [*known, *COMMON]
    names = rng.sample(names, min(len(names), rng.randint(1, 6)))
    return page, {name: near(known.get(name, ""), rng) for name in names}


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


DOORS = (
    Door("values of a link", seeded(texts), read_texts, (), 6),
    Door(
        "pairs of a link",
        seeded(lambda rng: near(rng.choice(("3.1_0.2", "2.4", "1")), rng)),
        read_pairs,
        (),
    ),
    Door("link of a page", seeded(link), open_link, (), 10),  # each draws the whole page
)
