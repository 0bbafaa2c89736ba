"""Each page in a real browser: a picture with nothing pressed, nothing too wide, all its controls in its link."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from playwright.sync_api import Locator, Page, Request, TimeoutError, expect

from dashboard.navigation import STEPS
from tests.browser.heard import assert_heard
from tests.browser.helpers import (
    APP,
    assert_fits,
    assert_no_exception,
    resize,
    wait_no_sideways_scrolling,
    wait_picture,
    wait_ready,
)

NAMES = {"" if step.default else step.key: step.title for step in STEPS}
PATHS = list(NAMES)
# Pages without a picture that is drawn after them; cards has strips of 16 pixels, claims has images in its cards.
WORDS = ("cards", "claims", "glossary", "lessons", "questions", "report")
MORE_CONTROLS = {
    "transformer": "?run=seeded"
}  # of a link; a trained model has the blocks that it has
AXE = (Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js").read_text(
    "utf-8"
)
# Streamlit's own: a drop zone is a section that says it is none, and the label of a control that is off is pale, which
# WCAG allows. A wide equation scrolls; browsers give it the focus by themselves. axe knows no skip link before links of
# a shadow root.
NOT_OURS = [
    "[data-testid=stSkipToContent]",
    "[data-testid=stFileUploaderDropzone]",
    "[data-testid=stWidgetLabel][disabled]",
    ".katex-display",
]
CHECK = """([exclude, rules]) => axe.run({ exclude }, {
  ...rules, resultTypes: ["violations"], selectors: false, preload: false, iframes: false
}).then((run) => run.violations.flatMap(
  ({ id, nodes }) => nodes.map(({ html, any }) => [id, html.slice(0, 200), any[0]?.message])))"""
COLORS = {"runOnly": ["color-contrast"]}  # what another theme may change
SCREENS = ((390, "dark"), (1280, "light"))
PARTS = 6  # so that two browsers share the walk
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 21, 27)"}

READ = """() => {
  const on = (node) => node.matches("[aria-checked=true], [aria-pressed=true], [aria-selected=true]");
  const valueOf = (box) => {
    const all = (selector) => [...box.querySelectorAll(selector)].filter((node) => !node.disabled);
    if (box.querySelector("[data-testid=stSelectbox]")) return all("input").map((node) => node.value).join();
    if (box.querySelector("[data-testid=stSlider]"))
      return all("input[type=range]").map((node) => node.getAttribute("aria-valuetext") ?? node.value).join();
    if (box.querySelector("[data-testid=stTextInput], [data-testid=stTextArea]"))
      return all("input, textarea").map((node) => node.value).join();
    if (box.querySelector("[data-testid=stNumberInput]")) return all("input").map((node) => node.value).join();
    if (box.querySelector("[data-testid=stCheckbox], [data-testid=stRadio]"))
      return all("input").map((node) => node.checked).join();
    if (box.querySelector("[data-testid=stButtonGroup]"))
      return all("button").filter(on).map((node) => node.innerText).join();
    return "";
  };
  const boxes = document.querySelectorAll("[data-testid=stMain] [data-testid=stElementContainer][class*=st-key-]");
  const values = {};
  for (const box of boxes) {
    const key = [...box.classList].find((name) => name.startsWith("st-key-"));
    const value = box.checkVisibility() ? valueOf(box) : "";
    if (value) values[key] = value;
  }
  return values;
}"""

# What is below a picture is hidden until the picture is drawn.
SHOWN = """() => [...document.querySelectorAll("[data-testid=stMain] [class*=st-key-]")].every((box) =>
  !box.checkVisibility() || box.checkVisibility({ visibilityProperty: true }))"""


def open_link(page: Page, url: str) -> dict[str, str]:
    """Open a link in a new session; returns the values of the controls."""
    page.goto("about:blank")
    page.goto(url)
    page.locator(f"{APP}[data-test-connection-state='CONNECTED']").wait_for(
        timeout=30_000, state="attached"
    )
    page.wait_for_timeout(400)  # a page may run a second time with what its controls read
    wait_ready(page)
    expect(page.locator("[data-testid=stMain] [data-testid=stSkeleton]")).to_have_count(
        0
    )  # parts that load later
    page.wait_for_function(SHOWN, polling=100)
    return page.evaluate(READ)


def test_nothing_is_asked_of_another_host_and_the_theme_follows_the_system(page, server):
    """A dashboard for a closed room: every request goes to the server itself."""
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    page.on("request", note)
    for scheme, color in BACKGROUND.items():
        page.emulate_media(color_scheme=scheme)
        page.goto("/")
        wait_ready(page)
        wait_picture(page)
        expect(page.locator(APP)).to_have_css("background-color", color)
    page.remove_listener("request", note)
    ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
    assert urls and not [url for url in urls if not url.startswith(ours)]


def assert_picture_fits(page: Page) -> None:
    wait_picture(page)
    assert_fits(page)


def assert_accessible(
    page: Page, rules: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> None:
    """No violation of these rules of axe-core, all by default, but for Streamlit's own elements."""
    if not page.evaluate("() => 'axe' in globalThis"):
        page.evaluate(AXE)
    for _ in range(12):  # half of the colors come with the next run of the page
        violations = page.evaluate(CHECK, [[[selector] for selector in NOT_OURS], dict(rules)])
        if not violations:
            return
        page.wait_for_timeout(400)
    raise AssertionError(violations)


def change(page: Page, box: Locator) -> None:
    """Set a control to another of its values, where it has one."""
    box.evaluate(
        "(node) => node.scrollIntoView({ block: 'center' })"
    )  # a list closes when the page scrolls
    if box.get_by_test_id("stSelectbox").count():
        box.locator("input").first.click()
        options = page.get_by_role("option")
        options.first.wait_for()
        other = page.locator("[role=option]:not([aria-selected=true])")
        other.first.click() if other.count() else page.keyboard.press("Escape")
    elif box.get_by_test_id("stSlider").count():
        thumb = box.locator("input[type=range]").first
        before = thumb.input_value()
        thumb.press("ArrowRight")
        if thumb.input_value() == before:
            thumb.press("ArrowLeft")
    elif box.get_by_test_id("stNumberInput").count():
        up, down = (
            box.get_by_test_id("stNumberInputStepUp"),
            box.get_by_test_id("stNumberInputStepDown"),
        )
        if up.count():
            (up if up.is_enabled() else down).click()
        else:  # a narrow field has no buttons
            box.locator("input").first.press("ArrowUp")
    elif (
        field := box.locator("[data-testid=stTextInput] input, [data-testid=stTextArea] textarea")
    ).count():
        text = field.first.input_value()
        field.first.fill(text + (", 1" if text[-1].isdigit() else " so"))
        field.first.blur()
    elif box.get_by_test_id("stCheckbox").count():
        box.locator("label").first.click()
    elif box.get_by_test_id("stRadio").count():
        box.locator("label:has(input:not(:checked))").first.click()
    else:
        other = box.locator(
            "button:not([aria-checked=true]):not([aria-pressed=true]):not([aria-selected=true])"
            ":not([aria-label^='Help for'])"
        )
        if other.count():
            other.first.click()
    wait_ready(page)


def assert_link_brings_back_every_control(page: Page) -> None:
    """Changes each control that is in sight and opens the page's link in a new session."""
    first = page.evaluate(READ)
    for name in first:
        box = page.locator(f".{name}").first
        if box.is_visible():  # a control before it may have taken it away
            try:
                change(page, box)
            except TimeoutError:  # or takes it away now, on a slow machine
                if box.is_visible():
                    raise
    assert_no_exception(page)
    changed = page.evaluate(READ)
    assert not first or changed != first, "no control could be changed"
    page.wait_for_timeout(500)  # the address is written after the script has ended
    opened = open_link(page, page.url)
    for _ in range(30):  # a slow machine draws a page's controls one after the other
        lost = {
            name: (value, opened.get(name))
            for name, value in changed.items()
            if opened.get(name) != value
        }
        if not lost:
            return
        page.wait_for_timeout(300)
        opened = page.evaluate(READ)
    raise AssertionError(f"{page.url}: changed to, and opened as: {lost}")


@pytest.mark.parametrize(("width", "scheme"), SCREENS[:1])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_sidebar_leads_to_every_page_which_fits_every_screen_and_is_whole_in_its_link(
    page, part, width, scheme
):
    """Each page is drawn on one screen and changed to the other; there its controls are changed and its link opened.

    The next page begins on that screen: half of them are widened, and half made narrow.
    """
    screens = itertools.cycle(SCREENS[1:] + SCREENS[:1])
    page.goto("/")
    wait_ready(page)
    links = page.locator("[data-testid=stSidebar] a")
    expect(links).to_have_count(len(PATHS))
    for number, path in list(enumerate(PATHS))[part::PARTS]:
        if (
            "model=" in page.url
        ):  # the model of the last link stays, and the next page may have no picture of it
            page.goto("/")
            wait_ready(page)
        links.nth(number).dispatch_event("click")  # a phone hides the sidebar after each
        expect(page).to_have_url(re.compile(rf"/{path}(\?.*)?$"))
        expect(links.nth(number)).to_have_attribute("aria-current", "page")
        wait_ready(page)
        expect(page.locator("h1").first).to_have_text(re.compile(r"\w{3}"))
        fits = wait_no_sideways_scrolling if path in WORDS else assert_picture_fits
        fits(page)
        assert_accessible(page)
        assert_heard(page, NAMES[path])
        resize(page, *next(screens))
        assert_no_exception(page)
        fits(page)
        assert_accessible(page, COLORS)
        if path in MORE_CONTROLS:
            open_link(page, page.url.partition("?")[0] + MORE_CONTROLS[path])
        assert_link_brings_back_every_control(page)
