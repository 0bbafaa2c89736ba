"""The site of docs/ is built strictly, and reads on any screen with no network."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "index.html",
    "guides/student.html",
    "catalogue/score.html",
    "api/attention.html",
    "write-a-plugin.html",
)
AXE = ROOT / "tests" / "components" / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """rules => axe.run({ rules, resultTypes: ["violations"], selectors: false, preload: false, iframes: false })
  .then((run) => run.violations.map(({ id }) => id))"""
WITHOUT_FORMULAS = ("presets", "cards", "claims")
THEMES_OWN = [
    "landmark-unique",
    "scrollable-region-focusable",
]  # equal names of lists, tables wider than the screen
BUILD = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/site/mkdocs.yml"]


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it; a broken link or formula ends the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*BUILD, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        encoding="utf-8",
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1280, "light")])
def test_pages_fit_are_accessible_and_need_no_other_host(site, address, browser, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    faults: list[str] = []
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on(
        "response", lambda response: faults.append(response.url) if response.status >= 400 else None
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    for name in PAGES:
        page.goto(f"{address}/{name}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate(
            "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
        ), name
        page.evaluate(AXE.read_text("utf-8"))
        found = page.evaluate(CHECK, {rule: {"enabled": False} for rule in THEMES_OWN})
        assert not found, (name, found)
    assert not faults and not [url for url in requests if not url.startswith((address, "data:"))]
    context.close()


def test_a_search_finds_the_catalogue_and_no_latex(address, browser):
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.locator("input.md-search__input").click()
    page.keyboard.type("sparsemax")
    first = page.locator(".md-search-result__item").first
    expect(first).to_contain_text("nearest point of the simplex")
    assert "frac" not in first.inner_text() and "textstyle" not in first.inner_text()
    page.close()


def test_every_link_leads_somewhere(site):
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    names = {path: set(re.findall(r'\bid="?([^"\s>]+)', text)) for path, text in pages.items()}
    wrong = set()
    for path, text in pages.items():
        for link in re.findall(r'href="(?!https?:|/)([^"]*)"', text):
            target, _, name = unescape(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            jump = name and not name.startswith(
                "__"
            )  # "__" begins the names that the theme's script makes
            if not file.exists() or (jump and unquote(name) not in names.get(file, set())):
                wrong.add(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 40 and not wrong, sorted(wrong)


def test_make_builds_it_so():
    assert f"python {' '.join(BUILD[1:])}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_formulas_are_drawn_and_names_are_documented(site):
    for path in (site / "catalogue").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "arithmatex" not in text and ("katex-html" in text) == (
            path.stem not in WITHOUT_FORMULAS
        )
    from core import attention

    text = (site / "api" / "attention.html").read_text(encoding="utf-8")
    named = set(re.findall(r'id="core\.attention\.(?:\w+\.)*(\w+)"', text))
    documented = {
        name for name in attention.__all__ if getattr(getattr(attention, name), "__doc__", None)
    }
    assert documented - {"AXES", "PRESETS"} <= named
