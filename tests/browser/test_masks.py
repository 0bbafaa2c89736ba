"""The page Masks in a browser: cells drawn with pointer and keys, a rule as it is typed, and the link keeps both."""

import re

import pytest
from playwright.sync_api import Page, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.helpers import box_of, cell, wait_ready

BOARD, LINK = ".mb", "?masks:tokens=red+green+blue+grey&masks:first=Causal+local"
CAUSAL_LOCAL = "4x4:8.c.e.7"


def open_page(page: Page, link: str = LINK) -> Page:
    page.goto(f"/masks{link}")
    expect(page.locator(BOARD)).to_have_attribute("data-cells", re.compile("x"), timeout=20_000)
    wait_ready(page)
    return page


def press(page: Page, i: int, j: int) -> None:
    page.mouse.click(*cell(page.locator(BOARD), i, j))


def drawing(page: Page, cells: str) -> None:
    expect(page.locator(BOARD)).to_have_attribute("data-cells", cells)
    expect(page.get_by_label("Cells", exact=True)).to_have_value(cells)
    wait_ready(page)


@pytest.mark.parametrize("embedded", [False, True])
def test_a_moved_control_gets_data_and_no_code_unless_the_page_is_embedded(page, embedded):
    frames: list[bytes] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda data: frames.append(data))
    )
    open_page(page, LINK + ("&embed=true" if embedded else ""))
    first = {part.js_content for part in components(frames)}
    del frames[:]
    lookback = page.get_by_role("spinbutton", name="Lookback")
    lookback.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.e.f")
    wait_ready(page)
    sizes = [len(part.js_content) for part in components(frames)]
    assert len(sizes) == 2, "the board and the maps"
    assert (min(sizes) > 20_000) if embedded else (max(sizes) < 400)
    assert max(map(len, first)) > 20_000, "the code comes with the page"


def components(frames: list[bytes]) -> list:
    """The components in messages of the server."""
    messages = map(ForwardMsg.FromString, frames)
    return [
        message.delta.new_element.bidi_component
        for message in messages
        if message.delta.new_element.WhichOneof("type") == "bidi_component"
    ]


def test_cells_are_drawn_by_a_click_a_drag_and_keys_and_the_numbers_follow(page):
    open_page(page)
    expect(page.locator(BOARD)).to_have_attribute("data-cells", CAUSAL_LOCAL)
    expect(page.get_by_text("9 of 16").first).to_be_visible()
    stage = page.locator(f"{BOARD} .stage")
    before = box_of(stage)
    press(page, 0, 3)
    drawing(page, "4x4:9.c.e.7")
    assert box_of(stage) == before, "the board stays where it is"
    expect(page.get_by_text("10 of 16").first).to_be_visible()
    press(page, 3, 3)
    drawing(page, "4x4:9.c.e.6")
    page.reload()
    drawing(page, "4x4:9.c.e.6")
    press(page, 0, 3)
    drawing(page, "4x4:8.c.e.6")
    press(page, 3, 3)
    drawing(page, "4x4:8.c.e.7")
    top = [cell(page.locator(BOARD), 0, j) for j in range(4)]
    page.mouse.move(*top[1])
    page.mouse.down()
    page.mouse.move(*top[2])
    page.mouse.move(*top[3])
    page.mouse.up()
    drawing(page, "4x4:f.c.e.7")
    page.mouse.move(5, 5)
    page.locator(f"{BOARD} .stage").focus()
    page.keyboard.press("ArrowUp")
    row = int(page.locator(BOARD).get_attribute("data-at").split(",")[0])
    for key in ("ArrowDown",) * (2 - row) + ("ArrowUp",) * (row - 2) + ("End", "Space"):
        page.keyboard.press(key)
    expect(page.locator(f"{BOARD} .live")).to_have_text("blue may attend to grey")
    drawing(page, "4x4:f.c.f.7")


def test_a_rule_is_drawn_while_it_is_typed(page):
    open_page(page, LINK + "&masks:first=Formula")
    field = page.get_by_label("Formula", exact=True)
    field.fill("j == 0 or j == i")
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.a.9")
    field.fill("j == 0 or j == ")
    expect(page.get_by_text("the formula ends where a number")).to_be_visible()
    expect(page.locator(BOARD)).to_have_attribute("data-cells", "4x4:8.c.a.9")


@pytest.mark.parametrize("width", [390])
def test_a_phone_needs_no_sideways_scrolling(page):
    open_page(page, "?masks:first=Formula&masks:join=and&masks:second=BigBird")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert box_of(page.locator(f"{BOARD} .over"))["width"] <= 358
