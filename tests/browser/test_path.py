"""The pages of the path in a real browser: the first page, the tour, pictures that follow, and what is beside a title."""

import re

import pytest
from playwright.sync_api import Page, expect

from core.studies import start
from dashboard.draw.formats import number
from dashboard.ui import bars
from tests.browser.helpers import (
    box_of,
    cell,
    click,
    enter,
    open_page,
    resize,
    sees,
    wait_no_sideways_scrolling,
    wait_ready,
)


def test_the_picked_word_shows_its_strongest_arrow(
    page,
):
    open_page(page, "start")  # the name of the first page, which is also at /
    expect(page.get_by_text("Page not found")).to_have_count(0)
    item = start.load()["translations"][0]
    board = page.locator(".tv .board").nth(1)
    expect(board).to_be_visible()  # what stands after a component is shown once that is drawn
    board.press("Home")
    weight, word = max(zip(item["weights"][0], item["source"], strict=True))
    first = re.compile(f"^{item['target'][0]} takes most from {word}: ")
    expect(board).to_have_attribute("aria-valuetext", first)
    expect(board.locator("text.value")).to_have_text(f"weight {number(weight)}")
    expect(page).to_have_url(re.compile("word=0"))
    box = box_of(board)
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] - 4)
    last = re.compile(f"^{item['target'][-1]} takes most from ")
    expect(board).to_have_attribute("aria-valuetext", last)
    page.mouse.move(0, 0)
    expect(board).to_have_attribute("aria-valuetext", first)
    page.emulate_media(reduced_motion="no-preference")
    page.get_by_role("button", name="Play").click()
    expect(board.locator("circle.later")).to_have_count(len(item["target"]))
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.locator("a:visible")).to_have_count(8)
    # the path and four groups: twelve to choose from
    expect(pages.locator("summary")).to_have_count(5)
    pages.get_by_text("Mechanisms", exact=True).click()
    pages.get_by_role("link", name="All mechanisms").click()
    click(page.get_by_role("link", name="Scores"), "Scores")  # a section of that place
    place = pages.get_by_role("link", name="All mechanisms")
    expect(place).to_have_attribute("aria-current", "page")
    wait_ready(page)
    search = page.get_by_role("combobox", name="Search the lab")
    search.fill("window that slides")
    expect(page.get_by_role("option").first).to_have_text(re.compile("^Local window"))
    search.press("Enter")
    expect(page.get_by_role("heading", name="All mechanisms")).to_be_visible()
    expect(page.get_by_role("combobox", name="Choice")).to_have_value("Local window · 2015")


def test_the_tour_sets_the_controls_of_a_page(page):
    open_page(page, "")
    bar = page.locator(".st-key-tour-bar")
    click(page.get_by_role("button", name="Take the tour"), "Tour, 1 of")
    click(bar.get_by_role("button", name="Next: One query"), "Tour, 2 of")
    expect(page.get_by_role("textbox", name="Sentence")).to_have_value(bars.TOUR_SENTENCE)
    link = page.url
    click(page.get_by_test_id("stSidebar").get_by_role("link", name="Heads"), "Tour, 3 of")
    for text in ("Tour, 2 of", "Tour, 1 of", "3 of 7 pages"):  # one press of Back for each page
        wait_ready(page)
        page.go_back()
        sees(page, text)
    open_page(page, link)  # by hand: another session of the same browser
    resize(page, 390, "dark")
    for place in ("top", "bottom"):
        page.get_by_test_id("stMain").evaluate(
            "(main, end) => main.scrollTo(0, end ? main.scrollHeight : 0)", place == "bottom"
        )
        expect(bar).to_be_in_viewport(ratio=1)
        page.wait_for_function("document.querySelector('.st-key-tour-bar').offsetHeight <= 64")
    assert all(
        min(box["width"], box["height"]) >= 40
        for box in map(box_of, bar.get_by_role("button").all())
    )
    # Next: Heads, of which a phone shows the first word
    word = bar.get_by_role("button", name="Next").locator("strong")
    assert box_of(word)["width"] > 16 and word.inner_text() == "Next"
    click(bar.get_by_role("button", name="End tour"))
    expect(bar).to_have_count(0)
    open_page(page, "", "text=3 of 7 pages")
    expect(page.get_by_role("button", name="Take the tour")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_cell_that_the_tour_asks_for_is_in_sight(page, width, height):
    stop = next(one for one in bars.STOPS if one.page == "heads")
    page.set_viewport_size({"width": width, "height": height})
    open_page(page, "heads?tour=2&heads:start=minilm&heads:pin=10.2")
    bar, cells = page.locator(".st-key-tour-bar"), page.locator(".st-key-heads-layers .tile")
    wait_ready(page)
    sees(page, "Press H2 of layer 0")
    (x, y), above = cell(cells, 2, 0), box_of(bar)["y"]
    assert y + 12 <= (above if width == 390 else height)  # a phone has the bar at the bottom
    page.mouse.click(x, y)
    sees(page, stop.showed)
    sees(page, "in L0·H2")
    expect(page.locator(".st-key-heads-layers .pair")).to_have_text("H2, layer 0")


# Beside a page's title: its link goes to the clipboard, and Reset brings the page back to its start.


def test_the_link_is_copied_as_it_is_now(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, "mechanisms?mechanisms:axis=Kernels")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url and "=kernel" in page.url
    reset = page.get_by_role("button", name="Reset", exact=True)
    reset.click()
    expect(page).to_have_url(re.compile(r"/mechanisms\??$"))
    axis = page.locator(".st-key-mechanisms-axis button[aria-checked=true]")
    expect(axis).to_have_text("Positions")
    # A page that is one fragment, with a link of its own
    open_page(page, "compare?source=seeded&text=one+two+three&length=128")
    reset.click()
    expect(page).to_have_url(re.compile(r"/compare\??$"))
    expect(page.get_by_role("combobox", name="Queries and keys from")).to_have_value(
        "MiniLM, layer 3, head 1"
    )


def present_and_end(page: Page) -> None:
    """Where the title is in a fragment, a press there reruns nothing else."""
    click(page.get_by_role("button", name="Present", exact=True))
    expect(page).to_have_url(re.compile("present=true"))
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    click(page.get_by_role("button", name="End", exact=True))
    expect(page.get_by_test_id("stSidebar")).to_be_visible()


def test_present_works_in_a_fragment(page):
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


EXPLAINED = """term => {
  const box = getComputedStyle(term, "::after");
  return box.content === `${JSON.stringify(term.ariaDescription)} / ""` && box.visibility === "visible";
}"""


@pytest.mark.parametrize(("path", "width"), [("", 390), ("masks", 1280)])
def test_no_explanation_or_hint_is_cut(page, path, width):
    open_page(page, path, "abbr.term")
    for term in page.locator("abbr.term").all()[:4]:
        expect(term).to_have_attribute("aria-description", re.compile(r"\w.*\."))
        term.hover()
        page.wait_for_function(EXPLAINED, arg=term.element_handle())
        top, margin, bottom = (
            float(term.evaluate(f"term => getComputedStyle(term, '::after').{side}")[:-2])
            for side in ("top", "marginTop", "bottom")
        )
        assert top + margin >= 60 and bottom >= 0, (
            f"{term.inner_text()}: {top} px from the top, {bottom} px from the bottom"
        )
    page.mouse.move(0, 0)
    page.wait_for_function(f"term => !({EXPLAINED})(term)", arg=term.element_handle())
    term.focus()
    page.wait_for_function(EXPLAINED, arg=term.element_handle())
    # A press that takes its own button away leads the focus to a control, not to a term.
    term.evaluate("""term => {
      const button = document.createElement("button");
      term.closest("[data-testid=stVerticalBlock]:has(button)").append(button);
      button.focus();
      button.remove();
    }""")
    page.wait_for_function("document.activeElement !== document.body")
    assert page.evaluate("document.activeElement.tagName") != "ABBR"
    assert not page.evaluate("""() => [...document.querySelectorAll("*")].flatMap((host) => [host, ...(host.shadowRoot
        ? host.shadowRoot.querySelectorAll(".hint") : [])]).filter((part) => part.classList.contains("hint")
        && part.scrollWidth > part.clientWidth).map((part) => part.textContent)""")


@pytest.mark.parametrize("width", [1920])
def test_present_enlarges_page_which_still_answers_pointer(page, width):
    open_page(page, "masks")
    board = page.locator(".mb")
    expect(board).to_have_attribute("data-cells", re.compile("."))
    before = board.get_attribute("data-cells")
    click(page.get_by_role("button", name="Present"))
    expect(page).to_have_url(re.compile("present=true"))
    wait_ready(page)
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "24px"
    # 1.5 times the buttons' 28
    assert box_of(page.locator(".st-key-masks-actions"))["height"] == 42
    x, y, wide, high = (1.5 * float(part) for part in board.get_attribute("data-map").split(","))
    board.locator(".over").click(position={"x": x + 0.5 * wide, "y": y + 7.5 * high})
    expect(board).not_to_have_attribute("data-cells", before)
    expect(board).to_have_attribute("data-at", "7,0")
    moved = page.get_by_text(re.compile("may (now|no longer) take from"))
    expect(moved.first).to_be_attached()  # the page has followed
    click(page.get_by_role("button", name="End"))
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    expect(page).not_to_have_url(re.compile("present"))
    # Words stay whole on a large screen.
    page.set_viewport_size({"width": 2560, "height": 900})
    open_page(page, "train?present=true")
    expect(page.get_by_role("button", name="All settings")).to_be_visible()
    settings = page.locator("[data-testid=stMain] [data-testid=stPopoverButton]")
    # of one line
    assert settings.evaluate_all("buttons => buttons.every(button => button.clientHeight < 100)")
    assert box_of(page.locator(".st-key-train-task"))["width"] >= 380


@pytest.mark.parametrize("width", [390])
def test_on_a_phone_the_row_fits_an_equation_scrolls(page, width):
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


# One query in a real browser: the picture is there at once, follows the controls, and answers presses and keys.


VIEW = ".step-view"
STEPS = f"{VIEW} svg"


def fact(page: Page):
    return page.locator(f"{VIEW} .fact")


def test_picture_follows_presses_keys_query_stage_and_text(page):
    open_page(page, "one_query?one:stage=5+Normalize", STEPS)  # six words, four heads
    painted = page.locator(f"{VIEW} canvas").evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    assert painted > 20
    page.locator(f"{VIEW} .press.row").nth(3).click()
    expect(page.locator(".katex-mathml", has_text="too").first).to_be_attached()
    page.locator(VIEW).press("]")
    expect(page.locator(VIEW)).to_have_attribute(
        "aria-label", re.compile("The key in the equation is tired$")
    )
    for key, says in (("ArrowUp", "too takes"), ("ArrowRight", "The output of too")):
        page.keyboard.press(key)
        expect(fact(page)).to_contain_text(says)
    for name, says in (
        ("5 Normalize", "too takes"),
        ("animal", "animal takes"),
        ("Next: Weigh values", "The output of animal"),
    ):
        button = page.get_by_role("button", name=name, exact=True)
        click(button.or_(page.get_by_role("radio", name=name)).first)
        expect(fact(page)).to_contain_text(says)
    expect(page).to_have_url(re.compile("6(\\+|%20)Weigh"))
    enter(page.get_by_role("textbox", name="Sentence"), "<b>bold</b> moon")
    expect(page.locator(f"{VIEW} svg text", has_text="<b>bold</b>").first).to_be_visible()


@pytest.mark.parametrize("width", [2560])
def test_a_press_on_a_row_picks_the_query(page, width):
    open_page(page, "one_query", STEPS)
    # The picture fills a wide screen, and fits a phone.
    main = box_of(page.locator("[data-testid='stMainBlockContainer']"))["width"]
    assert box_of(page.locator(STEPS))["width"] > 0.85 * main
    expect(page.locator(VIEW)).to_have_attribute(
        "aria-label", re.compile("^Step 1 of 6, Project. The query is slept")
    )
    page.locator(f"{VIEW} .press.row").first.click()
    expect(fact(page)).to_contain_text("The: three matrices")
    click(page.get_by_role("button", name="Next"))
    expect(fact(page)).to_contain_text("The has its highest score with")
    expect(page.locator(f"{VIEW} table th")).to_have_text(["key", "score"])
    expect(page.locator(f"{VIEW} svg text", has_text="weight")).to_have_count(0)
    below = page.get_by_role("heading", name="What it means")
    below.evaluate("node => { node.dataset.kept = 'yes' }")
    before = fact(page).text_content()
    page.get_by_text("All settings").click()
    page.get_by_role("slider").first.press("ArrowRight")
    expect(fact(page)).not_to_have_text(before)
    wait_ready(page)
    assert below.get_attribute("data-kept") == "yes"
    page.keyboard.press("Escape")
    resize(page, 390, "dark")
    assert page.locator(VIEW).evaluate("v => v.style.getPropertyValue('--pick')") == "#FF9A66"
    assert box_of(page.locator(STEPS))["width"] <= 358


# The Transformer page in a real browser: rows open without a rerun, a row of maps draws them, a phone.


PAGE = "transformer?transformer%3Alayers=2&transformer%3Adepth=3"


def test_part_opens_row_draws_its_maps_and_diagram_walks_on(page: Page):
    open_page(page, PAGE)
    click(page.get_by_text("Every part and its numbers"))
    page.locator(".dg[data-ready='1']").wait_for()
    wait_ready(page)
    tree = page.locator(".dg")
    expect(tree.locator("[data-path='layers.1']")).to_be_visible()
    expect(tree.locator("[data-path='layers.2']")).to_have_count(0)
    row = tree.locator("[data-path='encoder.layers.1']")
    inner = tree.locator("[data-path='encoder.layers.1.attention']")
    expect(inner).to_be_hidden()
    row.click()
    expect(inner).to_be_visible()
    row.press("Enter")
    expect(inner).to_be_hidden()
    expect(page.get_by_text("Cross-attention, every layer and head")).to_be_visible()
    tree.locator("[data-path='encoder.layers.0.attention']").click()
    expect(page.get_by_text("Self-attention, every layer and head", exact=True)).to_be_visible()
    expect(tree.locator("[data-path='encoder.layers.0.attention']")).to_have_class(
        "line opens chosen"
    )
    drawing = page.locator(".bd[data-ready='1']")
    expect(drawing.locator(".where")).to_have_text("1 of 14")
    block = drawing.locator("[data-path='layers.1.cross']")
    expect(block).to_have_count(0)
    drawing.locator("[data-path='layers.1']").click()
    expect(block).to_be_visible()
    expect(drawing.locator("[data-path='layers.0.cross']")).to_have_count(0)
    block.click()
    expect(drawing.locator(".panel h2")).to_have_text("Cross-attention")
    # the vectors, and a map of each of two heads
    expect(drawing.locator(".panel canvas")).to_have_count(3)
    expect(page.get_by_text("Cross-attention, every layer and head", exact=True)).to_be_visible()
    drawing.get_by_role("button", name="Every box").click()
    drawing.get_by_role("button", name="Next").click()
    expect(drawing.locator(".panel h2")).to_have_text("Add and norm")


def test_walk_lights_every_box_once_and_says_its_end(page: Page):
    open_page(page, "transformer")
    drawing = page.locator(".bd[data-ready='1']")
    following = drawing.locator(".step").nth(1)
    expect(drawing.locator(".where")).to_have_text("1 of 6")
    expect(drawing.get_by_role("button", name="Back")).to_have_attribute("aria-disabled", "true")
    lit = []
    for step in range(1, 7):
        expect(drawing.locator(".where")).to_have_text(f"{step} of 6")
        wait_ready(page)
        lit += drawing.locator(".block.chosen").evaluate_all(
            "all => all.map(one => one.dataset.path)"
        )
        if step == 5:  # the later layers: every box goes on from there, and comes back
            every = drawing.get_by_role("button", name="Every box")
            click(every)
            expect(drawing.locator(".where")).to_have_text("14 of 39")
            click(every)
        if step < 6:
            expect(following).to_have_text("Next step ›")
            click(following)
    boxes = drawing.locator(".block").evaluate_all("all => all.map(one => one.dataset.path)")
    assert lit == boxes, "each once, from the input to the output"
    expect(following).to_have_text("Start again")
    click(following)
    expect(drawing.locator(".where")).to_have_text("1 of 6")


def test_on_a_phone_next_shows_its_block_below_its_button(page: Page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    open_page(page, "transformer")
    drawing = page.locator(".bd[data-ready='1']")
    following = drawing.locator(".step").nth(1)
    wait_ready(page)
    for _ in range(5):
        click(following)
        wait_ready(page)
        for block in drawing.locator(".chosen").all():
            expect(block).to_be_in_viewport(ratio=1)
        expect(following).to_be_in_viewport(ratio=1)
        room = drawing.evaluate("""root => root.querySelector(".chosen").getBoundingClientRect().top
                                   - root.querySelector(".above").getBoundingClientRect().bottom""")
        assert room >= 0, "it is not behind the text"


def test_a_moved_slider_draws_the_new_layers(page: Page):
    page.goto("/transformer?run=seeded&transformer%3Alayers=3")
    drawing = page.locator(".bd[data-ready='1']")
    expect(drawing.locator(".panel canvas")).to_have_count(1)
    wait_ready(page)
    page.evaluate("""() => {
      const root = [...document.querySelectorAll('*')].map((one) => one.shadowRoot?.querySelector('.bd')).find(Boolean);
      const count = (what) => root.querySelectorAll(what).length;
      const seen = () => `${count(".block.layer")} ${count(".panel canvas")}`;
      window.__seen = [];
      new MutationObserver(() => window.__seen.push(seen())).observe(root, { childList: true, subtree: true });
    }""")
    drawing.get_by_role("button", name="Every box").click()
    page.evaluate("() => { window.__seen = [] }")
    layers = drawing.locator(".block.layer").count()
    page.get_by_role("slider", name="Layers").press("ArrowRight")
    expect(drawing.locator(".block.layer")).to_have_count(layers + 2)
    wait_ready(page)
    expect(drawing.locator(".panel canvas")).to_have_count(1)
    # never the old layers; their map comes in the same frame or in a later one
    seen = page.evaluate("() => [...new Set(window.__seen)]")
    assert seen in ([f"{layers + 2} 0", f"{layers + 2} 1"], [f"{layers + 2} 1"])
    expect(page.get_by_text("88,414 parameters")).to_be_visible()


def test_the_layers_of_a_card_are_as_high_as_what_they_read(page: Page):
    open_page(page, "cards", ".cards .layers")
    cells = page.locator(".cards .layers").first.locator("i")
    heights = cells.evaluate_all("cells => cells.map(cell => cell.offsetHeight)")
    assert heights == 8 * [16, 16, 16, 16, 16, 32]  # five windows, then the whole text
