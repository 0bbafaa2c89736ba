"""`make moving`: the README's moving picture, a script that uses heads, a query, a mask and a training run."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Locator, Page

from benchmarks.browser import new_page, open_browser, serving
from dashboard.navigation import step_of
from tests.browser.helpers import assert_no_exception, cell, wait_ready

WIDTH, HEIGHT, BAND, SCALE = 1120, 700, 36, 0.85
POINTER = ((0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12))  # an arrow, in pixels
MAX_BYTES = 2_000_000


class Film:
    """Frames of a page, each with the milliseconds that it is shown, and the pointer where the mouse is."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.frames: list[Image.Image] = []
        self.times: list[int] = []
        self.pointer = (WIDTH / 2, HEIGHT / 2)
        self.name = ""

    def open(self, key: str, drawn: str, top: str = "", **link: str) -> None:
        """Open a page and wait until it has drawn `drawn`; scroll `top` to the upper edge."""
        self.name = step_of(key).title
        self.page.goto(f"{self.url}/{key}?{urlencode({**link, 'embed': 'true'})}")
        self.page.locator(drawn).first.wait_for(timeout=60_000)
        wait_ready(self.page)
        self.page.wait_for_timeout(1500)  # fonts, and what a page measures after its picture
        if top:
            self.page.locator(top).first.evaluate("e => e.scrollIntoView()")
        self.shoot(900)

    def move(self, x: float, y: float) -> None:
        self.pointer = (x, y)
        self.page.mouse.move(x, y)

    def shoot(self, milliseconds: int) -> None:
        """Add what is on the screen now."""
        assert_no_exception(self.page)
        frame = Image.new("RGB", (WIDTH, HEIGHT + BAND), "#F5F5F2")
        frame.paste(Image.open(io.BytesIO(self.page.screenshot())))
        draw = ImageDraw.Draw(frame)
        draw.text(
            (WIDTH / 2, HEIGHT + BAND / 2), self.name, "#131A26", ImageFont.load_default(20), "mm"
        )
        arrow = [(x + self.pointer[0], y + self.pointer[1]) for x, y in POINTER]
        draw.polygon(arrow, fill="black", outline="white")
        size = round(frame.width * SCALE), round(frame.height * SCALE)
        self.frames.append(frame.resize(size, Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def press(
        self, target: Locator, milliseconds: int, at: tuple[float, float] = (0.5, 0.5)
    ) -> None:
        """Click an element of a picture, at shares of its width and height, and add what follows."""
        box = target.bounding_box()
        assert box, "it is drawn"
        self.move(box["x"] + at[0] * box["width"], box["y"] + at[1] * box["height"])
        self.page.mouse.click(*self.pointer)
        wait_ready(self.page)
        self.page.wait_for_timeout(300)
        self.shoot(milliseconds)

    def save(self, target: Path) -> None:
        """Write the film as an animated WebP, as good as fits into MAX_BYTES, and its first frame.

        ValueError if no quality is small enough.
        """
        for quality in (80, 65, 50, 35):
            self.frames[0].save(
                target,
                save_all=True,
                append_images=self.frames[1:],
                duration=self.times,
                loop=0,
                quality=quality,
                method=6,
                minimize_size=True,
            )
            self.frames[0].save(target.with_stem(f"{target.stem}-still"), quality=quality, method=6)
            if target.stat().st_size <= MAX_BYTES:
                return
        raise ValueError(f"{target} is larger than {MAX_BYTES:,} bytes at any quality.")


def one_query(film: Film) -> None:
    """A query after another, then the steps of the formula for the last."""
    view = film.page.locator(".step-view")
    film.open("one_query", ".step-view svg", ".step-view", **{"one:stage": "5 Normalize"})
    rows = view.locator("rect.press:not(.row)[x='0']")  # one for the rows of all six words
    for row in range(6):
        film.press(rows, 500, (0.3, (row + 0.5) / 6))
    stages = view.locator("rect.press:not(.row):not([x='0'])")
    for index in (1, 4, 5):
        film.press(stages.nth(index), 800)


def heads(film: Film) -> None:
    """One of MiniLM's 72 heads after another, and cells of the last."""
    film.open("pretrained", ".av[data-ready='1']", ".av")
    grid, head = (film.page.locator(".av[data-ready='1']").nth(index) for index in (0, 1))
    for index in ((0, 2), (1, 5), (4, 7), (3, 1)):
        film.move(*cell(grid, *index))
        film.page.mouse.click(*film.pointer)
        wait_ready(film.page)
        film.page.wait_for_timeout(400)
        film.shoot(700)
    for index in ((10, 2), (10, 5), (6, 7)):
        film.move(*cell(head, *index))
        film.page.wait_for_timeout(200)
        film.shoot(700)


def mask(film: Film) -> None:
    """Cells of a mask drawn with the pointer."""
    film.open("masks", ".mb[data-cells]", ".mb")
    board = film.page.locator(".mb")
    for index in ((0, 3), (0, 4), (1, 4), (1, 5), (2, 5)):
        film.move(*cell(board, *index))
        film.page.mouse.click(*film.pointer)
        wait_ready(film.page)
        film.shoot(450)


def training(film: Film) -> None:
    """A run from its first step to its last: the curve grows, and attention forms on a held-out example."""
    film.open(
        "train",
        "[data-testid='stVegaLiteChart']",
        **{"train:reverse:length": "6", "train:reverse:vocab": "12"},
    )
    wait_ready(film.page)
    film.press(film.page.locator(".st-key-train-train button").first, 220)
    for _ in range(60):
        film.page.wait_for_timeout(500)
        film.shoot(220)
        if film.page.get_by_text("Finished after").count():
            break
    film.page.wait_for_timeout(1500)
    film.shoot(2500)


def main(target: str) -> None:
    with serving() as url, open_browser() as browser:
        film = Film(new_page(browser, WIDTH, HEIGHT), url)
        for scene in (heads, one_query, mask, training):
            scene(film)
        film.save(Path(target))


if __name__ == "__main__":
    main(*sys.argv[1:])
