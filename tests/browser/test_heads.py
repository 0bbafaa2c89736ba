"""The page Heads in a real browser: a split is drawn, a cell is pinned and the sentence follows, at both widths."""

from playwright.sync_api import expect

from tests.browser.helpers import assert_no_exception, box_of, open_page, resize, wait_ready

FACT = "[data-testid='stHtml'] p"


def test_every_idea_is_drawn_within_the_page(page):
    open_page(page, "heads")
    for idea, sentence in (
        ("One head or many", "with 12 heads"),
        ("Shared keys and values", "their maps are"),
        ("Two maps, subtracted", "are below 0"),
    ):
        page.get_by_text(idea, exact=True).click()
        wait_ready(page)
        expect(page.locator(FACT)).to_contain_text(sentence)
        expect(page.locator(".mu canvas").first).to_be_visible()
        assert_no_exception(page)
        resize(page, 390, "dark")
        assert_no_exception(page)
        resize(page, 1280, "light")
    assert "heads:idea=" in page.url.replace("%3A", ":")


def test_titles_are_in_line_a_pin_comes_from_the_link_and_a_pinned_cell_is_what_the_sentence_speaks_of(
    page,
):
    open_page(page, "heads", **{"heads:start": "minilm", "heads:pin": "8.3"})
    page.locator(".mu .name").nth(3).wait_for()
    tops = page.locator(".mu .name").evaluate_all(  # in one frame, as the page may still move
        "nodes => nodes.slice(0, 4).map(node => node.getBoundingClientRect().top)"
    )
    assert len(tops) == 4
    assert max(tops) - min(tops) < 1
    expect(page.locator(".mu").first).to_have_attribute("data-pin", "8,3")
    page.get_by_text("Two maps, subtracted", exact=True).click()
    wait_ready(page)
    fact = page.locator(FACT)
    before = fact.text_content()
    canvas = page.locator(".mu canvas.over").first
    box = box_of(canvas)
    canvas.click(position={"x": box["width"] * 0.92, "y": box["height"] * 0.92})
    wait_ready(page)
    expect(fact).not_to_have_text(before)
    assert fact.inner_text().startswith(". gives")
    assert "heads:pin=" in page.url.replace("%3A", ":")
    assert_no_exception(page)
