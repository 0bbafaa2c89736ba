"""What is read without a server: the site of docs/, built strictly, a trace as one file, and each page with its views."""

import os
import re
import subprocess
import sys
from html import unescape
from itertools import cycle
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from dashboard.draw import picture_files
from dashboard.draw.components import COMPONENTS
from dashboard.draw.formats import number
from dashboard.draw.picture_files import trace_html
from dashboard.navigation import step_of
from tests.browser.test_pages import AXE_CHECK, axe
from tests.cases import PATIENCE
from tests.draw.test_components import trace
from tests.pages.app import open_at, page_html
from tests.pages.picture_programs import run_here

ROOT = Path(__file__).resolve().parents[2]
# The theme's own: equal names of lists, tables wider than the screen.
THEMES_OWN = ["landmark-unique", "scrollable-region-focusable"]
# All that a page of it has is there, and fits: the theme's script lets tables scroll.
READ = """() => document.documentElement.scrollWidth <= innerWidth
  && [...document.images].every((image) => image.complete && image.naturalWidth > 0)"""
BUILD = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/site/mkdocs.yml"]


def build(folder: Path) -> None:
    """The site as `make docs` builds it; a broken link or formula ends the build."""
    assert f"python {' '.join(BUILD[1:])}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    done = subprocess.run(
        [*BUILD, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        timeout=PATIENCE,
        encoding="utf-8",
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.first
def test_the_site_reads_on_any_screen_alone(tmp_path, browser):
    # One test, since two browsers would build the site twice.
    build(tmp_path)
    assert_links_lead_somewhere(tmp_path)
    assert_formulas_are_drawn_and_names_documented(tmp_path)
    address, faults, requests = "http://site.test", [], []

    def serve(route: Route) -> None:
        file = tmp_path / urlsplit(unquote(route.request.url)).path.lstrip("/")
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.abort()

    context = browser.new_context()
    context.route(f"{address}/**", serve)
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    names = ("write-a-plugin", "guides/student", "catalogue/score", "api/tasks", "index")
    for name, scheme in zip(names, cycle(("light", "dark"))):
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{address}/{name}.html")
        page.wait_for_function(READ)
        page.evaluate(axe())
        found = page.evaluate(
            AXE_CHECK, [[], {"rules": {rule: {"enabled": False} for rule in THEMES_OWN}}]
        )
        assert not found, (name, found)
        page.set_viewport_size({"width": 1280, "height": 844})
        page.wait_for_function(READ)
    page.locator("input.md-search__input").click()
    page.keyboard.type("sparsemax")
    first = page.locator(".md-search-result__item").first
    expect(first).to_contain_text("nearest point of the simplex")
    assert "frac" not in first.inner_text() and "textstyle" not in first.inner_text() and not faults
    assert not [url for url in requests if not url.startswith((address, "data:", "blob:"))]
    context.close()


def assert_links_lead_somewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    names = {path: set(re.findall(r'\bid="?([^"\s>]+)', text)) for path, text in pages.items()}
    wrong = set()
    for path, text in pages.items():
        for link in re.findall(r'href="(?!https?:|/)([^"]*)"', text):
            target, _, name = unescape(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            # "__" begins the names that the theme's script makes
            jump = name and not name.startswith("__")
            if not file.exists() or (jump and unquote(name) not in names.get(file, set())):
                wrong.add(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 40 and not wrong, sorted(wrong)


def assert_formulas_are_drawn_and_names_documented(site: Path) -> None:
    for path in (site / "catalogue").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "arithmatex" not in text and ("katex-html" in text) == (
            path.stem not in ("presets", "cards", "claims")
        )
    from core import attention

    text = (site / "api" / "attention.html").read_text(encoding="utf-8")
    named = set(re.findall(r'id="core\.attention\.(?:\w+\.)*(\w+)"', text))
    # Python writes docstrings of its own, from 3.13 on also for the type of None.
    ours = {name: getattr(attention, name) for name in attention.__all__}
    assert {
        name
        for name, one in ours.items()
        if getattr(one, "__module__", "").startswith("core.") and one.__doc__
    } <= named


# Files opened without a network: a trace, whose heads are picked, read and pinned, and each page with its views.


TRACE = trace(2, 3, 5, 4, mask=True)


@pytest.fixture
def alone(browser: Browser, tmp_path):
    """The file in a browser that has no network."""
    path = tmp_path / "heads.html"
    path.write_text(
        trace_html(TRACE, title="Heads", source="a model", head=1, query=3), encoding="utf-8"
    )
    context = browser.new_context(
        offline=True, color_scheme="light", viewport={"width": 1280, "height": 900}
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not faults


def test_head_is_picked_in_grid_read_by_keys_and_pinned(alone):
    grid, one = alone.locator(".view.av").nth(0), alone.locator(".view.av").nth(1)
    expect(one.locator(".title")).to_have_text("L0·H1")
    one.get_by_role("button", name="Table").click()
    expect(one.locator("table")).to_contain_text(f"{TRACE.maps[0].queries[3]} → key")
    one.get_by_role("button", name="Table").click()
    stage = grid.locator("[tabindex='0']").first
    for name in ("ArrowDown", "Enter"):
        stage.press(name)
    expect(one.locator(".title")).to_have_text("L1·H1")
    reader = one.locator("[tabindex='0']").first
    reader.press("]")
    expect(one.locator(".title")).to_have_text("L1·H2")
    for name in ("ArrowUp", "Enter"):
        reader.press(name)
    weight = number(float(TRACE.maps[1].weights[2][2, 0]))
    expect(one).to_contain_text(
        f"pinned {TRACE.maps[1].queries[2]} → {TRACE.maps[1].keys[0]}, {weight}"
    )
    alone.get_by_role("button", name="Dark").click()
    expect(alone.locator("html")).to_have_attribute("data-theme", "dark")
    expect(one.locator(".title")).to_have_text("L1·H2")
    expect(alone.locator("footer")).to_have_text("a model")


# Pages that have all components and every kind of picture between them.
PAGES = (
    "start",
    "one_query",
    "positions",
    "masks",
    "transformer",
    "cache",
    "decode",
    "report",
)
# What is no picture, is not in sight at first, or asks a person.
NOT_IN_FILES = {"copy_buttons", "model_diagram", "page_actions", "page_list", "sketch_view"}


def test_a_page_is_drawn_from_its_file_alone(browser: Browser, tmp_path, monkeypatch):
    monkeypatch.setattr(picture_files, "render", run_here)
    context = browser.new_context(
        offline=True, color_scheme="dark", viewport={"width": 1280, "height": 900}
    )
    page, faults, asked, paths = context.new_page(), [], [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    page.on("request", lambda request: asked.append(request.url))
    drawn_by: set[str] = set()
    for key in PAGES:
        app = open_at(key)
        drawn_by |= {name for name, *_ in app.session_state["page_pictures"].drawn.values()}
        paths.append(tmp_path / f"{key}.html")
        paths[-1].write_bytes(page_html(app, step_of(key).title))
        page.goto(paths[-1].as_uri())
        sections = page.locator("main > section")
        drawn = sections.evaluate_all("""all => all.map((one) => {
            const inside = [...one.querySelectorAll("*")].map(({ shadowRoot }) => shadowRoot).filter(Boolean);
            const parts = inside.length ? inside : [one];
            return parts.every((part) => [...part.querySelectorAll("canvas, svg, table tr, button")]
                .some((node) => node.getBoundingClientRect().width > 8));
        })""")
        assert drawn and all(drawn) and not faults, (key, drawn, faults)
        assert paths[-1].stat().st_size < 8_000_000, key
    context.close()
    assert asked == [path.as_uri() for path in paths]
    assert {file.parent.name for file in COMPONENTS.glob("*/main.js")} - drawn_by <= NOT_IN_FILES
