"""Start here in a real browser: the pictures play and answer pointer and keys; the tour drives real controls."""

import re

from playwright.sync_api import expect

from core.studies import start
from dashboard.draw.formats import number
from dashboard.ui import tour
from tests.browser.helpers import box_of, click, resize, wait_ready


def test_the_picked_output_word_shows_its_strongest_arrow(page):
    page.goto("/")
    wait_ready(page)
    item = start.load()["translations"][0]
    board, line = page.locator(".tv .board").nth(1), page.locator(".tv .line").nth(1)
    expect(board).to_be_visible()  # what stands after a component is shown once that is drawn
    board.focus()
    page.keyboard.press("Home")
    best = max(range(len(item["source"])), key=lambda at: item["weights"][0][at])
    expect(line).to_contain_text(f"{item['target'][0]} attends most to {item['source'][best]}: ")
    expect(board.locator("text.value")).to_have_text(number(item["weights"][0][best]))
    expect(page).to_have_url(re.compile("word=0"))
    box = box_of(board)
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] - 4)
    expect(line).to_contain_text(f"{item['target'][-1]} attends most to ")
    page.mouse.move(0, 0)
    expect(line).to_contain_text(f"{item['target'][0]} attends most to ")
    page.emulate_media(reduced_motion="no-preference")
    page.get_by_role("button", name="Play again").click()
    expect(board.locator("circle.later")).to_have_count(len(item["target"]), timeout=2_000)
    resize(page, 390, "dark")


def test_the_tour_sets_the_controls_of_a_page(page):
    page.goto("/")
    wait_ready(page)
    click(page.get_by_role("button", name="Take the tour"))
    bar = page.locator(".st-key-tour-bar")
    expect(bar).to_contain_text("Tour, 1 of")
    click(bar.get_by_role("button", name="Next stop"))
    expect(bar).to_contain_text("Tour, 2 of")
    expect(page).to_have_url(re.compile(f"/{tour.STOPS[1].page}.*query=cat"))
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value(tour.SENTENCE)
    resize(page, 390, "dark")
    for place in ("top", "bottom"):
        page.get_by_test_id("stMain").evaluate(
            "(main, end) => main.scrollTo(0, end ? main.scrollHeight : 0)", place == "bottom"
        )
        expect(bar).to_be_in_viewport(ratio=1)
    click(bar.get_by_role("button", name="Skip"))
    expect(bar).to_have_count(0)


def test_the_sidebar_shows_the_path_and_groups_that_open(page):
    page.goto("/")
    wait_ready(page)
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.locator("a:visible")).to_have_count(8)
    expect(pages.locator("summary")).to_have_count(
        5
    )  # the path and four groups: twelve to choose from
    pages.get_by_text("Mechanisms", exact=True).click()
    pages.get_by_role("link", name="Scores").click()
    expect(pages.get_by_role("link", name="Scores")).to_have_attribute("aria-current", "page")
    search = page.get_by_role("combobox", name="Search the lab")
    search.fill("sliding window")
    page.get_by_role("option", name="Local window").click()
    expect(page.get_by_role("heading", name="All mechanisms")).to_be_visible()
    expect(page.get_by_role("combobox", name="Choice")).to_have_value("Local window · 2015")
