"""All mechanisms in a real browser: a choice is looked up by axis and name, drawn, said, and kept in the link."""

import re

from playwright.sync_api import Page, expect

from core.attention import AXES
from tests.browser.helpers import assert_no_exception, click, resize, wait_ready

FACT = "[data-testid='stHtml'] p"


def open_page(page: Page, link: str = "") -> Page:
    page.goto(f"/mechanisms{link}")
    wait_ready(page)
    return page


def test_each_axis_is_drawn_and_listed(page):
    open_page(page)
    for name, axis in (
        ("Scores", "score"),
        ("Masks", "mask"),
        ("Normalizers", "normalizer"),
        ("Kernels", "kernel"),
    ):
        page.get_by_role("radio", name=name).or_(
            page.get_by_role("button", name=name, exact=True)
        ).first.click()
        wait_ready(page)
        expect(page.locator("h2").first).to_have_text(f"All {len(AXES[axis])} {name.lower()}")
        expect(page.locator(".mu canvas").first).to_be_visible()
        expect(page.locator(FACT).first).to_have_text(re.compile(r"gives .* \d\.\d\d"))
        assert_no_exception(page)
    resize(page, 390, "dark")
    expect(page.locator(".mu canvas").first).to_be_visible()


def test_a_choice_opens_its_code_another_is_looked_up_and_kept_in_the_link(page):
    open_page(page, "?mechanisms:axis=Kernels&mechanisms:kernel=Fused · 2022")
    page.get_by_text("What it can be combined with").click()
    expect(page.get_by_text("and not with these")).to_be_visible()
    click(page.get_by_text("The code that just ran"))
    expect(page.get_by_test_id("stCode").first).to_contain_text("def fused(")
    assert_no_exception(page)
    click(
        page.get_by_role("radio", name="Normalizers")
        .or_(page.get_by_role("button", name="Normalizers", exact=True))
        .first
    )
    wait_ready(page)
    page.get_by_role("combobox", name="Choice").click()
    page.get_by_role("option", name="Sparsemax").click()
    expect(page.locator(FACT).first).to_contain_text("With Sparsemax")
    expect(page).to_have_url(re.compile("Sparsemax"))
    again = page.evaluate("location.href")
    page.goto(again)
    wait_ready(page)
    expect(page.locator(FACT).first).to_contain_text("With Sparsemax")
