"""The page Head roles in a real browser: a cell is pressed, and everything under it follows."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.helpers import click, shot, wait_ready


def open_page(page: Page, query: str = "") -> None:
    page.goto(f"/head_roles{query}")
    wait_ready(page, 60_000)
    expect(page.locator("[data-testid='stVegaLiteChart'] svg")).to_have_count(3, timeout=60_000)
    expect(page.locator(".av[data-ready='1']")).to_have_count(1, timeout=60_000)


def cell(page: Page, grid: int, head: str):
    return (
        page.locator("[data-testid='stVegaLiteChart']")
        .nth(grid)
        .locator(f"path[aria-label^='{head}: ']")
        .first
    )


def test_a_head_that_is_pressed_in_either_grid_is_read_below_and_kept_in_the_link(page: Page):
    open_page(page)
    named = re.compile(r"Same word 0\.\d{2,3}, chance 0\.0\d")
    expect(cell(page, 0, "L2·H9")).to_have_attribute("aria-label", named)
    cell(page, 0, "L2·H9").click()
    expect(
        page.get_by_text(re.compile(r"L2·H9 puts 0\.\d+ of its weight on the token before"))
    ).to_be_visible()
    expect(page.get_by_text("Its role is same word")).to_be_visible()
    expect(page.locator(".av")).to_have_attribute("data-head", "9")
    click(cell(page, 1, "L2·H11"))
    expect(page.get_by_text(re.compile(r"L2·H11 puts 0\.37"))).to_be_visible()
    page.reload()
    wait_ready(page, 60_000)
    expect(page.get_by_text(re.compile(r"L2·H11 puts 0\.37"))).to_be_visible(timeout=60_000)
    click(page.get_by_role("combobox", name="Role"))
    page.get_by_role("option", name="Next token").click()
    expect(
        page.get_by_text(re.compile(r"L1·H8 puts 0\.68 of its weight on the token after"))
    ).to_be_visible()
    expect(page.get_by_role("combobox", name="Head")).to_have_value("L1·H8")
    shot(page, "head-roles")


@pytest.mark.parametrize("width", [390])
@pytest.mark.parametrize("scheme", ["dark"])
def test_on_a_phone_nothing_is_wider_than_the_page(page: Page):
    open_page(page, "?inside:model=induction")
    expect(
        page.get_by_text(re.compile(r"of its weight on the token that followed the same token"))
    ).to_be_visible()
    wide = page.evaluate(
        "[...document.querySelectorAll('[data-testid=stVegaLiteChart] svg')]"
        ".map(e => e.getBoundingClientRect().right)"
    )
    assert max(wide) <= 390
    shot(page, "head-roles-phone")
