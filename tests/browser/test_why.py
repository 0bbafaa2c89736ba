"""Why attention in a real browser: the kept measurement at once, two real models side by side, Stop, links, a phone."""

import re

import pytest
from playwright.sync_api import Page, expect

from core.training import find_run
from tests.browser.helpers import wait_ready

CHARTS = "[data-testid='stVegaLiteChart'] canvas, [data-testid='stVegaLiteChart'] svg"


def open_page(page: Page, link: str = "/") -> Page:
    page.goto(link)
    expect(page.get_by_role("heading", name="Why attention")).to_be_visible(timeout=20_000)
    wait_ready(page)
    return page


def pick(page: Page, name: str, option: str) -> None:
    page.get_by_role("combobox", name=re.compile(name)).click()
    page.get_by_role("option", name=option, exact=True).click()
    wait_ready(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_first_sight_is_the_measurement(page):
    open_page(page)
    expect(page.get_by_text("the model that looks back gets")).to_be_visible()
    expect(page.locator(CHARTS)).to_have_count(3)
    expect(page.locator(".av canvas").first).to_be_visible()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= page.viewport_size["width"]


def test_two_models_learn_side_by_side(page, server):
    open_page(page)
    small = {"Size of the vector": "16 numbers", "Longest source": "20 words", "Training each": "5 s"}
    for name, option in small.items():
        pick(page, name, option)
    address = page.evaluate("location.href")
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_text(re.compile(r"One vector: step \d+, \d of 5 s"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile(r"Dot product: (step|begins)"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text("Dot product: Finished after")).to_be_visible(timeout=90_000)
    expect(page.get_by_text("One vector: Finished after")).to_be_visible(timeout=90_000)
    runs = [find_run(name, server.runs) for name in re.search(r"runs=([\w.-]+)", page.url)[1].split(".")]
    without, with_it = (run.records()[-1] for run in runs)
    assert without.final and with_it.final and without.buckets and with_it.buckets
    assert all(run.config().task["max_source"] == 20 and run.config().model.d_model == 16 for run in runs)
    page.reload()
    wait_ready(page)
    expect(page.get_by_text("Trained here")).to_be_visible()
    page.get_by_role("button", name="Back to the saved measurement").click()
    expect(page.get_by_text("Below is what was measured with 128 numbers")).to_be_visible()
    assert page.evaluate("location.href") == address, "the settings stay in the link"
    open_page(page, address)
    expect(page.get_by_text("Below is what was measured with 128 numbers")).to_be_visible()


def test_a_pinned_cell_picks_the_output_of_the_equation(page):
    open_page(page)
    equation = page.locator(".katex-mathml").nth(1)
    before = equation.text_content()
    canvas = page.locator(".av canvas.over").first
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.2})
    wait_ready(page)
    expect(equation).not_to_have_text(before)


def test_stop_ends_both(page):
    open_page(page)
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_text(re.compile("Dot product: (begins|step|waits)"))).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("button", name="Run it")).to_be_visible(timeout=20_000)
    expect(page.get_by_text(re.compile("(One vector|Dot product): .*(kept|not begun|Stopped)"))).to_have_count(2)
