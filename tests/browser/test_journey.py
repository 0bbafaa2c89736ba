"""From page to page: what was set is there when one comes back, and the address names what is seen."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import wait_ready


def go(page: Page, name: str) -> None:
    page.get_by_role("link", name=name).first.click()
    page.wait_for_timeout(300)
    wait_ready(page, 60_000)


def test_settings_outlive_a_look_at_another_page(page: Page):
    page.goto("/one_query")
    wait_ready(page)
    page.get_by_role("textbox", name="Sentence").fill("dogs chase cats daily")
    page.get_by_role("textbox", name="Sentence").press("Enter")
    expect(page.locator(".step-view").get_by_text("daily").first).to_be_visible()
    page.get_by_text("Look inside a model", exact=True).click()  # opens the group
    go(page, "Pretrained models")
    page.get_by_role("textbox", name="Text").fill("Rain falls on dry land.")
    page.get_by_role("textbox", name="Text").press("Enter")
    expect(page).to_have_url(re.compile("Rain"))
    go(page, "One query, step by step")
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value("dogs chase cats daily")
    expect(page).to_have_url(re.compile("dogs"))
    go(page, "Pretrained models")
    expect(page.get_by_role("textbox", name="Text")).to_have_value("Rain falls on dry land.")
    expect(page).to_have_url(re.compile("/pretrained.*Rain"))
