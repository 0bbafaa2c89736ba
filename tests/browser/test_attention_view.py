"""The attention view and small multiples in a real browser: numbers, picks, keys, zoom, frames, words; light, dark, phone."""

import io
import json
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import CDPSession, Locator, Page, expect

from dashboard.draw.components import COMPONENTS
from dashboard.draw.formats import number, share_text
from tests.browser.helpers import (
    HOLD,
    LET_GO,
    box_of,
    cell,
    click,
    drag,
    open_demo,
    press_keys,
    resize,
    wait_ready,
)
from tests.browser.view_data import WORDS, weights
from tests.cases import instance


@pytest.fixture(scope="session")
def server(demos):
    return demos


@pytest.fixture
def open_view(page: Page):
    return lambda case, **query: open_demo(page, "view", ".av", case=case, **query).last


def data(view: Locator) -> dict:
    return json.loads(view.evaluate("e => JSON.stringify(e.dataset)"))


def hover(view: Locator, i: int, j: int) -> None:
    view.page.mouse.move(*cell(view, i, j))
    expect(view).to_have_attribute("data-hover", f"{i},{j}")


def test_keys_walk_and_speak_a_hover_stays_in_the_browser(open_view, page):
    view, head = open_view("pretrained"), weights(6, 12, 16)[3, 1]
    for i, j in [(0, 0), (10, 2), (15, 15)]:
        hover(view, i, j)
        assert float(data(view)["value"]) == pytest.approx(head[i, j], abs=2e-5)
        assert f"{WORDS[i]} → {WORDS[j]}" in view.locator(".tip").inner_text()
    page.mouse.move(2, 2)
    assert view.evaluate(
        "e => [...e.querySelectorAll('*')].filter(x => x.tabIndex === 0 && x.offsetParent)"
        ".map(x => x.className)"
    ) == ["stage"]
    stage = view.locator(".stage")
    assert (stage.get_attribute("role"), stage.get_attribute("aria-label")) == (
        "application",
        "it puts most on animal",
    )
    assert "Arrow keys move, Enter pins" in stage.get_attribute("aria-description")
    assert view.locator(".live").get_attribute("aria-live") == "polite"
    press_keys(page, "ArrowDown", "ArrowRight", on=stage)
    for key, at in (("ArrowRight", "1,2"), ("Shift+ArrowDown", "6,2"), ("End", "6,15")):
        page.keyboard.press(key)
        expect(view).to_have_attribute("data-hover", at)
    expect(view.locator(".live")).to_contain_text(f"cross to [SEP], {number(head[6, 15])}, ")
    press_keys(page, "Home", "Enter")
    expect(page.get_by_text("pin (6, 0)")).to_be_visible()
    expect(stage).to_have_attribute(
        "aria-label",
        re.compile(
            rf"^it puts most on animal\. Pinned: cross to \[CLS\], {re.escape(number(head[6, 0]))}, "
        ),
    )
    page.keyboard.press("Escape")
    expect(page.get_by_text("pin None")).to_be_visible()
    before = page.get_by_text("runs ").inner_text()
    for j in range(16):
        hover(view, 5, j)
    page.wait_for_timeout(300)
    assert page.get_by_text("runs ").inner_text() == before and float(data(view)["hoverMs"]) < 16
    for pin, status in (("pin (10, 2)", "pinned it → animal"), ("pin None", "")):
        page.mouse.click(*cell(view, 10, 2))
        expect(page.get_by_text(pin)).to_be_visible()
        expect(view.locator(".status")).to_contain_text(status)
    drag(page, cell(view, 2, 3), cell(view, 9, 8))
    expect(view).to_have_attribute("data-window", "2,10,3,9")
    expect(page.get_by_text("pin None")).to_be_visible()
    view.get_by_text("Reset zoom").click()
    expect(view).to_have_attribute("data-window", "0,16,0,16")
    grid = page.locator(".av").first
    page.mouse.click(*cell(grid, 2, 7))
    expect(page.get_by_text("picked L2 H7")).to_be_visible()
    expect(view).to_have_attribute("data-head", "7")
    expect(view.locator(".title")).to_have_text("L2·H7")
    hover(view, 4, 3)
    assert float(data(view)["value"]) == pytest.approx(weights(6, 12, 16)[2, 7, 4, 3], abs=1e-5)
    press_keys(page, "]", "]", "[", on=view.locator(".stage"))
    expect(page.get_by_text("picked L2 H8")).to_be_visible()
    expect(grid).to_have_attribute("data-head", "8")
    # A phone shows all of it.
    for scheme in ("light", "dark"):
        resize(page, 390, scheme)
        for one in (grid, view):
            expect(one).to_have_attribute("data-theme", scheme)
    for one in (grid, view):
        wide = one.evaluate(
            "e => [e.clientWidth, ...[...e.querySelectorAll('canvas')].map(c => c.clientWidth)]"
        )
        assert max(wide) <= 362


def test_a_row_that_sees_nothing_is_named(open_view, page):
    view = open_view("masked")
    assert view.locator(".masked").inner_text() == "was sees no key: its output is 0"
    hover(view, 2, 1)
    assert "sees no key" in view.locator(".tip").inner_text()
    hover(view, 0, 3)
    assert "masked" in view.locator(".tip").inner_text()
    page.mouse.move(2, 2)
    expect(view).to_have_attribute("data-hover", "")
    press_keys(
        page,
        *["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "t", "?"],
        on=view.locator(".stage"),
    )
    cells = [
        float(text) for text in view.locator("tbody .number").all_inner_texts() if text != "masked"
    ]
    assert cells == sorted(cells, reverse=True)
    assert len(cells) == 5 and view.locator("tbody .number").last.inner_text() == "masked"
    expect(view.locator("dl.keys")).to_be_visible()


def test_frames_scrub_play_and_report_once_released(open_view, page):
    view = open_view("frames")
    assert data(view)["frame"] == "300"
    for place, frame in (("4", "80"), ("16", "320")):
        view.locator(".slider").fill(place)
        expect(view).to_have_attribute("data-frame", frame)
        expect(page.get_by_text(f"frame {frame}")).to_be_visible()
    view.locator(".play").click()
    expect(view).to_have_attribute("data-frame", "380")
    expect(page.get_by_text("frame None")).to_be_visible()


def test_a_view_in_a_hidden_tab_draws_when_it_is_opened(page):
    page.goto("/?demo=view&case=tabs")
    page.get_by_role("tab", name="second").click()
    page.locator(".av[data-ready='1']").wait_for()
    hover(page.locator(".av"), 3, 4)


def test_the_grid_of_144_heads_is_drawn_at_once(open_view):
    # Ten times the budget, which the benchmark of pages measures: only a grid drawn cell by cell is slower.
    assert 0 < float(data(open_view("grid", size=512))["drawMs"]) < 3000


def test_tokens_are_never_html_signed_maps_hold_negatives(open_view, page):
    below = open_view("html,signed,twins")
    html, signed, above = (page.locator(".av").nth(at) for at in range(3))
    hover(html, 0, 1)
    assert "<b>bold</b>" in html.locator(".tip").inner_text()
    html.locator(".tool", has_text="Table").click()
    assert html.locator("img, td b, .status b").count() == 0
    scores = np.random.default_rng(1).normal(size=(1, 7, 7)).astype(np.float32) * 3
    i, j = np.unravel_index(scores[0].argmin(), (7, 7))
    hover(signed, int(i), int(j))
    assert float(data(signed)["value"]) == pytest.approx(scores.min(), abs=1e-5)
    assert f"value {number(scores.min())}" in signed.locator(".tip").inner_text()
    assert signed.locator(".low").inner_text().startswith("\u2212")
    hover(above, 6, 4)
    expect(below).to_have_attribute("data-hover", "6,4")
    assert below.locator(".tip").is_hidden()
    page.mouse.move(2, 2)
    expect(below).to_have_attribute("data-hover", "")


# The attention view beyond one pin: several pins, a threshold, maps past 512 tokens, patches, its own PNG.


def ink(view) -> float:
    canvas = view.locator("canvas.base").screenshot()
    return float((np.asarray(Image.open(io.BytesIO(canvas)).convert("L")) < 128).mean())


def test_the_picture_saves_itself_several_cells_are_pinned(open_view, page):
    view = open_view("pins")
    all_of_it, head = ink(view), weights(1, 2, 16)[0, 0]
    with page.expect_download() as got:
        view.locator(".tool", has_text="PNG").click()
    assert got.value.suggested_filename == "attention-L0H0.png"
    picture = Image.open(got.value.path()).convert("RGB")
    assert picture.width == 2 * (view.evaluate("e => e.clientWidth") + 32)
    x, y, across, down = map(float, data(view)["map"].split(",")[:4])
    i, j = np.unravel_index(head.argmax(), head.shape)
    at = (int(2 * (16 + x + (j + 0.25) * across)), int(2 * (46 + y + (i + 0.25) * down)))
    assert sum(instance(picture.getpixel(at), tuple)) < 250, "the largest weight is dark"
    assert picture.getpixel((2, 2)) == (255, 255, 255)
    expect(page.get_by_text("pins [(1, 2)]")).to_be_visible()
    page.mouse.click(*cell(view, 6, 8))
    expect(page.get_by_text("pins [(1, 2), (6, 8)]")).to_be_visible()
    page.mouse.move(2, 2)
    expect(view.locator(".status")).to_contain_text(
        f"the → animal, {number(head[1, 2])}; cross → street, "
    )
    page.mouse.click(*cell(view, 1, 2))
    expect(page.get_by_text("pins [(6, 8)]")).to_be_visible()
    for column in range(7):
        page.mouse.click(*cell(view, 9, column))
        expect(view).to_have_attribute("data-pin", f"9,{column}")
    assert len(data(view)["pins"].split(";")) == 6, "the oldest leaves"
    view.locator(".stage").press("Escape")
    expect(page.get_by_text("pins []")).to_be_visible()
    view = open_view("pins", threshold=0.6)
    assert ink(view) < all_of_it and (
        "below 0.60 not drawn" in view.locator(".reads").first.inner_text()
    )
    hover(view, 1, 2)
    assert float(data(view)["value"]) == pytest.approx(head[1, 2], abs=1e-5) and head[1, 2] < 0.6


def test_1500_tokens_are_pooled(open_view, page):
    view = open_view("long", size=1500)
    assert data(view)["pooled"] == "1"
    assert "a cell is the mean of 2.9 × 2.9 tokens" in view.locator(".reads").first.inner_text()
    drag(page, cell(view, 100, 20), cell(view, 220, 140))
    expect(view).to_have_attribute("data-pooled", "")
    top, _, left, _ = window(view)
    assert (top, left) == (100 * 1500 // 512, 20 * 1500 // 512)
    row = 400
    hover(view, row - top, row // 2 - left)
    assert float(data(view)["value"]) == 1.0, "row i looks at key i // 2, token by token"
    assert f"tok{row} → tok{row // 2}" in view.locator(".tip").inner_text()
    page.mouse.click(*cell(view, row - top, row // 2 - left))
    expect(page.get_by_text(f"pin ({row}, {row // 2})")).to_be_visible()
    view.get_by_text("Reset zoom").click()
    expect(view).to_have_attribute("data-pooled", "1")
    expect(view).to_have_attribute("data-pin", f"{row},{row // 2}")


def test_a_patch_under_the_pointer_is_a_query(open_view, page):
    view, head = open_view("picture"), weights(1, 2, 17)[0, 0]
    x, y, wide, high = map(float, data(view)["picture"].split(","))
    box = box_of(view.locator("canvas.over"))
    # row 1, column 2 of 4 × 4
    page.mouse.move(box["x"] + x + 0.6 * wide, box["y"] + y + 0.3 * high)
    row = 1 + 4 + 2
    expect(view).to_have_attribute("data-hover", f"{row},{head[row].argmax()}")


# Maps under fingers, on a phone: a tap pins, two fingers zoom, and of several maps one is shown, by its name.


@pytest.fixture(scope="module")
def phone(browser, demos) -> Iterator[Page]:
    context = browser.new_context(
        base_url=demos.url,
        viewport={"width": 390, "height": 900},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
    )
    yield context.new_page()
    context.close()


def pinch(
    cdp: CDPSession, first: tuple[float, float], second: tuple[float, float], factor: float
) -> None:
    """Two fingers at these points move until they are `factor` times as far apart, around the same middle."""
    middle = [(a + b) / 2 for a, b in zip(first, second, strict=True)]

    def touch(kind: str, apart: float) -> None:
        points = [
            [m + apart * (at - m) for at, m in zip(point, middle, strict=True)]
            for point in (first, second)
        ]
        cdp.send(
            "Input.dispatchTouchEvent",
            {
                "type": kind,
                "touchPoints": [
                    {"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)
                ],
            },
        )

    touch("touchStart", 1)
    for step in range(1, 6):
        touch("touchMove", 1 + (factor - 1) * step / 5)
    cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def window(view: Locator) -> list[int]:
    return [int(edge) for edge in (view.get_attribute("data-window") or "").split(",")]


def test_a_tap_pins_and_two_fingers_zoom(phone):
    open_demo(phone, "view", ".av", case="pretrained")
    view = phone.locator(".av").last
    for message in ("pin (10, 2)", "pin None"):
        phone.touchscreen.tap(*cell(view, 10, 2))
        expect(phone.get_by_text(message)).to_be_visible()
        wait_ready(phone)
    cdp = phone.context.new_cdp_session(phone)
    before = phone.evaluate("[scrollX, visualViewport.scale]")
    pinch(cdp, cell(view, 6, 6), cell(view, 10, 10), 2)
    top, bottom, left, right = window(view)
    assert (bottom - top, right - left) == (8, 8) and top <= 8 < bottom and left <= 8 < right
    assert phone.evaluate("[scrollX, visualViewport.scale]") == before, (
        "the page itself stays as it is"
    )
    expect(phone.get_by_text("pin None")).to_be_visible()
    expect(view.get_by_text("Reset zoom")).to_be_visible()
    pinch(cdp, cell(view, 0, 0), cell(view, 7, 7), 0.2)
    assert window(view) == [0, 16, 0, 16]


def test_a_phone_shows_one_of_six_maps(phone):
    board = open_demo(phone, "multiples", ".mu", case="four", count=6).first
    names = board.locator(".chooser button")
    shown = board.locator(".tile:visible .name").first.inner_text()
    assert names.first.inner_text().startswith(shown)
    names.nth(1).tap()
    expect(names.nth(1)).to_have_attribute("aria-pressed", "true")
    tile = board.locator(".tile:visible").first
    expect(tile.locator(".name")).to_have_text(names.nth(1).locator("span").inner_text())
    boxes = [box_of(button) for button in [*names.all(), *board.locator("button:visible").all()]]
    assert min(min(box["width"], box["height"]) for box in boxes) >= 24
    pinch(phone.context.new_cdp_session(phone), cell(tile, 4, 4), cell(tile, 8, 8), 2)
    top, bottom, left, right = window(board)
    assert (bottom - top, right - left) == (8, 8) and top <= 6 < bottom and left <= 6 < right
    phone.touchscreen.tap(*cell(tile, 1, 2))
    expect(phone.get_by_text(f"pin ({top + 1}, {left + 2})")).to_be_visible()


# The two hands that write numbers, Python's and the browser's, write every value alike.


def test_the_browser_writes_numbers_as_python_does(page: Page):
    draw = random.Random(3)
    values = [0, 1, -1, 0.125, 0.375, 0.9996, 0.99999996, 99.996, 1234.5, 1e-5, 9.9e-6, 12345678.5]
    values += [draw.choice((-1, 1)) * 10 ** draw.uniform(-9, 5) for _ in range(2000)]
    values += [1 - 10 ** draw.uniform(-8, 0) for _ in range(1000)]
    script = (COMPONENTS / "lib" / "numbers.js").read_text("utf-8").replace("export ", "")
    assert page.evaluate(
        f"values => {{ {script}\nreturn values.flatMap(value => [number(value), shareText(value)]); }}",
        values,
    ) == [write(value) for value in values for write in (number, share_text)]


# Small multiples: one crosshair, numbers under each map, a difference, pins, keys, a phone.


MAPS = weights(1, 6, 16)[0]


@pytest.fixture
def board(page: Page):
    return lambda case, **query: open_demo(page, "multiples", ".mu", case=case, **query).first


def hover_tile(board: Locator, tile: int, i: int, j: int) -> None:
    board.page.mouse.move(*cell(board.locator(".tile").nth(tile), i, j))
    expect(board).to_have_attribute("data-hover", f"{i},{j}")


def values(board: Locator) -> list[float]:
    return [float(tile.get_attribute("data-value")) for tile in board.locator(".tile").all()]


def test_one_crosshair_reads_every_map(board, page):
    shown = board("four")
    assert shown.get_attribute("data-picked") == "10,2", "the page's row, with nothing touched"
    for tile, i, j in [(0, 10, 0), (3, 4, 7), (4, 15, 15)]:
        hover_tile(shown, tile, i, j)
        first, second = MAPS[0, i, j], MAPS[1, i, j]
        readings = values(shown)
        assert readings[:2] == pytest.approx([first, second], abs=1e-5)
        assert readings[3:] == pytest.approx([1 / 16, second - first], abs=1e-5)
    hover_tile(shown, 1, 10, 2)
    assert shown.locator(".tile .value").all_inner_texts()[2:4] == ["masked", "0.063"]
    assert shown.locator(".tile .pair").all_inner_texts() == ["it → animal"] * 5
    hover_tile(shown, 4, 10, 13)
    a, b = MAPS[1, 10, 13], MAPS[0, 10, 13]
    title, equation = shown.locator(".tip").inner_text().split("\n")
    assert title == "it → tired"
    left, right = equation.split(" = ")
    minuend, subtrahend = left.split(" − ")
    assert (float(minuend), float(subtrahend)) == pytest.approx((a, b), abs=0.005)
    assert float(right.replace("−", "-")) == pytest.approx(a - b, abs=0.005)
    page.mouse.move(2, 2)
    # Keys read every map, a pin goes to Python, and a hover stays in the browser.
    assert shown.evaluate(
        "e => [...e.querySelectorAll('*')].filter(x => x.tabIndex === 0 && x.offsetParent)"
        ".map(x => x.className)"
    ) == ["stage"]
    stage = shown.locator(".stage")
    assert (stage.get_attribute("role"), stage.get_attribute("aria-roledescription")) == (
        "application",
        "attention maps",
    )
    assert stage.get_attribute("aria-label").startswith(
        "ALiBi looks nearer than the dot product. it to animal: Dot product 0."
    )
    press_keys(page, *("ArrowUp", "End", "ArrowLeft", "Home", "ArrowRight"), on=stage)
    expect(shown).to_have_attribute("data-hover", "9,1")
    expect(shown.locator(".live")).to_contain_text("because to the: Dot product")
    expect(shown.locator(".live")).to_contain_text("Sliding window masked")
    page.keyboard.press("t")
    assert shown.locator("th").all_inner_texts()[:3] == ["because → key", "Dot product", "ALiBi"]
    first = float(shown.locator("tbody tr td:nth-child(2)").first.inner_text())
    assert first == pytest.approx(MAPS[0, 9].max(), abs=0.005)
    for key, pin in (("Enter", "pin (9, 1)"), ("Escape", "pin None")):
        page.keyboard.press(key)
        expect(page.get_by_text(pin)).to_be_visible()
    page.keyboard.press("t")
    before = page.get_by_text("runs ").inner_text()
    for j in range(8):
        hover_tile(shown, 0, 5, j)
    page.wait_for_timeout(300)
    assert page.get_by_text("runs ").inner_text() == before
    for tile, pin, status in ((1, "pin (10, 2)", "pinned it → animal"), (0, "pin None", "")):
        page.mouse.click(*cell(shown.locator(".tile").nth(tile), 10, 2))
        expect(page.get_by_text(pin)).to_be_visible()
        expect(shown.locator(".status")).to_contain_text(status)
    # A phone has no room for four maps with all their names: it shows one, and the number of each.
    for scheme in ("light", "dark"):
        resize(page, 390, scheme)
        expect(shown).to_have_attribute("data-theme", scheme)
    assert shown.locator(".maps:not(.apart) .tile:visible").count() == 1
    under = shown.locator(".maps:not(.apart) .tile .value").all_text_contents()
    assert shown.locator(".chooser .value").all_inner_texts() == under and all(under)
    assert max(box_of(canvas)["width"] for canvas in shown.locator("canvas:visible").all()) <= 362


def test_a_drag_zooms_every_map_and_a_pin_is_shared(board, page):
    shown, apart = board("apart"), page.locator(".mu").last
    hover_tile(shown, 0, 6, 4)
    expect(apart).to_have_attribute("data-hover", "6,4")
    assert apart.locator(".tip").is_hidden()
    assert values(apart) == pytest.approx([MAPS[1, 6, 4] - MAPS[0, 6, 4]], abs=1e-5)
    first = shown.locator(".tile").first
    drag(page, cell(first, 2, 3), cell(first, 9, 8))
    expect(shown).to_have_attribute("data-window", "2,10,3,9")
    expect(page.get_by_text("pin None")).to_be_visible()
    expect(page.locator(".mu").last).to_have_attribute("data-window", "2,10,3,9")
    assert float(shown.locator(".tile").nth(3).get_attribute("data-map").split(",")[2]) > 16, (
        "six columns have more room than sixteen"
    )
    page.mouse.move(*cell(shown.locator(".tile").nth(1), 4 - 2, 5 - 3))
    expect(shown).to_have_attribute("data-hover", "4,5")
    assert values(shown)[1] == pytest.approx(MAPS[1, 4, 5], abs=1e-5)
    shown.locator(".stage").press("Escape")
    expect(shown).to_have_attribute("data-window", "0,16,0,16")
    page.mouse.click(*cell(apart.locator(".tile").first, 3, 3))
    expect(page.get_by_text("pin (3, 3)")).to_be_visible()
    expect(shown).to_have_attribute("data-pin", "3,3")


def test_negative_weights_are_drawn_signed_beside_others(board):
    shown = board("four", count=6)
    signed = [tile.get_attribute("data-signed") for tile in shown.locator(".tile").all()]
    assert signed == ["", "", "", "", "1", "", "1"]
    assert shown.locator(".head .legend:visible").count() == 2


def test_names_are_never_html_signed_maps_keep_their_sign(board, page):
    html = board("html,signed,blind")
    signed, blind = (page.locator(".mu").nth(at) for at in (1, 2))
    hover_tile(html, 0, 0, 1)
    html.locator(".tool", has_text="Table").click()
    assert html.locator("img, .name i, .note u, td b").count() == 0
    assert "<i>a</i>" in html.locator(".name").first.inner_text()
    scores = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    i, j = (int(at) for at in np.unravel_index(scores.argmin(), (5, 7)))
    hover_tile(signed, 0, i, j)
    assert values(signed)[0] == pytest.approx(scores.min(), abs=1e-5)
    assert f"score {number(scores.min())}" in signed.locator(".tip").inner_text()
    assert (
        blind.locator(".masked").inner_text()
        == "Strictly before: the sees no key: its output is 0."
    )
    hover_tile(blind, 0, 0, 1)
    assert blind.locator(".tile .value").all_inner_texts() == ["0.25", "sees no key"]


def test_maps_follow_a_slider_before_the_server_answers(board, page):
    shown = board("frames")
    assert values(shown) == pytest.approx([MAPS[2, 10, 2], MAPS[0, 10, 2]], abs=1e-6)
    page.evaluate(HOLD)
    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    for note in ("step 15", "step 20"):
        slider.press("ArrowRight")
        expect(shown.locator(".tile").first).to_contain_text(note)
    assert values(shown) == pytest.approx([MAPS[4, 10, 2], MAPS[0, 10, 2]], abs=1e-4), (
        "drawn without the server"
    )
    page.wait_for_function("() => window.held.length >= 2")
    # the answer to 15 comes while the slider stands at 20
    page.evaluate("() => window.held.splice(0, 1)[0]()")
    page.wait_for_timeout(600)
    assert values(shown) == pytest.approx([MAPS[4, 10, 2], MAPS[0, 10, 2]], abs=1e-4)
    page.evaluate(LET_GO)
    expect(shown.locator(".tile").first).to_have_attribute("data-value", f"{MAPS[4, 10, 2]:.6f}")


# A line that is drawn.


def test_a_line_is_drawn_by_a_stroke_and_by_keys(page):
    page.goto("/?demo=sketch")
    paper = page.locator(".sketch")
    click(paper.get_by_role("button", name="Show me without a guess"), "taken: None")
    wait_ready(page)
    points = paper.get_by_role("slider")
    expect(points).to_have_count(4)
    left, right = (box_of(points.nth(at)) for at in (0, 3))
    middle = left["y"] + left["height"] / 2
    drag(
        page,
        (left["x"] + left["width"] / 2, middle),
        (right["x"] + right["width"] / 2, middle - 60),
    )
    values = [float(points.nth(at).get_attribute("aria-valuenow")) for at in range(4)]
    assert (
        values[0] == pytest.approx(0.5, abs=0.01) and values == sorted(values) and values[3] > 0.7
    )
    press_keys(page, "End", "Tab", "Home", "Shift+ArrowUp", on=points.nth(0))
    expect(paper.locator(".line")).to_have_text("d_k 8: 10 %")
    click(paper.get_by_role("button", name="Show me"), re.compile(r"taken: \[1\.0, 0\.1, "))
