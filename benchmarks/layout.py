"""How far each page's elements jump while it is drawn, and the seconds until it stands, beside an empty Streamlit app.

A jump is Chromium's layout shift, its share of the screen times its distance, added up; what comes within half a second
after a click, a person expects, and it does not count. First each page, in servers of its own that have just answered
their first check of health, in browsers without a cache, with the server's processor seconds, which other programs on
the machine change less. Then each page by its address and from the sidebar, in a server that has drawn it once, and
what a reader clicks first.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.browser import new_page, open_browser, serving
from benchmarks.memory import RunningServer, running_server
from dashboard.navigation import STEPS, Step
from tests.browser.conftest import APP
from tests.browser.helpers import wait_ready

HEAD = (
    "| page | opened | layout shift | budget | seconds | budget | processor | moved most |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)
MAX_SHIFT, MAX_SECONDS = 0.1, 2.0  # below 0.1 is good: web.dev/articles/cls
FRESH = 3  # new servers of a page, of which the median counts
SETTLE = 1500  # ms in which fonts, figures and components still arrive
NOTHING = Step("one", "an empty app", "", "")
EMPTY = """
import streamlit as st

st.set_page_config(layout="wide", initial_sidebar_state=248)
st.navigation({"One": [st.Page(lambda: st.markdown("# One"), title="One", url_path="one")],
               "Two": [st.Page(lambda: st.markdown("# Two"), title="Two", url_path="two")]}).run()
"""
OBSERVE = """
(() => {
  window.__shifts = [];
  const name = (node) => {
    const element = node?.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (!element?.closest) return "?";
    return `${element.closest("[data-testid]")?.dataset.testid} ${element.textContent.trim().slice(0, 30)}`;
  };
  const box = (rect) => [rect.x, rect.y, rect.width, rect.height].map(Math.round).join(" ");
  new PerformanceObserver((list) => list.getEntries().filter((entry) => !entry.hadRecentInput).forEach((entry) =>
    window.__shifts.push({ value: entry.value, at: entry.startTime,
      sources: entry.sources.map(({ node, previousRect, currentRect }) =>
        `${name(node)}: ${box(previousRect)} → ${box(currentRect)}`) }))
  ).observe({ type: "layout-shift", buffered: true });
})();
"""


Act = Callable[[Page], object]


@dataclass(frozen=True)
class Row:
    """One visit: the sum of its shifts, what moved in the largest of them, its seconds, and those of the server."""

    page: str
    opened: str
    shift: float
    moved: str
    seconds: float
    processor: float | None = None

    def markdown(self) -> str:
        moved = " ".join(self.moved.replace("|", " ").split()) if self.shift > MAX_SHIFT else ""
        processor = "–" if self.processor is None else f"{self.processor:.2f}"
        return (
            f"| {self.page} | {self.opened} | {self.shift:.3f} | ≤ {MAX_SHIFT} | {self.seconds:.1f} | "
            f"≤ {MAX_SECONDS:g} | {processor} | {moved} |"
        )


def press(name: str) -> Act:
    """A press on the part of a segmented control."""
    return lambda page: page.get_by_role("radio", name=name, exact=True).first.click()


def choose(label: str, option: str) -> Act:
    """An option picked from a list."""

    def act(page: Page) -> None:
        page.get_by_role("combobox", name=label).first.click()
        page.get_by_role("option", name=option).first.click()

    return act


FIRST_CLICKS: dict[str, dict[str, Act]] = {
    "masks": {"Mask: Formula": choose("Mask", "Formula")},
    "positions": {name: press(name) for name in ("The encoding", "By distance", "Shift")},
    "efficient": {"A query sees: the last option": lambda page: last_option(page, "A query sees")},
    "generate": {"Beam": press("Beam")},
}


def last_option(page: Page, label: str) -> None:
    page.get_by_role("combobox", name=label).first.click()
    page.get_by_role("option").last.click()


def rows() -> Iterator[Row]:
    with ExitStack() as stack:
        script = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "empty.py"
        script.write_text(EMPTY, encoding="utf-8")
        browser = stack.enter_context(open_browser())
        yield from first_pages(browser, [(script, NOTHING), *((APP, step) for step in STEPS)])
        ours, empty = stack.enter_context(serving()), stack.enter_context(serving(script))
        yield from loads(browser, empty, (NOTHING,))
        list(loads(browser, ours, STEPS))
        yield from loads(browser, ours, STEPS)
        yield from walk(browser, ours, STEPS)


def first_pages(browser: Browser, pages: Iterable[tuple[Path, Step]]) -> Iterator[Row]:
    """Each page of a script as the first of new servers, from their health on."""
    for script, step in pages:
        rows = [first_page(browser, script, step) for _ in range(FRESH)]
        seconds, processor = (
            statistics.median(times)
            for times in zip(*((row.seconds, row.processor or 0.0) for row in rows), strict=True)
        )
        yield replace(max(rows, key=lambda row: row.shift), seconds=seconds, processor=processor)


def first_page(browser: Browser, script: Path, step: Step) -> Row:
    with running_server({}, script) as server:
        page = new_page(browser)
        page.add_init_script(OBSERVE)
        row = visit(
            page,
            step,
            "first, in a new server",
            partial(page.goto, f"{server.url}/{address(step)}"),
            server,
        )
        page.context.close()
    return row


def loads(browser: Browser, url: str, steps: tuple[Step, ...]) -> Iterator[Row]:
    """Each page by its address, in tabs that share the cache of one reader."""
    context = new_page(browser).context
    for step in steps:
        page = context.new_page()
        page.add_init_script(OBSERVE)
        yield visit(page, step, "by its address", partial(page.goto, f"{url}/{address(step)}"))
        page.close()


def walk(browser: Browser, url: str, steps: tuple[Step, ...]) -> Iterator[Row]:
    """Each page from the sidebar, and what is clicked first on it."""
    page = new_page(browser)
    page.add_init_script(OBSERVE)
    visit(page, steps[-1], "", lambda: page.goto(f"{url}/{address(steps[-1])}"))
    for step in steps:
        link = page.locator(f"[data-testid=stSidebar] a[href='./{address(step)}']")
        yield visit(page, step, "from the sidebar", partial(link.dispatch_event, "click"))
        for name, act in FIRST_CLICKS.get(step.key, {}).items():
            yield visit(page, step, f"{name} clicked", partial(act, page))


def address(step: Step) -> str:
    return "" if step is NOTHING else step.path


def visit(
    page: Page,
    step: Step,
    opened: str,
    act: Callable[[], object],
    server: RunningServer | None = None,
) -> Row:
    page.evaluate("window.__shifts = window.__shifts ?? []; window.__shifts.length = 0")
    start, before = time.perf_counter(), 0.0 if server is None else server.cpu()
    act()
    wait_ready(page, 90_000)
    seconds, processor = (
        time.perf_counter() - start,
        None if server is None else server.cpu() - before,
    )
    page.wait_for_timeout(SETTLE)
    wait_ready(page, 90_000)
    shifts = page.evaluate("window.__shifts")
    largest = max(shifts, key=lambda shift: shift["value"], default=None)
    moved = largest["sources"][0] if largest and largest["sources"] else ""
    return Row(
        step.title, opened, sum(shift["value"] for shift in shifts), moved, seconds, processor
    )
