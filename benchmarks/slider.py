"""From a slider's move to the new picture, beside an empty Streamlit page that writes its slider's value.

Both in one browser, in turn, up to the frame in which the page differs. Time runs from the key press, as a person
waits, and, in a row of its own, from the message that then leaves the browser: without the slider's own debounce,
which is the same for both and flatters the ratio.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from benchmarks.browser import new_page, open_browser, open_panel, serving
from benchmarks.timing import Row, median_ratio
from tests.browser.helpers import wait_picture, wait_ready

EMPTY = "import streamlit as st\n\nst.markdown(f\"now {st.slider('n', 0, 100, 50)}\")\n"

WATCH = """
(() => {
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) { window.__sent ??= performance.now(); return send.call(this, data); };
  const inner = (n) => (n.shadowRoot ? [n, ...deep(n.shadowRoot)] : [n]);
  const deep = (node) => [...node.querySelectorAll('*')].flatMap(inner);
  // Found once a watch, and read after a change alone: to walk or to write the whole page at each frame would itself
  // take most of the time that is measured.
  let nodes = [], changed = false;
  const observer = new MutationObserver(() => { changed = true; });
  const find = (selector) => {
    nodes = deep(document).filter((n) => n.matches(selector));
    for (const root of new Set([document, ...nodes.map((n) => n.getRootNode())])) {
      observer.observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
    }
  };
  const look = (selector) => {
    if (!nodes.every((n) => n.isConnected)) find(selector);
    return nodes.map((n) => n.innerHTML).join('|');
  };
  const differs = (selector, before) => {
    const read = changed && window.__sent !== undefined;
    changed &&= !read;
    return read && look(selector) !== before;
  };
  window.__watch = (selector) => {
    window.__sent = window.__pressed = undefined;
    addEventListener('keydown', () => { window.__pressed = performance.now(); }, { capture: true, once: true });
    find(selector);
    const before = look(selector);
    window.__changed = new Promise((done) => {
      const taken = () => [window.__pressed, window.__sent].map((start) => performance.now() - start);
      const tick = () => differs(selector, before) ? done(taken()) : requestAnimationFrame(tick);
      requestAnimationFrame(tick);
    });
  };
})();
"""


def press(page: Page, selector: str, number: int) -> tuple[float, float]:
    """Milliseconds from key and from message to the changed picture, for one arrow press on the first slider."""
    page.bring_to_front()
    page.evaluate("(selector) => window.__watch(selector)", selector)
    thumb = page.get_by_role("slider").first
    thumb.focus()
    thumb.press("ArrowRight" if number % 2 else "ArrowLeft")
    taken = page.evaluate("() => window.__changed")
    wait_ready(page)
    return taken


def rows(count: int = 15) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY, encoding="utf-8")
        with serving() as ours, serving(script) as empty, open_browser() as browser:
            times: dict[str, list[tuple[float, float]]] = {"ours": [], "empty": []}
            pages = {
                "ours": (
                    new_page(browser),
                    f"{ours}/one_query",
                    ".step-view .art, .step-view .fact",
                ),
                "empty": (new_page(browser), f"{empty}/", "[data-testid='stMarkdownContainer']"),
            }
            for name, (page, url, _) in pages.items():
                page.add_init_script(WATCH)
                page.goto(url)
                wait_ready(page)
                if name == "ours":
                    wait_picture(page)
                    open_panel(page, "All settings")
            for number in range(-2, count):
                for name, (page, _, selector) in pages.items():
                    taken = press(page, selector, number)
                    if number >= 0:
                        times[name].append(taken)
    return [
        row(name, [t[part] for t in times["ours"]], [t[part] for t in times["empty"]])
        for part, name in enumerate(("press", "message"))
    ]


def row(start: str, ours: list[float], empty: list[float]) -> Row:
    return Row(
        f"slider to new picture, from the {start}",
        "empty rerun",
        f"{statistics.median(ours):.0f} ms",
        f"{statistics.median(empty):.0f} ms",
        median_ratio(ours, empty),
        "≤ 150 ms",
    )
