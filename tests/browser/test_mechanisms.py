"""The pages of mechanisms in a real browser: boards, maps and dials that are drawn, pinned, typed, linked and compared."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from core.attention.normalizers import NORMALIZERS
from tests.browser.helpers import (
    box_of,
    cell,
    choose,
    drag,
    enter,
    open_page,
    press_keys,
    wait_ready,
)

# The page Masks in a browser: cells drawn with pointer and keys, a rule as it is typed, and the link keeps both.


BOARD, LINK = ".mb", "?masks:tokens=red+green+blue+grey&masks:first=Causal+local"


def open_board(page: Page, link: str = LINK) -> Page:
    return open_page(page, f"masks{link}", f"{BOARD}[data-cells*=x]")


def test_a_move_takes_the_picked_cell_off_the_board(page):
    open_board(page)
    page.locator(f"{BOARD} .stage").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(BOARD)).to_have_attribute("data-at", re.compile(r"\d,\d"))
    page.get_by_role("button", name="The opposite of causal").click()
    expect(page.locator(BOARD)).to_have_attribute("data-at", "")


def drawing(page: Page, cells: str) -> None:
    expect(page.locator(BOARD)).to_have_attribute("data-cells", cells)
    expect(page.get_by_label("Cells", exact=True)).to_have_value(cells)
    wait_ready(page)


@pytest.mark.parametrize("embedded", [False, True])
def test_a_moved_control_gets_data_and_no_code(page, embedded):
    frames: list[bytes] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda data: frames.append(data))
    )
    open_board(page, LINK + ("&embed=true" if embedded else ""))
    first = {part.js_content for part in components(frames)}
    del frames[:]
    page.get_by_role("spinbutton", name="Lookback").press("ArrowUp")
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.e.f")
    wait_ready(page)
    sizes = [len(part.js_content) for part in components(frames)]
    assert len(sizes) == 2, "the board and the maps"
    assert (min(sizes) > 20_000) if embedded else (max(sizes) < 400)
    assert max(map(len, first)) > 20_000, "the code comes with the page"


def components(frames: list[bytes]) -> list:
    return [
        message.delta.new_element.bidi_component
        for message in map(ForwardMsg.FromString, frames)
        if message.delta.new_element.WhichOneof("type") == "bidi_component"
    ]


def test_cells_are_drawn_by_a_click_a_drag_keys(page):
    open_board(page)
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.e.7")
    expect(page.get_by_text("9 of 16").first).to_be_visible()
    stage = page.locator(f"{BOARD} .stage")
    before = box_of(stage)
    for row, cells in ((0, "4x4:9.c.e.7"), (3, "4x4:9.c.e.6"), (0, "4x4:8.c.e.6")):
        page.mouse.click(*cell(page.locator(BOARD), row, 3))
        drawing(page, cells)
        assert box_of(stage) == before, "the board stays where it is"
    expect(page.get_by_text("8 of 16").first).to_be_visible()
    page.reload()
    drawing(page, "4x4:8.c.e.6")
    top = [cell(page.locator(BOARD), 0, j) for j in range(4)]
    drag(page, top[1], top[3])
    drawing(page, "4x4:f.c.e.6")
    page.mouse.move(5, 5)
    page.locator(f"{BOARD} .stage").press("ArrowUp")
    row = int(page.locator(BOARD).get_attribute("data-at").split(",")[0])
    press_keys(page, *("ArrowDown",) * (2 - row) + ("ArrowUp",) * (row - 2) + ("End", "Space"))
    expect(page.locator(f"{BOARD} .live")).to_have_text("blue may attend to grey")
    drawing(page, "4x4:f.c.f.6")
    page.mouse.move(5, 5)
    expect(
        page.get_by_text(re.compile("^blue → grey")).first
    ).to_be_visible()  # the cell that was pressed

    # A rule is drawn as it is typed.
    open_board(page, LINK + "&masks:first=Formula")
    field = page.get_by_label("Formula", exact=True)
    field.fill("j == 0 or j == i")
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.a.9")
    field.fill("j == 0 or j == ")
    expect(page.get_by_text("the formula ends where a number")).to_be_visible()
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.a.9")


# Normalizers in a real browser: pictures at once, typed scores.


def test_bars_take_the_ink_of_a_new_theme(page):
    open_page(page, "normalizers", ".nb .figure")
    page.emulate_media(color_scheme="dark")
    # with nothing pressed
    expect(page.locator(".nb").first).to_have_attribute("style", re.compile("#269AD2"))
    enter(page.get_by_role("textbox", name="Scores of one query"), "4, x, 0")
    page.locator("summary", has_text=f"All {len(NORMALIZERS)} normalizers").click()
    expect(
        page.locator(
            ".nb .figure[aria-label^='Sparsemax: key 0 1.00, key 1 masked, key 2 0.00']"
        ).first
    ).to_be_visible()
    assert box_of(page.locator(".nb .figure[aria-label^='Hard'] .bar i").first)["height"] > 60


# The page Positions in a real browser: dials turn, maps are drawn, words are shuffled, at both widths.


def test_dials_turn_with_place_and_answer_pointer_and_keys(page):
    open_page(
        page, "positions", **{"positions:position": "RoPE · 2021", "positions:idea": "The encoding"}
    )
    page.get_by_text("All pairs over positions").click()
    dials = page.locator(".st-key-positions-dials .scroll")
    expect(dials.locator("line.hand")).to_have_count(8 * 24)
    expect(dials.locator("line.before")).to_have_count(0)
    (start, top), (right, up) = dials.locator("line.hand").evaluate_all(
        "hands => hands.slice(0, 2).map(({x1, x2, y1, y2}) => [x2, y1].map((end, at) => "
        "end.baseVal.value - [x1, y2][at].baseVal.value))"
    )
    assert start == 0 < right and top > up > 0, "from twelve, as a clock's hand"
    dials.scroll_into_view_if_needed()
    box = box_of(dials.locator("circle.face").nth(3))
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    line = page.locator(".st-key-positions-dials .line")
    expect(line).to_contain_text("position 3 · pair 0, 8: 171.9°")
    dials.press("ArrowRight")
    expect(line).to_contain_text("position 4 · pair 0, 8: 229.2°")
    # the query moves, and its key with it: both hands turn, the one between them stays
    hands = page.locator(".st-key-positions-hands line.hand")
    ends = "hands => hands.slice(0, 3).map((hand) => hand.y2.baseVal.value)"
    before = hands.evaluate_all(ends)
    page.get_by_role("slider", name="Position of the query").press("ArrowRight")
    expect(page.get_by_text("and the key at 6 turn")).to_be_visible()
    after = hands.evaluate_all(ends)
    assert before[0] != after[0] and before[1] != after[1] and before[2] == after[2]


# The page Heads in a real browser: a split is drawn, a cell is pinned and the sentence follows, at both widths.


def test_titles_are_in_line_and_a_pin_comes_from_the_link(page):
    open_page(page, "heads", **{"heads:start": "minilm", "heads:pin": "8.3"})
    page.locator(".mu .name").nth(4).wait_for()
    boxes = page.locator(".mu .tile").evaluate_all(  # in one frame, as the page may still move
        "nodes => nodes.map((node) => [node.querySelector('.name'), node.querySelector('canvas')])"
        ".map((pair) => pair.map((one) => one.getBoundingClientRect().toJSON()))"
    )
    names, maps = zip(*boxes, strict=True)
    assert len({round(name["top"]) for name in names[2:]}) == 1
    if (
        page.viewport_size["width"] > 640
    ):  # the grid of all heads stands beside the rows of one layer
        assert len({(round(name["top"]), round(one["bottom"])) for name, one in boxes[:2]}) == 1
        left = box_of(page.get_by_role("heading", name="Heads"))["x"]
        assert names[0]["left"] == pytest.approx(left, abs=1)
        assert names[2]["left"] == pytest.approx(left, abs=1)
    expect(page.locator(".mu").last).to_have_attribute("data-pin", "8,3")


def test_a_press_in_the_grid_of_all_heads_opens_one(page):
    open_page(page, "heads", **{"heads:start": "minilm"})
    grid = page.locator(".st-key-heads-layers canvas.over")
    box = box_of(grid)
    page.mouse.click(box["x"] + box["width"] - 12, box["y"] + box["height"] - 12)
    expect(page.get_by_text("in L5·H11 (layer 5, head 11)")).to_be_visible()
    expect(page.locator(".st-key-heads-layers .mu")).to_have_attribute("data-pin", "")


# Side by side in a real browser: the crosshair over all maps, a pin in the link, the list, the dialog, a phone.


@pytest.fixture
def maps(page: Page) -> Locator:
    open_page(
        page,
        "compare?source=seeded&text=The+animal+was+too+tired+.&length=128",
        ".mu[data-ready='1']",
    )
    return page.locator(".mu").first


def test_all_maps_follow_the_numbers_add_up(maps, page):
    apart = page.locator(".mu").last
    page.mouse.move(*cell(maps.locator(".tile").nth(1), 4, 2))
    expect(apart).to_have_attribute("data-hover", "4,2")
    dot, alibi = (float(maps.locator(".tile").nth(at).get_attribute("data-value")) for at in (0, 1))
    assert float(apart.locator(".tile").get_attribute("data-value")) == pytest.approx(
        alibi - dot, abs=2e-6
    )
    assert maps.locator(".tile").nth(3).locator(".note").inner_text().endswith("implied")
    page.mouse.click(*cell(maps.locator(".tile").nth(0), 1, 3))
    page.wait_for_url("**pin=1.3**")
    sentence = page.locator("p", has_text="from within two tokens")
    expect(sentence).to_contain_text("animal")
    page.reload()
    page.locator(".mu[data-pin='1,3']").first.wait_for()
    expect(sentence).to_contain_text("animal")


def test_the_dialog_changes_a_mechanism(maps, page):
    page.get_by_test_id("stMain").locator("summary", has_text="Change or remove").click()
    line = page.get_by_role("button", name="Dot product", exact=True)
    expect(line).to_be_visible()
    assert box_of(line)["y"] > box_of(maps)["y"] + box_of(maps)["height"], "the maps stay in sight"
    line.click()
    page.get_by_role("menuitem", name="Change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("It starts as Dot product")).to_be_visible()
    dialog.get_by_role("combobox", name="Normalizer").click()
    page.keyboard.type("sparsemax")
    page.keyboard.press("Enter")
    wait_ready(page)
    dialog.get_by_role("button", name="Compare this").click()
    expect(page.locator(".mu").first.locator(".name").first).to_have_text("Sparsemax")
    expect(page).to_have_url(re.compile("normalizer%3Dsparsemax"))


# What the link says once controls rest.


# What the server wrote before a press reaches the browser after it: the link is replaced by one without the press.
LATE = """() => {
  const replace = history.replaceState;
  history.replaceState = function (state, title, url) {
    const late = window.location.href;
    replace.call(this, state, title, url);
    if (String(url).includes("d_model")) { history.replaceState = replace; history.pushState(state, "", late); }
  };
}"""


def test_the_back_button_takes_a_choice_back(maps, page):
    apart = page.locator(".mu").last.locator(".name")
    expect(apart).to_have_text("ALiBi − Dot product")
    choose(page, "Difference", "Linear")
    expect(apart).to_have_text("Linear − Dot product")
    wait_ready(page)
    page.go_back()
    expect(apart).to_have_text("ALiBi − Dot product")
    page.go_forward()
    expect(apart).to_have_text("Linear − Dot product")
    wait_ready(page)
    page.get_by_role("link", name="Masks").first.click()
    page.wait_for_url("**/masks**")
    wait_ready(page)
    page.get_by_role("link", name="Side by side").first.click()
    page.wait_for_url("**/compare?**minus=3.0**")
    expect(apart).to_have_text("Linear − Dot product")


def test_a_value_that_the_link_has_lost_is_written_again(page):
    open_page(page, "positions", **{"positions:d_model": "64"})
    page.get_by_text("All settings").click()
    slider = page.get_by_test_id("stSlider").filter(has_text=re.compile("^d_model"))
    slider.get_by_role("slider").press("ArrowRight")
    page.wait_for_url("**d_model=96*")
    page.evaluate(LATE)
    slider.get_by_role("slider").press("ArrowRight")
    page.wait_for_url("**d_model=128*")
    assert slider.get_by_role("slider").get_attribute("aria-valuetext") == "128"
