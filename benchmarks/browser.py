"""A real browser on real servers, for the benchmarks and for the README's moving picture."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page

from tests.browser.conftest import APP, open_browser, running
from tests.browser.helpers import wait_ready

__all__ = ["new_page", "open_browser", "open_panel", "serving"]


@contextmanager
def serving(script: Path = APP) -> Iterator[str]:
    """The address of a server that runs the script."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), script) as server:
        yield server.url


def new_page(
    browser: Browser,
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
    scale: int = 1,
) -> Page:
    return browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=scale
    ).new_page()


def open_panel(page: Page, name: str) -> None:
    """Open the panel or popover of that name."""
    page.locator("summary, button").filter(has=page.get_by_text(name, exact=True)).first.click()
    wait_ready(page)
