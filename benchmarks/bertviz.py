"""All heads of a text, from pressing Enter to the picture: the app beside BertViz's model view and head view.

One browser, one model (the shape of all-MiniLM-L12-v2: 12 layers of 12 heads; its weights are random, which costs the
same), the same texts. BertViz does what it does in a notebook: tokens, a plain eager forward, its page; that page is
served from here, with its scripts from npm (jQuery 2.1.0 in place of 2.0.0, which npm does not have). Hover is from a
move of the pointer to the frame that shows it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.bertviz_server import HEADS, LAYERS, Peer, build_model, peer_server
from benchmarks.browser import new_page, open_browser, serving
from tests.browser.helpers import wait_ready

SIZES = (16, 32, 64, 128, 256, 512)
MAX_LINES = 3_000_000  # SVG elements; with three times as many the browser runs out of memory
PATIENCE = 300_000  # ms
WORDS = (
    "the animal was too tired to cross a street and it sat down on an old stone by water".split()
)
HEAD = (
    "| tokens | all heads and one head, ours | model alone | BertViz model view | × | BertViz head view | × "
    "| bytes: ours | model view | head view | hover: ours | head view |\n" + "| --- " * 12 + "|"
)

FRAME = """
() => {
  window.__hover = [];
  const heard = (event) => requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = () => window.__hover.push(performance.now() - event.timeStamp);
    after.port2.postMessage(0);
  });
  document.addEventListener("mousemove", heard, true);
}
"""
DRAWN = """
(views) => {
  const before = views.map((view) => Number(view.dataset.drawn));
  window.__drawn = new Promise((done) => addEventListener("keydown", (event) => {
    const look = () => views.every((view, k) => Number(view.dataset.drawn) > before[k])
      ? done(performance.now() - event.timeStamp) : requestAnimationFrame(look);
    requestAnimationFrame(look);
  }, { capture: true, once: true }));
}
"""


@dataclass(frozen=True)
class Picture:
    """One picture: milliseconds until it stands, bytes that were sent for it, milliseconds a hover takes."""

    ms: float
    sent: int
    hover: float | None


@dataclass(frozen=True)
class Line:
    """One row of the table: ours, the model's own time, and BertViz's two views (None: not tried)."""

    tokens: int
    ours: Picture
    model: float
    models: Picture | None
    heads: Picture | None

    def markdown(self) -> str:
        theirs = [self.models, self.heads]
        lines = LAYERS * HEADS * self.tokens**2
        none = f"{lines / 1e6:.1f} M lines, not tried"
        times = [
            cell
            for one in theirs
            for cell in ((ms(one.ms), f"{one.ms / self.ours.ms:.1f}") if one else (none, "–"))
        ]
        hover = self.heads.hover if self.heads else None
        cells = [
            self.tokens,
            ms(self.ours.ms),
            ms(self.model),
            *times,
            size(self.ours.sent),
            *(size(one.sent) if one else "–" for one in theirs),
            ms(self.ours.hover),
            ms(hover),
        ]
        return f"| {' | '.join(map(str, cells))} |"


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.0f} ms"


def size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def text_of(tokens: int, turn: int) -> str:
    """A text of so many tokens, with the two that the tokenizer adds; another one each turn, so that none is cached."""
    return " ".join(WORDS[(turn * 5 + place) % len(WORDS)] for place in range(tokens - 2))


def hovered(page: Page, spots: list[tuple[float, float]]) -> float | None:
    """Median milliseconds from a pointer's move to its frame."""
    page.evaluate(FRAME)
    for x, y in spots:
        page.mouse.move(x, y)
        page.wait_for_timeout(60)
    taken = page.evaluate("() => window.__hover")
    return statistics.median(taken[1:]) if len(taken) > 1 else None


class Ours:
    """The app's page of pretrained models, with the model opened from its folder."""

    def __init__(self, browser: Browser, url: str, folder: Path) -> None:
        self.page, self.sent, self.turn = new_page(browser), 0, 0
        self.page.on("websocket", lambda socket: socket.on("framereceived", self._count))
        self.page.goto(f"{url}/pretrained?inside:model={folder}")
        self.page.locator(".av[data-ready='1']").nth(1).wait_for(timeout=PATIENCE)
        wait_ready(self.page, PATIENCE)
        # the roles of a model are measured once, after its first picture
        self.page.wait_for_timeout(3000)
        wait_ready(self.page, PATIENCE)

    def _count(self, payload: Any) -> None:
        self.sent += len(payload)

    def enter(self, tokens: int) -> tuple[float, int]:
        """Milliseconds from Enter until all heads and one head are drawn anew, and the bytes that came."""
        self.turn += 1
        box = self.page.get_by_role("textbox", name="Text").first
        box.fill(text_of(tokens, self.turn))
        views = [view.element_handle() for view in self.page.locator(".av").all()]
        self.page.evaluate(DRAWN, views)
        before = self.sent
        box.press("Enter")
        taken = float(self.page.evaluate("() => window.__drawn"))
        wait_ready(self.page, PATIENCE)
        return taken, self.sent - before

    def picture(self, tokens: int, count: int) -> Picture:
        self.enter(tokens)
        image = [self.enter(tokens) for _ in range(count)]
        over = self.page.locator(".av").nth(1).locator("canvas.over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box() or {"x": 0, "y": 0, "width": 0, "height": 0}
        spots = [
            (box["x"] + 0.12 * box["width"] + 9 * k, box["y"] + 0.4 * box["height"] + 7 * k)
            for k in range(15)
        ]
        return Picture(
            statistics.median(one[0] for one in image),
            int(statistics.median(one[1] for one in image)),
            hovered(self.page, spots),
        )


def theirs(browser: Browser, peer: Peer, view: str, tokens: int, count: int) -> Picture:
    """BertViz's page, asked for anew each time, until its last line is in the document and a frame has shown it."""
    taken: list[float] = []
    hover = None
    for turn in range(count):
        page = new_page(browser)
        page.set_default_timeout(PATIENCE)
        peer.text = text_of(tokens, turn)
        start = time.perf_counter()
        page.goto(f"{peer.url}/{view}", wait_until="load")
        page.wait_for_function(
            "() => document.querySelectorAll('svg line, svg rect').length > 4", polling="raf"
        )
        page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        taken.append((time.perf_counter() - start) * 1000)
        if view == "head_view" and turn == count - 1:
            hover = hovered(page, [(150.0, 130.0 + 20 * k) for k in range(10)])
        page.close()
    return Picture(statistics.median(taken), peer.sent, hover)


def rows(count: int = 5) -> Iterator[Line]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = build_model(folder / "model")
        url, browser = stack.enter_context(serving()), stack.enter_context(open_browser())
        ours, peer = (
            Ours(browser, url, folder / "model"),
            stack.enter_context(peer_server(model, folder / "scripts")),
        )
        for tokens in SIZES:
            mine = ours.picture(tokens, count)
            alone = peer.forward_ms(text_of(tokens, 0), count)
            few = tokens <= 32 or count == 1
            drawn = LAYERS * HEADS * tokens**2 <= MAX_LINES
            views = [
                theirs(browser, peer, view, tokens, count if few else 1) if drawn else None
                for view in ("model_view", "head_view")
            ]
            yield Line(tokens, mine, alone, *views)
