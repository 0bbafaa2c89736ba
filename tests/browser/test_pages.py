"""Each page in a real browser: a picture with nothing pressed, nothing too wide, all its controls in its link."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from playwright.sync_api import Locator, Page, Request, TimeoutError, expect

from benchmarks.layout import MAX_SHIFT, OBSERVE, SETTLE
from dashboard.navigation import STEPS, sections
from tests.browser.helpers import (
    APP,
    PICTURE,
    assert_no_exception,
    box_of,
    click,
    open_page,
    press_keys,
    resize,
    wait_no_sideways_scrolling,
    wait_picture,
    wait_ready,
)

# What is wrong for those who hear a page, or use it by keyboard or finger, and what axe-core does not look for: a stop of
# the Tab key without role or name, Markdown in a name, a button below 24 px, and what moves by itself.
# Our components live in shadow roots, Streamlit's elements outside of them.
CHECK = r"""() => {
  const MARKUP = /\*\*|`|:(primary|small|red|material)|\\[^\w\s]|\$[^\s$][^$]*\$|\]\(/;
  const NAMES = ["aria-label", "aria-description", "aria-valuetext", "aria-roledescription", "title", "alt"];
  const wrong = [];
  const report = (what, node) => wrong.push(`${what}: ${node.outerHTML.slice(0, 160)}`);
  const nameOf = (node) => node.ariaLabel || node.title || node.textContent.trim();
  const native = "a[href], button, input, select, textarea, summary";
  const check = (node) => {
    if (NAMES.some((name) => MARKUP.test(node.getAttribute(name) ?? ""))) report("markup in a name", node);
    if (!(node.getRootNode() instanceof ShadowRoot)) return;
    const style = getComputedStyle(node);
    if (parseFloat(style.transitionDuration) > 0 || style.animationName !== "none") report("moves", node);
    if (!node.checkVisibility()) return;
    if (node.tabIndex >= 0) {
      if (!node.role && !node.matches(native)) report("no role", node);
      if (!nameOf(node)) report("no name", node);
      if (node.role === "application" && !node.ariaDescription) report("keys are not said", node);
      if (node.role === "img") report("a stop of the Tab key that is an image", node);
    }
    const { width, height } = node.getBoundingClientRect();
    if (node.matches("button, input, a") && Math.min(width, height) < 23.9) report(`${width} × ${height} px`, node);
  };
  const walk = (root) => {
    for (const node of root.querySelectorAll("*")) {
      check(node);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
  };
  walk(document);
  return wrong;
}"""


NAMES = {step.path: step.title for step in STEPS}
# Pages without a picture that is drawn after them; cards has strips of 16 pixels, claims images, positions dials and words.
WORDS = ("cards", "claims", "glossary", "lessons", "positions", "questions", "quiz", "report")
# Pages with every kind of control between them; the snapshots have all pages.
LINKED = ("one_query", "train")
# Pages with every component and every kind of figure between them: these are seen on a second screen, in the other theme.
BOTH = ("", "one_query", "positions", "masks", "transformer", "train", "decode")
AXE = Path(__file__).resolve().parents[1] / "components" / "node_modules/axe-core/axe.min.js"
# Streamlit's own: a drop zone is a section that says it is none, and the label of a control that is off is pale, which
# WCAG allows. A wide equation scrolls; browsers give it the focus by themselves. axe knows no skip link before links of
# a shadow root.
NOT_OURS = [
    "[data-testid=stSkipToContent]",
    "[data-testid=stFileUploaderDropzone]",
    "[data-testid=stWidgetLabel][disabled]",
    ".katex-display",
]
AXE_CHECK = """([exclude, rules]) => axe.run({ exclude }, {
  ...rules, resultTypes: ["violations"], selectors: false, preload: false, iframes: false
}).then((run) => run.violations.flatMap(
  ({ id, nodes }) => nodes.map(({ html, any }) => [id, html.slice(0, 200), any[0]?.message])))"""


def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make in-browser` installs it")
    return AXE.read_text("utf-8")


COLORS = {"runOnly": ["color-contrast"]}  # what another theme may change
NARROW, WIDE = (390, "dark"), (1280, "light")
PARTS = 4  # so that two browsers share the walk
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
    open_page(page, url)
    # parts that load later
    expect(page.locator("[data-testid=stMain] [data-testid=stSkeleton]")).to_have_count(0)
    page.wait_for_function(SHOWN, polling=100)
    return page.evaluate(READ)


def test_nothing_is_asked_of_another_host(page, server):
    # A dashboard for a closed room: every request goes to the server itself.
    requests: list[Request] = []
    note = partial(list.append, requests)  # a method of a list takes no mark of Playwright's
    page.on("request", note)
    open_page(page, "", PICTURE)
    for scheme, color in BACKGROUND.items():
        page.emulate_media(color_scheme=scheme)
        expect(page.locator(APP)).to_have_css("background-color", color)
    page.remove_listener("request", note)
    ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
    assert requests and not [one.url for one in requests if not one.url.startswith(ours)]


def assert_picture_fits(page: Page) -> None:
    wait_picture(page)
    box = box_of(page.locator(PICTURE).first)
    assert box["width"] > 100 and box["height"] > 60
    wait_no_sideways_scrolling(page)


def assert_accessible(
    page: Page, rules: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> None:
    """No violation of these rules of axe-core, all by default, but for Streamlit's own elements."""
    if not page.evaluate("() => 'axe' in globalThis"):
        page.evaluate(axe())
    for _ in range(12):  # half of the colors come with the next run of the page
        violations = page.evaluate(AXE_CHECK, [[[selector] for selector in NOT_OURS], dict(rules)])
        if not violations:
            return
        page.wait_for_timeout(400)
    raise AssertionError(violations)


# What changes a control of each kind: an element of it, and the keys; a text is typed, and of buttons another is pressed.
KEYS = {
    "stSelectbox": ("input", ("ArrowDown", "ArrowDown", "Enter")),
    "stSlider": ("input[type=range]", ("ArrowRight",)),
    "stNumberInput": ("input", ("ArrowUp",)),
    "stCheckbox": ("input", ("Space",)),
    "stRadio": ("input:checked", ("ArrowDown",)),
}
TEXT = "[data-testid=stTextInput] input, [data-testid=stTextArea] textarea"
OTHER = (
    "button:not([aria-checked=true]):not([aria-pressed=true]):not([aria-selected=true])"
    ":not([aria-label^='Help for'])"
)


def change(page: Page, box: Locator) -> None:
    kind = next((kind for kind in KEYS if box.get_by_test_id(kind).count()), None)
    if kind:
        selector, keys = KEYS[kind]
        press_keys(page, *keys, on=box.locator(selector).first)
    elif (field := box.locator(TEXT)).count():
        text = field.first.input_value()
        field.first.fill(text + (", 1" if text[-1].isdigit() else " so"))
        field.first.blur()
    elif (other := box.locator(OTHER)).count():
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
    open_link(page, page.url)
    page.wait_for_function(  # a slow machine draws a page's controls one after the other
        f"(changed) => Object.entries(changed).every(([name, value]) => ({READ})()[name] === value)",
        arg=changed,
        polling=200,
    )


@pytest.mark.parametrize(("width", "scheme"), [NARROW])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_sidebar_leads_to_every_page(page, part, width, scheme):
    # Each page is drawn on a phone, and some then on a wide screen. Of some the controls are changed and the link
    # opened.
    open_page(page, "")
    links = page.locator("[data-testid=stSidebar] a")
    places = [sections(step.key) for step in STEPS if step.listed and sections(step.key)[0] == step]
    expect(links).to_have_count(len(places))
    for number, (path, name) in list(enumerate(NAMES.items()))[part::PARTS]:
        # the model of the last link stays, and the next page may have no picture of it
        if "model=" in page.url:
            open_page(page, "")
        steps = sections(STEPS[number].key)
        if steps in places:
            link = links.nth(places.index(steps))
            link.dispatch_event("click")  # a phone hides the sidebar after each
            expect(link).to_have_attribute("aria-current", "page")
            if number != STEPS.index(steps[0]):
                click(page.get_by_role("link", name=STEPS[number].section, exact=True).first)
        else:
            open_page(page, path)  # Report, from Export
        expect(page).to_have_url(re.compile(rf"/{path}(\?.*)?$"))
        wait_ready(page)
        expect(page.locator("h1").first).to_have_text(re.compile(r"\w{3}"))
        fits = wait_no_sideways_scrolling if path in WORDS else assert_picture_fits
        fits(page)
        assert_accessible(page)
        assert page.title() == f"{name} · Attention Lab" and page.evaluate(CHECK) == []
        if path in BOTH:
            resize(page, *WIDE)
            fits(page)
            assert_accessible(page, COLORS)
        assert_no_exception(page)
        if path in LINKED:
            open_link(page, page.url.partition("?")[0])
            assert_link_brings_back_every_control(page)
        if path in BOTH:
            resize(page, *NARROW)


# What a page answers is in sight on a laptop, whole, and beside its picture.


ANSWERED = (
    *("mechanisms", "compare", "efficient", "cards"),
    *("generate", "decode", "cache", "compare_runs", "report"),
)
ANSWER = "p[style*='Source Serif']:visible"


@pytest.mark.parametrize("key", ANSWERED)
def test_the_answer_stands_by_its_picture_on_the_first_screen(page, key):
    page.set_viewport_size({"width": 1280, "height": 800})
    answer = open_page(page, key).locator(ANSWER).first
    picture = page.locator(
        f"{PICTURE}, .tv svg:visible, .kv table, [data-testid='stImage'] img"
    ).first
    expect(picture).to_be_visible()
    expect(answer).to_be_visible()
    place = box_of(answer)
    assert place["y"] + place["height"] <= 800 and box_of(picture)["y"] < 600


# Nothing jumps while a page is drawn: by Chromium's own measure, which a person sees from 0.1 on.


FRAME = re.compile(r"st(AppViewContainer|MainBlockContainer)\b")


@pytest.mark.parametrize("key", ["lessons", "normalizers"])
def test_an_addressed_page_stands_where_it_is_drawn(page, key):
    # Of three openings one is as the page is: Streamlit loads the code of pills and of `st.html` when it first meets
    # one, so that these have no height for 0.2 s where the server answers sooner than the code is loaded.
    # Streamlit's frame moves once, as in every app: when the page is known to be wide and to have a sidebar.
    openings = (sum(shift["value"] for shift in shifts_within(page, key)) for _ in range(3))
    assert any(moved <= MAX_SHIFT for moved in openings)


def shifts_within(page, key: str) -> list[dict]:
    """The layout shifts of a page that is opened by its address, but for those of Streamlit's frame."""
    page.goto("about:blank")
    open_page(page, f"{key}")
    page.wait_for_timeout(SETTLE)
    page.evaluate(OBSERVE)
    moved = page.evaluate(
        "document.querySelector('h1').style.marginTop = '200px', performance.now()"
    )
    # after all others
    page.wait_for_function("(moved) => window.__shifts.some(({ at }) => at >= moved)", arg=moved)
    return [
        shift
        for shift in page.evaluate("window.__shifts")
        if shift["at"] < moved and not any(map(FRAME.match, shift["sources"]))
    ]
