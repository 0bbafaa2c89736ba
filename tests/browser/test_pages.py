"""Each page opened in a real browser: a picture with nothing pressed, no traceback, nothing wider than the screen."""

import re

import pytest
from playwright.sync_api import Page, Request, expect

from dashboard.navigation import GROUPS
from tests.browser.helpers import (
    APP,
    assert_fits,
    assert_no_exception,
    resize,
    wait_no_sideways_scrolling,
    wait_picture,
    wait_ready,
)

PATHS = ["" if step.default else step.key for steps in GROUPS.values() for step in steps]
WORDS = ("glossary", "lessons", "questions")  # pages without a picture
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 21, 27)"}


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


def assert_picture_fits(page: Page) -> None:
    wait_picture(page)
    assert_fits(page)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
@pytest.mark.parametrize("part", range(4))
def test_the_sidebar_leads_to_every_page_which_fits_a_phone_and_a_wide_screen(page, part, width, scheme):
    """A quarter of the pages a test, so that two browsers share the walk; each is drawn on a phone and then widened."""
    page.goto("/")
    wait_ready(page)
    links = page.locator('[data-testid="stSidebarNavLink"]')
    expect(links).to_have_count(len(PATHS))
    for number in range(part, len(PATHS), 4):
        links.nth(number).dispatch_event("click")  # a phone hides the sidebar after each
        expect(page).to_have_url(re.compile(rf"/{PATHS[number]}(\?.*)?$"))
        wait_ready(page)
        expect(page.locator("h1").first).to_have_text(re.compile(r"\w{3}"))
        fits = wait_no_sideways_scrolling if PATHS[number] in WORDS else assert_picture_fits
        fits(page)
        resize(page, 1280, "light")
        assert_no_exception(page)
        fits(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
