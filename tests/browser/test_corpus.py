"""The page Heads over a corpus in a real browser: own texts are measured by a worker, and a reload finds them again."""

import re
import shutil
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from core.files import CORPORA
from tests.browser.conftest import Server
from tests.browser.helpers import (
    box_of,
    click,
    shot,
    stop_button,
    wait_no_sideways_scrolling,
    wait_ready,
)

TEXTS = "\n".join(
    f"the old man saw the {one} and the {one} saw the old man" for one in ("bird", "fish", "king")
)


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label, exact=True).fill(option)
    page.get_by_role("option", name=option, exact=True).click()
    wait_ready(page)


def test_texts_of_a_person_are_measured_and_a_pressed_head_stays_after_a_reload(
    page: Page, server: Server
):
    page.goto(
        "/corpus?"
        + urlencode(
            {
                "inside:model": "induction",
                "corpus:source:training": "Your own texts",
                "corpus:data": TEXTS,
            }
        )
    )
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
    click(head)
    pressed = page.get_by_text(re.compile("L0·H1: its weight on the token before is"))
    expect(pressed).to_be_visible()
    choose(page, "Head", "L1·H2")
    expect(pressed).to_have_count(0)
    click(head)  # the same head again, which another one took the place of
    expect(pressed).to_be_visible()
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
    page.reload()
    wait_ready(page, 60_000)
    expect(page.get_by_text(re.compile("L0·H1: its weight on the token before is"))).to_be_visible(
        timeout=60_000
    )
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
    shot(page, "corpus")
    shutil.rmtree(server.runs / CORPORA)  # deleted from elsewhere, while the page is open
    choose(page, "Across", "Entropy")
    expect(page.get_by_text("These texts were not measured with this model yet.")).to_be_visible()
