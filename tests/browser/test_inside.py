"""The pages that look inside a model in a real browser: a head is pressed, a text is typed, and what is below follows."""

import re
from functools import partial

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from core.pretrained import ModelInputs, load_folder, read
from dashboard.navigation import STEPS, step_of
from tests.browser.helpers import (
    HOLD,
    LET_GO,
    box_of,
    cell,
    choose,
    click,
    click_at,
    enter,
    open_page,
    press_keys,
    reload,
    reopen,
    resize,
    sees,
    stop_button,
    wait_no_sideways_scrolling,
    wait_ready,
)
from tests.cases import wait_for
from tests.tiny_architectures import save_small
from tests.tiny_models import SENTENCE, save


@pytest.mark.parametrize(
    ("link", "mark", "linked", "says"),
    [
        (
            "evidence?inside:model=induction",
            "evidence-grid path[aria-label*='head: 1; layer: L0;']",
            r"head=0\.1",
            "Without L0·H1 it is",
        ),
        (
            "lens?inside:model=induction",
            "lens-grid path[aria-label*='after: L0; position: king']",
            r"at=\d+&lens%3Alayer%3Ainduction=L0",
            "What L0 takes from, at “king”",
        ),
        (
            "lens?lens:view=Who+wrote+it",
            "lens-parts path[aria-label*='part: L0·H1;']",
            r"head=0\.1",
            "What L0·H1 takes from",
        ),
        (
            "circuits",
            "circuits-copying path[aria-label^='head: 3; layer: L0;']",
            "head=L0%C2%B7H3",
            "Where L0·H3 takes from",
        ),
        (
            "two_models",
            "two_models-grid path[aria-label*='compared with: L0·H1;']",
            r"head=0\.1",
            "Text A, L0·H1",
        ),
        (
            "head_roles",
            "head_roles-roles path[aria-label^='L2·H9: Same word 0.']",
            "head=L2%C2%B7H9",
            "Its role is same word",
        ),
        (
            "head_roles",
            "head_roles-scores path[aria-label^='L2·H11: ']",
            "head=L2%C2%B7H11",
            re.compile(r"L2·H11 takes 0\.37"),
        ),
    ],
)
def test_a_mark_that_is_pressed_in_a_figure_is_read_below(page, link, mark, linked, says):
    open_page(page, link)
    if mark.startswith("head_roles-scores"):
        page.get_by_text("How a head gets its role").click()
    pressed = page.locator(f".st-key-{mark}").first
    pressed.scroll_into_view_if_needed(timeout=60_000)
    wait_ready(page)
    click_at(pressed, 0.5, 0.5)
    expect(page).to_have_url(re.compile(linked))
    sees(page, says)


def test_a_score_is_split_and_leads_to_its_weight_and_back(page: Page):
    open_page(page, "why_key", "svg path[aria-label^='position at it, segment at animal']")
    sees(page, "most of it comes from position × position")
    choose(page, "Key", "0 · [CLS]")
    sees(page, "What wrote it (rows) × [CLS] (columns)")
    page.get_by_role("link", name="Inside one weight: it → [CLS]").click()
    page.wait_for_url(re.compile(r"inside_weight\?.*cell=10\.0"))
    page.get_by_role("link", name="Why this key: it → [CLS]").click()
    page.wait_for_url(re.compile(r"why_key\?.*cell=10\.0"))
    sees(page, "What wrote it (rows) × [CLS] (columns)")
    resize(page, 390, "dark")


def test_the_pin_follows_a_list_and_a_press_opens_a_cell(page: Page):
    open_page(page, "inside_weight", ".av[data-ready='1']")
    view = page.locator(".av")
    # The pin follows a list before the server answers.
    query, key = map(int, view.get_attribute("data-pin").split(","))
    other = key - 1 if key else 1
    here = re.compile(rf"cell={query}\.{other}(&|$)")
    page.evaluate(HOLD)
    page.get_by_role("combobox", name="Key").click()
    page.get_by_role("option", name=f"{other} · ").first.click()
    expect(view).to_have_attribute("data-pin", f"{query},{other}")
    expect(page).not_to_have_url(here)
    page.evaluate(LET_GO)
    expect(page).to_have_url(here)
    expect(view).to_have_attribute("data-pin", f"{query},{other}")
    wait_ready(page)
    page.mouse.click(*cell(view, 8, 5))
    page.wait_for_url("**cell=8.5**")
    expect(view).to_have_attribute("data-pin", "8,5")
    sees(page, re.compile("^In head L3·H1, the query street takes .* from the key t; "))
    reload(page)
    sees(page, re.compile("^In head L3·H1, the query street takes .* from the key t; "))


# The Pretrained page in a real browser: all heads, a click opens one, a hover reads a weight.


def open_heads(page: Page, query: str = "") -> tuple[Locator, Locator]:
    open_page(page, f"pretrained{query}")
    views = page.locator(".av[data-ready='1']")
    expect(views).to_have_count(2, timeout=60_000)
    # roles are measured after the picture
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=60_000)
    return views.nth(0), views.nth(1)


def test_a_head_with_more_keys_than_queries_is_drawn(page: Page, tmp_path):
    _, head = open_heads(page, f"?inside%3Amodel={save('gpt_oss', tmp_path)}")
    page.mouse.move(*cell(head, 12, 13))
    expect(head).to_have_attribute("data-hover", "12,13")
    assert 0 <= float(head.get_attribute("data-value")) <= 1


def test_a_state_layer_is_drawn_signed_and_named(page: Page, tmp_path):
    folder = save_small("qwen3_next", tmp_path / "hybrid")
    weights = read(load_folder(folder, ""), ModelInputs(SENTENCE)).trace.head(0, 1)
    row, key = np.unravel_index(weights.argmin(), weights.shape)
    grid, head = open_heads(page, f"?head=0.1&inside%3Amodel={folder}")
    expect(grid).to_contain_text(
        "State layers, without softmax: L0, L1, L3: a gated delta rule. Purple is negative"
    )
    expect(head.locator(".title")).to_have_text("L0·H1, a gated delta rule")
    expect(head.locator(".low")).to_have_text(re.compile("^−0[.]"))
    page.mouse.move(*cell(head, int(row), int(key)))
    tip = head.locator(".tip")
    expect(tip).to_contain_text(re.compile(r"weight −0[.]\d+ · largest by size of"))
    expect(tip).not_to_contain_text("uniform")
    page.mouse.click(*cell(grid, 2, 0))
    expect(head.locator(".title")).to_have_text("L2·H0")
    expect(head.locator(".low")).to_have_text("0")


def test_a_click_in_the_grid_a_pin_and_the_link_agree(page: Page):
    grid, head = open_heads(page)
    gutter, top, pitch, _, size = (float(x) for x in grid.get_attribute("data-map").split(","))
    box = box_of(grid.locator("canvas").first)
    page.mouse.click(box["x"] + gutter + 2 * pitch + size / 2, box["y"] + top + size / 2)
    expect(head).to_have_attribute("data-head", "2")
    expect(head).to_have_attribute("data-layer", "0")
    expect(page).to_have_url(re.compile(r"head=0\.2"))
    wait_ready(page)
    page.mouse.click(*cell(head, 6, 8))
    expect(page).to_have_url(re.compile(r"pin=6\.8"))
    sees(page, re.compile(r"In head L0·H2, cross takes .* from street"))
    click(
        page.get_by_text("Inside one weight: cross → street"),
        re.compile("^In head L0·H2, the query cross takes .* from the key street; "),
    )
    wait_ready(page)
    page.go_back()
    expect(head).to_have_attribute("data-pin", "6,8")
    reload(page)
    expect(head).to_have_attribute("data-layer", "0")
    expect(head).to_have_attribute("data-pin", "6,8")
    before = head.get_attribute("data-map")
    text = page.get_by_role("textbox", name="Text")
    enter(text, "Cats <b>sleep</b> 🙂")
    expect(head).not_to_have_attribute("data-map", before)
    assert page.locator(".av b", has_text="sleep").count() == 0
    enter(text, "attention " * 700, "reads at most 512", timeout=60_000)
    wait_ready(page)
    assert float(head.get_attribute("data-map").split(",")[2]) < 1.0
    # A name that is in no list is typed into it.
    model = page.get_by_test_id("stMain").get_by_role("combobox").first
    click(model)
    enter(model, "lab/unheard-of")
    expect(page).to_have_url(re.compile("unheard-of"))


def test_pins_outlive_a_merge_and_an_order(
    page: Page,
):
    _, head = open_heads(
        page, "?inside:text=Tokenization+of+unbelievable+transformers+is+unfair&pin=7.2"
    )
    expect(head).to_have_attribute("data-pin", "7,2")
    page.get_by_role("button", name="Tokens").click()
    click(
        page.get_by_text("Merge pieces into words"), "Pieces of a word are merged", timeout=10_000
    )
    expect(head).to_have_attribute("data-pin", "6,1")
    expect(head.locator(".status")).to_contain_text("unfair → tokenization")
    status = head.locator(".status").inner_text()
    click(page.get_by_text("Both by weight"))
    expect(head).not_to_have_attribute("data-pin", "6,1")
    assert head.locator(".status").inner_text() == status, (
        "the pinned pair is the same wherever it stands"
    )
    expect(page).to_have_url(re.compile(r"pin=7\.[12]"))
    before = head.get_attribute("data-window")
    click(page.get_by_text("Hide special tokens"), "Special tokens are hidden")
    expect(head).not_to_have_attribute("data-window", before)
    expect(head).to_have_attribute("data-show", "both")
    page.evaluate(HOLD)
    page.get_by_role("radio", name="Lines", exact=True).click()
    expect(head).to_have_attribute("data-show", "lines")
    page.wait_for_function("() => window.held.length")  # the server was not asked yet
    page.evaluate(LET_GO)
    expect(page).to_have_url(re.compile("show=lines", re.IGNORECASE))
    expect(head).to_have_attribute("data-show", "lines")


# Two texts in a real browser: a word is changed, and a head is picked.


# What is written on a canvas since it was last cleared: text, where, and how.
RECORDER = """() => {
  const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
  Object.defineProperty(HTMLCanvasElement.prototype, "width", { ...width, set(value) {
    this.written = [];
    width.set.call(this, value);
  } });
  const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    const ratio = window.devicePixelRatio, transform = this.getTransform(), at = transform.transformPoint({ x, y });
    const turned = Math.abs(transform.b) > 0.5, row = this.textAlign === "right";
    (this.canvas.written ??= []).push({ text, turned, row, x: at.x / ratio, y: at.y / ratio });
    return fillText.call(this, text, x, y, ...more);
  };
}"""
LONG = (
    "the old king walked to the dark river and the young queen walked to the red house because it was too late for "
    "him . but she did not care"
)


def names_on(page: Page) -> tuple[list[float], list[float]]:
    written = page.locator(".mu canvas.over").first.evaluate("canvas => canvas.written")
    return (
        sorted(one["y"] for one in written if one["row"]),
        sorted(one["x"] for one in written if one["turned"]),
    )


def is_named(page: Page, middle: float) -> bool:
    return any(abs(y - middle) < 1 for y in names_on(page)[0])


def closest(places: list[float]) -> float:
    return min(b - a for a, b in zip(places, places[1:], strict=False))


def test_names_of_34_tokens_do_not_meet(page: Page):
    open_page(
        page,
        "two_models",
        ".mu canvas.base",
        **{"inside:model": "all-MiniLM-L6-v2", "inside:text": LONG},
        **{"two_models:text:all-MiniLM-L6-v2": "A shorter text."},
    )
    page.evaluate(RECORDER)
    enter(
        page.get_by_role("textbox", name="Text B"),
        LONG,
        "32 of 32 rows are in both",
        timeout=60_000,
    )
    wait_ready(page)
    x, y, wide, high = map(
        float, page.locator(".mu [data-map]").first.get_attribute("data-map").split(",")
    )
    assert 11 <= high < 13, "the cells for which names have to be thinned"
    for places in names_on(page):
        assert len(places) > 12 and closest(places) >= 13
    over = page.locator(".mu canvas.over").first
    over.scroll_into_view_if_needed()
    for row in (6, 7):
        middle = y + (row + 0.5) * high
        over.hover(position={"x": x + 2.5 * wide, "y": middle})
        wait_for(partial(is_named, page, middle))
        assert closest(names_on(page)[0]) >= 13


def test_a_changed_word_and_a_head_whose_maps_do_not_wait(page: Page):
    open_page(page, "two_models", ".mu canvas.base", **{"inside:model": "all-MiniLM-L6-v2"})
    enter(
        page.get_by_role("textbox", name="Text B"),
        "The dog didn't cross the wide street because it was too tired.",
        "16 of 17 rows are in both",
        "wide is absent.",
    )
    first, field = page.locator(".mu .name span").first, page.get_by_role("combobox", name="Head")
    wait_ready(page)
    field.focus()
    page.evaluate(HOLD)
    page.keyboard.type("L4·H2")
    page.keyboard.press("Enter")
    expect(first).to_have_text("Text A, L4·H2")
    grid_fact = page.locator("[data-testid='stHtml'] p", has_text="L4·H2")
    expect(grid_fact).to_have_count(0)
    page.evaluate(LET_GO)
    expect(grid_fact.first).to_be_visible()
    expect(first).to_have_text("Text A, L4·H2")
    expect(field).to_be_focused()


# Generate in a real browser: the timeline, a candidate that is pressed, the map, and the link.


DRAWN = ".tv g[data-place]"


def fact(page: Page, step: int) -> Locator:
    return page.get_by_text(re.compile(rf"At step {step} the model gives"))


def test_the_timeline_and_the_tree_move_one_another(page):
    open_page(page, "generate", DRAWN)
    expect(fact(page, 1)).to_be_visible()
    # The map moves with the slider before the server answers.
    slider, map_ = page.get_by_role("slider").last, page.locator(".av[data-ready='1']").first
    expect(map_).to_have_attribute("data-row", "0")
    page.evaluate(HOLD)
    press_keys(page, "ArrowRight", "ArrowRight", on=slider)
    expect(map_).to_have_attribute("data-row", "2")
    expect(fact(page, 1)).to_be_visible()
    page.evaluate(LET_GO)
    expect(fact(page, 3)).to_be_visible()
    expect(map_).to_have_attribute("data-row", "2")
    expect(page.locator(".tv g.picked[data-step='2']")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"at=\d+\.2"))
    click(page.locator(".tv g[data-step='3'][data-rank='0']"))
    expect(fact(page, 4)).to_be_visible()
    expect(slider).to_have_value("4")
    reopen(page)
    expect(fact(page, 4)).to_be_visible(timeout=60_000)
    click(page.locator(".tv g.dropped[data-step='1']").first)
    expect(fact(page, 2)).to_be_visible()


def test_a_pressed_candidate_is_followed(page):
    open_page(page, "decode", DRAWN)
    click(page.locator(".tv g[data-step='1'][data-rank='1']"), "Most likely tokens at step 2")
    expect(page.locator(".tv g.picked[data-step='1'][data-rank='1']")).to_have_count(1)
    page.locator(".tv").press("ArrowLeft")
    sees(page, "Most likely tokens at step 1")
    wait_ready(page)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tv g.picked[data-step='0'][data-rank='1']")).to_have_count(1)
    resize(page, 390, "light")
    assert page.locator(".tv").evaluate("tree => tree.scrollWidth > tree.clientWidth")


def test_model_does_its_job_beside_head_that_it_hangs_on(page):
    open_page(page, "use_model", ".av canvas")
    click(page.get_by_text("Other tasks and source"))
    writes = re.compile("The model writes")
    click(page.get_by_role("button", name="numbers", exact=True), writes)
    click(page.get_by_role("radio", name="neun").first, re.compile("on which .neun. depends most"))
    wait_ready(page)
    page.locator(".av .stage").press("[")
    sees(page, re.compile("Without it the (logit|probability) of neun"))


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
def test_a_long_text_waits_for_a_press_and_stops_at_one(page: Page):
    text = "the+tired+animal+crossed+a+street+and+slept.+" * 60
    open_page(page, f"evidence?inside:model=all-MiniLM-L6-v2&inside:text={text}")
    page.get_by_role("button", name=re.compile("Measure 7[0-9] heads and layers")).click(
        timeout=60_000
    )
    stop_button(page).click(timeout=60_000)
    measured = re.compile(r"\d+ of 78 heads and layers measured; the rest takes about")
    sees(page, measured, timeout=60_000)


# The page Heads over a corpus in a real browser: a head is pressed, again, and after a reload.


def test_a_pressed_head_of_a_corpus_stays_after_a_reload(page: Page):
    open_page(page, "corpus", **{"inside:model": "induction"})
    figure = page.locator("[data-testid='stVegaLiteChart']").first
    head = figure.locator("path[aria-label^='L0·H1: Distance ']").first
    pressed = re.compile(r"L0·H1 takes \S+ from the token before")
    click(head, pressed)
    page.get_by_role("button", name="Head", exact=True).click()
    choose(page, "Head", "L1·H2")
    page.keyboard.press("Escape")
    expect(page.get_by_text(pressed)).to_have_count(0)
    click(head, pressed)  # the same head again, which another one took the place of
    drawing = figure.locator("svg").element_handle()
    page.get_by_role("button", name="Axes").click()
    choose(page, "Across", "Induction")
    expect(figure).to_contain_text("weight on the token that followed the same token before")
    assert drawing.evaluate("svg => svg.isConnected && !svg.textContent.includes('Distance')"), (
        "changed in its place"
    )
    reload(page)
    sees(page, pressed, timeout=60_000)
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


SHARED = "inside:model=induction&inside:text=the+old+king+walked+to+the+old"
PLACES = ("Pretrained models", "Why this answer", "Generate text", "Use and fine-tune")
ALONE = ("decode", "cache")  # with models of their own
NO_TEXT = ("circuits", "corpus", "fine_tune", "pairs")


def follow(page: Page, key: str) -> None:
    page.get_by_test_id("stMain").locator(f"a[href='{key}']").first.click()
    expect(page).to_have_title(f"{step_of(key).title} · Attention Lab")
    wait_ready(page)


@pytest.mark.parametrize("place", PLACES)
def test_links_carry_the_model_and_the_text(page, place):
    steps = [step.key for step in STEPS if step.place == place]
    for at, first in enumerate(steps):
        if first in ALONE:
            continue
        open_page(page, f"{first}?{SHARED}")  # it is drawn once, and nothing in it is touched
        for key in steps[at + 1 :]:
            for there in (key, first):
                follow(page, there)
                if there in ALONE:
                    continue
                model = page.get_by_role("combobox", name="Model", exact=True).first
                expect(model).to_have_value(re.compile("^induction"))
                held = "" if there in NO_TEXT else r".*inside%3Atext=the\+old\+king"
                expect(page).to_have_url(re.compile(f"inside%3Amodel=induction{held}"))
    follow(page, steps[0])
    reload(page)
    expect(page.get_by_role("combobox", name="Model", exact=True).first).to_have_value(
        re.compile("^induction")
    )


def test_links_carry_the_question(page):
    # an older link's, today's
    asked = "evidence:output:induction=dark&inside:contrast:induction=young"
    open_page(page, f"lens?{SHARED}&at=3&lens:view=Who+wrote+it&{asked}")
    for key in ("evidence", "lens"):
        follow(page, key)
        if key == "evidence":
            page.get_by_role("button", name="What is measured").click()
            choose(page, "Measured as", "logit difference")
        else:
            click(page.get_by_test_id("stMain").get_by_text("Who wrote it", exact=True))
        for label, value in (
            ("Answer at position", "3 · after king"),
            (re.compile("^Token to"), "dark"),
            ("Minus the logit of", "young"),
        ):
            expect(page.get_by_role("combobox", name=label)).to_have_value(value)
        expect(page).to_have_url(re.compile("at=3"))
        reload(page)


@pytest.mark.parametrize(
    "link",
    [
        "two_models",
        "lens",
        "one_query",
        "why",
        "masks",
        "heads",
        "transformer",
        "positions",
        "train",
    ],
)
def test_all_that_there_is_to_try_is_in_sight(page, link):
    """The second visit finds all measured: a press in a fragment then reruns no more than that by itself."""
    for _ in range(2 if link in ("two_models", "lens") else 1):
        open_page(page, link)
        opened, moves = (
            page.url,
            page.locator(f"[class*='st-key-{link.removesuffix('_query')}-try-'] button:visible"),
        )
        expect(moves.first).to_be_visible()
        for index in range(100):
            if index >= moves.count():
                break
            label = moves.nth(index).inner_text()
            click(moves.nth(index))
            wait_ready(page)
            sees(page, "Notice:")
            assert page.url != opened, label
