"""Small multiples in a real browser: one crosshair, numbers under each map, a difference, pins, keys, a phone."""

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.draw.formats import number
from tests.browser.helpers import HOLD, LET_GO, box_of, cell, drag, open_demo, press_keys, resize
from tests.browser.view_data import weights

MAPS = weights(1, 6, 16)[0]


@pytest.fixture(scope="session")
def server(demos):
    return demos


@pytest.fixture
def board(page: Page):
    return lambda case, **query: open_demo(page, "multiples", ".mu", case=case, **query).first


def hover(board: Locator, tile: int, i: int, j: int) -> None:
    board.page.mouse.move(*cell(board.locator(".tile").nth(tile), i, j))
    expect(board).to_have_attribute("data-hover", f"{i},{j}")


def values(board: Locator) -> list[float]:
    return [float(tile.get_attribute("data-value")) for tile in board.locator(".tile").all()]


def under(board: Locator) -> list[str]:
    return board.locator(".tile .value").all_inner_texts()


def test_one_crosshair_reads_every_map_and_the_tooltip_a_sum_that_is_right_keys_a_pin_and_a_phone(
    board, page
):
    shown = board("four")
    assert shown.get_attribute("data-picked") == "10,2", "the page's row, with nothing touched"
    for tile, i, j in [(0, 10, 0), (3, 4, 7), (4, 15, 15)]:
        hover(shown, tile, i, j)
        first, second = MAPS[0, i, j], MAPS[1, i, j]
        readings = values(shown)
        assert readings[:2] == pytest.approx([first, second], abs=1e-5)
        assert readings[3:] == pytest.approx([1 / 16, second - first], abs=1e-5)
    hover(shown, 1, 10, 2)
    assert under(shown)[2:4] == ["masked", "0.063"]
    assert shown.locator(".tile .pair").all_inner_texts() == ["it → animal"] * 5
    hover(shown, 4, 10, 13)
    a, b = MAPS[1, 10, 13], MAPS[0, 10, 13]
    title, equation = shown.locator(".tip").inner_text().split("\n")
    assert title == "it → tired"
    left, right = equation.split(" = ")
    minuend, subtrahend = left.split(" − ")
    assert (float(minuend), float(subtrahend)) == pytest.approx((a, b), abs=0.005)
    assert float(right.replace("−", "-")) == pytest.approx(a - b, abs=0.005)
    page.mouse.move(2, 2)
    assert_keys_read_every_map_and_a_pin_goes_to_python(page, shown)
    assert_a_phone_shows_one_named_map_at_a_time(page, shown)


def assert_keys_read_every_map_and_a_pin_goes_to_python(page: Page, shown: Locator) -> None:
    """A hover stays in the browser."""
    stops = shown.evaluate(
        "e => [...e.querySelectorAll('*')].filter(x => x.tabIndex === 0 && x.offsetParent)"
        ".map(x => x.className)"
    )
    assert stops == ["stage"]
    stage = shown.locator(".stage")
    assert (stage.get_attribute("role"), stage.get_attribute("aria-roledescription")) == (
        "application",
        "attention maps",
    )
    said = stage.get_attribute("aria-label")
    assert said.startswith("ALiBi looks nearer than the dot product. it to animal: Dot product 0.")
    stage.focus()
    press_keys(page, *("ArrowUp", "End", "ArrowLeft", "Home", "ArrowRight"))
    expect(shown).to_have_attribute("data-hover", "9,1")
    expect(shown.locator(".live")).to_contain_text("because to the: Dot product")
    expect(shown.locator(".live")).to_contain_text("Sliding window masked")
    page.keyboard.press("t")
    assert shown.locator("th").all_inner_texts()[:3] == ["because → key", "Dot product", "ALiBi"]
    cells = shown.locator("tbody tr td:nth-child(2)").all_inner_texts()
    first = [0.0 if text.startswith("below") else float(text) for text in cells]
    assert first == sorted(first, reverse=True)
    assert (first[0], len(first)) == (pytest.approx(MAPS[0, 9].max(), abs=0.005), 16)
    for key, pin in (("Enter", "pin (9, 1)"), ("Escape", "pin None")):
        page.keyboard.press(key)
        expect(page.get_by_text(pin)).to_be_visible()
    page.keyboard.press("t")
    before = page.get_by_text("runs ").inner_text()
    for j in range(8):
        hover(shown, 0, 5, j)
    page.wait_for_timeout(300)
    assert page.get_by_text("runs ").inner_text() == before
    for tile, pin, status in ((1, "pin (10, 2)", "pinned it → animal"), (0, "pin None", "")):
        page.mouse.click(*cell(shown.locator(".tile").nth(tile), 10, 2))
        expect(page.get_by_text(pin)).to_be_visible()
        expect(shown.locator(".status")).to_contain_text(status)


def assert_a_phone_shows_one_named_map_at_a_time(page: Page, shown: Locator) -> None:
    for scheme in ("light", "dark"):
        resize(page, 390, scheme)
        expect(shown).to_have_attribute("data-theme", scheme)
    names = shown.locator(".chooser button")
    assert (
        names.all_inner_texts() == shown.locator(".maps:not(.apart) .name span").all_text_contents()
    )
    names.nth(2).click()
    tile = shown.locator(".maps:not(.apart) .tile:visible")
    expect(tile).to_have_count(1)
    expect(tile.locator(".name")).to_have_text(names.nth(2).inner_text())
    assert box_of(tile.locator("canvas").first)["width"] > 300
    assert max(box_of(canvas)["width"] for canvas in shown.locator("canvas:visible").all()) <= 362


def test_a_difference_elsewhere_on_the_page_follows_a_drag_zooms_every_map_and_a_pin_is_shared(
    board, page
):
    shown = board("apart")
    apart = page.locator(".mu").last
    hover(shown, 0, 6, 4)
    expect(apart).to_have_attribute("data-hover", "6,4")
    assert apart.locator(".tip").is_hidden()
    assert values(apart) == pytest.approx([MAPS[1, 6, 4] - MAPS[0, 6, 4]], abs=1e-5)
    first = shown.locator(".tile").first
    drag(page, cell(first, 2, 3), cell(first, 9, 8))
    expect(shown).to_have_attribute("data-window", "2,10,3,9")
    expect(page.get_by_text("pin None")).to_be_visible()
    expect(page.locator(".mu").last).to_have_attribute("data-window", "2,10,3,9")
    x, y, across, down = map(
        float, shown.locator(".tile").nth(3).get_attribute("data-map").split(",")
    )
    assert across > 16, "six columns have more room than sixteen"
    page.mouse.move(*cell(shown.locator(".tile").nth(1), 4 - 2, 5 - 3))
    expect(shown).to_have_attribute("data-hover", "4,5")
    assert values(shown)[1] == pytest.approx(MAPS[1, 4, 5], abs=1e-5)
    shown.locator(".stage").focus()
    page.keyboard.press("Escape")
    expect(shown).to_have_attribute("data-window", "0,16,0,16")
    page.mouse.click(*cell(apart.locator(".tile").first, 3, 3))
    expect(page.get_by_text("pin (3, 3)")).to_be_visible()
    expect(shown).to_have_attribute("data-pin", "3,3")


def test_negative_weights_are_drawn_signed_beside_the_others(board):
    shown = board("four", count=6)
    signed = [tile.get_attribute("data-signed") for tile in shown.locator(".tile").all()]
    assert signed == ["", "", "", "", "1", "", "1"]
    assert shown.locator(".head .legend:visible").count() == 2


def test_names_are_never_html_signed_maps_keep_their_sign_and_a_row_that_sees_nothing_is_named(
    board, page
):
    dialogs = []

    def dismiss(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    html = board("html,signed,blind")
    signed, blind = (page.locator(".mu").nth(at) for at in (1, 2))
    hover(html, 0, 0, 1)
    html.locator(".tool", has_text="Table").click()
    assert html.locator("img, .name i, .note u, td b").count() == 0
    assert "<i>a</i>" in html.locator(".name").first.inner_text()
    scores = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    i, j = (int(at) for at in np.unravel_index(scores.argmin(), (5, 7)))
    hover(signed, 0, i, j)
    assert values(signed)[0] == pytest.approx(scores.min(), abs=1e-5)
    assert f"score {number(scores.min())}" in signed.locator(".tip").inner_text()
    assert (
        blind.locator(".masked").inner_text()
        == "Strictly before: the sees no key: its output is 0."
    )
    hover(blind, 0, 0, 1)
    assert under(blind) == ["0.25", "sees no key"]
    assert not dialogs


def test_maps_follow_a_slider_before_the_server_answers_and_a_late_answer_undoes_nothing(
    board, page
):
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
    page.evaluate(
        "() => window.held.splice(0, 1)[0]()"
    )  # the answer to 15 comes while the slider stands at 20
    page.wait_for_timeout(600)
    assert values(shown) == pytest.approx([MAPS[4, 10, 2], MAPS[0, 10, 2]], abs=1e-4)
    page.evaluate(LET_GO)
    expect(shown.locator(".tile").first).to_have_attribute("data-value", f"{MAPS[4, 10, 2]:.6f}")
