"""Why attention in a real browser: the saved measurement at once, two real models side by side, Stop, a phone."""

import re

from playwright.sync_api import Page, expect

from core.runs.runs import find_run
from tests.browser.helpers import box_of, click, resize, stop_button, wait_ready

CHARTS = "[data-testid='stVegaLiteChart'] canvas, [data-testid='stVegaLiteChart'] svg"


def open_page(page: Page, link: str = "/why") -> Page:
    page.goto(link)
    expect(page.get_by_role("heading", name="Why attention")).to_be_visible(timeout=20_000)
    wait_ready(page)
    expect(page.locator(CHARTS)).to_have_count(1)
    return page


def pick(page: Page, name: str, option: str) -> None:
    box = page.get_by_role("combobox", name=re.compile(name))
    box.scroll_into_view_if_needed()  # a menu closes when the page scrolls or moves
    wait_ready(page)
    box.click()
    page.get_by_role("option", name=option, exact=True).click()
    wait_ready(page)


def test_first_sight_is_the_measurement_and_a_pinned_cell_picks_the_output_of_the_equation(page):
    open_page(page)
    expect(page.get_by_text("the model with attention translates")).to_be_visible()
    click(page.get_by_text("What an output word reads, as an equation"))
    equation = page.locator(".katex-mathml").nth(1)
    before = equation.text_content()
    canvas = page.locator(".av canvas.over").first
    box = box_of(canvas)
    canvas.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.2})
    wait_ready(page)
    expect(equation).not_to_have_text(before)
    resize(page, 390, "light")


def test_two_models_are_started_with_the_settings_and_stop_together(page, server):
    open_page(page)
    for name, option in {"Size of the vector": "16 numbers", "Longest source": "20 words"}.items():
        pick(page, name, option)
    address = page.evaluate("location.href")
    click(page.get_by_role("button", name="Run it"))
    for name in ("One vector", "Attention"):
        expect(page.get_by_text(re.compile(rf"{name}: step \d+, \d+ of 45 s"))).to_be_visible(
            timeout=60_000
        )
    runs = [
        find_run(name, server.runs) for name in re.search(r"runs=([\w.-]+)", page.url)[1].split(".")
    ]
    assert all(
        run.config().task["max_source"] == 20 and run.config().model.d_model == 16 for run in runs
    )
    click(stop_button(page))
    expect(page.get_by_role("button", name="Run it")).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("(One vector|Attention): .*(kept|Stopped)"))).to_have_count(
        2
    )
    click(page.get_by_role("button", name="Back to the saved measurement"))
    expect(page.get_by_text("The charts show the saved measurement")).to_be_visible()
    assert page.evaluate("location.href") == address, "the settings stay in the link"
    open_page(page, address)
    expect(page.get_by_text("The charts show the saved measurement")).to_be_visible()
