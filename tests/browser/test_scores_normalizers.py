"""Scores and Normalizers in a real browser: pictures at once, a pin that moves the equation, typed scores."""

import re

from playwright.sync_api import Page, expect

from core.attention import AXES
from tests.browser.helpers import box_of, open_page, wait_ready


def equation(page: Page):
    return page.locator(".katex-mathml")


def test_a_pinned_cell_moves_the_equation(page):
    open_page(page, "scores")
    canvases = page.locator("canvas:visible")
    expect(canvases.first).to_be_visible()
    expect(page.locator(".lab-table tbody tr")).to_have_count(len(AXES["score"]))
    before = equation(page).last.text_content()
    wait_ready(page)
    board = page.locator("canvas:visible").nth(1)
    size = box_of(board)
    page.mouse.click(size["x"] + size["width"] - 8, size["y"] + size["height"] - 8)
    expect(equation(page).last).not_to_have_text(before)


def test_scores_can_be_seen_signed(page):
    open_page(page, "scores?scores:show=Own+scales&scores:equation=Additive")
    expect(page.get_by_text(re.compile(r"^± \d")).first).to_be_visible()
    expect(equation(page).first).to_contain_text("tanh")


def test_bars_take_the_ink_of_a_new_theme_and_typed_scores_become_bars(page):
    open_page(page, "normalizers")
    figures = page.locator(".nb .figure")
    expect(figures.first).to_be_visible()
    drawn = figures.count()
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".nb")).to_have_attribute(
        "style", re.compile("#269AD2")
    )  # with nothing pressed
    box = page.get_by_role("textbox", name="Scores of one query")
    box.fill("4, x, 0")
    box.press("Enter")
    expect(
        page.locator(".nb .figure[aria-label^='Sparsemax: key 0 1.00, key 1 0.00, key 2 0.00']")
    ).to_be_visible()
    expect(figures).to_have_count(drawn)
    tall = box_of(page.locator(".nb .figure[aria-label^='Hard'] .bar i").first)
    assert tall["height"] > 60
    box.fill("4, four")
    box.press("Enter")
    expect(page.get_by_text("Score 1, “four”, is not a number", exact=False)).to_be_visible()
    expect(page).to_have_url(re.compile("normalizers(:|%3A)scores=4"))
