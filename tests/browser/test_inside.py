"""The pages that look inside a model in a real browser: a head is pressed, a text is typed, and what is below follows."""

import re
import shutil
from functools import partial

import pytest
from playwright.sync_api import Locator, Page, expect

from core.files import CORPORA
from tests.browser.conftest import Server, running
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
    wait_for,
    wait_no_sideways_scrolling,
    wait_ready,
)
from tests.pretrained.fake_hub import COMMIT, Repo, bert_files, serving
from tests.tiny_models import save


@pytest.fixture(scope="module")
def hub():
    repos = {"lab/bert": Repo(bert_files(), seconds_a_step=0.1),
             "lab/pickle": Repo({"config.json": b"{}", "pytorch_model.bin": b"x"})}  # fmt: skip
    with serving(repos) as there:
        yield there


@pytest.fixture(scope="module")
def url(hub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.address)
        patch.setenv("HF_HUB_OFFLINE", "0")
        patch.setenv("HF_HOME", str(folder / "home"))
        with running(folder) as server:
            yield server.url


def test_a_model_of_the_hub_from_its_name_to_its_heads_and_on_every_page(page: Page, url: str):
    open_page(page, f"{url}/pretrained")
    model = page.get_by_test_id("stMain").get_by_role("combobox").first
    click(model)
    enter(model, "lab/pickle", "a pickle, which could run code")
    click(model)
    page.get_by_text("Another model…").click()
    name = page.get_by_label("Name on the hub, or the path of a folder", exact=True)
    enter(name, "lab/bert", re.compile("lab/bert is a bert model: .* to download"))
    click(page.get_by_role("button", name="Load"), re.compile(r"Downloading lab/bert: .* of"))
    expect(stop_button(page)).to_be_visible()
    expect(page.locator(".av[data-ready='1']")).to_have_count(2, timeout=60_000)
    assert COMMIT in page.url
    click(
        page.get_by_test_id("stSidebar").get_by_role("link", name="Generate"), "generates no text"
    )
    expect(page.get_by_role("button", name="Use induction")).to_be_visible()


# Inside one weight in a real browser: a press in the map opens a cell, and the figures are drawn.


def open_weight(page: Page, query: str = "") -> Locator:
    open_page(page, f"inside_weight{query}")
    view = page.locator(".av[data-ready='1']")
    expect(view).to_have_count(1, timeout=60_000)
    return view


def test_the_pin_follows_a_list_and_a_press_opens_a_cell_which_the_link_keeps(page: Page):
    view = open_weight(page)
    expect(page.get_by_text("q·k = 21.69").first).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart]")).to_have_count(4)
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
    sees(page, re.compile("^In head L3·H1, the query street and the key t have q·k = "))
    reload(page)
    expect(page.get_by_text("the query street and the key t")).to_be_visible()
    open_weight(page, "?inside%3Amodel=induction")
    expect(page.get_by_text("Before rotation their product is")).to_be_visible()
    resize(page, 390, "light")


def test_a_picked_cell_of_all_heads_is_taken_apart(page: Page):
    open_page(page, "pretrained?pin=12.9&head=2.0")
    click(
        page.get_by_text("Inside one weight: too → because"),
        "In head L2·H0, the query too and the key because",
        timeout=60_000,
    )


# Several families in a real browser: a folder each, its grid and one head drawn with the tokens it read.


def test_a_folder_of_each_family_is_drawn(page: Page, tmp_path):
    # Rows and columns of a head that is drawn with nothing pressed.
    for family, rows, columns in (("gpt_oss", 13, 14), ("longformer", 15, 15), ("vit", 10, 10)):
        (folder := tmp_path / family).mkdir()
        open_page(page, f"pretrained?inside%3Amodel={save(family, folder)}")
        views = page.locator(".av[data-ready='1']")
        expect(views).to_have_count(2, timeout=60_000)
        head = views.nth(1)
        page.mouse.move(*cell(head, rows - 1, columns - 1))
        expect(head).to_have_attribute("data-hover", f"{rows - 1},{columns - 1}")
        assert 0 <= float(head.get_attribute("data-value")) <= 1


# The Pretrained page in a real browser: all heads, a click opens one, a hover reads a weight.


def open_heads(page: Page, query: str = "") -> tuple[Locator, Locator]:
    open_page(page, f"pretrained{query}")
    views = page.locator(".av[data-ready='1']")
    expect(views).to_have_count(2, timeout=60_000)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(
        0, timeout=60_000
    )  # roles are measured after the picture
    return views.nth(0), views.nth(1)


def test_first_sight_is_measured_a_hover_reads_a_weight_and_a_way_to_draw_does_not_wait_for_the_server(
    page: Page,
):
    _, head = open_heads(page)
    assert (head.get_attribute("data-layer"), head.get_attribute("data-head")) == ("3", "1")
    sees(page, "attends most to the previous token", "Previous token 4", timeout=60_000)
    page.mouse.move(*cell(head, 10, 2))
    expect(head).to_have_attribute("data-hover", "10,2")
    assert abs(float(head.get_attribute("data-value")) - 0.677) < 0.002
    expect(head.get_by_text("it → animal").first).to_be_visible()
    before = head.get_attribute("data-map")  # hiding special tokens takes them off the axes
    page.get_by_role("button", name="Tokens").click()
    click(page.get_by_text("Hide special tokens"), "Special tokens are hidden", timeout=10_000)
    expect(head).not_to_have_attribute("data-map", before)
    expect(head).to_have_attribute("data-show", "both")
    page.evaluate(HOLD)
    page.get_by_role("radio", name="Lines", exact=True).click()
    expect(head).to_have_attribute("data-show", "lines")
    page.wait_for_function("() => window.held.length")  # the server was not asked yet
    page.evaluate(LET_GO)
    expect(page).to_have_url(re.compile("show=lines", re.IGNORECASE))
    expect(head).to_have_attribute("data-show", "lines")


def test_a_click_in_the_grid_a_pin_and_the_link_agree_and_a_long_text_says_its_cut(page: Page):
    grid, head = open_heads(page)
    gutter, top, pitch, row_pitch, size = (
        float(x) for x in grid.get_attribute("data-map").split(",")
    )
    box = box_of(grid.locator("canvas").first)
    page.mouse.click(box["x"] + gutter + 2 * pitch + size / 2, box["y"] + top + size / 2)
    expect(head).to_have_attribute("data-head", "2")
    expect(head).to_have_attribute("data-layer", "0")
    expect(page).to_have_url(re.compile(r"head=0\.2"))
    wait_ready(page)
    page.mouse.click(*cell(head, 6, 8))
    expect(page).to_have_url(re.compile(r"pin=6\.8"))
    expect(
        page.get_by_text(re.compile(r"In head L0·H2, cross puts .* of its weight on street"))
    ).to_be_visible()
    reload(page)
    expect(head).to_have_attribute("data-layer", "0", timeout=20_000)
    expect(head).to_have_attribute("data-pin", "6,8")
    before = head.get_attribute("data-map")
    enter(page.get_by_role("textbox", name="Text"), "Cats <b>sleep</b> 🙂")
    expect(head).not_to_have_attribute("data-map", before, timeout=15_000)
    assert page.locator(".av b", has_text="sleep").count() == 0
    wait_ready(page)
    enter(
        page.get_by_role("textbox", name="Text"),
        "attention " * 700,
        "reads at most 512",
        timeout=60_000,
    )
    wait_ready(page)
    assert float(head.get_attribute("data-map").split(",")[2]) < 1.0


def test_pins_outlive_a_merge_of_pieces_and_an_order_by_weight(page: Page):
    grid, head = open_heads(
        page, "?inside:text=Tokenization+of+unbelievable+transformers+is+unfair&pin=7.2"
    )
    expect(head).to_have_attribute("data-pin", "7,2")
    page.get_by_role("button", name="Tokens").click()
    click(
        page.get_by_text("Merge pieces into words"), "Pieces of a word are merged", timeout=10_000
    )
    expect(head).not_to_have_attribute("data-pin", "7,2")
    expect(head).to_have_attribute("data-pin", "6,1")
    expect(head.locator(".status")).to_contain_text("unfair → tokenization")
    status = head.locator(".status").inner_text()
    click(page.get_by_text("Both by weight"))
    expect(head).not_to_have_attribute("data-pin", "6,1", timeout=10_000)
    assert head.locator(".status").inner_text() == status, (
        "the pinned pair is the same wherever it stands"
    )
    expect(page).to_have_url(re.compile(r"pin=7\.[12]"))


def test_a_translators_output_attends_to_its_input_and_a_digit_lies_under_its_weights(page: Page):
    grid, head = open_heads(page, "?inside:model=numbers")
    expect(head.locator(".reads").first).to_contain_text("output (row) attends to")
    before = grid.get_attribute("data-drawn")
    page.get_by_text("Encoder", exact=True).click()
    expect(grid).not_to_have_attribute("data-drawn", before, timeout=10_000)
    expect(head.locator(".reads").first).to_contain_text("query (row) attends to", timeout=10_000)
    _, head = open_heads(page, "?inside:model=digits")
    x, y, wide, high = (float(part) for part in head.get_attribute("data-picture").split(","))
    box = box_of(head.locator("canvas.over"))
    page.mouse.move(box["x"] + x + 0.6 * wide, box["y"] + y + 0.1 * high)
    # 4 × 4 patches after the class token
    expect(head).to_have_attribute("data-hover", re.compile(r"^3,"))
    resize(page, 390, "light")


# Two texts in a real browser: a word is changed, a head is pressed, and what the model learned is taken away.


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


def names_on(page: Page, canvas: int) -> tuple[list[dict], list[dict]]:
    """The names of rows and of columns on a map's upper canvas, sorted by where they stand."""
    written = page.locator(".mu canvas.over").nth(canvas).evaluate("canvas => canvas.written")
    return (
        sorted((one for one in written if one["row"]), key=lambda one: one["y"]),
        sorted((one for one in written if one["turned"]), key=lambda one: one["x"]),
    )


def is_named(page: Page, middle: float) -> bool:
    return any(abs(one["y"] - middle) < 1 for one in names_on(page, 0)[0])


def test_names_of_34_tokens_do_not_meet_and_the_row_under_the_pointer_has_its_own(page: Page):
    open_page(page, "two_models", ".mu canvas.base", **{"inside:text": LONG})
    expect(page.locator(".mu canvas.base")).to_have_count(3)
    page.evaluate(RECORDER)
    enter(
        page.get_by_role("textbox", name="Text B"),
        LONG,
        "32 of 32 rows are in both",
        timeout=60_000,
    )
    x, y, wide, high = map(
        float, page.locator(".mu [data-map]").first.get_attribute("data-map").split(",")
    )
    assert 11 <= high < 13, "the cells for which names have to be thinned"
    for names, along in zip(names_on(page, 0), "yx", strict=True):
        assert (
            len(names) > 12
            and min(b[along] - a[along] for a, b in zip(names, names[1:], strict=False)) >= 13
        )
    wait_ready(page)
    over = page.locator(".mu canvas.over").first
    over.scroll_into_view_if_needed()
    for row in (6, 7):
        over.hover(position={"x": x + 2.5 * wide, "y": y + (row + 0.5) * high})
        middle = y + (row + 0.5) * high
        wait_for(partial(is_named, page, middle), seconds=10)
        rows, _ = names_on(page, 0)
        assert min(b["y"] - a["y"] for a, b in zip(rows, rows[1:], strict=False)) >= 13


def test_a_word_a_head_and_the_untrained_model(page: Page):
    open_page(page, "two_models")
    expect(page.get_by_text("16 of 16 rows are in both")).to_be_visible(timeout=30_000)
    expect(page.locator(".mu canvas.base")).to_have_count(3)
    enter(
        page.get_by_role("textbox", name="Text B"),
        "The dog didn't cross the wide street because it was too tired.",
        "16 of 17 rows are in both",
        "wide is absent.",
    )
    first = page.locator(".mu .name span").first
    before = first.text_content()
    assert before.startswith("Text A, L")
    wait_ready(page)
    grid = "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg"
    click_at(page.locator(grid).first, 0.3, 0.3)  # within the first layers
    expect(first).not_to_have_text(before)
    assert first.inner_text().startswith(("Text A, L0", "Text A, L1", "Text A, L2"))
    field = page.get_by_role("combobox", name="Head")
    expect(field).to_have_value(first.inner_text().removeprefix("Text A, "))
    field.focus()
    page.evaluate(HOLD)
    page.keyboard.type("L4·H2")
    page.keyboard.press("Enter")
    expect(first).to_have_text("Text A, L4·H2")  # the maps do not wait for the server
    grid_fact = page.locator("[data-testid='stHtml'] p", has_text="L4·H2")
    expect(grid_fact).to_have_count(0)
    page.evaluate(LET_GO)
    expect(grid_fact.first).to_be_visible()
    expect(first).to_have_text("Text A, L4·H2")
    expect(field).to_be_focused()
    click(
        page.get_by_text("Trained and untrained", exact=True),
        "in the untrained model",
        timeout=30_000,
    )


# Generate in a real browser: the timeline, a candidate that is pressed, a head that is picked, the link, a phone.


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
    click(page.locator(".tv g[data-step='3'][data-rank='0']"))
    expect(fact(page, 4)).to_be_visible()
    expect(slider).to_have_value("4")
    reopen(page)
    expect(fact(page, 4)).to_be_visible(timeout=60_000)
    click(page.locator(".tv g.dropped[data-step='1']").first)
    expect(fact(page, 2)).to_be_visible()
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
    click(page.get_by_role("radio", name="Sampling"), re.compile(r"of 20 samples"))
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
    click(page.get_by_text("Other tasks and source"))
    writes = re.compile("The model writes")
    click(page.get_by_role("button", name="numbers", exact=True), writes, timeout=30_000)
    click(page.get_by_role("radio", name="neun").first, re.compile("on which .neun. depends most"))
    wait_ready(page)
    page.locator(".av .stage").press("[")
    sees(page, re.compile("Without it the (logit|probability) of neun"))
    open_page(page, "use_model?inside:model=digits", READ)
    sees(page, re.compile("The class is 3"))
    resize(page, 390, "light")


# Pages about the heads of a model in a real browser: a cell of a grid is pressed, and everything under it follows.


GRIDS = "[data-testid='stVegaLiteChart'] svg"


def head_in(page: Page, grid: int, head: str):
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
    expect(head_in(page, 0, "L2·H9")).to_have_attribute("aria-label", named)
    click(
        head_in(page, 0, "L2·H9"),
        re.compile(r"L2·H9 puts 0\.\d+ of its weight on the token before"),
        "Its role is same word",
    )
    expect(page.locator(".av")).to_have_attribute("data-head", "9")
    click(head_in(page, 1, "L2·H11"), re.compile(r"L2·H11 puts 0\.37"))
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
