"""Claims in a real browser: a line is drawn by pointer and keys, and a claim is measured from press to verdict."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.helpers import assert_no_exception, box_of, click, open_page, wait_ready


@pytest.fixture
def paper(demos, page):
    page.goto(f"{demos.url}/?demo=sketch")
    wait_ready(page)
    return page.locator(".sketch")


def test_a_line_is_drawn_by_a_stroke_and_by_keys(paper, page):
    points = paper.get_by_role("slider")
    expect(points).to_have_count(4)
    ends = [box_of(points.nth(at)) for at in (0, 3)]
    left, right = (box["x"] + box["width"] / 2 for box in ends)
    middle = ends[0]["y"] + ends[0]["height"] / 2
    page.mouse.move(left, middle)
    page.mouse.down()
    page.mouse.move(right, middle - 60, steps=3)
    page.mouse.up()
    values = [float(points.nth(at).get_attribute("aria-valuenow")) for at in range(4)]
    assert (
        values[0] == pytest.approx(0.5, abs=0.01) and values == sorted(values) and values[3] > 0.7
    )
    points.nth(0).focus()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowUp")
    expect(paper.locator(".line")).to_have_text("d_k 8: 10 %")
    paper.get_by_role("button", name="Show me").click()
    expect(page.get_by_text(re.compile(r"taken: \[1\.0, 0\.1, "))).to_be_visible()


@pytest.mark.parametrize("width", [390])
def test_nothing_drawn_is_no_guess(paper, page, width):
    paper.get_by_role("button", name="Show me without a guess").click()
    expect(page.get_by_text("taken: None")).to_be_visible()


def test_a_card_opens_its_claim_which_outlives_a_reload(page):
    open_page(page, "claims")
    page.get_by_role("link", name="Iris with attention").click()
    expect(page).to_have_url(re.compile("claim=iris"))
    page.reload()
    wait_ready(page)
    expect(page.get_by_role("button", name="All claims")).to_be_visible()


def test_a_claim_is_measured_from_press_to_verdict_and_outlives_a_reload(page):
    open_page(
        page,
        "claims",
        claim="iris",
        **{"claims:iris:seeds": "2", "claims:iris:steps": "25", "claims:iris:predict": "Show me"},
    )
    click(page.get_by_role("button", name="Run it"))
    verdict = page.get_by_text(re.compile("^Your run: the claim .* over 2 seeds"))
    expect(verdict).to_be_visible(timeout=90_000)
    page.reload()
    wait_ready(page)
    expect(verdict).to_be_visible()
    expect(page.get_by_role("button", name="Replicate: your files")).to_be_visible()
    assert page.locator("[data-testid='stVegaLiteChart']").count() >= 1
    assert_no_exception(page)
