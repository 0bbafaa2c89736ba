"""The attention view beyond one pin: several pins, a threshold, maps past 512 tokens, patches, its own PNG."""

import io

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from dashboard.draw.formats import number
from tests.browser.helpers import box_of, cell
from tests.browser.test_attention_view import data, hover, open_view, server  # noqa: F401
from tests.browser.view_data import weights
from tests.cases import instance


def ink(view) -> float:
    """How much of the map's canvas is darker than half."""
    canvas = view.locator("canvas.base").screenshot()
    return float((np.asarray(Image.open(io.BytesIO(canvas)).convert("L")) < 128).mean())


def test_the_picture_saves_itself_several_cells_are_pinned_and_a_threshold_takes_ink_away(
    open_view,  # noqa: F811
    page,
):
    view = open_view("pins")
    all_of_it = ink(view)
    save_and_read_png(view)
    head = weights(1, 2, 16)[0, 0]
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
    view.locator(".stage").focus()
    page.keyboard.press("Escape")
    expect(page.get_by_text("pins []")).to_be_visible()
    view = open_view("pins", threshold=0.6)
    assert ink(view) < all_of_it
    assert "below 0.60 not drawn" in view.locator(".reads").first.inner_text()
    head = weights(1, 2, 16)[0, 0]
    hover(view, 1, 2)
    assert head[1, 2] < 0.6
    assert float(data(view)["value"]) == pytest.approx(head[1, 2], abs=1e-5)


def save_and_read_png(view) -> None:
    with view.page.expect_download() as got:
        view.locator(".tool", has_text="PNG").click()
    assert got.value.suggested_filename == "attention-L0H0.png"
    picture = Image.open(got.value.path())
    wide = view.evaluate("e => e.clientWidth")
    assert picture.width == 2 * (wide + 32)
    x, y, across, down = map(float, data(view)["map"].split(",")[:4])
    head = weights(1, 2, 16)[0, 0]
    i, j = np.unravel_index(head.argmax(), head.shape)
    at = (int(2 * (16 + x + (j + 0.25) * across)), int(2 * (46 + y + (i + 0.25) * down)))
    assert sum(instance(picture.convert("RGB").getpixel(at), tuple)) < 250, (
        "the largest weight is dark"
    )
    assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_1500_tokens_are_pooled_said_so_and_a_drag_opens_them_exactly(open_view, page):  # noqa: F811
    view = open_view("long", size=1500)
    assert data(view)["pooled"] == "1"
    assert "a cell is the mean of 2.9 × 2.9 tokens" in view.locator(".reads").first.inner_text()
    page.mouse.move(*cell(view, 100, 20))
    page.mouse.down()
    page.mouse.move(*cell(view, 220, 140), steps=4)
    page.mouse.up()
    expect(view).to_have_attribute("data-pooled", "")
    top, bottom, left, right = map(int, data(view)["window"].split(","))
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


def test_a_patch_under_the_pointer_is_a_query(open_view, page):  # noqa: F811
    view = open_view("picture")
    head = weights(1, 2, 17)[0, 0]
    x, y, wide, high = map(float, data(view)["picture"].split(","))
    box = box_of(view.locator("canvas.over"))
    page.mouse.move(
        box["x"] + x + 0.6 * wide, box["y"] + y + 0.3 * high
    )  # row 1, column 2 of 4 × 4
    row = 1 + 4 + 2
    expect(view).to_have_attribute("data-hover", f"{row},{head[row].argmax()}")
