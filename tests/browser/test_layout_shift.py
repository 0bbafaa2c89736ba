"""Nothing jumps while a page is drawn: by Chromium's own measure, which a person sees from 0.1 on."""

import re
import statistics

import pytest

from benchmarks.layout import MAX_SHIFT, OBSERVE, SETTLE
from tests.browser.helpers import wait_ready

FRAME = re.compile(r"st(AppViewContainer|MainBlockContainer)\b")


@pytest.mark.parametrize("key", ["lessons", "normalizers"])
def test_a_page_opened_by_its_address_stands_where_it_is_drawn(page, key):
    """The median of three openings: how Streamlit's messages are cut into frames is left to chance.

    Streamlit's frame moves once, as in every app: when the page is known to be wide and to have a sidebar.
    """
    openings = [shifts_within(page, key) for _ in range(3)]
    sums = [sum(shift["value"] for shift in shifts) for shifts in openings]
    assert statistics.median(sums) <= MAX_SHIFT, openings


def shifts_within(page, key: str) -> list[dict]:
    """The layout shifts of a page that is opened by its address, but for those of Streamlit's frame."""
    page.goto("about:blank")
    page.goto(f"/{key}")
    wait_ready(page)
    page.wait_for_timeout(SETTLE)
    page.evaluate(OBSERVE)
    moved = page.evaluate(
        "document.querySelector('h1').style.marginTop = '200px', performance.now()"
    )
    page.wait_for_function(
        "(moved) => window.__shifts.some(({ at }) => at >= moved)", arg=moved
    )  # after all others
    return [
        shift
        for shift in page.evaluate("window.__shifts")
        if shift["at"] < moved and not any(map(FRAME.match, shift["sources"]))
    ]
