"""Each page opened in a real browser: a picture with nothing pressed, no traceback, nothing wider than the screen."""

import re

import pytest
from playwright.sync_api import expect

from dashboard.navigation import GROUPS
from tests.browser.helpers import assert_no_exception, pictures, shot, wait_picture, wait_ready

PATHS = ["" if step.default else step.key for steps in GROUPS.values() for step in steps]
SCREENS = pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 21, 27)"}


@SCREENS
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path or "first")
def test_a_picture_with_nothing_pressed(page, path, width, scheme):
    page.goto(f"/{path}")
    wait_ready(page)
    wait_picture(page)
    assert_no_exception(page)
    box = pictures(page).first.bounding_box()
    assert box["width"] > 100 and box["height"] > 60
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), "the page scrolls sideways"
    shot(page, f"{path or 'first'}-{width}-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system(page, scheme):
    page.goto("/")
    wait_ready(page)
    color = page.locator('[data-testid="stApp"]').evaluate("node => getComputedStyle(node).backgroundColor")
    assert color == BACKGROUND[scheme]


def test_the_sidebar_leads_to_every_page(page):
    page.goto("/")
    wait_ready(page)
    links = page.locator('[data-testid="stSidebarNavLink"]')
    assert links.count() == len(PATHS)
    for number in range(len(PATHS)):
        links.nth(number).click()
        wait_ready(page)
        wait_picture(page)
        expect(page.locator("h1").first).to_have_text(re.compile(r"\w{3}"))
        assert_no_exception(page)


def test_nothing_is_asked_of_another_host(page, server):
    """A dashboard for a closed room: every request goes to the server itself."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    wait_ready(page)
    wait_picture(page)
    ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
    assert not [url for url in asked if not url.startswith(ours)]
