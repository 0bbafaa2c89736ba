"""Nothing jumps while a page is drawn: by Chromium's own measure, which a person sees from 0.1 on."""

import pytest

from benchmarks.layout import MOST_SHIFT, OBSERVE, SETTLE
from tests.browser.helpers import wait_ready


@pytest.mark.parametrize("key", ["lessons", "normalizers"])
def test_a_page_opened_by_its_address_stands_where_it_is_drawn(page, key):
    """Without the styles of the first page the sidebar alone moves it by 0.2."""
    page.goto(f"/{key}")
    wait_ready(page)
    page.wait_for_timeout(SETTLE)
    page.evaluate(OBSERVE)
    page.wait_for_function("window.__shifts.length")  # what was before comes too; Streamlit itself moves a little
    shifts = page.evaluate("window.__shifts")
    assert sum(shift["value"] for shift in shifts) <= MOST_SHIFT, shifts
