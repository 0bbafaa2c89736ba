"""Model cards in a real browser: all layers are drawn, another card opens, and its attentions open side by side."""

from playwright.sync_api import Page, expect

from tests.browser.helpers import wait_ready


def test_the_layers_of_all_models_are_drawn_and_a_card_opens(page: Page):
    page.goto("/cards")
    wait_ready(page, 60_000)
    strips = page.locator(".cards .layers")
    expect(strips).to_have_count(22)
    heights = (
        strips.nth(21).locator("i").evaluate_all("cells => cells.map(cell => cell.offsetHeight)")
    )
    assert heights == 8 * [16, 16, 16, 16, 16, 32]  # five windows, then the whole text
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="Qwen3-Next 80B · 2025").click()
    expect(page.get_by_role("heading", name="Qwen3-Next 80B")).to_be_visible()
    marked = page.locator(".cards tr th[scope=row]").evaluate_all(
        "cells => cells.filter((cell) => getComputedStyle(cell).fontWeight === '600').map((cell) => cell.textContent)"
    )
    assert marked == ["Qwen3-Next 80B"]
    page.get_by_role("link", name="See these attentions in small, side by side").click()
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
    wait_ready(page, 60_000)
    expect(page.get_by_text("The link's")).to_have_count(0)
