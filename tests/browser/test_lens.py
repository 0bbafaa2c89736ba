"""When it decides in a real browser: a click in the grid picks position and layer, one on a head its attention."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import box_of, shot, wait_no_sideways_scrolling, wait_ready


def click_in_grid(page: Page, key: str, across: float, down: float) -> None:
    """Click in the figure of that key, at a share of its width and so many pixels from its top."""
    figure = (
        page.locator(f".st-key-{key} [data-testid='stVegaLiteChart']").locator("svg, canvas").first
    )
    expect(figure).to_be_visible(timeout=60_000)
    wait_ready(page)
    box = box_of(figure)
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down)
    wait_ready(page)


def test_a_cell_and_a_head_are_picked_by_a_click(page: Page):
    page.goto("/lens")
    wait_ready(page, 60_000)
    expect(page.get_by_text("Where L1 attends to from dark")).to_be_visible(timeout=60_000)
    click_in_grid(page, "lens-cells", 0.5, 52)
    expect(page).to_have_url(re.compile(r"at=\d+&lens%3Alayer%3Ainduction=L0"), timeout=15_000)
    expect(page.get_by_text(re.compile("Where L0 attends to from"))).to_be_visible(timeout=15_000)
    wait_no_sideways_scrolling(page)
    shot(page, "lens")
    page.goto("/lens?lens:view=Who+wrote+it")
    wait_ready(page, 60_000)
    expect(page.get_by_text(re.compile(r"Sum of all 13 parts"))).to_be_visible(timeout=60_000)
    click_in_grid(page, "lens-parts", 0.15, 50)
    expect(page).to_have_url(re.compile(r"head=[01]\.0"), timeout=15_000)
    expect(page.get_by_role("rowheader", name=re.compile("L[01]·H0"))).to_be_visible(timeout=15_000)
    shot(page, "lens-who")
