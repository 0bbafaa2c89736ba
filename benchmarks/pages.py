"""From a control's move to the new picture on every page, at its default size, beside an empty Streamlit page.

All in one browser, in turn, from the key press to the frame in which the page's numbers differ.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Locator, Page

from benchmarks.browser import new_page, open_browser, serving
from benchmarks.slider import EMPTY, WATCH
from benchmarks.timing import Row, median_ratio
from tests.browser.helpers import wait_ready

NUMBERS = ".step-view .art, .step-view .fact, .mu .value, [data-testid='stHtml']"  # what a page draws and says
KEYS = {"slider": ("ArrowLeft", "ArrowRight"), "spinbutton": ("ArrowDown", "ArrowUp"), "button": ("Enter", "Enter")}
LAST_KERNEL = "Performer"  # of those that Cost and speed starts with: taken out and put back
BUDGET = "≤ 2.00"
SETTLE = 1500  # ms after the last element has come, in which React still takes pages apart


@dataclass(frozen=True)
class Moved:
    """A page, and which of its controls is moved there and back: a slider, a number's field, a button, a list."""

    key: str
    control: Literal["slider", "spinbutton", "combobox", "button"] = "slider"
    name: str | None = None
    query: str = ""
    inside: str | None = None  # the popover to open first


PAGES = (
    Moved("one_query", inside="More"), Moved("scores"), Moved("heads", query="?heads:weights=Random"),
    Moved("positions", "button", "Shuffle again"),
    Moved("masks", "spinbutton", "Lookback", "?masks:first=Causal+local"), Moved("normalizers"),
    Moved("mechanisms", "spinbutton", query="?mechanisms:axis=Masks&mechanisms:mask=Local window · 2015"),
    Moved("compare", "spinbutton", "Seed", "?source=seeded", inside="Tokens"),
    Moved("efficient", "combobox", "Up to", inside="Kernels"),
)


def control(page: Page, moved: Moved) -> Locator:
    return page.get_by_role(moved.control, name=moved.name).first


def aim(page: Page, moved: Moved, number: int) -> str:
    """Brings the focus to the control, one key away from its move; returns that key."""
    widget = control(page, moved)
    widget.focus()
    if moved.control != "combobox":
        return KEYS[moved.control][number % 2]
    if number % 2:
        return "Backspace"  # takes the last of the picked
    widget.press_sequentially(LAST_KERNEL)
    page.get_by_role("option", name=LAST_KERNEL).first.wait_for()
    return "Enter"


def answer(page: Page, moved: Moved, selector: str, number: int) -> float:
    """Milliseconds from the key to the changed numbers."""
    page.bring_to_front()
    key = aim(page, moved, number)
    page.evaluate("(selector) => window.__watch(selector)", selector)
    page.keyboard.press(key)
    changed = page.evaluate("() => Promise.race([window.__changed, new Promise((done) => setTimeout(done, 8000))])")
    if changed is None:
        raise TimeoutError(f"{moved.key}: nothing changed in 8 s after {key}")
    pressed, _ = changed
    wait_ready(page)
    return pressed


def opened(browser, url: str, inside: str | None = None) -> Page:
    page = new_page(browser)
    page.add_init_script(WATCH)
    page.goto(url)
    wait_ready(page)
    page.wait_for_timeout(SETTLE)
    if inside is not None:
        page.get_by_role("button", name=inside).first.click()
        wait_ready(page)
        page.wait_for_timeout(SETTLE)
    return page


def rows(count: int = 11, only: str | None = None) -> list[Row]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY)
        ours, empty = stack.enter_context(serving()), stack.enter_context(serving(script))
        browser = stack.enter_context(open_browser())
        beside = opened(browser, f"{empty}/")
        return [row(opened(browser, f"{ours}/{moved.key}{moved.query}", moved.inside), moved, beside, count)
                for moved in PAGES if only in (None, moved.key)]


def row(page: Page, moved: Moved, beside: Page, count: int) -> Row:
    times: dict[str, list[float]] = {"ours": [], "empty": []}
    for number in range(-3, count):
        taken = {"ours": answer(page, moved, NUMBERS, number),
                 "empty": answer(beside, Moved("empty"), "[data-testid='stMarkdownContainer']", number)}
        for name, value in taken.items():
            if number >= 0:
                times[name].append(value)
    page.close()
    what = f"{moved.key}: {moved.control} to new picture"
    return Row(what, "empty rerun", f"{statistics.median(times['ours']):.0f} ms",
               f"{statistics.median(times['empty']):.0f} ms", median_ratio(times["ours"], times["empty"]), BUDGET)
