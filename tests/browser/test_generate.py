"""Generate in a real browser: the timeline, a candidate that is pressed, a head that is picked, the link, a phone."""

import re

from playwright.sync_api import Page, expect

from tests.browser.helpers import (
    HOLD,
    LET_GO,
    box_of,
    click,
    enter,
    open_page,
    press_keys,
    reopen,
    resize,
    sees,
    wait_ready,
)

DRAWN = ".tv g[data-place]"


def fact(page: Page, step: int):
    return page.get_by_text(re.compile(rf"At step {step} the model gives"))


def test_the_timeline_and_the_tree_move_one_another_and_the_link_keeps_it(page):
    open_page(page, "generate", DRAWN)
    expect(fact(page, 1)).to_be_visible()
    slider = page.get_by_role("slider").last
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(fact(page, 2)).to_be_visible()
    expect(page.locator(".tv g.picked[data-step='1']")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"at=\d+\.1"))
    before = page.locator(".lab-strip").inner_html()
    click(page.locator(".tv g[data-step='3'][data-rank='0']"))
    expect(fact(page, 4)).to_be_visible()
    expect(slider).to_have_value("4")
    assert page.locator(".lab-strip").inner_html() != before
    reopen(page)
    expect(fact(page, 4)).to_be_visible(timeout=60_000)
    click(page.locator(".tv g.dropped[data-step='1']").first)
    expect(fact(page, 2)).to_be_visible()
    expect(page.get_by_text(re.compile("its second choice"))).to_be_visible()
    # The map moves with the slider before the server answers, and a head is picked.
    open_page(page, "generate", DRAWN)
    expect(fact(page, 1)).to_be_visible()
    map_ = page.locator(".av[data-ready='1']").first
    expect(map_).to_have_attribute("data-row", "0")
    page.evaluate(HOLD)
    page.get_by_role("slider").last.focus()
    press_keys(page, "ArrowRight", "ArrowRight")
    expect(map_).to_have_attribute("data-row", "2")
    expect(fact(page, 1)).to_be_visible()
    page.evaluate(LET_GO)
    expect(fact(page, 3)).to_be_visible()
    expect(map_).to_have_attribute("data-row", "2")
    views = page.locator(".av[data-ready='1']")
    expect(views).to_have_count(2, timeout=60_000)
    grid = views.nth(1)
    gutter, top, _, row_pitch, size = (
        float(part) for part in grid.get_attribute("data-map").split(",")
    )
    grid.scroll_into_view_if_needed()
    box = box_of(grid.locator("canvas").first)
    page.mouse.click(box["x"] + gutter + size / 2, box["y"] + top + row_pitch + size / 2)
    expect(page.get_by_text(re.compile("Head L1·H0 puts"))).to_be_visible()
    expect(views.nth(0)).to_have_attribute("data-head", "0")
    expect(page).to_have_url(re.compile(r"head=1\.0"))
    resize(page, 390, "light")
    assert page.locator(".tv").evaluate("tree => tree.scrollWidth > tree.clientWidth")


def test_an_encoder_decoder_is_aligned_and_a_strategy_stands_in_the_link(page):
    open_page(page, "generate?inside:model=numbers", DRAWN)
    expect(page.locator(".lab-strip")).to_have_count(2)
    page.get_by_role("radio", name="Sampling").click()
    expect(page).to_have_url(re.compile("generate(%3A|:)strategy=Sampling"))
    expect(page.get_by_text(re.compile("5 samples give"))).to_be_visible()
    click(page.get_by_role("radio", name="Earlier output"))
    expect(page.locator(".lab-strip")).to_have_count(1)


# Decode in a real browser: a candidate that is pressed or reached by arrow keys, the link, and a phone's width.


def test_a_pressed_candidate_is_followed_a_phone_scrolls_the_tree_and_a_choice_stands_in_the_link(
    page,
):
    open_page(page, "decode", DRAWN)
    expect(page.get_by_text("Next token at step 6")).to_be_visible()
    click(page.locator(".tv g[data-step='1'][data-rank='1']"), "Next token at step 2")
    expect(page.locator(".tv g.picked[data-step='1'][data-rank='1']")).to_have_count(1)
    page.locator(".tv").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("Next token at step 1")).to_be_visible()
    wait_ready(page)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tv g.picked[data-step='0'][data-rank='1']")).to_have_count(1)
    resize(page, 390, "light")
    assert page.locator(".tv").evaluate("tree => tree.scrollWidth > tree.clientWidth")
    before = page.locator(".tv").inner_html()
    page.get_by_role("radio", name="Sampling").click()
    expect(page).to_have_url(re.compile("decode%3Astrategy=Sampling|decode:strategy=Sampling"))
    expect(page.get_by_text(re.compile(r"of 20 samples"))).to_be_visible()
    assert page.locator(".tv").inner_html() != before
    enter(page.get_by_role("textbox", name="Source"), "two hundred and one")
    expect(page).to_have_url(re.compile("two(%20|\\+)hundred"))
    reopen(page)
    expect(page.get_by_role("textbox", name="Source")).to_have_value(
        "two hundred and one", timeout=20_000
    )
    expect(page.get_by_text(re.compile(r"of 20 samples"))).to_be_visible()


# Use a model in a real browser: the first sight, a word that is picked, a link, another job's model.


READ = ".av canvas"


def test_a_model_does_its_job_beside_the_head_that_it_hangs_on(page):
    open_page(page, "use_model", READ)
    sees(page, "Similarity of each pair", re.compile("is most similar to"))
    click(page.get_by_text("Other tasks and source"))
    writes = re.compile("The model writes")
    click(page.get_by_role("button", name="numbers", exact=True), writes, timeout=30_000)
    before = page.get_by_text(writes).inner_text()
    picked = re.compile("For neun"), re.compile("on which .neun. depends most")
    click(page.get_by_role("radio", name="neun").first, *picked)
    assert page.get_by_text(writes).inner_text() != before
    wait_ready(page)
    page.locator(".av .stage").focus()
    page.keyboard.press("[")
    expect(
        page.get_by_text(re.compile("Without it the (logit|probability) of neun"))
    ).to_be_visible()
    open_page(page, "use_model?inside:model=digits", READ)
    sees(page, re.compile("The class is 3"))
    resize(page, 390, "light")
