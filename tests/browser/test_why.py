"""Pages that measure in a real browser: saved numbers at once, a run of one's own from press to verdict, Stop, a phone."""

import re

import pytest
from playwright.sync_api import expect

from core.runs.runs import find_run
from tests.browser.helpers import (
    assert_no_exception,
    box_of,
    choose,
    click,
    click_at,
    open_page,
    press_keys,
    reload,
    resize,
    sees,
    stop_button,
    wait_ready,
)

CHARTS = "[data-testid='stVegaLiteChart'] canvas, [data-testid='stVegaLiteChart'] svg"


def test_first_sight_is_the_measurement_and_a_pinned_cell_picks_the_output_of_the_equation(page):
    open_page(page, "why", CHARTS)
    expect(page.locator(CHARTS)).to_have_count(1)
    sees(page, "the model with attention translates")
    click(page.get_by_text("What an output word reads, as an equation"))
    equation = page.locator(".katex-mathml").nth(1)
    before = equation.text_content()
    click_at(page.locator(".av canvas.over").first, 0.3, 0.2)
    expect(equation).not_to_have_text(before)
    resize(page, 390, "light")


def test_two_models_are_started_with_the_settings_and_stop_together(page, server):
    open_page(page, "why", CHARTS)
    for name, option in {"Size of the vector": "16 numbers", "Longest source": "20 words"}.items():
        choose(page, re.compile(name), option)
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
    click(
        page.get_by_role("button", name="Back to the saved measurement"),
        "The charts show the saved measurement",
    )
    assert page.evaluate("location.href") == address, "the settings stay in the link"
    open_page(page, address)
    sees(page, "The charts show the saved measurement")


# Cost and speed in a real browser: a link with its settings, both figures, a race with its bar, Stop, and a phone.


def test_a_race_runs_and_stops_and_a_phone_shows_the_links_settings(page):
    # The longest race there is, so that it does not end before Stop.
    open_page(
        page,
        "efficient?efficient:longest=8,192+tokens&efficient:backward=and+backward&efficient:few=6",
    )
    expect(page.get_by_text("Nyström with 6 landmarks")).to_be_visible()
    expect(page.get_by_role("combobox", name="Longest text")).to_have_value("8,192 tokens")
    assert page.locator(CHARTS).count() >= 2
    measure = page.get_by_role("button", name="Measure", exact=True)
    click(measure)
    expect(page.get_by_role("progressbar").first).to_be_visible()
    click(stop_button(page))
    expect(measure).to_be_enabled()
    wait_ready(page)
    assert_no_exception(page)
    resize(page, 390, "dark")


# Claims in a real browser: a line is drawn by pointer and keys, and a claim is measured from press to verdict.


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
    press_keys(page, "End", "Tab", "Home", "Shift+ArrowUp")
    expect(paper.locator(".line")).to_have_text("d_k 8: 10 %")
    click(paper.get_by_role("button", name="Show me"), re.compile(r"taken: \[1\.0, 0\.1, "))


def test_nothing_drawn_is_no_guess(paper, page):
    click(paper.get_by_role("button", name="Show me without a guess"), "taken: None")


def test_a_card_opens_its_claim_which_outlives_a_reload(page):
    open_page(page, "claims")
    page.get_by_role("link", name="Iris with attention").click()
    expect(page).to_have_url(re.compile("claim=iris"))
    reload(page)
    expect(page.get_by_role("button", name="All claims")).to_be_visible()
