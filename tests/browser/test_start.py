"""From page to page in a real browser: Start here, the tour, the sidebar, what is beside a title, settings that stay."""

import re

import pytest
from playwright.sync_api import Page, expect

from core.studies import start
from dashboard.draw.formats import number
from dashboard.ui import bars
from tests.browser.helpers import (
    box_of,
    click,
    enter,
    open_page,
    resize,
    wait_no_sideways_scrolling,
    wait_ready,
)


def test_the_picked_word_shows_its_strongest_arrow_and_the_sidebar_the_path_and_groups_that_open(
    page,
):
    open_page(page, "")
    item = start.load()["translations"][0]
    board, line = page.locator(".tv .board").nth(1), page.locator(".tv .line").nth(1)
    expect(board).to_be_visible()  # what stands after a component is shown once that is drawn
    board.focus()
    page.keyboard.press("Home")
    weight, word = max(zip(item["weights"][0], item["source"], strict=True))
    expect(line).to_contain_text(f"{item['target'][0]} attends most to {word}: ")
    expect(board.locator("text.value")).to_have_text(number(weight))
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
    resize(page, 1280, "light")
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.locator("a:visible")).to_have_count(8)
    expect(pages.locator("summary")).to_have_count(
        5
    )  # the path and four groups: twelve to choose from
    pages.get_by_text("Mechanisms", exact=True).click()
    pages.get_by_role("link", name="Scores").click()
    expect(pages.get_by_role("link", name="Scores")).to_have_attribute("aria-current", "page")
    wait_ready(page)
    search = page.get_by_role("combobox", name="Search the lab")
    search.fill("sliding window")
    page.get_by_role("option", name="Local window").click()
    expect(page.get_by_role("heading", name="All mechanisms")).to_be_visible()
    expect(page.get_by_role("combobox", name="Choice")).to_have_value("Local window · 2015")


def test_the_tour_sets_the_controls_of_a_page(page):
    open_page(page, "")
    bar = page.locator(".st-key-tour-bar")
    click(page.get_by_role("button", name="Take the tour"), "Tour, 1 of")
    click(bar.get_by_role("button", name="Next stop"), "Tour, 2 of")
    expect(page).to_have_url(re.compile(f"/{bars.STOPS[1].page}.*query=cat"))
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value(bars.TOUR_SENTENCE)
    resize(page, 390, "dark")
    for place in ("top", "bottom"):
        page.get_by_test_id("stMain").evaluate(
            "(main, end) => main.scrollTo(0, end ? main.scrollHeight : 0)", place == "bottom"
        )
        expect(bar).to_be_in_viewport(ratio=1)
    click(bar.get_by_role("button", name="Skip"))
    expect(bar).to_have_count(0)


# From page to page: what was set is there when one comes back, and the address names what is seen.


def go(page: Page, name: str) -> None:
    page.get_by_role("link", name=name).first.click()
    wait_ready(page, 60_000)


def test_settings_outlive_a_look_at_another_page(page: Page):
    open_page(page, "one_query")
    enter(page.get_by_role("textbox", name="Sentence"), "dogs chase cats daily")
    expect(page.locator(".step-view").get_by_text("daily").first).to_be_visible()
    page.get_by_text("Look inside a model", exact=True).click()  # opens the group
    go(page, "Pretrained models")
    enter(page.get_by_role("textbox", name="Text"), "Rain falls on dry land.")
    expect(page).to_have_url(re.compile("Rain"))
    go(page, "One query, step by step")
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value("dogs chase cats daily")
    expect(page).to_have_url(re.compile("dogs"))
    go(page, "Pretrained models")
    expect(page.get_by_role("textbox", name="Text")).to_have_value("Rain falls on dry land.")
    expect(page).to_have_url(re.compile("/pretrained.*Rain"))


# Beside a page's title: its link goes to the clipboard, and Reset brings the page back to its start.


def test_the_link_is_copied_as_it_is_now_and_reset_brings_a_page_back_to_its_start(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, "mechanisms?mechanisms:axis=Kernels")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "Kernels" in page.url
    reset = page.get_by_role("button", name="Reset", exact=True)
    reset.click()
    expect(page).to_have_url(re.compile(r"/mechanisms\??$"))
    axis = page.locator(".st-key-mechanisms-axis button[aria-checked=true]")
    expect(axis).to_have_text("Positions")
    # A page that is one fragment, with a link of its own
    open_page(page, "compare?source=seeded&text=one+two+three&length=128")
    reset.click()
    expect(page).to_have_url(re.compile(r"/compare\??$"))
    source = page.get_by_role("combobox", name="Queries and keys from")
    expect(source).to_have_value("MiniLM, layer 3, head 1")


def present_and_end(page: Page) -> None:
    """Where the title is in a fragment, a press there reruns nothing else."""
    click(page.get_by_role("button", name="Present", exact=True))
    expect(page).to_have_url(re.compile("present=true"))
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    click(page.get_by_role("button", name="End", exact=True))
    expect(page.get_by_test_id("stSidebar")).to_be_visible()


def test_present_works_in_a_fragment_and_the_next_page_opens_at_its_top(page):
    open_page(page, "heads")
    present_and_end(page)
    wait_ready(page)
    # A busy browser draws the new page before the old one has gone, so that the height never shrinks.
    style = page.add_style_tag(content="[data-testid=stMainBlockContainer] { min-height: 5000px }")
    page.get_by_role("link", name=re.compile("^Next: ")).evaluate(
        "link => (link.scrollIntoView(), link.click())"
    )
    expect(page).to_have_url(re.compile("/positions"))
    wait_ready(page)
    expect(page.get_by_role("heading", name="Positions")).to_be_in_viewport()
    style.evaluate("element => element.remove()")
    present_and_end(page)
    page.get_by_test_id("stSidebar").get_by_role("link", name="The Transformer").click()
    expect(page.get_by_role("heading", name="The Transformer")).to_be_visible()
    present_and_end(page)


EXPLAINED = """term => {
  const box = getComputedStyle(term, "::after");
  return box.content === `${JSON.stringify(term.ariaDescription)} / ""` && box.visibility === "visible";
}"""


@pytest.mark.parametrize("path", ["", "masks"])
def test_no_explanation_or_hint_is_cut(page, path):
    open_page(page, path, "abbr.term")
    for width in (1280, 390):
        resize(page, width, "light")
        for term in page.locator("abbr.term").all()[:4]:
            expect(term).to_have_attribute("aria-description", re.compile(r"\w.*\."))
            term.hover()
            page.wait_for_function(EXPLAINED, arg=term.element_handle())
            top, margin, bottom = (
                float(term.evaluate(f"term => getComputedStyle(term, '::after').{side}")[:-2])
                for side in ("top", "marginTop", "bottom")
            )
            top += margin
            assert top >= 60 and bottom >= 0, (
                f"{term.inner_text()}: {top} px from the top, {bottom} px from the bottom"
            )
        page.mouse.move(0, 0)
        page.wait_for_function(f"term => !({EXPLAINED})(term)", arg=term.element_handle())
        term.focus()
        page.wait_for_function(EXPLAINED, arg=term.element_handle())
        term.blur()
        cut = page.evaluate("""() => [...document.querySelectorAll("*")].flatMap((host) => [host, ...(host.shadowRoot
            ? host.shadowRoot.querySelectorAll(".hint") : [])]).filter((part) => part.classList.contains("hint")
            && part.scrollWidth > part.clientWidth).map((part) => part.textContent)""")
        assert not cut


@pytest.mark.parametrize("width", [1920])
def test_present_enlarges_the_page_which_still_answers_the_pointer(page, width):
    open_page(page, "masks")
    board = page.locator(".mb")
    expect(board).to_have_attribute("data-cells", re.compile("."))
    before = board.get_attribute("data-cells")
    click(page.get_by_role("button", name="Present"))
    expect(page).to_have_url(re.compile("present=true"))
    wait_ready(page)
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "24px"
    assert (
        box_of(page.locator(".st-key-masks-actions"))["height"] == 42
    )  # 1.5 times the buttons' 28
    x, y, wide, high = (1.5 * float(part) for part in board.get_attribute("data-map").split(","))
    board.locator(".over").click(position={"x": x + 0.5 * wide, "y": y + 7.5 * high})
    expect(board).not_to_have_attribute("data-cells", before)
    expect(board).to_have_attribute("data-at", "7,0")
    expect(page.get_by_text("as drawn").first).to_be_attached()  # the page has followed
    click(page.get_by_role("button", name="End"))
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    expect(page).not_to_have_url(re.compile("present"))
    # Words stay whole on a large screen.
    page.set_viewport_size({"width": 2560, "height": 900})
    open_page(page, "train?present=true")
    expect(page.get_by_role("button", name="Training settings")).to_be_visible()
    settings = page.locator("[data-testid=stMain] [data-testid=stPopoverButton]")
    assert settings.evaluate_all(
        "buttons => buttons.every(button => button.clientHeight < 100)"
    )  # of one line
    head = box_of(page.locator("[class*=st-key-train-kind]"))
    assert head["width"] >= 380  # twice 190


@pytest.mark.parametrize("width", [390])
def test_on_a_phone_the_row_fits_an_equation_scrolls_and_the_sidebar_leaves_with_a_choice(
    page, width
):
    open_page(page, "one_query?one:start=simple&one:stage=6+Weigh+values")
    expect(page.get_by_role("button", name="Copy link")).to_be_in_viewport(ratio=1)
    wait_no_sideways_scrolling(page)
    open_page(page, "glossary")
    expect(
        page.get_by_role("button", name="Reset")
    ).to_be_visible()  # its component closes the sidebar
    click(page.get_by_test_id("stExpandSidebarButton"))
    page.get_by_test_id("stSidebar").get_by_role("link", name="Lessons", exact=True).click()
    expect(page.get_by_role("heading", name="Lessons", exact=True)).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).not_to_be_in_viewport()
