"""The page Positions in a real browser: dials turn, maps are drawn, words are shuffled, at both widths."""

from playwright.sync_api import expect

from tests.browser.helpers import box_of, open_page, resize, wait_ready

FACT = "[data-testid='stHtml'] p"


def test_shuffling_again_draws_another_order_and_a_fact(page):
    open_page(
        page, "positions", **{"positions:cell": "0.1"}
    )  # a pinned cell opens the maps of the weights
    fact = page.locator(FACT).first
    expect(fact).to_contain_text("changes by")
    note = page.locator(".st-key-positions-maps .mu .note").nth(1)
    expect(note).to_be_visible()
    before = note.text_content()
    page.get_by_role("button", name="Shuffle again").click()
    wait_ready(page)
    expect(note).not_to_have_text(before)
    page.get_by_text("The encoding", exact=True).click()
    wait_ready(page)
    expect(page.locator("[data-testid='stVegaLiteChart']")).to_be_visible()
    assert "positions:idea=" in page.url.replace("%3A", ":")


def test_dials_turn_with_the_place_and_answer_the_pointer_and_keys(page):
    open_page(
        page, "positions", **{"positions:position": "RoPE · 2021", "positions:idea": "The encoding"}
    )
    dials = page.locator(".dials .scroll")
    expect(dials.locator("line.hand")).to_have_count(8 * 24)
    expect(dials.locator("line.before")).to_have_count(0)
    tips = [
        (line.get_attribute("x2"), line.get_attribute("x1"))
        for line in dials.locator("line.hand").all()[:2]
    ]
    assert float(tips[0][0]) - float(tips[0][1]) > float(tips[1][0]) - float(tips[1][1]) > 0, (
        "cos 0 before cos 1"
    )
    for width, scheme in ((1280, "light"), (390, "dark")):
        resize(page, width, scheme)
        box = box_of(dials.locator("circle.face").nth(3))
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator(".dials .line")).to_contain_text("position 3 · pair 0, 8: 171.9°")
        dials.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator(".dials .line")).to_contain_text("position 4 · pair 0, 8: 229.2°")
