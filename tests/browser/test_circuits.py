"""What a head can do in a real browser: the graph is drawn, and a click on a head opens it and is linked."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import box_of, shot, wait_ready


def test_a_click_in_a_grid_opens_that_head(page: Page):
    page.goto("/circuits")
    wait_ready(page, 60_000)
    expect(page.get_by_text("The circuit, found twice.")).to_be_visible(timeout=60_000)
    grid = page.locator("[data-testid='stVegaLiteChart']").nth(1).locator("svg, canvas").first
    grid.scroll_into_view_if_needed()
    box = box_of(grid)
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.36 * box["height"])
    expect(page).to_have_url(re.compile(r"circuits%3Ahead=L\d|circuits:head=L\d"), timeout=15_000)
    wait_ready(page)
    name = re.search(r"head=(L\d)(?:%C2%B7|·)(H\d)", page.url)
    expect(page.get_by_text(f"Where {name[1]}·{name[2]} attends to")).to_be_visible(timeout=15_000)
    shot(page, "circuits-picked")
