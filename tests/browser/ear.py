"""What a blind reader hears of the stop of the Tab key, from the browser's own accessibility tree."""

import re
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.helpers import wait_ready

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
MOST = 100  # stops between two that a walk names


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
        """The stop that has the focus."""
        node = self._cdp.send("Runtime.evaluate", {"expression": ACTIVE})["result"]["objectId"]
        tree = self._cdp.send(
            "Accessibility.getPartialAXTree", {"objectId": node, "fetchRelatives": False}
        )
        spoken = tree["nodes"][0]
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
        """Press keys one after the other, and listen."""
        for key in keys:
            self.page.keyboard.press(key)
        return self.listen()

    def open_next(self) -> None:
        """Go on to the link of the next page, and open it."""
        self.tab_to("Next: ")
        before = self.page.url
        self.page.keyboard.press("Enter")
        self.page.wait_for_function(
            "before => location.href.split('?')[0] !== before.split('?')[0]", arg=before
        )
        wait_ready(self.page)

    def tab_to(self, name: str, key: str = "Tab") -> Heard:
        """Press Tab until a name that begins so is heard."""
        passed = []
        for _ in range(MOST):
            self.page.keyboard.press(key)
            one = self.listen()
            for _ in range(10):  # what is drawn anew gets its focus back
                if one.role != "generic":
                    break
                self.page.wait_for_timeout(100)
                one = self.listen()
            self.heard.append(one)
            passed.append(str(one))
            if re.match(name, one.name):
                return one
        raise AssertionError(f"{name} is not among the stops: {passed}")

    def wait_live(self, text: str) -> None:
        """Wait until a live region of a component says this."""
        expect(self.page.locator(".live", has_text=text)).to_have_count(1)


def _text(spoken: dict[str, Any], part: str) -> str:
    return str((spoken.get(part) or {}).get("value", ""))
