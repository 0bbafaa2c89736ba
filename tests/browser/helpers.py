"""What a browser test waits for and looks at."""

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Error, FloatRect, Locator, Page, expect

APP = '[data-testid="stApp"]'
# Whatever draws on a page: a canvas, an SVG picture, a chart.
PICTURE = "canvas:visible, [role='img']:visible, [data-testid='stVegaLiteChart']:visible"
EXCEPTION = '[data-testid="stException"]'
# Hold what the page sends to the server, as on a slow line, and let it go.
HOLD = """() => {
  const send = WebSocket.prototype.send;
  window.held = [];
  WebSocket.prototype.send = function (data) { window.held.push(() => send.call(this, data)); };
  window.letGo = () => {
    WebSocket.prototype.send = send;
    window.held.splice(0).forEach((late) => late());
  };
}"""
LET_GO = "() => window.letGo()"
SCREENSHOTS = Path(
    os.environ.get("ATTENTION_LAB_SHOTS", f"{tempfile.gettempdir()}/attention-lab-shots")
)


@contextmanager
def ending(process: subprocess.Popen) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_ready(page: Page, timeout: float = 180_000) -> None:
    """Waits until the page is connected and its script has run to the end.

    The first page of a new server imports PyTorch first: on a busy machine that takes longer than half a minute.
    """
    page.locator(f"{APP}[data-test-connection-state='CONNECTED']").wait_for(
        timeout=timeout, state="attached"
    )
    # A widget's change is sent after a short debounce; asking sooner would see the run before it.
    page.wait_for_timeout(150)
    page.locator(f"{APP}[data-test-script-state='notRunning']").wait_for(
        timeout=timeout, state="attached"
    )


def open_page(page: Page, link: str, drawn: str = "h1", **more: str) -> Page:
    """Opens a link of the lab, with `more` values in it; waits until the first element of `drawn`, a selector, is there."""
    page.goto((link if "://" in link else f"/{link}") + ("?" if more else "") + urlencode(more))
    expect(page.locator(drawn).first).to_be_visible(timeout=60_000)
    wait_ready(page)
    return page


def reload(page: Page) -> None:
    page.reload()
    wait_ready(page)


def reopen(page: Page) -> None:
    link = page.url
    page.goto("about:blank")
    open_page(page, link)


def sees(page: Page, *texts: str | re.Pattern[str], timeout: float | None = None) -> None:
    for text in texts:
        expect(page.get_by_text(text).first).to_be_visible(timeout=timeout)


def press_keys(page: Page, *keys: str, on: Locator | None = None) -> None:
    if on:
        on.focus()
    for key in keys:
        page.keyboard.press(key)


def enter(
    field: Locator, text: str, *seen: str | re.Pattern[str], timeout: float | None = None
) -> None:
    field.fill(text)
    field.press("Enter")
    wait_ready(field.page)
    sees(field.page, *seen, timeout=timeout)


def choose(page: Page, label: str | re.Pattern[str], option: str, exact: bool = True) -> None:
    """Picks an option of a list by its name; a long list draws only what is in sight, so that it is typed there."""
    field = page.get_by_role("combobox", name=label)
    field.scroll_into_view_if_needed()  # a list closes when what is around it scrolls
    click(field)
    page.get_by_role("option").first.wait_for()
    choice = page.get_by_role("option", name=option, exact=exact).first
    if not choice.is_visible():
        field.fill(option)
    choice.click()
    if exact:
        expect(field).to_have_value(option)
    wait_ready(page)


def open_demo(page: Page, demo: str, component: str, **query: object) -> Locator:
    """Opens a case of the components' own page, and waits until they are drawn."""
    page.goto(f"/?{urlencode({'demo': demo, **query})}")
    page.locator(f"{component}[data-ready='1']").last.wait_for()
    wait_ready(page)
    return page.locator(component)


def box_of(target: Locator) -> FloatRect:
    """Where an element is on the page, once it stays there: a component may move it, or draw it anew, meanwhile."""
    box = None
    for _ in range(100):
        before, box = box, target.bounding_box()
        if box is not None and box == before:
            return box
        target.page.wait_for_timeout(30)
    raise AssertionError(f"{target} is not seen, or does not rest.")


def cell(view: Locator, i: int, j: int) -> tuple[float, float]:
    """Where cell (i, j) of a map, or thumbnail (layer, head) of a grid, is on the page."""
    x, y, across, down = map(float, view.get_attribute("data-map").split(",")[:4])
    canvas = view.locator("canvas.over")
    try:
        canvas.scroll_into_view_if_needed()
    except Error:  # the component drew a new canvas meanwhile
        canvas.scroll_into_view_if_needed()
    box = box_of(canvas)
    # A third of a cell in: thumbnails leave a gap between them.
    return box["x"] + x + (j + 0.3) * across, box["y"] + y + (i + 0.3) * down


def assert_no_exception(page: Page) -> None:
    shown = page.locator(EXCEPTION)
    if shown.count():
        raise AssertionError("The page shows a traceback:\n" + shown.first.inner_text())


def wait_picture(page: Page, timeout: float = 60_000) -> None:
    expect(page.locator(PICTURE).first).to_be_visible(timeout=timeout)


def wait_no_sideways_scrolling(page: Page) -> None:
    """Waits until nothing is wider than the screen: figures follow a new width a moment later."""
    page.wait_for_function(
        """() => [document.documentElement, document.querySelector('[data-testid=stMain]')]
                              .every(node => node.scrollWidth <= window.innerWidth + 1)""",
        polling=100,
    )


def resize(page: Page, width: int, scheme: str) -> None:
    """Another width and colour scheme for the page as it is; waits until it fits and its script has ended."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    wait_ready(page)
    wait_no_sideways_scrolling(page)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def click(target: Locator, *seen: str | re.Pattern[str], timeout: float | None = None) -> None:
    """Clicks once the page's script has ended: what moves while the page is still redrawn loses the click.

    Then waits until the texts `seen` are on the page.
    """
    wait_ready(target.page)
    target.click()
    sees(target.page, *seen, timeout=timeout)


def click_at(target: Locator, across: float, down: float) -> None:
    """Clicks at these shares of an element's width and height, once it rests."""
    box = box_of(target)
    target.page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def stop_button(page: Page) -> Locator:
    """The page's own Stop: Streamlit shows another in its header while a script runs for half a second or more."""
    return page.locator("[class*='st-key-'][class*='-stop'] button")


def save_screenshot(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / (re.sub(r"[^\w.-]+", "_", name) + ".png"), full_page=True)
