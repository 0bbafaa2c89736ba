"""One query in a real browser: the picture is there at once, follows the controls, and answers presses and keys."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import box_of, choose, click, enter, open_page, resize, wait_ready

VIEW = ".step-view"
STEPS = f"{VIEW} svg"


def open_layer(page: Page) -> Page:
    """Six words, four heads, as a link of the first version opens them."""
    return open_page(page, "one_query?one:stage=5+Normalize", STEPS)


def fact(page: Page):
    return page.locator(f"{VIEW} .fact")


def test_something_real_is_seen_with_nothing_pressed_in_either_scheme_on_a_wide_screen_and_on_a_phone(
    page,
):
    page.set_viewport_size({"width": 2560, "height": 1200})
    open_page(page, "one_query", STEPS)
    main = box_of(page.locator("[data-testid='stMainBlockContainer']"))["width"]
    assert box_of(page.locator(f"{VIEW} svg"))["width"] > 0.85 * main
    expect(fact(page)).to_contain_text("slept has a query of 4 numbers")
    expect(page.locator(VIEW)).to_have_attribute(
        "aria-label", re.compile("^Step 1 of 6, Project. The query is slept")
    )
    for part in ("query", "key", "value"):
        expect(page.locator(f"{VIEW} svg text", has_text=re.compile(f"^{part}"))).to_have_count(1)
    open_layer(page)
    expect(page.locator(f"{VIEW} table tr")).to_have_count(7)
    painted = page.locator(f"{VIEW} canvas").evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    assert painted > 20
    resize(page, 390, "dark")
    assert page.locator(VIEW).evaluate("v => v.style.getPropertyValue('--pick')") == "#FF9A66"
    assert box_of(page.locator(f"{VIEW} svg"))["width"] <= 358


def test_the_picture_follows_presses_keys_query_stage_text_and_preset(page):
    open_layer(page)
    page.locator(f"{VIEW} .press.row").nth(3).click()
    expect(page.locator(".katex-mathml", has_text="too").first).to_be_attached()
    page.locator(VIEW).focus()
    page.keyboard.press("]")
    expect(page.locator(VIEW)).to_have_attribute(
        "aria-label", re.compile("The key in the equation is tired$")
    )
    for key, says in (("ArrowUp", "too gives"), ("ArrowRight", "The output of too")):
        page.keyboard.press(key)
        expect(fact(page)).to_contain_text(says)
    for name, says in (
        ("Back", "too gives"),
        ("animal", "animal gives"),
        ("Next", "The output of animal"),
    ):
        button = page.get_by_role("button", name=name, exact=True)
        click(button.or_(page.get_by_role("radio", name=name)).first)
        expect(fact(page)).to_contain_text(says)
    expect(page).to_have_url(re.compile("6(\\+|%20)Weigh"))
    enter(page.get_by_role("textbox", name="Sentence"), "<b>bold</b> moon")
    expect(page.locator(f"{VIEW} svg text", has_text="<b>bold</b>").first).to_be_visible()
    click(page.get_by_role("button", name="Back", exact=True))
    click(page.get_by_role("button", name="More"))
    choose(page, "Preset", "Worked example", exact=False)
    expect(fact(page)).to_contain_text("q0 gives 0.58 to k2.")
    expect(page).to_have_url(re.compile("matrices="))


def test_a_press_on_a_row_of_step_1_picks_the_query_step_2_has_no_weights_and_a_slider_leaves_the_rest_alone(
    page,
):
    open_page(page, "one_query", STEPS)
    page.locator(f"{VIEW} .press.row").first.click()
    expect(fact(page)).to_contain_text("The has a query")
    click(page.get_by_role("button", name="Next"))
    expect(fact(page)).to_contain_text("The has its highest score with")
    expect(page.locator(f"{VIEW} table th")).to_have_text(["key", "score"])
    expect(page.locator(f"{VIEW} svg text", has_text="weight")).to_have_count(0)
    below = page.get_by_role("heading", name="What √D does")
    below.evaluate("node => { node.dataset.kept = 'yes' }")
    before = fact(page).text_content()
    page.get_by_role("button", name="More").click()
    page.get_by_role("slider").first.press("ArrowRight")
    expect(fact(page)).not_to_have_text(before)
    wait_ready(page)
    assert below.get_attribute("data-kept") == "yes"
