"""From a control's move to the new picture on every page, at its default size, beside an empty Streamlit page.

The empty page writes the value of one control of the same sort. Both in one browser, in turn, from the key press to the
frame in which the page's picture or numbers differ. A control moves on to values that it did not have before, as far
as it goes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Locator, Page

from benchmarks.browser import new_page, open_browser, open_panel, serving
from benchmarks.slider import WATCH
from benchmarks.timing import Row, median_ratio
from tests.browser.helpers import wait_ready

DRAWN = ".view, [data-testid='stHtml'], [data-testid='stVegaLiteChart'], .lab-table"  # what pages draw and say
WORDS = "[data-testid='stMain'] [data-testid='stMarkdownContainer']"
KEYS = {"slider": ("ArrowLeft", "ArrowRight"), "number": ("ArrowDown", "ArrowUp")}
ROLES = {
    "slider": "slider",
    "number": "spinbutton",
    "list": "combobox",
    "pills": "radiogroup",
    "switch": "switch",
    "text": "textbox",
    "area": "textbox",
    "button": "button",
}
TYPED = "etaoinshrdlu"  # a letter each move
BUDGET = "≤ 150 ms"
NAME = "Moved"  # the label of the empty page's control
SETTLE = 1500  # ms after the last element has come, in which React still takes pages apart

EMPTY = f"""import streamlit as st

controls = {{
    "slider": lambda: st.slider("{NAME}", 0, 100, 50), "number": lambda: st.number_input("{NAME}", 0, 100, 50),
    "list": lambda: st.selectbox("{NAME}", range(100)), "area": lambda: st.text_area("{NAME}"),
    "pills": lambda: st.segmented_control("{NAME}", range(5), default=0),
    "switch": lambda: st.toggle("{NAME}"), "text": lambda: st.text_input("{NAME}", "", live=True),
    "button": lambda: st.button("{NAME}", on_click=lambda: st.session_state.update(n=st.session_state.get("n", 0) + 1)),
}}
value = controls[st.query_params["sort"]]()
st.html(f"<p>now {{value}} {{st.session_state.get('n')}}</p>")
"""


@dataclass
class Moved:
    """A page, and which of its controls is moved."""

    key: str
    sort: Literal["slider", "number", "list", "pills", "switch", "text", "area", "button"]
    name: str | None = None
    query: str = ""
    inside: tuple[str, ...] = ()  # the panels and popovers to open first
    drawn: str = DRAWN
    # the direction in which it moves: 1, or 0 where it turned at its end
    onward: int = field(default=1, init=False)

    @property
    def path(self) -> str:
        return self.query if self.key == "start" else self.key + self.query


PAGES = (
    Moved("start", "number", "Query, 1"),
    Moved("why", "slider", "Training step"),
    Moved("one_query", "slider", inside=("All settings",)),
    Moved("heads", "slider", "d_model", "?heads:weights=Random"),
    Moved("positions", "button", "Shuffle again"),
    Moved("masks", "list", "Mask"),
    Moved("transformer", "slider", "Layers", "?run=seeded&transformer:start=random"),
    Moved("train", "slider", "Training step"),
    Moved("scores", "slider", "Query length ×"),
    Moved("normalizers", "slider", "Scores times"),
    Moved("mechanisms", "list", "Choice"),
    Moved("cache", "slider", "Step"),
    Moved("questions", "list", "Question", drawn=WORDS),
    Moved("lessons", "pills", "Part", drawn=WORDS),
    Moved("runs", "text", "Search", drawn="[data-testid='stMain']"),
    Moved("compare_runs", "slider", "Training step"),
    Moved("sweeps", "list", "Measure"),
    Moved("decode", "slider", "Width"),
    Moved("compare", "number", "Seed", "?source=seeded", ("Tokens",)),
    Moved("efficient", "list", "Head"),
    Moved("claims", "switch", "Hide verdicts"),
    Moved("cards", "list", "Model"),
    Moved("pretrained", "pills", "Show"),
    Moved("inside_weight", "list", "Key"),
    Moved("evidence", "list", "Head", inside=("Heads",)),
    Moved("lens", "list", "Answer at position"),
    Moved("circuits", "list", "Head to open"),
    Moved("head_roles", "list", "Role"),
    Moved("corpus", "list", "Across", inside=("Axes",)),
    Moved("generate", "slider", "Step"),
    Moved("two_models", "list", "Head"),
    Moved("use_model", "area", "Text"),
    Moved("fine_tune", "slider", "Training step"),
    Moved("glossary", "text", "Find a term", drawn="[data-testid='stMain']"),
)


def aim(page: Page, moved: Moved, number: int) -> str:
    """Brings the focus to the control, one key away from its move; returns that key."""
    widget = page.get_by_role(ROLES[moved.sort], name=moved.name).first  # type: ignore[arg-type]
    if moved.sort == "pills":
        others = widget.get_by_role("radio", checked=False)
        widget = others.nth(number % others.count())
    widget.focus()
    if moved.sort in KEYS:
        return KEYS[moved.sort][direction(widget, moved)]
    if moved.sort == "text":
        widget.press("End")
        return TYPED[number % len(TYPED)]
    if moved.sort == "area":
        widget.press_sequentially(TYPED[number % len(TYPED)])
        return "Control+Enter"
    if moved.sort == "list":
        widget.press("ArrowDown")  # opens it at the option that it has
        page.get_by_role("option").first.wait_for()
        at = widget.get_attribute("aria-activedescendant")
        widget.press("ArrowDown")
        if widget.get_attribute("aria-activedescendant") == at:  # the last one
            widget.press("Home")
    return "Space" if moved.sort in ("pills", "switch") else "Enter"


def direction(widget: Locator, moved: Moved) -> int:
    """1 to move up, 0 to move down, where a slider or a number was at its end."""
    value, low, high = (
        float(part) for part in widget.evaluate("(e) => [e.value, e.min || -1e9, e.max || 1e9]")
    )
    if value in (low, high):
        moved.onward = int(value == low)
    return moved.onward


def answer(page: Page, moved: Moved, selector: str, number: int) -> float:
    """Milliseconds from the key to the changed picture."""
    page.bring_to_front()
    key = aim(page, moved, number)
    page.evaluate("(selector) => window.__watch(selector)", selector)
    page.keyboard.press(key)
    changed = page.evaluate(
        "() => Promise.race([window.__changed, new Promise((done) => setTimeout(done, 8000))])"
    )
    if changed is None:
        raise TimeoutError(f"{moved.key}: nothing changed in 8 s after {key}")
    pressed, _ = changed
    wait_ready(page)
    return pressed


def opened(browser: Browser, url: str, inside: Sequence[str] = ()) -> Page:
    page = new_page(browser)
    page.add_init_script(WATCH)
    page.goto(url)
    wait_ready(page)
    page.wait_for_timeout(SETTLE)
    for name in inside:
        open_panel(page, name)
        page.wait_for_timeout(SETTLE)
    return page


def rows(count: int = 11, only: Sequence[str] = ()) -> Iterator[Row]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY, encoding="utf-8")
        ours, empty = stack.enter_context(serving()), stack.enter_context(serving(script))
        browser = stack.enter_context(open_browser())
        for moved in PAGES:
            if not only or moved.key in only:
                page = opened(browser, f"{ours}/{moved.path}", moved.inside)
                yield row(page, moved, opened(browser, f"{empty}/?sort={moved.sort}"), count)


def row(page: Page, moved: Moved, beside: Page, count: int) -> Row:
    times: dict[str, list[float]] = {"ours": [], "empty": []}
    same = Moved("empty", moved.sort, NAME)
    for number in range(-3, count):
        taken = {
            "ours": answer(page, moved, moved.drawn, number),
            "empty": answer(beside, same, "[data-testid='stHtml']", number),
        }
        for name, value in taken.items():
            if number >= 0:
                times[name].append(value)
    page.close()
    beside.close()
    what = f"{moved.key}: {moved.name or moved.sort} to new picture"
    return Row(
        what,
        "empty rerun",
        f"{statistics.median(times['ours']):.0f} ms",
        f"{statistics.median(times['empty']):.0f} ms",
        median_ratio(times["ours"], times["empty"]),
        BUDGET,
    )
