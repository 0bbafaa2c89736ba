"""`make screenshot`: the README's picture, a whole page at 1280 × 900 in the light theme, as the browser shows it."""

from __future__ import annotations

import sys

from benchmarks.browser import new_page, open_browser, serving
from tests.browser.helpers import assert_no_exception, wait_picture, wait_ready


def main(target: str, path: str = "pretrained") -> None:
    with serving() as url, open_browser() as browser:
        page = new_page(browser)
        page.goto(f"{url}/{path}")
        wait_ready(page)
        wait_picture(page, 60_000)
        page.wait_for_timeout(1000)  # the fonts of the canvas
        assert_no_exception(page)
        page.screenshot(path=target)


if __name__ == "__main__":
    main(*sys.argv[1:])
