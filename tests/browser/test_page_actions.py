"""Beside a page's title: its link goes to the clipboard, and Reset brings the page back to its start."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.helpers import assert_no_exception, wait_no_sideways_scrolling, wait_ready


def open_page(page: Page, link: str) -> Page:
    page.goto(f"/{link}")
    wait_ready(page)
    return page


def checked(page: Page):
    return page.locator(".st-key-mechanisms-axis button[aria-checked=true]")


def test_the_link_is_copied_as_it_is_now(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, "mechanisms?mechanisms:axis=Kernels")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "Kernels" in page.url


@pytest.mark.parametrize(("link", "start"), [
    ("mechanisms?mechanisms:axis=Kernels", "mechanisms"),
    ("compare?source=seeded&text=one+two+three&length=128", "compare"),  # one fragment, with a link of its own
])
def test_reset_brings_the_page_back_to_its_start(page, link, start):
    open_page(page, link)
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/{start}\??$"))
    wait_ready(page)
    if start == "mechanisms":
        expect(checked(page)).to_have_text("Positions")
    else:
        expect(page.get_by_role("combobox", name="Queries and keys from")).to_have_value("MiniLM, layer 3, head 1")
    assert_no_exception(page)


@pytest.mark.parametrize("width", [390])
def test_the_row_fits_a_phone(page, width):
    open_page(page, "one_query")
    expect(page.get_by_role("button", name="Copy link")).to_be_in_viewport(ratio=1)
    wait_no_sideways_scrolling(page)


def test_a_term_in_a_sentence_is_explained_by_the_keyboard(page):
    open_page(page, "normalizers")
    term = page.locator("abbr.term").first
    expect(term).to_have_attribute("title", re.compile(r"\w.*\."))
    term.focus()
    assert page.evaluate("""() => getComputedStyle(document.activeElement, "::after").content""").strip('"') == (
        term.get_attribute("title"))
    wait_no_sideways_scrolling(page)
