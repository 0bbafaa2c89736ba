"""Inside one weight in a real browser: a press in the map opens a cell, and the figures are drawn."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.helpers import (
    HOLD,
    LET_GO,
    cell,
    click,
    shot,
    wait_no_sideways_scrolling,
    wait_ready,
)


def open_page(page: Page, query: str = "") -> Locator:
    page.goto(f"/inside_weight{query}")
    wait_ready(page, 60_000)
    view = page.locator(".av[data-ready='1']")
    expect(view).to_have_count(1, timeout=60_000)
    return view


def test_a_press_opens_the_cell_and_the_link_keeps_it(page: Page):
    view = open_page(page)
    expect(page.get_by_text("q·k = 21.69").first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart]")).to_have_count(4)
    page.mouse.click(*cell(view, 8, 5))
    page.wait_for_url("**cell=8.5**")
    sentence = re.compile("^In head L3·H1, the query street and the key t have q·k = ")
    expect(page.get_by_text("have q·k").first).to_have_text(sentence)
    shot(page, "inside_weight")
    page.reload()
    wait_ready(page, 60_000)
    expect(page.get_by_text("the query street and the key t")).to_be_visible()


def test_the_pin_follows_the_lists_before_the_server_answers_and_a_press_undoes_it(page: Page):
    view = open_page(page)
    query, key = map(int, view.get_attribute("data-pin").split(","))
    other = key - 1 if key else 1
    here = re.compile(rf"cell={query}\.{other}(&|$)")
    page.evaluate(HOLD)
    page.get_by_role("combobox", name="Key").click()
    page.get_by_role("option", name=f"{other} · ").first.click()
    expect(view).to_have_attribute("data-pin", f"{query},{other}")
    expect(page).not_to_have_url(here)
    page.evaluate(LET_GO)
    expect(page).to_have_url(here)
    expect(view).to_have_attribute("data-pin", f"{query},{other}")
    page.mouse.click(*cell(view, 8, 5))
    page.wait_for_url("**cell=8.5**")
    expect(view).to_have_attribute("data-pin", "8,5")


def test_a_picked_cell_of_all_heads_is_taken_apart(page: Page):
    page.goto("/pretrained?pin=12.9&head=2.0")
    wait_ready(page, 60_000)
    click(page.get_by_text("Inside one weight: too → because"))
    wait_ready(page, 60_000)
    expect(page.get_by_text("In head L2·H0, the query too and the key because")).to_be_visible(
        timeout=60_000
    )


def test_a_phone_shows_it_within_its_width(page: Page):
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, "?inside%3Amodel=induction")
    expect(page.get_by_text("Before rotation their product is")).to_be_visible()
    wait_no_sideways_scrolling(page)
    shot(page, "inside_weight_phone")
