"""Maps under fingers, on a phone: a tap pins, two fingers zoom, and of several maps one is shown, by its name."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import CDPSession, Locator, Page, expect

from tests.browser.helpers import box_of, cell, open_demo, wait_ready


@pytest.fixture
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
    """The first and last row and column in sight."""
    return [int(edge) for edge in (view.get_attribute("data-window") or "").split(",")]


def test_a_tap_pins_a_second_tap_releases_and_two_fingers_zoom_a_map(phone):
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


def test_a_phone_shows_one_named_map_which_two_fingers_zoom_and_a_tap_pins(phone):
    board = open_demo(phone, "multiples", ".mu", case="four").first
    names = board.locator(".chooser button")
    assert board.locator(".tile:visible .name").first.inner_text() == names.first.inner_text()
    names.nth(1).tap()
    expect(names.nth(1)).to_have_attribute("aria-pressed", "true")
    tile = board.locator(".tile:visible").first
    expect(tile.locator(".name")).to_have_text(names.nth(1).inner_text())
    boxes = [box_of(button) for button in [*names.all(), *board.locator("button:visible").all()]]
    assert min(min(box["width"], box["height"]) for box in boxes) >= 24
    pinch(phone.context.new_cdp_session(phone), cell(tile, 4, 4), cell(tile, 8, 8), 2)
    top, bottom, left, right = window(board)
    assert (bottom - top, right - left) == (8, 8) and top <= 6 < bottom and left <= 6 < right
    phone.touchscreen.tap(*cell(tile, 1, 2))
    expect(phone.get_by_text(f"pin ({top + 1}, {left + 2})")).to_be_visible()
