"""The whole path without a pointer and without eyes: keys alone, and what the accessibility tree says of each stop."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page, expect

from dashboard.navigation import PATH, step_of
from tests.browser.helpers import SCREENSHOTS, open_page, stop_button, wait_ready
from tests.pages.app import contrast

# What a blind reader hears of the stop of the Tab key, from the browser's own accessibility tree.


ACTIVE = """(() => {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  return node;
})()"""
# Of a stop in a component: what is read instead of its number, and whether a ring is drawn around it, its view or mark.
MORE = """function () {
  const drawn = (node) => { const { outlineStyle, outlineWidth } = getComputedStyle(node);
                            return outlineStyle !== "none" && parseFloat(outlineWidth) >= 2; };
  const ours = this.getRootNode() instanceof ShadowRoot;
  const ring = [this, this.closest(".view"), this.querySelector("rect")].some((node) => node && drawn(node));
  return { text: this.getAttribute("aria-valuetext"), ring: ring || !ours };
}"""


@dataclass(frozen=True)
class Heard:
    """One stop: role, name, value and state, as they are read out; `ring` is whether one sees where it is."""

    role: str
    name: str
    value: str
    description: str
    state: str
    ring: bool

    def __str__(self) -> str:
        return ", ".join(
            part
            for part in (self.name, self.role, self.value, self.state, self.description)
            if part
        )


class Ear:
    """Walks a page by keyboard alone and listens; `heard` are the stops of the page so far."""

    def __init__(self, page: Page) -> None:
        self.page, self.heard = page, list[Heard]()
        self._cdp = page.context.new_cdp_session(page)

    def listen(self) -> Heard:
        node = self._cdp.send("Runtime.evaluate", {"expression": ACTIVE})["result"]["objectId"]
        spoken = self._cdp.send(
            "Accessibility.getPartialAXTree", {"objectId": node, "fetchRelatives": False}
        )["nodes"][0]
        own = self._cdp.send(
            "Runtime.callFunctionOn",
            {"objectId": node, "functionDeclaration": MORE, "returnByValue": True},
        )["result"]["value"]
        more = {one["name"]: one["value"].get("value") for one in spoken.get("properties", [])}
        state = [
            name
            for name in ("checked", "pressed", "expanded")
            if str(more.get(name)).lower() == "true"
        ]
        return Heard(
            more.get("roledescription") or _text(spoken, "role"),
            _text(spoken, "name"),
            own["text"] or _text(spoken, "value"),
            _text(spoken, "description"),
            ", ".join(state),
            own["ring"],
        )

    def press(self, *keys: str) -> Heard:
        for key in keys:
            self.page.keyboard.press(key)
        return self.listen()

    def tab_to(self, name: str) -> Heard:
        """Press Tab until a name that begins so is heard."""
        for _ in range(100):
            one = self.press("Tab")
            for _ in range(10):  # what is drawn anew gets its focus back
                if one.role != "generic":
                    break
                self.page.wait_for_timeout(100)
                one = self.listen()
            self.heard.append(one)
            if re.match(name, one.name):
                return one
        raise AssertionError(f"{name} is not among the stops: {list(map(str, self.heard))}")

    def wait_live(self, text: str) -> None:
        expect(self.page.locator(".live", has_text=text)).to_have_count(1)


def _text(spoken: dict[str, Any], part: str) -> str:
    return str((spoken.get(part) or {}).get("value", ""))


def start(page: Page, ear: Ear) -> None:
    # The list of pages is skipped; another output word is picked in the translation.
    assert ear.press("Tab").name == "Skip to main content"
    ear.press("Enter")
    slider = ear.tab_to("The same with attention")
    assert slider.role == "slider" and re.match(r"ein takes most from \w+: 0\.\d\d", slider.value)
    assert ear.press("ArrowDown").value.startswith("und takes most from ")


def why(page: Page, ear: Ear) -> None:
    # A prediction is picked, and a weight is read in the map.
    ear.tab_to("One vector")
    picked = ear.press("ArrowRight", "Space")
    assert picked.name == "Attention" and "checked" in picked.state
    wait_ready(page)
    ear.tab_to("At step 900 fünf takes 0.997 from five. fünf to five, 0.997, largest of 25")
    ear.press("ArrowRight")
    ear.wait_live("fünf to hundred, ")


def one_query(page: Page, ear: Ear) -> None:
    # A later step is opened, and another word becomes the query.
    ear.tab_to("Step 1 of 6, Project. The query is slept")
    ear.press("ArrowRight")
    view = page.locator(".step-view")
    expect(view).to_have_attribute(
        "aria-label", re.compile("^Step 2 of 6, Score. The query is slept")
    )
    wait_ready(page)
    ear.press("ArrowUp")
    expect(view).to_have_attribute(
        "aria-label", re.compile("^Step 2 of 6, Score. The query is animal")
    )
    assert ear.listen().role == "picture of the steps", "the focus stays where it was"


def heads(page: Page, ear: Ear) -> None:
    # The same cell is read in all heads, and pinned.
    ear.tab_to("3 of 12 heads of 32 numbers. it to animal: L3·H1")
    ear.press("ArrowUp")
    ear.wait_live("because to animal: L3·H1 ")
    ear.press("Enter")
    expect(page).to_have_url(re.compile("pin="))
    wait_ready(page)
    assert "Pinned: because to animal: L3·H1 " in ear.listen().name
    ear.wait_live("Pinned: because to animal")


def positions(page: Page, ear: Ear) -> None:
    # A position is picked on the dials.
    dials = ear.tab_to("3 of 32 pairs of sine and cosine over 7 positions")
    assert (dials.role, dials.value) == ("slider", "no position is picked")
    assert ear.press("ArrowRight", "ArrowRight").value.startswith(
        "position 1 (bites) · pair 0, 1: 57.3°"
    )


def masks(page: Page, ear: Ear) -> None:
    # A cell is switched, and the page follows.
    ear.tab_to("Causal: 78 of 144 cells are allowed")
    ear.press("ArrowRight", "ArrowRight", "Space")
    ear.wait_live("too may not attend to animal")
    expect(page.get_by_text("may no longer take from").first).to_be_attached()
    wait_ready(page)
    assert ear.listen().name.startswith(
        "Drawn by hand: 77 of 144 cells are allowed. too may not attend to animal"
    )


def transformer(page: Page, ear: Ear) -> None:
    # The example is followed by one block, and a block is opened; the focus stays on it after the rerun.
    ear.tab_to("Next step ›")
    ear.press("Enter")
    assert page.locator(".where").inner_text() == "2 of 6"
    block = ear.tab_to("Feed-forward, block ")
    assert "pressed" in ear.press("Enter").state and not block.state
    wait_ready(page)
    assert ear.listen().name == block.name


def train(page: Page, ear: Ear) -> None:
    # A run is started, and stopped.
    ear.tab_to("Train$")
    ear.press("Enter")
    expect(stop_button(page)).to_be_focused()  # where Train was
    ear.press("Enter")
    expect(page.get_by_text("Stopped; everything up to step")).to_be_visible()
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_focused()
    wait_ready(page)


DO: dict[str, Callable[[Page, Ear], None]] = {
    "start": start,
    "why": why,
    "one_query": one_query,
    "heads": heads,
    "positions": positions,
    "masks": masks,
    "transformer": transformer,
    "train": train,
}


def test_the_path_is_walked_by_keyboard_alone(page):
    assert list(DO) == ["start", *PATH]
    page.goto("/")
    expect(page.get_by_role("link", name=re.compile("^Next: "))).to_be_visible()
    page.wait_for_timeout(400)  # a page may run a second time with what its browser says
    wait_ready(page)
    ear = Ear(page)
    for key, do in DO.items():
        if key != "start":
            assert ear.listen().name.startswith(step_of(key).title), (
                "the heading of a page that was opened is heard"
            )
        ear.heard.clear()
        do(page, ear)
        ear.tab_to("Next: ")
        before = page.url
        page.keyboard.press("Enter")
        page.wait_for_function(
            "before => location.href.split('?')[0] !== before.split('?')[0]", arg=before
        )
        wait_ready(page)
        if "ATTENTION_LAB_SHOTS" in os.environ:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            (SCREENSHOTS / f"heard-{key}.txt").write_text(
                "\n".join(map(str, ear.heard)), encoding="utf-8"
            )
        heard = [one for one in ear.heard if one.role != "main"]  # Streamlit's, which scrolls
        assert all(one.name and one.role not in ("generic", "none", "") for one in heard), key
        assert not [str(one) for one in heard if not one.ring], f"{key}: the focus cannot be seen"
        ours = [
            str(one)
            for one in heard
            if one.description.startswith("Arrow") or ", block " in one.name
        ]
        assert len(ours) == len(set(ours)), f"{key}: two stops sound the same"


# The page's ground, and the color of the ring around each stop of each component; "" where there is none.
RINGS = """() => {
  const drawn = (node) => node && getComputedStyle(node).outlineStyle !== "none"
    && parseFloat(getComputedStyle(node).outlineWidth) >= 2;
  const stops = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].flatMap((host) =>
    [...host.shadowRoot.querySelectorAll("button, input, [tabindex='0']")]
      .filter((node) => node.tabIndex >= 0 && node.checkVisibility()));
  return [getComputedStyle(document.querySelector("[data-testid=stApp]")).backgroundColor, stops.map((stop) => {
    stop.focus();
    const ring = [stop, stop.querySelector("rect"), stop.closest(".view")].find(drawn);
    return [stop.ariaLabel || stop.textContent, ring ? getComputedStyle(ring).outlineColor : ""];
  })];
}"""


def rgb(color: str) -> list[float]:
    return list(map(float, re.findall(r"[\d.]+", color)[:3]))


def test_the_focus_is_seen_in_both_themes(page):
    for path, least in (("transformer", 15), ("one_query", 5)):
        open_page(page, path, ".view")
        for scheme, forced in (("light", "none"), ("dark", "none"), ("dark", "active")):
            page.emulate_media(color_scheme=scheme, forced_colors=forced)
            wait_ready(page)
            page.keyboard.press("Tab")  # from here on the browser shows where the focus is
            ground, rings = page.evaluate(RINGS)
            assert len(rings) >= least
            for name, color in rings:
                assert color, f"{name} has no ring"
                assert contrast(rgb(ground), rgb(color)) >= 3, (
                    f"{name}: {color} on {ground}, {scheme}, forced: {forced}"
                )
    page.emulate_media(forced_colors="none")
