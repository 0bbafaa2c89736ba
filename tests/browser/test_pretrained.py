"""The Pretrained page in a real browser: all heads, a click opens one, a hover reads a weight."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.helpers import (
    HOLD,
    LET_GO,
    box_of,
    cell,
    click,
    resize,
    shot,
    wait_no_sideways_scrolling,
    wait_ready,
)


def open_page(page: Page, query: str = "") -> tuple[Locator, Locator]:
    """The grid and the head view, once both are drawn."""
    page.goto(f"/pretrained{query}")
    wait_ready(page, 60_000)
    views = page.locator(".av[data-ready='1']")
    expect(views).to_have_count(2, timeout=60_000)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(
        0, timeout=60_000
    )  # roles are measured after the picture
    return views.nth(0), views.nth(1)


def test_first_sight_shows_all_heads_and_a_measured_fact_and_hovering_a_cell_reads_its_weight(
    page: Page,
):
    _, head = open_page(page)
    assert (head.get_attribute("data-layer"), head.get_attribute("data-head")) == ("3", "1")
    expect(page.get_by_text("attends most to the previous token")).to_be_visible()
    expect(page.get_by_text("Previous token 4")).to_be_visible(timeout=60_000)
    shot(page, "pretrained")
    x, y = cell(head, 10, 2)
    page.mouse.move(x, y)
    expect(head).to_have_attribute("data-hover", "10,2")
    assert abs(float(head.get_attribute("data-value")) - 0.677) < 0.002
    expect(head.get_by_text("it → animal").first).to_be_visible()
    before = head.get_attribute("data-map")  # hiding special tokens takes them off the axes
    page.get_by_role("button", name="Tokens").click()
    page.get_by_text("Hide special tokens").click()
    expect(page.get_by_text("Special tokens are hidden")).to_be_visible(timeout=10_000)
    expect(head).not_to_have_attribute("data-map", before)


def test_the_way_a_head_is_drawn_changes_before_the_server_answers(page: Page):
    _, head = open_page(page)
    expect(head).to_have_attribute("data-show", "both")
    page.evaluate(HOLD)
    page.get_by_role("radio", name="Lines", exact=True).click()
    expect(head).to_have_attribute("data-show", "lines")
    page.wait_for_function("() => window.held.length")  # the server was not asked yet
    page.evaluate(LET_GO)
    expect(page).to_have_url(re.compile("show=lines", re.IGNORECASE))
    expect(head).to_have_attribute("data-show", "lines")


def test_a_click_in_the_grid_and_a_pin_are_drawn_said_and_kept_in_the_link(page: Page):
    grid, head = open_page(page)
    gutter, top, pitch, row_pitch, size = (
        float(x) for x in grid.get_attribute("data-map").split(",")
    )
    box = box_of(grid.locator("canvas").first)
    page.mouse.click(box["x"] + gutter + 2 * pitch + size / 2, box["y"] + top + size / 2)
    expect(head).to_have_attribute("data-head", "2")
    expect(head).to_have_attribute("data-layer", "0")
    expect(page).to_have_url(re.compile(r"head=0\.2"))
    wait_ready(page)
    page.mouse.click(*cell(head, 6, 8))
    expect(page).to_have_url(re.compile(r"pin=6\.8"))
    expect(
        page.get_by_text(re.compile(r"In head L0·H2, cross puts .* of its weight on street"))
    ).to_be_visible()
    page.reload()
    wait_ready(page, 60_000)
    expect(page.locator(".av").nth(1)).to_have_attribute("data-layer", "0", timeout=20_000)
    expect(page.locator(".av").nth(1)).to_have_attribute("data-pin", "6,8")


def test_a_new_sentence_gives_a_new_picture_and_a_long_one_says_its_cut(page: Page):
    _, head = open_page(page)
    before = head.get_attribute("data-map")
    page.get_by_role("textbox", name="Text").fill("Cats <b>sleep</b> 🙂")
    page.get_by_role("textbox", name="Text").press("Enter")
    expect(head).not_to_have_attribute("data-map", before, timeout=15_000)
    assert page.locator(".av b", has_text="sleep").count() == 0
    wait_ready(page)
    page.get_by_role("textbox", name="Text").fill("attention " * 700)
    page.get_by_role("textbox", name="Text").press("Enter")
    expect(page.get_by_text("reads at most 512")).to_be_visible(timeout=60_000)
    wait_ready(page, 60_000)
    assert float(head.get_attribute("data-map").split(",")[2]) < 1.0
    shot(page, "pretrained-512")


def test_pins_outlive_a_merge_of_pieces_and_an_order_by_weight(page: Page):
    grid, head = open_page(
        page, "?inside:text=Tokenization+of+unbelievable+transformers+is+unfair&pin=7.2"
    )
    expect(head).to_have_attribute("data-pin", "7,2")
    page.get_by_role("button", name="Tokens").click()
    page.get_by_text("Merge pieces into words").click()
    expect(page.get_by_text("Pieces of a word are merged")).to_be_visible(timeout=10_000)
    expect(head).not_to_have_attribute("data-pin", "7,2")
    expect(head).to_have_attribute("data-pin", "6,1")
    status = head.locator(".status").inner_text()
    assert "unfair → tokenization" in status
    click(page.get_by_text("Both by weight"))
    expect(head).not_to_have_attribute("data-pin", "6,1", timeout=10_000)
    assert head.locator(".status").inner_text() == status, (
        "the pinned pair is the same wherever it stands"
    )
    expect(page).to_have_url(re.compile(r"pin=7\.[12]"))


def test_a_translators_output_attends_to_its_input_and_each_kind_can_be_seen(page: Page):
    grid, head = open_page(page, "?inside:model=numbers")
    expect(head.locator(".reads").first).to_contain_text("output (row) attends to")
    before = grid.get_attribute("data-drawn")
    page.get_by_text("Encoder", exact=True).click()
    expect(grid).not_to_have_attribute("data-drawn", before, timeout=10_000)
    expect(head.locator(".reads").first).to_contain_text("query (row) attends to", timeout=10_000)
    resize(page, 390, "light")


def test_a_digit_lies_under_its_weights(page: Page):
    _, head = open_page(page, "?inside:model=digits")
    x, y, wide, high = (float(part) for part in head.get_attribute("data-picture").split(","))
    box = box_of(head.locator("canvas.over"))
    page.mouse.move(box["x"] + x + 0.6 * wide, box["y"] + y + 0.1 * high)
    expect(head).to_have_attribute(
        "data-hover", re.compile(r"^3,")
    )  # 4 × 4 patches after the class token
    resize(page, 390, "light")


@pytest.mark.parametrize("width", [390])
def test_a_phone_shows_a_decoder(page: Page, width):
    open_page(page, "?inside:model=induction")
    wait_no_sideways_scrolling(page)
