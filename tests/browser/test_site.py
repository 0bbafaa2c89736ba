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


def build(folder: Path) -> None:
    """The site as `make docs` builds it; a broken link or formula ends the build."""
    assert f"python {' '.join(BUILD[1:])}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    done = subprocess.run(
        [*BUILD, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        encoding="utf-8",
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_site_reads_on_any_screen_alone(tmp_path, browser):
    """One test, since two browsers would build the site twice."""
    build(tmp_path)
    assert_links_lead_somewhere(tmp_path)
    assert_formulas_are_drawn_and_names_documented(tmp_path)
    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        context = browser.new_context()
        page, faults, requests = context.new_page(), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on(
            "response",
            lambda response: faults.append(response.url) if response.status >= 400 else None,
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        for name in PAGES:
            for width, scheme in ((390, "dark"), (1280, "light")):
                page.set_viewport_size({"width": width, "height": 844})
                page.emulate_media(color_scheme=scheme)
                page.goto(f"{address}/{name}")
                page.wait_for_load_state("networkidle")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
                assert page.evaluate(
                    "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
                ), name
                page.evaluate(AXE.read_text("utf-8"))
                found = page.evaluate(CHECK, {rule: {"enabled": False} for rule in THEMES_OWN})
                assert not found, (name, found)
        page.goto(f"{address}/index.html")
        page.locator("input.md-search__input").click()
        page.keyboard.type("sparsemax")
        first = page.locator(".md-search-result__item").first
        expect(first).to_contain_text("nearest point of the simplex")
        assert "frac" not in first.inner_text() and "textstyle" not in first.inner_text()
        assert not faults
        assert not [url for url in requests if not url.startswith((address, "data:", "blob:"))]
        context.close()
        server.shutdown()


def assert_links_lead_somewhere(site: Path) -> None:
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


def assert_formulas_are_drawn_and_names_documented(site: Path) -> None:
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
