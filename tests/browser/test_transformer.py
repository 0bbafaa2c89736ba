"""The Transformer page in a real browser: rows open without a rerun, a row of maps draws them, a phone."""

from playwright.sync_api import Page, expect

from tests.browser.helpers import choose, click, open_page, resize, wait_ready

PAGE = "transformer?transformer%3Alayers=2&transformer%3Adepth=3"


def open_tree(page: Page):
    open_page(page, PAGE)
    click(page.get_by_text("Every part and its numbers"))
    page.locator(".dg[data-ready='1']").wait_for()
    wait_ready(page)
    return page.locator(".dg")


def test_a_part_opens_its_numbers_add_up_a_row_draws_its_maps_and_the_diagram_walks_on(page: Page):
    tree = open_tree(page)
    expect(tree.locator("[data-path='layers.1']")).to_be_visible()
    expect(tree.locator("[data-path='layers.2']")).to_have_count(0)
    row = tree.locator("[data-path='encoder.layers.1']")
    inner = tree.locator("[data-path='encoder.layers.1.attention']")
    expect(inner).to_be_hidden()
    row.click()
    expect(inner).to_be_visible()

    def parameters(path: str) -> int:
        text = tree.locator(f"[data-path='{path}'] .c1").inner_text()
        return int("".join(filter(str.isdigit, text)) or 0)

    parts = [
        f"encoder.layers.1.{name}"
        for name in ("attention", "around_attention", "feed_forward", "around_feed_forward")
    ]
    assert sum(map(parameters, parts)) == parameters("encoder.layers.1") == 8544
    row.press("Enter")
    expect(inner).to_be_hidden()
    expect(page.get_by_text("Cross-attention, every layer and head")).to_be_visible()
    tree.locator("[data-path='encoder.layers.0.attention']").click()
    expect(page.get_by_text("Self-attention, every layer and head", exact=True)).to_be_visible()
    expect(tree.locator("[data-path='encoder.layers.0.attention']")).to_have_class(
        "line opens chosen"
    )
    drawing = page.locator(".bd[data-ready='1']")
    expect(drawing.locator(".where")).to_contain_text("1 of ")
    block = drawing.locator("[data-path='layers.1.cross']")
    expect(block).to_have_count(0)
    drawing.locator("[data-path='layers.1']").click()
    expect(block).to_be_visible()
    expect(drawing.locator("[data-path='layers.0.cross']")).to_have_count(0)
    block.click()
    expect(drawing.locator(".panel h2")).to_have_text("Cross-attention")
    expect(drawing.locator(".panel canvas")).to_have_count(
        3
    )  # the vectors, and a map of each of two heads
    expect(page.get_by_text("Cross-attention, every layer and head", exact=True)).to_be_visible()
    drawing.get_by_role("button", name="Next").click()
    expect(drawing.locator(".panel h2")).to_have_text("Add and norm")
    resize(page, 390, "light")
    expect(tree.locator("[data-path='output']")).to_be_visible()


def test_on_a_phone_next_shows_its_block_below_its_button(page: Page):
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(reduced_motion="reduce")
    open_page(page, PAGE)
    drawing = page.locator(".bd[data-ready='1']")
    following = drawing.get_by_role("button", name="Next")
    wait_ready(page)
    for _ in range(4):
        click(following)
        expect(drawing.locator(".chosen")).to_be_in_viewport(ratio=1)
        expect(following).to_be_in_viewport(ratio=1)
        room = drawing.evaluate("""root => root.querySelector(".chosen").getBoundingClientRect().top
                                   - root.querySelector(".above").getBoundingClientRect().bottom""")
        assert room >= 0, "it is not behind the text"


def test_a_moved_slider_draws_the_new_layers_before_they_are_measured(page: Page):
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
    layers = drawing.locator(".block.layer").count()
    page.get_by_role("slider", name="Layers").press("ArrowRight")
    expect(drawing.locator(".block.layer")).to_have_count(layers + 2)
    wait_ready(page)
    expect(drawing.locator(".panel canvas")).to_have_count(1)
    assert page.evaluate("() => [...new Set(window.__seen)]") == [
        f"{layers + 2} 0",
        f"{layers + 2} 1",
    ]
    expect(page.get_by_text("88,414 parameters")).to_be_visible()


# Model cards in a real browser: all layers are drawn, another card opens, and its attentions open side by side.


def test_the_layers_of_all_models_are_drawn_and_a_card_opens(page: Page):
    open_page(page, "cards")
    strips = page.locator(".cards .layers")
    expect(strips).to_have_count(22)
    heights = (
        strips.nth(21).locator("i").evaluate_all("cells => cells.map(cell => cell.offsetHeight)")
    )
    assert heights == 8 * [16, 16, 16, 16, 16, 32]  # five windows, then the whole text
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    choose(page, "Model", "Qwen3-Next 80B · 2025", exact=False)
    expect(page.get_by_role("heading", name="Qwen3-Next 80B")).to_be_visible()
    marked = page.locator(".cards tr th[scope=row]").evaluate_all(
        "cells => cells.filter((cell) => getComputedStyle(cell).fontWeight === '600').map((cell) => cell.textContent)"
    )
    assert marked == ["Qwen3-Next 80B"]
    page.get_by_role("link", name="See these attentions in small, side by side").click()
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
    wait_ready(page, 60_000)
    expect(page.get_by_text("The link's")).to_have_count(0)
