"""Pages about the heads of a model in a real browser: a cell of a grid is pressed, and everything under it follows."""

import re
import shutil

import pytest
from playwright.sync_api import Page, expect

from core.files import CORPORA
from tests.browser.conftest import Server
from tests.browser.helpers import (
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
    wait_no_sideways_scrolling,
    wait_ready,
)

GRIDS = "[data-testid='stVegaLiteChart'] svg"


def cell(page: Page, grid: int, head: str):
    return (
        page.locator("[data-testid='stVegaLiteChart']")
        .nth(grid)
        .locator(f"path[aria-label^='{head}: ']")
        .first
    )


def test_a_head_that_is_pressed_in_either_grid_is_read_below_and_kept_in_the_link(page: Page):
    open_page(page, "head_roles", GRIDS)
    expect(page.locator(GRIDS)).to_have_count(3, timeout=60_000)
    named = re.compile(r"Same word 0\.\d{2,3}, chance 0\.0\d")
    expect(cell(page, 0, "L2·H9")).to_have_attribute("aria-label", named)
    click(
        cell(page, 0, "L2·H9"),
        re.compile(r"L2·H9 puts 0\.\d+ of its weight on the token before"),
        "Its role is same word",
    )
    expect(page.locator(".av")).to_have_attribute("data-head", "9")
    click(cell(page, 1, "L2·H11"), re.compile(r"L2·H11 puts 0\.37"))
    reload(page)
    expect(page.get_by_text(re.compile(r"L2·H11 puts 0\.37"))).to_be_visible(timeout=60_000)
    choose(page, "Role", "Next token", exact=False)
    expect(
        page.get_by_text(re.compile(r"L1·H8 puts 0\.68 of its weight on the token after"))
    ).to_be_visible()
    expect(page.get_by_role("combobox", name="Head")).to_have_value("L1·H8")
    resize(page, 390, "dark")
    wide = page.evaluate(
        "[...document.querySelectorAll('[data-testid=stVegaLiteChart] svg')]"
        ".map(e => e.getBoundingClientRect().right)"
    )
    assert max(wide) <= 390


# The page Heads over a corpus in a real browser: own texts are measured by a worker, and a reload finds them again.


TEXTS = "\n".join(
    f"the old man saw the {one} and the {one} saw the old man" for one in ("bird", "fish", "king")
)


def test_texts_of_a_person_are_measured_and_a_pressed_head_stays_after_a_reload(
    page: Page, server: Server
):
    source = {"corpus:source:training": "Your own texts", "corpus:data": TEXTS}
    open_page(page, "corpus", **{"inside:model": "induction"} | source)
    click(page.get_by_role("button", name="Measure", exact=True))
    caption = page.get_by_text(re.compile("induction, causal self-attention, 3 texts, measured on"))
    expect(caption).to_be_visible(timeout=60_000)
    expect(stop_button(page)).to_have_count(0)
    head = (
        page.locator("[data-testid='stVegaLiteChart']")
        .first.locator("path[aria-label^='L0·H1: ']")
        .first
    )
    expect(head).to_have_attribute("aria-label", re.compile(r"Distance \d+\.\d+ ± 0\.\d+, Entropy"))
    pressed = re.compile("L0·H1: its weight on the token before is")
    click(head, pressed)
    choose(page, "Head", "L1·H2")
    expect(page.get_by_text(pressed)).to_have_count(0)
    click(head, pressed)  # the same head again, which another one took the place of
    drawing = page.locator("[data-testid='stVegaLiteChart'] svg").first.element_handle()
    choose(page, "Across", "Induction")
    expect(page.locator("[data-testid='stVegaLiteChart']").first).to_contain_text(
        "Induction, weight"
    )
    assert drawing.evaluate("svg => svg.isConnected && !svg.textContent.includes('Distance')"), (
        "changed in its place"
    )
    choose(page, "Across", "Distance")
    assert "corpus:run" in page.url or "corpus%3Arun" in page.url
    reload(page)
    sees(page, pressed, timeout=60_000)
    expect(caption).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 900})
    wait_no_sideways_scrolling(page)
    options = (
        page.get_by_role("radiogroup", name="Show").or_(page.locator(".st-key-corpus-view")).first
    )
    assert options.evaluate(
        "node => [node, ...node.querySelectorAll('*')].every(one => one.scrollWidth <= "
        "one.clientWidth + 1 || getComputedStyle(one).overflowX === 'visible')"
    )
    right = box_of(page.get_by_text("Queries and keys", exact=True))
    assert right["x"] + right["width"] <= 390 - 16
    shutil.rmtree(server.runs / CORPORA)  # deleted from elsewhere, while the page is open
    choose(page, "Across", "Entropy")
    expect(page.get_by_text("These texts were not measured with this model yet.")).to_be_visible()


# Evidence in a real browser: a click in the grid opens that head, one crosshair runs over all measures, Stop stops.


def test_a_click_in_the_grid_opens_that_head_by_all_measures(page: Page):
    open_page(page, "evidence?inside:model=induction")
    answer = re.compile(r"Without L\d·H\d, the probability of the answer river")
    sees(page, "on the same tokens", answer, timeout=60_000)
    wait_ready(page)
    figure = page.locator("[data-testid='stVegaLiteChart']").first
    click_at(figure.locator("svg, canvas").first, 0.55, 0.28)
    expect(page).to_have_url(re.compile(r"head=[01]\.\d"), timeout=15_000)
    wait_ready(page)
    layer, head = re.search(r"head=([01])\.(\d)", page.url).groups()
    expect(page.get_by_text(f"L{layer}·H{head} on the same tokens")).to_be_visible(timeout=15_000)
    maps = page.locator(".mu").first
    for name in ("Weights", "Written", "Gradient", "Rollout", "Flow"):
        expect(maps.get_by_text(name, exact=True).first).to_be_visible()
    field = page.get_by_role("combobox", name="Head")
    expect(field).to_have_value(f"L{layer}·H{head}")
    field.focus()
    press_keys(page, "ArrowUp" if (layer, head) != ("0", "0") else "ArrowDown", "Enter")
    expect(page).not_to_have_url(re.compile(rf"head={layer}\.{head}"))
    wait_ready(page)
    expect(page.get_by_text(f"{field.input_value()} on the same tokens")).to_be_visible(
        timeout=15_000
    )
    expect(field).to_be_focused()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
def test_a_long_text_waits_for_a_press_and_stops_at_one(page: Page):
    text = "the+tired+animal+crossed+a+street+and+slept.+" * 60
    open_page(page, f"evidence?inside:text={text}")
    page.get_by_role("button", name=re.compile("Measure 7[0-9] heads and layers")).click(
        timeout=60_000
    )
    stop_button(page).click(timeout=60_000)
    measured = re.compile(r"\d+ of 78 heads and layers measured; the rest takes about")
    sees(page, measured, timeout=60_000)


# When it decides in a real browser: a click in the grid picks position and layer, one on a head its attention.


def click_in_grid(page: Page, key: str, across: float, down: float) -> None:
    """Click in the figure of that key, at a share of its width and so many pixels from its top."""
    figure = (
        page.locator(f".st-key-{key} [data-testid='stVegaLiteChart']").locator("svg, canvas").first
    )
    expect(figure).to_be_visible(timeout=60_000)
    wait_ready(page)
    box = box_of(figure)
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down)
    wait_ready(page)


def test_a_cell_and_a_head_are_picked_by_a_click(page: Page):
    open_page(page, "lens")
    expect(page.get_by_text("Where L1 attends to from dark")).to_be_visible(timeout=60_000)
    click_in_grid(page, "lens-cells", 0.5, 52)
    expect(page).to_have_url(re.compile(r"at=\d+&lens%3Alayer%3Ainduction=L0"), timeout=15_000)
    expect(page.get_by_text(re.compile("Where L0 attends to from"))).to_be_visible(timeout=15_000)
    wait_no_sideways_scrolling(page)
    open_page(page, "lens?lens:view=Who+wrote+it")
    expect(page.get_by_text(re.compile(r"Sum of all 13 parts"))).to_be_visible(timeout=60_000)
    click_in_grid(page, "lens-parts", 0.15, 50)
    expect(page).to_have_url(re.compile(r"head=[01]\.0"), timeout=15_000)
    expect(page.get_by_role("rowheader", name=re.compile("L[01]·H0"))).to_be_visible(timeout=15_000)


# What a head can do in a real browser: the graph is drawn, and a click on a head opens it and is linked.


def test_a_click_in_a_grid_opens_that_head(page: Page):
    open_page(page, "circuits")
    expect(page.get_by_text("The circuit, found twice.")).to_be_visible(timeout=60_000)
    grid = page.locator("[data-testid='stVegaLiteChart']").nth(1).locator("svg, canvas").first
    grid.scroll_into_view_if_needed()
    click_at(grid, 0.9, 0.36)
    expect(page).to_have_url(re.compile(r"circuits%3Ahead=L\d|circuits:head=L\d"), timeout=15_000)
    wait_ready(page)
    name = re.search(r"head=(L\d)(?:%C2%B7|·)(H\d)", page.url)
    expect(page.get_by_text(f"Where {name[1]}·{name[2]} attends to")).to_be_visible(timeout=15_000)
