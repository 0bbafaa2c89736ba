"""Evidence in a real browser: a click in the grid opens that head, one crosshair runs over all measures, Stop stops."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.helpers import box_of, shot, stop_button, wait_ready


def open_page(page: Page, query: str = "") -> None:
    page.goto(f"/evidence{query}")
    wait_ready(page, 60_000)
    expect(page.get_by_text("on the same tokens")).to_be_visible(timeout=60_000)
    wait_ready(page, 60_000)


def test_a_click_in_the_grid_opens_that_head_by_all_measures(page: Page):
    open_page(page, "?inside:model=induction")
    expect(
        page.get_by_text(re.compile(r"Without L\d·H\d, the probability of the answer river"))
    ).to_be_visible()
    cells = page.locator("[data-testid='stVegaLiteChart']").first.locator("svg, canvas").first
    box = box_of(cells)
    page.mouse.click(box["x"] + 0.55 * box["width"], box["y"] + 0.28 * box["height"])
    expect(page).to_have_url(re.compile(r"head=[01]\.\d"), timeout=15_000)
    wait_ready(page)
    layer, head = re.search(r"head=([01])\.(\d)", page.url).groups()
    expect(page.get_by_text(f"L{layer}·H{head} on the same tokens")).to_be_visible(timeout=15_000)
    maps = page.locator(".mu").first
    for name in ("Weights", "Written", "Gradient", "Rollout", "Flow"):
        expect(maps.get_by_text(name, exact=True).first).to_be_visible()
    shot(page, "evidence-induction")
    field = page.get_by_role("combobox", name="Head")
    expect(field).to_have_value(f"L{layer}·H{head}")
    field.focus()
    page.keyboard.press("ArrowUp" if (layer, head) != ("0", "0") else "ArrowDown")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile(rf"head={layer}\.{head}"))
    wait_ready(page)
    expect(page.get_by_text(f"{field.input_value()} on the same tokens")).to_be_visible(
        timeout=15_000
    )
    expect(field).to_be_focused()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
def test_a_long_text_waits_for_a_press_and_stops_at_one(page: Page):
    page.goto(f"/evidence?inside:text={'the+tired+animal+crossed+a+street+and+slept.+' * 60}")
    go = page.get_by_role("button", name=re.compile("Measure 7[0-9] heads and layers"))
    expect(go).to_be_visible(timeout=60_000)
    wait_ready(page, 60_000)
    go.click()
    stop_button(page).click(timeout=60_000)
    expect(
        page.get_by_text(re.compile(r"\d+ of 78 heads and layers measured; the rest takes about"))
    ).to_be_visible(timeout=60_000)
    shot(page, "evidence-long")
