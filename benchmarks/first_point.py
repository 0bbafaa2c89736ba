"""From Train pressed to the first loss point on the page, and from Stop to stopped: both have a second."""

from __future__ import annotations

import re
import statistics
import time

from playwright.sync_api import Page, expect

from benchmarks.browser import new_page, open_browser, serving
from benchmarks.timing import Row
from tests.browser.helpers import wait_picture, wait_ready

UNDER_WAY = re.compile(r"Step [\d,]+ of")  # said as soon as there is a record
WARM = 8_000  # ms in which a spare worker has its imports


def pressed(page: Page, name: str, then: re.Pattern[str]) -> float:
    """Seconds from a button's press to the words that answer it."""
    started = time.perf_counter()
    page.locator(f".st-key-train-{name} button").first.click()
    expect(page.get_by_text(then).first).to_be_visible(timeout=30_000)
    return time.perf_counter() - started


def rows(count: int = 5) -> list[Row]:
    taken: dict[str, list[float]] = {"first loss point": [], "stopped": []}
    with serving() as url, open_browser() as browser:
        page = new_page(browser)
        page.goto(f"{url}/train")
        for _ in range(count):
            wait_ready(page)
            wait_picture(page)
            page.wait_for_timeout(WARM)
            taken["first loss point"].append(pressed(page, "train", UNDER_WAY))
            taken["stopped"].append(pressed(page, "stop", re.compile("is saved|Finished after")))
    return [
        Row(
            f"Train page: {what}",
            "a second",
            f"{statistics.median(times):.2f} s",
            "1.00 s",
            statistics.median(times),
            "≤ 1.00",
        )
        for what, times in taken.items()
    ]
