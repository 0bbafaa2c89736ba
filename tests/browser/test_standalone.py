"""Files opened without a network: a trace, whose heads are picked, read and pinned, and each page with its views."""

import pytest
from playwright.sync_api import Browser, expect

from dashboard.draw import picture_files
from dashboard.draw.components import COMPONENTS
from dashboard.draw.formats import number
from dashboard.draw.picture_files import trace_html
from dashboard.navigation import step_of
from tests.draw.test_components import trace
from tests.pages.app import open_at, page_html
from tests.pages.picture_programs import run_here

TRACE = trace(2, 3, 5, 4, mask=True)


@pytest.fixture
def alone(browser: Browser, tmp_path):
    """The file in a browser that has no network."""
    path = tmp_path / "heads.html"
    path.write_text(
        trace_html(TRACE, title="Heads", source="a model", head=1, query=3), encoding="utf-8"
    )
    context = browser.new_context(
        offline=True, color_scheme="light", viewport={"width": 1280, "height": 900}
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not faults


def test_a_head_is_picked_in_the_grid_read_by_keys_and_pinned(alone):
    grid, one = alone.locator(".view.av").nth(0), alone.locator(".view.av").nth(1)
    expect(one.locator(".title")).to_have_text("L0·H1")
    one.get_by_role("button", name="Table").click()
    expect(one.locator("table")).to_contain_text("q3 → key")
    one.get_by_role("button", name="Table").click()
    stage = grid.locator("[tabindex='0']").first
    stage.focus()
    for name in ("ArrowDown", "Enter"):
        stage.press(name)
    expect(one.locator(".title")).to_have_text("L1·H1")
    reader = one.locator("[tabindex='0']").first
    reader.focus()
    reader.press("]")
    expect(one.locator(".title")).to_have_text("L1·H2")
    for name in ("ArrowUp", "Enter"):
        reader.press(name)
    weight = number(float(TRACE.maps[1].weights[2][2, 0]))
    expect(one).to_contain_text(f"pinned q2 → {TRACE.maps[1].keys[0]}, {weight}")
    alone.get_by_role("button", name="Dark").click()
    expect(alone.locator("html")).to_have_attribute("data-theme", "dark")
    expect(one.locator(".title")).to_have_text("L1·H2")
    expect(alone.locator("footer")).to_have_text("a model")


# Pages that have all components and every kind of picture between them.
PAGES = (
    "start",
    "one_query",
    "positions",
    "masks",
    "transformer",
    "cache",
    "decode",
    "report",
)
# What is no picture, is not in sight at first, or asks a person.
NOT_IN_FILES = {"copy_buttons", "model_diagram", "page_actions", "page_list", "sketch_view"}


def test_a_page_is_drawn_from_its_file_alone(browser: Browser, tmp_path, monkeypatch):
    monkeypatch.setattr(picture_files, "render", run_here)
    context = browser.new_context(
        offline=True, color_scheme="dark", viewport={"width": 1280, "height": 900}
    )
    page, faults, asked, paths = context.new_page(), [], [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    page.on("request", lambda request: asked.append(request.url))
    drawn_by: set[str] = set()
    for key in PAGES:
        app = open_at(key)
        drawn_by |= {name for name, *_ in app.session_state["page_pictures"].drawn.values()}
        paths.append(tmp_path / f"{key}.html")
        paths[-1].write_bytes(page_html(app, step_of(key).title))
        page.goto(paths[-1].as_uri())
        sections = page.locator("main > section")
        drawn = sections.evaluate_all("""all => all.map((one) => {
            const inside = [...one.querySelectorAll("*")].map(({ shadowRoot }) => shadowRoot).filter(Boolean);
            const parts = inside.length ? inside : [one];
            return parts.every((part) => [...part.querySelectorAll("canvas, svg, table tr, button")]
                .some((node) => node.getBoundingClientRect().width > 8));
        })""")
        assert drawn and all(drawn) and not faults, (key, drawn, faults)
        assert paths[-1].stat().st_size < 8_000_000, key
    context.close()
    assert asked == [path.as_uri() for path in paths]
    parts = {file.parent.name for file in COMPONENTS.glob("*/main.js")}
    assert parts - drawn_by <= NOT_IN_FILES
