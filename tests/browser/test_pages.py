"""Each page opened in a real browser: a picture with nothing pressed, no traceback, nothing wider than the screen."""

import re

import pytest
from playwright.sync_api import Request, expect

from dashboard.navigation import GROUPS
from tests.browser.helpers import APP, assert_fits, assert_no_exception, wait_picture, wait_ready

PATHS = ["" if step.default else step.key for steps in GROUPS.values() for step in steps]
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 21, 27)"}


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path or "first")
def test_a_picture_with_nothing_pressed_on_a_phone(page, path, width, scheme):
    page.goto(f"/{path}")
    wait_ready(page)
    wait_picture(page)
    assert_no_exception(page)
    assert_fits(page)


def test_nothing_is_asked_of_another_host_and_the_theme_follows_the_system(page, server):
    """A dashboard for a closed room: every request goes to the server itself."""
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    page.on("request", note)
    for scheme, color in BACKGROUND.items():
        page.emulate_media(color_scheme=scheme)
        page.goto("/")
        wait_ready(page)
        wait_picture(page)
        expect(page.locator(APP)).to_have_css("background-color", color)
    page.remove_listener("request", note)
    ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
    assert urls and not [url for url in urls if not url.startswith(ours)]


@pytest.mark.parametrize("part", range(2))
def test_the_sidebar_leads_to_every_page(page, part):
    """Each page on a wide screen; half of them a test, so that two browsers share the walk."""
    page.goto("/")
    wait_ready(page)
    links = page.locator('[data-testid="stSidebarNavLink"]')
    assert links.count() == len(PATHS)
    for number in range(part, len(PATHS), 2):
        links.nth(number).click()
        wait_ready(page)
        wait_picture(page)
        expect(page.locator("h1").first).to_have_text(re.compile(r"\w{3}"))
        assert_no_exception(page)
        assert_fits(page)
