"""Decode in a real browser: a candidate that is pressed or reached by arrow keys, the link, and a phone's width."""

import re

from playwright.sync_api import expect

from tests.browser.helpers import open_page, resize, wait_ready

DRAWN = ".tv g[data-place]"


def test_a_candidate_that_is_pressed_is_followed_and_a_phone_scrolls_the_tree_and_not_the_page(
    page,
):
    open_page(page, "decode", DRAWN)
    expect(page.get_by_text("Next token at step 6")).to_be_visible()
    box = page.locator(".tv g[data-step='1'][data-rank='1']")
    word = box.locator("text").first.text_content()
    box.click()
    expect(page.get_by_text("Next token at step 2")).to_be_visible()
    expect(page.locator(".tv g.picked[data-step='1'][data-rank='1']")).to_contain_text(word)
    page.locator(".tv").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("Next token at step 1")).to_be_visible()
    wait_ready(page)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tv g.picked[data-step='0'][data-rank='1']")).to_have_count(1)
    resize(page, 390, "light")
    assert page.locator(".tv").evaluate("tree => tree.scrollWidth > tree.clientWidth")


def test_a_choice_stands_in_the_link(page):
    open_page(page, "decode", DRAWN)
    before = page.locator(".tv").inner_html()
    page.get_by_role("radio", name="Sampling").click()
    expect(page).to_have_url(re.compile("decode%3Astrategy=Sampling|decode:strategy=Sampling"))
    expect(page.get_by_text(re.compile(r"of 20 samples"))).to_be_visible()
    assert page.locator(".tv").inner_html() != before
    box = page.get_by_role("textbox", name="Source")
    box.fill("two hundred and one")
    box.press("Enter")
    expect(page).to_have_url(re.compile("two(%20|\\+)hundred"))
    again = page.url
    page.goto("about:blank")
    page.goto(again)
    expect(page.get_by_role("textbox", name="Source")).to_have_value(
        "two hundred and one", timeout=20_000
    )
    expect(page.get_by_text(re.compile(r"of 20 samples"))).to_be_visible()
